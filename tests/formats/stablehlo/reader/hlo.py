"""Small StableHLO programs for tests, and what quantized ops mean, in numpy's float32."""

import numpy as np

from planner.formats.mlir.passes.tool import transform

# Scale sets: (type of one operand, of the other, of the result).
SETS = {
    "page": ("i8:f32, 0.025:-1", "i8:f32, 0.075:-1", "i8:f32, 0.15:-1"),
    "same": ("i8:f32, 0.1:3", "i8:f32, 0.1:3", "i8:f32, 0.1:3"),
    "apart": ("i8:f32, 0.0078125:-128", "i8:f32, 1.7:5", "i8:f32, 0.31:17"),
    "narrow": ("i8<-127:127>:f32, 0.037", "i8<-127:127>:f32, 0.0511", "i8<-127:127>:f32, 0.09"),
    "mixed": ("i8:f32, 0.02:-100", "i8:f32, 0.3:50", "i8:f32, 0.2:-77"),
}
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARED = {"EQ": np.equal, "GE": np.greater_equal, "LT": np.less}


def kind(text, shape):
    return f"tensor<{shape}!quant.uniform<{text}>>"


def module(arguments, results, body):
    """A module of one function; `arguments` are types by name."""
    listed = ", ".join(f"%{name}: {text}" for name, text in arguments.items())
    return f"func.func @main({listed}) -> ({', '.join(results)}) {{\n{body}\n}}\n"


def binary(op, kinds, shape, attributes=""):
    """A module of one op on two operands."""
    x, y, z = (text if text == "i1" else f"!quant.uniform<{text}>" for text in kinds)
    x, y, z = (f"tensor<{shape}{text}>" for text in (x, y, z))
    body = f'  %0 = "stablehlo.{op}"(%x, %y){attributes} : ({x}, {y}) -> {z}\n  return %0 : {z}'
    return module({"x": x, "y": y}, [z], body)


def lowered(text, *passes):
    """A module after passes, by `qplan mlir`'s own function."""
    printed, _ = transform(text, passes or ["stablehlo-legalize-quant-to-math"])
    return printed


def parameters(text):
    """Scale as float32, zero point, and storage range of a per-tensor type's text."""
    head, _, tail = text.partition(", ")
    scale, _, zero = tail.partition(":")
    low, high = (-128, 127)
    if "<" in head:
        low, high = (int(bound) for bound in head[head.index("<") + 1 : head.index(">")].split(":"))
    return np.float32(scale), int(zero or 0), low, high


def dequantized(stored, text):
    scale, zero, _, _ = parameters(text)
    return (stored.astype(np.int32) - zero).astype(np.float32) * scale


def quantized(real, text):
    """Divide, add the zero point, clip, round half to even; NaN is stored as 0, as `convert` makes it."""
    scale, zero, low, high = parameters(text)
    steps = np.clip((real / scale).astype(np.float32) + np.float32(zero), np.float32(low), np.float32(high))
    return np.where(np.isnan(steps), 0, np.rint(steps)).astype(np.int8)


def pairs(count=None):
    """All pairs of stored bytes, or some of them: the ends, ties and a stride through the rest."""
    x, y = (axis.reshape(-1).astype(np.int8) for axis in np.mgrid[-128:128, -128:128])
    if count is None:
        return x, y
    chosen = np.unique(np.linspace(0, x.size - 1, count).astype(int))
    return x[chosen], y[chosen]
