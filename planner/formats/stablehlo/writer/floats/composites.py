"""Composites: softmax, normalisations, reductions, linear Resize and TopK in floats, in several operations.

Source: ONNX operator pages; StableHLO sort.
"""

import math

import numpy as np

from planner.formats.mlir.generic import Block, Operation, tensor_text
from planner.formats.stablehlo.writer.calls import Call, Maker
from planner.formats.stablehlo.writer.floats.resizing import linear_weights
from planner.formats.stablehlo.writer.floats.windows import mean, summed
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.movement import keeps_axes, moved
from planner.formats.stablehlo.writer.operations import (
    Dots,
    along,
    binary,
    compare,
    dot_general,
    full,
    like,
    part,
    reduce,
    reshape,
    select,
    spread,
    transpose,
    unary,
)
from planner.formats.stablehlo.writer.tensors import Tensor, plain

Results = tuple[Tensor, ...]


def softmax(call: Call) -> Results:
    """Exponentials over their sum."""
    p, x = call.p, call.x
    axes = (call.attributes.get("axis", -1) % x.rank,)
    grown = unary(p, "exponential", _centred(p, x, axes))
    return (binary(p, "divide", grown, summed(p, grown, axes)),)


def log_softmax(call: Call) -> Results:
    """The logarithm of that."""
    p, x = call.p, call.x
    axes = (call.attributes.get("axis", -1) % x.rank,)
    centred = _centred(p, x, axes)
    total = unary(p, "log", summed(p, unary(p, "exponential", centred), axes))
    return (binary(p, "subtract", centred, total),)


def _centred(p: Program, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return binary(p, "subtract", x, summed(p, x, axes, "maximum", -math.inf))


def layer_normalization(call: Call) -> Results:
    """Elements along the last axes, less their mean, over their deviation.

    Raises:
      UnsupportedExport: mean or deviation is read.
    """
    p, x = call.p, call.x
    if any(call.op.outputs[1:]):
        raise call.refusal("mean and deviation as results")
    axes = tuple(range(call.attributes.get("axis", -1) % x.rank, x.rank))
    y = _standardized(p, x, axes, call.attributes.get("epsilon", 1e-5))
    y = binary(p, "multiply", y, call.tensor_of(1))
    return (binary(p, "add", y, call.tensor_of(2)) if call.has(2) else y,)


def instance_normalization(call: Call) -> Results:
    """The same of each channel of each sample."""
    p, x = call.p, call.x
    y = _standardized(p, x, tuple(range(2, x.rank)), call.attributes.get("epsilon", 1e-5))
    scale, shift = (along(p, call.tensor_of(i), x.shape, 1) for i in (1, 2))
    return (binary(p, "add", binary(p, "multiply", y, scale), shift),)


def _standardized(p: Program, x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    centred = binary(p, "subtract", x, mean(p, x, axes))
    variance = mean(p, binary(p, "multiply", centred, centred), axes)
    deviation = unary(p, "sqrt", binary(p, "add", variance, full(p, epsilon, x)))
    return binary(p, "divide", centred, deviation)


def batch_normalization(call: Call) -> Results:
    """A factor and an addend for each channel."""
    p, x = call.p, call.x
    scale, shift, average, variance = (call.tensor_of(i) for i in range(1, 5))
    epsilon = full(p, call.attributes.get("epsilon", 1e-5), variance)
    deviation = unary(p, "sqrt", binary(p, "add", variance, epsilon))
    slope = binary(p, "divide", scale, deviation)
    base = binary(p, "subtract", shift, binary(p, "multiply", average, slope))
    sloped = binary(p, "multiply", x, along(p, slope, x.shape, 1))
    return (binary(p, "add", sloped, along(p, base, x.shape, 1)),)


def reduced(kind: str, start: float = 0.0) -> Maker:
    """An operation on the elements along axes, from a number on."""

    def make(call: Call) -> Results:
        axes = call.axes()
        return (_kept(call, summed(call.p, call.x, axes, kind, start), axes),)

    return make


def reduce_mean(call: Call) -> Results:
    """The mean along axes."""
    axes = call.axes()
    return (_kept(call, mean(call.p, call.x, axes), axes),)


def _kept(call: Call, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    if keeps_axes(call):
        return y
    return reshape(call.p, y, tuple(n for i, n in enumerate(y.shape) if i not in axes))


def resize(call: Call) -> Results:
    """Nearest takes elements; linear multiplies by a matrix of weights along each axis.

    Raises:
      UnsupportedExport: another mode.
    """
    p, x = call.p, call.x
    if call.attributes.get("mode", "nearest") == "nearest":
        return moved(call)
    if call.attributes["mode"] != "linear":
        raise call.refusal(f"mode {call.attributes['mode']!r}; nearest and linear are accepted")
    for axis, matrix in linear_weights(call).items():
        dots = Dots((), (), (axis,), (1,))
        y = dot_general(p, x, p.constant(matrix, x.element), dots)
        order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
        x = transpose(p, y, order)
    return (x,)


def extreme_place(kind: str, start: float) -> Maker:
    """The index of the largest (or least) element along an axis, the first or the last of equal ones."""

    def make(call: Call) -> Results:
        p, x = call.p, call.x
        axis = call.attributes.get("axis", 0) % x.rank
        is_last = bool(call.attributes.get("select_last_index", 0))
        best = compare(p, x, summed(p, x, (axis,), kind, start), "EQ")
        places = p.constant(np.arange(x.shape[axis]), "i64")
        beyond = p.number(-1 if is_last else x.shape[axis], "i64")
        held = select(p, best, along(p, places, x.shape, axis), beyond)
        found = reduce(p, "maximum" if is_last else "minimum", held, beyond, (axis,))
        return (
            _kept(
                call, reshape(p, found, tuple(1 if i == axis else n for i, n in enumerate(x.shape))), (axis,)
            ),
        )

    return make


def top_k(call: Call) -> Results:
    """TopK as a stable sort."""
    p, x = call.p, call.x
    count = (call.integers(1) or (0,))[0]
    axis = call.attributes.get("axis", -1) % x.rank
    direction = "GT" if call.attributes.get("largest", 1) else "LT"
    shape = [n if i == axis else 1 for i, n in enumerate(x.shape)]
    places = spread(p, p.constant(np.arange(x.shape[axis]).reshape(shape), "i64"), x.shape)
    scalar, index = tensor_text((), x.element), tensor_text((), "i64")
    told = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}
    inner = (
        Operation("stablehlo.compare", ("l", "r"), (("o", tensor_text((), "i1")),), told),
        Operation("stablehlo.return", ("o",)),
    )
    before = Block((("l", scalar), ("r", scalar), ("li", index), ("ri", index)), inner)
    attributes = {"dimension": f"{axis} : i64", "is_stable": "true"}
    found = p.emit_many("sort", [x, places], [like(x, x.shape), plain(x.shape, "i64")], (before,), attributes)
    return tuple(part(p, tensor, axis, 0, count) for tensor in found)
