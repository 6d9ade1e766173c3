"""A format of one's own: a plan as a C file of arrays and calls, in the manner of CMSIS-NN.

Everything comes from public names. The functions that the file calls stand in `own_format.c`, which it starts
with. Usage: `python examples/own_format.py [OUT.c]`, then `gcc -O2 -shared -fPIC -o digits.so OUT.c`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import planner
from planner import Graph, IntegerKernel, Plan

HERE = Path(__file__).resolve().parent
TWICE = ("gemmlowp", "litert", "tosa_double")
"""Arithmetics that round twice (docs/arithmetic.md); the calls know one more, which rounds once."""


class RefusedError(Exception):
    """What this format has no call for."""


class Writer:
    """The arrays and calls of a C file; `names` has the array of a value in a type."""

    def __init__(self, model: Graph, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.arrays: list[str] = []
        self.calls: list[str] = []
        self.names: dict[tuple[str, Any], str] = {}

    def write(self) -> str:
        """The file: `run()` reads the array of the input and fills all others."""
        planner.check(self.plan, self.model)
        for rescale in self.plan.rescales:
            if rescale.kind == "quantize":  # by whoever calls `run`
                self.new(rescale.value, rescale.to_type)
        for kernel in planner.integer_kernels(self.model, self.plan):
            call, result = CALLS.get(kernel.ops[0].type), kernel.plan.outputs[0]
            if call is None or len(kernel.ops) > 1 or kernel.arithmetic not in (*TWICE, "tosa_single"):
                name, arithmetic = kernel.plan.name, kernel.arithmetic or "float"
                raise RefusedError(f"{name!r}: {kernel.ops[0].type} in {arithmetic}")
            held = kernel.constants if call is product else {}
            x = [self.read(p, kernel) for p in kernel.plan.inputs if p.value and p.address not in held]
            call(self, kernel, x, self.new(result.value, result.type))
        runtime = (HERE / "own_format.c").read_text(encoding="utf-8")
        return "\n".join([runtime, *self.arrays, "", "void run(void) {", *self.calls, "}", ""])

    def new(self, value: str, kind: Any) -> str:
        """An array for a value in a type."""
        if kind is None or str(kind.storage) != "i8" or not kind.is_per_tensor:
            raise RefusedError(f"{value!r} is {kind or 'float'}; accepted: i8 with one scale")
        name = self.names[value, kind] = f"a{len(self.arrays)}"
        self.arrays.append(f"int8_t {name}[{np.prod(self.sizes(value))}];")
        return name

    def constant(self, ctype: str, numbers: Any) -> str:
        """An array of numbers."""
        name = f"a{len(self.arrays)}"
        text = ", ".join(map(str, np.ravel(numbers).tolist()))
        self.arrays.append(f"static const {ctype} {name}[] = {{{text}}};")
        return name

    def read(self, port: Any, kernel: IntegerKernel) -> str:
        """The array of an operand in the type of its port, requantized where it was made in another."""
        if (port.value, port.type) not in self.names:
            made: Any = port.value in self.plan.values and self.plan.values[port.value].type
            if (port.value, made) not in self.names or port.type is None:
                raise RefusedError(f"{port.value!r} is a constant or float at {port.address}")
            head = params(kernel, made, port.type, -128, 127)
            factor = planner.multiplier(made.scale / port.type.scale, kernel.arithmetic)
            size, name = np.prod(self.sizes(port.value)), self.names[port.value, made]
            self.call("requantize", head, size, name, *factor, self.new(port.value, port.type))
        return self.names[port.value, port.type]

    def call(self, function: str, *arguments: object) -> None:
        """Append a call."""
        self.calls.append(f"  {function}({', '.join(map(str, arguments))});")

    def sizes(self, value: str) -> tuple[int, int, int]:
        """Height, width and channels."""
        shape: Any = self.plan.graph.values[value].shape
        if not shape or shape[0] != 1 or len(shape) not in (2, 4):
            raise RefusedError(f"{value!r} is {list(shape or ())}; accepted: (1, C) and (1, C, H, W)")
        return (shape[2], shape[3], shape[1]) if len(shape) == 4 else (1, 1, shape[1])

    def dims(self, value: str) -> str:
        """The same as a struct."""
        return struct("dims", *self.sizes(value))


def struct(name: str, *numbers: int) -> str:
    """A struct of C."""
    return f"({name}){{{', '.join(map(str, numbers))}}}"


def params(kernel: IntegerKernel, x: Any, y: Any, low: int, high: int) -> str:
    """What a call has to know of windows, zero points and bounds; pads at the end follow from the sizes."""
    attributes = kernel.ops[0].attributes
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or set(attributes.get("dilations", (1,))) != {1}:
        raise RefusedError(f"{kernel.plan.name!r} has auto_pad or dilations")
    windows = (*attributes.get("strides", (1, 1)), *attributes.get("pads", (0, 0, 0, 0))[:2])
    rest = x.zero_point, y.zero_point, low, high, int(kernel.arithmetic in TWICE)
    return struct("params", *windows, attributes.get("group", 1), *rest)


def ends(kernel: IntegerKernel) -> tuple[Any, Any, str]:
    """The ports of the first operand and of the result, and the `params` between them."""
    x, y = kernel.plan.inputs[0], kernel.plan.outputs[0]
    if kernel.ops[0].type in ("Concat", "Flatten", "MaxPool") and x.type != y.type:
        raise RefusedError(f"{kernel.plan.name!r} moves {x.type} into {y.type}")
    return x, y, params(kernel, x.type, y.type, kernel.low, kernel.high)


def product(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """Conv and Gemm: a matrix is a filter of 1 x 1."""
    source, result, head = ends(kernel)
    kind: Any = kernel.plan.inputs[1].type
    if len(x) > 1 or not kind.storage.signed or kind.storage.bits > 8 or any(kind.zero_points):
        raise RefusedError(f"{kernel.plan.name!r} holds {kind}; accepted: a constant, i8, no zero point")
    weight, *bias = (kernel.constants[port.address] for port in kernel.plan.inputs[1:] if port.value)
    if weight.ndim == 2:
        weight = (weight if kernel.ops[0].attributes.get("transB") else weight.T)[:, :, None, None]
    numbers = (bias[0] if bias else 0, kernel.multipliers, kernel.shifts)
    names = [w.constant("int32_t", np.broadcast_to(each, len(weight))) for each in numbers]
    filters = w.constant("int8_t", weight.transpose(0, 2, 3, 1))
    size = struct("dims", *weight.shape[2:], weight.shape[1])
    w.call("convolve", head, w.dims(source.value), *x, size, filters, *names, w.dims(result.value), out)


def add(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """Add: 20 more bits over twice the larger scale, then back."""
    _, result, head = ends(kernel)
    if any(w.sizes(port.value) != w.sizes(result.value) for port in kernel.plan.inputs):
        raise RefusedError(f"{kernel.plan.name!r} repeats an operand along an axis")
    kinds: list[Any] = [port.type for port in kernel.plan.inputs]
    twice = 2 * max(kind.scale for kind in kinds)
    sides: list[object] = []
    for name, kind in zip(x, kinds, strict=True):
        sides += (name, kind.zero_point, *planner.multiplier(kind.scale / twice, kernel.arithmetic))
    total = planner.multiplier(twice / 2**20 / result.type.scale, kernel.arithmetic)
    w.call("elementwise_add", head, np.prod(w.sizes(result.value)), *sides, *total, out)


def max_pool(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """MaxPool."""
    source, result, head = ends(kernel)
    size = struct("dims", *kernel.ops[0].attributes["kernel_shape"], 1)
    w.call("max_pool", head, w.dims(source.value), *x, size, w.dims(result.value), out)


def mean(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """GlobalAveragePool: LiteRT divides the multiplier by the count, others the ratio."""
    source, result, head = ends(kernel)
    count, ratio = int(np.prod(w.sizes(source.value)[:2])), source.type.scale / result.type.scale
    inside, left = (count, count.bit_length() - 1) if kernel.arithmetic == "litert" else (1, 0)
    multiplier, shift = planner.multiplier(ratio * inside / count, kernel.arithmetic)
    w.call("mean", head, w.dims(source.value), *x, (multiplier << left) // inside, shift + left, out)


def concat(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """Concat of channels, which are last."""
    height, width, channels = w.sizes(ends(kernel)[1].value)
    if kernel.ops[0].attributes["axis"] != 1:
        raise RefusedError(f"{kernel.plan.name!r} joins another axis than the channels")
    at = 0
    for name, port in zip(x, kernel.plan.inputs, strict=True):
        size = w.sizes(port.value)[2]
        w.call("concatenate", height * width, size, name, channels, at, out)
        at += size


def flatten(w: Writer, kernel: IntegerKernel, x: list[str], out: str) -> None:
    """Flatten of an image of one pixel."""
    height, width, channels = w.sizes(ends(kernel)[0].value)
    if height * width != 1:
        raise RefusedError(f"{kernel.plan.name!r} flattens an image, whose channels are last here")
    w.call("memcpy", out, *x, channels)


CALLS = {
    "Add": add,
    "Concat": concat,
    "Conv": product,
    "Flatten": flatten,
    "Gemm": product,
    "GlobalAveragePool": mean,
    "MaxPool": max_pool,
}


if __name__ == "__main__":
    graph = planner.load_model(HERE / "digits" / "digits.onnx", dims={"N": 1}, outputs=["head/gemm_out"])
    ready = planner.annotate(graph, stats=planner.calibrate(graph, HERE / "digits" / "calibration.npz"))
    writer = Writer(ready, planner.plan(ready, "litert-int8"))
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "digits.c")
    path.write_text(writer.write(), encoding="utf-8")
    print(f"{path}: {len(writer.calls)} calls, {len(writer.arrays)} arrays")
