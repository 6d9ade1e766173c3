"""Elementwise: operators of one tensor, of two that broadcast, and along the last axis, as ONNX ops.

Source: TensorFlow Lite, builtin operators.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.formats.litert.reader.builder import Builder, Unread
from planner.formats.litert.reader.file import Operator
from planner.formats.litert.reader.linear import Reader
from planner.formats.litert.vocabulary import ALONG, BINARIES, COMPARISONS, UNARIES
from planner.formats.onnx.dtypes import enum_of

_UNARY: Final = {builtin.operator: ours for ours, builtin in UNARIES.items()}
_BINARY: Final = {builtin.operator: ours for ours, builtin in BINARIES.items()}
_COMPARISON: Final = {builtin.operator: ours for ours, builtin in COMPARISONS.items()}
_ALONG: Final = {builtin.operator: ours for ours, builtin in ALONG.items()}
_CLAMPS: Final = {"RELU": 1, "RELU6": 3, "RELU_N1_TO_1": 2}


def unary(builder: Builder, op: Operator) -> None:
    """A function of one number."""
    kind = _UNARY[op.name]
    builder.result(op, kind, [builder.value(op, 0)], builder.attributes(op, UNARIES[kind]))


def clamp(builder: Builder, op: Operator) -> None:
    """RELU, RELU6, RELU_N1_TO_1 and RELU_0_TO_1."""
    name = builder.value(op, 0)
    if op.name == "RELU_0_TO_1":
        ends = [builder.constant(np.array(end, np.float32), "bound") for end in (0, 1)]
        builder.result(op, "Clip", [name, *ends])
        return
    ((kind, ends, _),) = builder.activated(_CLAMPS[op.name])
    builder.result(op, kind, [name, *ends])


def binary(builder: Builder, op: Operator) -> None:
    """A function of two numbers, which broadcast."""
    names = [builder.value(op, 0), builder.value(op, 1)]
    kind, activation = _BINARY[op.name], 0
    if BINARIES[kind].fuses:
        activation = builder.options(op, BINARIES[kind].table).FusedActivationFunction()
    builder.result(op, kind, names, activation=activation)


def compare(builder: Builder, op: Operator) -> None:
    """A comparison of two numbers, which broadcast."""
    builder.result(op, _COMPARISON[op.name], [builder.value(op, 0), builder.value(op, 1)])


def differs(builder: Builder, op: Operator) -> None:
    """NOT_EQUAL as two ops."""
    shape = builder.file.tensors[op.outputs[0]].shape
    names = [builder.value(op, 0), builder.value(op, 1)]
    builder.result(op, "Not", [builder.between("Equal", names, shape, {}, "bool")])


def prelu(builder: Builder, op: Operator) -> None:
    """PRELU."""
    builder.result(op, "PRelu", [builder.value(op, 0), builder.value(op, 1)])


def along(builder: Builder, op: Operator) -> None:
    """SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION, which run along the last axis."""
    kind = _ALONG[op.name]
    attributes = builder.attributes(op, ALONG[kind])
    name = builder.value(op, 0)
    axis = len(builder.tensor(op, 0).shape) - 1
    if axis < 0:
        raise Unread("its operand has no axis")
    if op.name == "L2_NORMALIZATION" and builder.options(op, "L2NormOptions").FusedActivationFunction():
        raise Unread("it has an activation")
    builder.result(op, kind, [name], {"axis": axis, **ALONG[kind].only, **attributes})


def squared(builder: Builder, op: Operator) -> None:
    """SQUARE and SQUARED_DIFFERENCE as products."""
    name = builder.value(op, 0)
    if op.name == "SQUARED_DIFFERENCE":
        shape = builder.file.tensors[op.outputs[0]].shape
        name = builder.between("Sub", [name, builder.value(op, 1)], shape)
    builder.result(op, "Mul", [name, name])


def rsqrt(builder: Builder, op: Operator) -> None:
    """RSQRT as two ops."""
    name = builder.value(op, 0)
    root = builder.between("Sqrt", [name], builder.tensor(op, 0).shape)
    builder.result(op, "Reciprocal", [root])


def cast(builder: Builder, op: Operator) -> None:
    """CAST between plain element types."""
    x, y = builder.tensor(op, 0), builder.file.tensors[op.outputs[0]]
    if not x.element or not y.element or x.kind is not None or y.kind is not None:
        raise Unread("it casts stored integers, or elements that ONNX lacks")
    target = "f32" if y.element == "f16" else y.element
    builder.result(op, "Cast", [builder.value(op, 0)], {"to": enum_of(target)})


def hand_on(builder: Builder, op: Operator) -> None:
    """QUANTIZE, DEQUANTIZE and, of what is dense already, DENSIFY: the types of the two sides tell."""
    place = op.outputs[0]
    source, result = builder.tensor(op, 0), builder.file.tensors[place]
    if source.data is not None and result.kind is None:
        # Halves and stored integers of constants, made reals when the file is read.
        builder.names[place] = builder.value(op, 0)
        return
    builder.result(op, "Identity", [builder.value(op, 0)])


def select(builder: Builder, op: Operator) -> None:
    """SELECT and SELECT_V2 as `Where`; a condition of rows alone does not broadcast as ONNX does."""
    shapes = [builder.tensor(op, i).shape for i in range(3)]
    if op.name == "SELECT" and shapes[0] not in (shapes[1], ()):
        raise Unread("its condition picks whole rows")
    builder.result(op, "Where", [builder.value(op, i) for i in range(3)])


ELEMENTWISE: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_COMPARISON, compare),
    **dict.fromkeys(_ALONG, along),
    **dict.fromkeys((*_CLAMPS, "RELU_0_TO_1"), clamp),
    **dict.fromkeys(("SQUARE", "SQUARED_DIFFERENCE"), squared),
    **dict.fromkeys(("DENSIFY", "DEQUANTIZE", "QUANTIZE"), hand_on),
    **dict.fromkeys(("SELECT", "SELECT_V2"), select),
    "CAST": cast,
    "NOT_EQUAL": differs,
    "PRELU": prelu,
    "RSQRT": rsqrt,
}
