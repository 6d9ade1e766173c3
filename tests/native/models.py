"""Models of one operator, for values of any magnitude: what a kernel's arithmetic hides shows only there.

A runtime's kernel shifts by a fixed number of bits, takes multipliers below 1, or computes in fixed point
with so many integer bits. Values near 1 tell nothing about it, so every operator here is built for values
near `10 ** magnitude`, of both signs or one, of several shapes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DTYPES: Final[Mapping[str, tuple[int, type]]] = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "f32": (TensorProto.FLOAT, np.float32),
    "f64": (TensorProto.DOUBLE, np.float64),
}
Arrays: TypeAlias = dict[str, np.ndarray]
SIGNS: Final = ("both", "positive", "negative", "skewed")
SHAPES: Final = {1: (12,), 2: (3, 8), 3: (2, 3, 8), 4: (1, 4, 6, 5)}


@dataclass(frozen=True, slots=True)
class Case:
    """One model: an operator, and the values it is fed with.

    Attributes:
      magnitude: the first operand's values are near ten to this power.
      ratio: the second operand's, or the weights', are near ten to this power times that.
      signs: one of `SIGNS`.
      bits: of the activations, 8 or 16.
      dtype: of the model's floats, `f16` or `f64` too.
    """

    operator: str
    magnitude: float
    ratio: float = 0.0
    signs: str = "both"
    bits: int = 8
    rank: int = 4
    seed: int = 0
    dtype: str = "f32"

    def __str__(self) -> str:
        return (
            f"{self.operator} at 1e{self.magnitude:+.1f}, ratio 1e{self.ratio:+.1f}, {self.signs}, "
            f"{self.bits} bits, rank {self.rank}, {self.dtype}, seed {self.seed}"
        )


@dataclass(slots=True)
class Net:
    """A model under construction; operands are made with the case's magnitude and signs."""

    case: Case
    rng: np.random.Generator
    nodes: list[onnx.NodeProto]
    constants: Arrays
    inputs: dict[str, tuple[int, ...]]

    def op(self, kind: str, *operands: str, outputs: tuple[str, ...] = ("y",), **attributes: object) -> None:
        """Append an operator."""
        self.nodes.append(helper.make_node(kind, operands, outputs, name=outputs[0], **attributes))

    def input(self, name: str, shape: tuple[int, ...]) -> str:
        """Append an input."""
        self.inputs[name] = shape
        return name

    def weight(self, name: str, *shape: int) -> str:
        """Weights near the ratio, whose channels differ in size."""
        size = 10.0**self.case.ratio * self.rng.uniform(0.2, 1, (shape[0], *(1,) * (len(shape) - 1)))
        self.constants[name] = (self.rng.standard_normal(shape) * size).astype(np.float32)
        return name

    def bias(self, name: str, count: int) -> str:
        """A bias of the size of the products."""
        size = 10.0 ** (self.case.magnitude + self.case.ratio)
        self.constants[name] = (self.rng.standard_normal(count) * size).astype(np.float32)
        return name

    def const(self, name: str, array: object, kind: type = np.float32) -> str:
        """Append a constant."""
        self.constants[name] = np.asarray(array, kind)
        return name

    def ints(self, name: str, *numbers: int) -> str:
        """Append a constant of 64-bit integers."""
        return self.const(name, numbers, np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the case's rank."""
        return SHAPES[self.case.rank]


Maker: TypeAlias = Callable[[Net], None]


def _unary(kind: str, **attributes: object) -> Maker:
    return lambda net: net.op(kind, net.input("a", net.shape), **attributes)


def _image(kind: str, **attributes: object) -> Maker:
    return lambda net: net.op(kind, net.input("a", SHAPES[4]), **attributes)


def _binary(kind: str) -> Maker:
    return lambda net: net.op(kind, net.input("a", net.shape), net.input("b", net.shape))


def _compared(kind: str) -> Maker:
    """Half of the second operand's values are equal to the first's, or next to them."""
    return _binary(kind)


def _with_constant(kind: str) -> Maker:
    def make(net: Net) -> None:
        near = 10.0 ** (net.case.magnitude + net.case.ratio)
        net.op(kind, net.input("a", net.shape), net.const("c", near * net.rng.uniform(-1, 1)))

    return make


def _reduce(kind: str, *, keepdims: int) -> Maker:
    def make(net: Net) -> None:
        x, rank = net.input("a", net.shape), net.case.rank
        count = int(net.rng.integers(1, rank + 1))
        axes = sorted(net.rng.choice(rank, count, replace=False).tolist())
        net.op(kind, x, net.ints("axes", *axes), keepdims=keepdims)

    return make


def _conv(net: Net, **attributes: object) -> None:
    x = net.input("a", (1, 4, 7, 6))
    groups = attributes.get("group", 1)
    net.op("Conv", x, net.weight("w", 8, 4 // int(str(groups)), 3, 3), net.bias("bias", 8), **attributes)


def _conv_transpose(net: Net) -> None:
    x = net.input("a", (1, 4, 5, 4))
    net.op("ConvTranspose", x, net.weight("w", 4, 5, 3, 3), net.bias("bias", 5), strides=[2, 2])


def _gemm(net: Net) -> None:
    net.op("Gemm", net.input("a", (3, 8)), net.weight("w", 5, 8), net.bias("bias", 5), transB=1)


def _matmul(net: Net) -> None:
    net.op("MatMul", net.input("a", (2, 3, 8)), net.input("b", (2, 8, 4)))


def _matmul_weights(net: Net) -> None:
    net.op("MatMul", net.input("a", net.shape), net.weight("w", net.shape[-1], 4))


def _square(net: Net) -> None:
    net.op("Pow", net.input("a", net.shape), net.const("two", 2.0))


def _clip(net: Net) -> None:
    near = 10.0**net.case.magnitude
    net.op("Clip", net.input("a", net.shape), net.const("lo", -near / 3), net.const("hi", near / 2))


def _relu6(net: Net) -> None:
    net.op("Clip", net.input("a", net.shape), net.const("lo", 0), net.const("hi", 6))


def _added_relu(net: Net) -> None:
    net.op("Add", net.input("a", net.shape), net.input("b", net.shape), outputs=("h",))
    net.op("Relu", "h")


def _concat(net: Net) -> None:
    net.op("Concat", net.input("a", net.shape), net.input("b", net.shape), axis=-1)


def _where(net: Net) -> None:
    mask = net.const("mask", net.rng.random(net.shape) < 0.5, np.bool_)
    net.op("Where", mask, net.input("a", net.shape), net.input("b", net.shape))


def _prelu(net: Net) -> None:
    net.op("PRelu", net.input("a", SHAPES[4]), net.weight("w", 4, 1, 1))


def _resize(mode: str, **attributes: object) -> Maker:
    def make(net: Net) -> None:
        sizes = (1, 4, *(int(size) for size in net.rng.integers(3, 14, 2)))
        net.op(
            "Resize", net.input("a", SHAPES[4]), "", "", net.ints("sizes", *sizes), mode=mode, **attributes
        )

    return make


def _pad(net: Net) -> None:
    net.op("Pad", net.input("a", SHAPES[4]), net.ints("pads", 0, 0, 1, 1, 0, 0, 1, 2))


def _slice(net: Net) -> None:
    net.op("Slice", net.input("a", SHAPES[4]), net.ints("s", 1, 0), net.ints("e", 3, 9), net.ints("x", 1, 2))


def _gather(net: Net) -> None:
    net.op("Gather", net.input("a", SHAPES[4]), net.ints("at", 2, 0), axis=1)


def _lstm(net: Net) -> None:
    x, hidden = net.input("a", (4, 2, 8)), 5
    net.weight("w", 1, 4 * hidden, 8)
    net.weight("r", 1, 4 * hidden, hidden)
    net.op("LSTM", x, "w", "r", outputs=("y",), hidden_size=hidden)


def _reshaped(net: Net) -> None:
    net.op("Reshape", net.input("a", SHAPES[4]), net.ints("to", 4, -1))


OPERATORS: Final[Mapping[str, Maker]] = {
    "Abs": _unary("Abs"),
    "Add": _binary("Add"),
    "Add-constant": _with_constant("Add"),
    "Add-Relu": _added_relu,
    "ArgMax": _unary("ArgMax", axis=-1),
    "AveragePool": _image("AveragePool", kernel_shape=[3, 2]),
    "AveragePool-strides": _image("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "Clip": _clip,
    "Clip-6": _relu6,
    "Concat": _concat,
    "Conv": _conv,
    "Conv-depthwise": lambda net: _conv(net, group=4),
    "Conv-groups": lambda net: _conv(net, group=2),
    "Conv-strides": lambda net: _conv(net, strides=[2, 2], pads=[1, 1, 1, 1]),
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _image("DepthToSpace", blocksize=2),
    "Div": _binary("Div"),
    "Elu": _unary("Elu"),
    "Equal": _compared("Equal"),
    "Equal-constant": _with_constant("Equal"),
    "Exp": _unary("Exp"),
    "Gather": _gather,
    "Gelu": _unary("Gelu"),
    "Gemm": _gemm,
    "GlobalAveragePool": _image("GlobalAveragePool"),
    "GlobalMaxPool": _image("GlobalMaxPool"),
    "Greater": _compared("Greater"),
    "Greater-constant": _with_constant("Greater"),
    "GreaterOrEqual": _compared("GreaterOrEqual"),
    "HardSigmoid": _unary("HardSigmoid"),
    "HardSwish": _unary("HardSwish"),
    "LSTM": _lstm,
    "LeakyRelu": _unary("LeakyRelu", alpha=0.07),
    "Less": _compared("Less"),
    "Less-constant": _with_constant("Less"),
    "LessOrEqual": _compared("LessOrEqual"),
    "LogSoftmax": _unary("LogSoftmax", axis=-1),
    "LpNormalization": _unary("LpNormalization", axis=-1),
    "MatMul": _matmul,
    "MatMul-weights": _matmul_weights,
    "Max": _binary("Max"),
    "MaxPool": _image("MaxPool", kernel_shape=[3, 2], strides=[2, 1]),
    "Min": _binary("Min"),
    "Mul": _binary("Mul"),
    "Mul-constant": _with_constant("Mul"),
    "Neg": _unary("Neg"),
    "PRelu": _prelu,
    "Pad": _pad,
    "ReduceMax": _reduce("ReduceMax", keepdims=1),
    "ReduceMean": _reduce("ReduceMean", keepdims=1),
    "ReduceMean-flat": _reduce("ReduceMean", keepdims=0),
    "ReduceMin": _reduce("ReduceMin", keepdims=0),
    "ReduceSum": _reduce("ReduceSum", keepdims=1),
    "ReduceSum-flat": _reduce("ReduceSum", keepdims=0),
    "Relu": _unary("Relu"),
    "Reshape": _reshaped,
    "Resize-linear": _resize("linear"),
    "Resize-linear-corners": _resize("linear", coordinate_transformation_mode="align_corners"),
    "Resize-linear-asymmetric": _resize("linear", coordinate_transformation_mode="asymmetric"),
    "Resize-nearest": _resize("nearest"),
    "Sigmoid": _unary("Sigmoid"),
    "Slice": _slice,
    "Softmax": _unary("Softmax", axis=-1),
    "Softplus": _unary("Softplus"),
    "Square": _square,
    "Sub": _binary("Sub"),
    "Sub-near": _binary("Sub"),
    "Tanh": _unary("Tanh"),
    "Transpose": _image("Transpose", perm=[0, 2, 3, 1]),
    "Where": _where,
}


def made(case: Case) -> bytes:
    """The model of a case, as a file."""
    net = Net(case, np.random.default_rng(case.seed), [], {}, {})
    OPERATORS[case.operator](net)
    element, kind = DTYPES[case.dtype]
    constants = {
        name: array.astype(kind) if array.dtype == np.float32 else array
        for name, array in net.constants.items()
    }
    graph = helper.make_graph(
        net.nodes,
        "one",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in net.inputs.items()],
        [helper.make_tensor_value_info("y", _element(case), None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _element(case: Case) -> int:
    kind = case.operator.split("-")[0]
    if kind in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        return TensorProto.BOOL
    return TensorProto.INT64 if kind == "ArgMax" else DTYPES[case.dtype][0]


def samples(case: Case, shapes: Mapping[str, tuple[int, ...]], count: int) -> list[Arrays]:
    """Values of the case's magnitude and signs for each input; those of a pair are often equal."""
    rng = np.random.default_rng((case.seed, 1))
    found = []
    for _ in range(count):
        arrays: Arrays = {}
        for place, (name, shape) in enumerate(shapes.items()):
            near = 10.0 ** (case.magnitude + (case.ratio if place else 0.0))
            arrays[name] = (near * _signed(rng, shape, case.signs)).astype(DTYPES[case.dtype][1])
        if case.operator.endswith("-near"):
            # The result is far smaller than what it is the difference of.
            first, second = arrays.values()
            second[...] = first * (1 + 10.0**case.ratio * 1e-3 * rng.standard_normal(first.shape))
        elif len(arrays) == 2 and case.ratio == 0 and rng.random() < 0.5:
            first, second = arrays.values()
            if first.shape == second.shape:
                equal = rng.random(first.shape) < 0.5
                second[equal] = first[equal]
        found.append(arrays)
    return found


def _signed(rng: np.random.Generator, shape: tuple[int, ...], signs: str) -> np.ndarray:
    numbers = rng.standard_normal(shape)
    if signs == "positive":
        return np.abs(numbers)
    if signs == "negative":
        return -np.abs(numbers)
    return numbers + 1.3 if signs == "skewed" else numbers
