"""Basics: float operators as arithmetic that every format has words for.

For formats without a word of their own. Each rule writes ops of sums, products, exponentials, logarithms,
roots, bounds, reductions, choices and moves alone; none writes an op that has a rule here. All are stable
where the plain formula overflows. Source: ONNX operators, opset 21: definitions and function bodies.
"""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, Final, TypeAlias

import numpy as np

from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.composites.unrolled import gru, lstm
from planner.formats.onnx.dtypes import NUMPY
from planner.ir.graph import Op
from planner.ops.geometry.resizing import linear_weights
from planner.ops.operands import operands_of

Rule: TypeAlias = Callable[[Body], str | tuple[str, ...]]
"""Writes the ops of an operator; returns the name of its result, or of each of several."""


def _number(body: Body, value: float) -> str:
    return body.real(value, body.input(0))


def _positive(body: Body) -> str:
    return body("Max", body.input(0), _number(body, 0.0))


def _negative(body: Body) -> str:
    return body("Min", body.input(0), _number(body, 0.0))


def _hard(body: Body, alpha: float, beta: float) -> str:
    line = body("Add", body("Mul", body.input(0), _number(body, alpha)), _number(body, beta))
    return body("Clip", line, _number(body, 0.0), _number(body, 1.0))


def hard_sigmoid(body: Body) -> str:
    """`min(1, max(0, alpha x + beta))`."""
    return _hard(body, body.attribute("alpha", 0.2), body.attribute("beta", 0.5))


def hard_swish(body: Body) -> str:
    """`x min(1, max(0, x / 6 + 1 / 2))`."""
    return body("Mul", body.input(0), _hard(body, 1 / 6, 0.5))


def softplus(body: Body) -> str:
    """`log(1 + exp(x))`, as `max(x, 0) + log(1 + exp(-|x|))`."""
    small = body("Exp", body("Neg", body("Abs", body.input(0))))
    return body("Add", _positive(body), body("Log", body("Add", small, _number(body, 1.0))))


def mish(body: Body) -> str:
    """`x tanh(softplus(x))`."""
    return body("Mul", body.input(0), body("Tanh", softplus(body)))


def softsign(body: Body) -> str:
    """`x / (1 + |x|)`."""
    return body("Div", body.input(0), body("Add", body("Abs", body.input(0)), _number(body, 1.0)))


def _exponential(body: Body, alpha: float, width: float, gain: float) -> str:
    """`gain max(x, 0) + gain alpha (exp(min(x, 0) / width) - 1)`."""
    low = _negative(body)
    if width != 1:
        low = body("Div", low, _number(body, width))
    bent = body("Sub", body("Exp", low), _number(body, 1.0))
    above, below = _positive(body), body("Mul", bent, _number(body, gain * alpha))
    if gain != 1:
        above = body("Mul", above, _number(body, gain))
    return body("Add", above, below)


def elu(body: Body) -> str:
    """`x` above 0, `alpha (exp(x) - 1)` below."""
    return _exponential(body, body.attribute("alpha", 1.0), 1.0, 1.0)


def celu(body: Body) -> str:
    """`x` above 0, `alpha (exp(x / alpha) - 1)` below."""
    alpha = body.attribute("alpha", 1.0)
    return _exponential(body, alpha, alpha, 1.0)


def selu(body: Body) -> str:
    """`gamma x` above 0, `gamma alpha (exp(x) - 1)` below."""
    alpha, gamma = body.attribute("alpha", 1.6732631921768188), body.attribute("gamma", 1.0507010221481323)
    return _exponential(body, alpha, 1.0, gamma)


def thresholded_relu(body: Body) -> str:
    """`x` above `alpha`, 0 elsewhere."""
    above = body("Greater", body.input(0), _number(body, body.attribute("alpha", 1.0)))
    return body("Where", above, body.input(0), _number(body, 0.0))


def leaky_relu(body: Body) -> str:
    """`x` above 0, `alpha x` below."""
    below = body("Mul", _negative(body), _number(body, body.attribute("alpha", 0.01)))
    return body("Add", _positive(body), below)


def prelu(body: Body) -> str:
    """`x` above 0, `slope x` below."""
    return body("Add", _positive(body), body("Mul", _negative(body), body.input(1)))


def sign(body: Body) -> str:
    """1 above 0, -1 below, 0 at it."""
    zero = _number(body, 0.0)
    below = body("Where", body("Less", body.input(0), zero), _number(body, -1.0), zero)
    return body("Where", body("Greater", body.input(0), zero), _number(body, 1.0), below)


def gelu(body: Body) -> str:
    """`x / 2 (1 + erf(x / sqrt(2)))`, or with a tanh in place of erf."""
    x = body.input(0)
    if body.attribute("approximate", "none") == "tanh":
        cube = body("Mul", body("Mul", body("Mul", x, x), x), _number(body, 0.044715))
        bent = body("Tanh", body("Mul", body("Add", x, cube), _number(body, 0.7978845608028654)))
    else:
        bent = body("Erf", body("Mul", x, _number(body, 1 / sqrt(2))))
    half = body("Mul", x, _number(body, 0.5))
    return body("Mul", half, body("Add", bent, _number(body, 1.0)))


def tangent(body: Body) -> str:
    """`sin(x) / cos(x)`."""
    return body("Div", body("Sin", body.input(0)), body("Cos", body.input(0)))


def is_nan(body: Body) -> str:
    """A mask of the elements that are not equal to themselves."""
    return body("Not", body("Equal", body.input(0), body.input(0)))


def _reduced(body: Body, kind: str, x: str) -> str:
    axes = [body.input(1)] if body.input(1) else []
    return body(kind, x, *axes, **body.op.attributes)


def reduce_l1(body: Body) -> str:
    """The sum of magnitudes."""
    return _reduced(body, "ReduceSum", body("Abs", body.input(0)))


def reduce_sum_square(body: Body) -> str:
    """The sum of squares."""
    return _reduced(body, "ReduceSum", body("Mul", body.input(0), body.input(0)))


def reduce_l2(body: Body) -> str:
    """The root of the sum of squares."""
    return body("Sqrt", reduce_sum_square(body))


def reduce_log_sum(body: Body) -> str:
    """The logarithm of the sum."""
    return body("Log", _reduced(body, "ReduceSum", body.input(0)))


def reduce_log_sum_exp(body: Body) -> str:
    """The logarithm of the sum of exponentials, the greatest taken out in front."""
    x, axes = body.input(0), [body.input(1)] if body.input(1) else []
    flags = {**body.op.attributes, "keepdims": 1}
    top = body("ReduceMax", x, *axes, **flags)
    total = body("ReduceSum", body("Exp", body("Sub", x, top)), *axes, **flags)
    found = body("Add", body("Log", total), top)
    if body.attribute("keepdims", 1):
        return found
    if not axes:
        return body("Reshape", found, body.integers())
    return body("Squeeze", found, *axes)


def _by_channel(body: Body, numbers: np.ndarray[Any, Any], part: str) -> str:
    """Numbers of the channels, axis 1, with axes to broadcast over the input."""
    rank = body.rank(body.input(0))
    return body.constant(part, numbers.reshape(-1, *(1,) * (rank - 2)))


def batch_normalization(body: Body) -> str:
    """With constant statistics: `x slope + offset`, by channel."""
    if any(body.op.outputs[1:]) or body.attribute("training_mode", 0):
        raise StaysWhole("it trains")
    gain, offset, mean, variance = (body.array(body.input(i)).astype(np.float64) for i in range(1, 5))
    kind = body.array(body.input(1)).dtype
    slope = gain / np.sqrt(variance + body.attribute("epsilon", 1e-5))
    scaled = body("Mul", body.input(0), _by_channel(body, slope.astype(kind), "slope"))
    return body("Add", scaled, _by_channel(body, (offset - mean * slope).astype(kind), "offset"))


def _normalized(body: Body, axes: tuple[int, ...]) -> str:
    """The input less its mean, over the root of its variance, along axes."""
    x, over = body.input(0), body.integers(*axes)
    centred = body("Sub", x, body("ReduceMean", x, over, keepdims=1))
    variance = body("ReduceMean", body("Mul", centred, centred), over, keepdims=1)
    root = body("Sqrt", body("Add", variance, _number(body, body.attribute("epsilon", 1e-5))))
    return body("Div", centred, root)


def instance_normalization(body: Body) -> str:
    """Each channel of each picture normalized, then gain and offset by channel."""
    normal = _normalized(body, tuple(range(2, body.rank(body.input(0)))))
    gain, offset = (_by_channel(body, body.array(body.input(i)), "by_channel") for i in (1, 2))
    return body("Add", body("Mul", normal, gain), offset)


def layer_normalization(body: Body) -> str:
    """All axes from one on normalized together, then gain and offset."""
    if any(body.op.outputs[1:]):
        raise StaysWhole("something reads its statistics")
    rank = body.rank(body.input(0))
    scaled = body(
        "Mul", _normalized(body, tuple(range(body.attribute("axis", -1) % rank, rank))), body.input(1)
    )
    return body("Add", scaled, body.input(2)) if body.input(2) else scaled


def local_response(body: Body) -> str:
    """`x / (bias + alpha mean(x^2 of the channels around))^beta`."""
    x, size = body.input(0), int(body.attribute("size", 1))
    rows, channels = body.fixed(x, 0), body.fixed(x, 1)
    square = body("Reshape", body("Mul", x, x), body.integers(rows, 1, channels, -1))
    before, after = (size - 1) // 2, size // 2
    around = body(
        "AveragePool",
        square,
        kernel_shape=(size, 1),
        pads=(before, 0, after, 0),
        strides=(1, 1),
        dilations=(1, 1),
        count_include_pad=1,
        ceil_mode=0,
    )
    sizes = [body.fixed(x, axis) for axis in range(body.rank(x))]
    mean = body(
        "Mul", body("Reshape", around, body.integers(*sizes)), _number(body, body.attribute("alpha", 1e-4))
    )
    whole = body("Add", mean, _number(body, body.attribute("bias", 1.0)))
    return body("Div", x, body("Pow", whole, _number(body, body.attribute("beta", 0.75))))


def resize(body: Body) -> str:
    """Linear: a product with a matrix of weights along each axis that changes."""
    x = body.input(0)
    weights = linear_weights(operands_of(body.op, body.graph)) if _is_linear(body.op) else None
    if weights is None:
        raise StaysWhole("it is no linear one of known sizes")
    rank, kind = body.rank(x), NUMPY[body.dtype(x)]
    for axis, matrix in weights.items():
        order = [*(i for i in range(rank) if i != axis), axis]
        turned = x if axis == rank - 1 else body("Transpose", x, perm=order)
        x = body("MatMul", turned, body.constant("shares", matrix.T.astype(kind)))
        if axis != rank - 1:
            x = body("Transpose", x, perm=[order.index(i) for i in range(rank)])
    return x if weights else body("Identity", x)


def _is_linear(op: Op) -> bool:
    return op.attributes.get("mode", "nearest") == "linear" and not op.attributes.get("antialias")


def gather_elements(body: Body) -> str:
    """Elements picked along an axis, each by an index of its own: rows of one element of the flat input."""
    x, index = body.input(0), body.input(1)
    sizes = [body.fixed(x, axis) for axis in range(body.rank(x))]
    shape = [body.fixed(index, axis) for axis in range(body.rank(index))]
    axis = body.attribute("axis", 0) % len(sizes)
    strides = [int(np.prod(sizes[at + 1 :])) for at in range(len(sizes))]
    kind = body.dtype(index)
    # Where the other axes put an element; the index adds its own steps.
    others = [stride * (at != axis) for at, stride in enumerate(strides)]
    base = sum(stride * places for stride, places in zip(others, np.indices(shape), strict=True))
    zero, size, step = (body.real(number, index) for number in (0, sizes[axis], strides[axis]))
    forward = body("Where", body("Less", index, zero), body("Add", index, size), index)
    steps = forward if strides[axis] == 1 else body("Mul", forward, step)
    places = body("Add", steps, body.constant("places", np.asarray(base, NUMPY[kind])))
    return body("Gather", body("Reshape", x, body.integers(-1)), places, axis=0)


BASICS: Final[Mapping[str, Rule]] = {
    "BatchNormalization": batch_normalization,
    "Celu": celu,
    "Elu": elu,
    "GRU": gru,
    "GatherElements": gather_elements,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "InstanceNormalization": instance_normalization,
    "IsNaN": is_nan,
    "LRN": local_response,
    "LSTM": lstm,
    "LayerNormalization": layer_normalization,
    "LeakyRelu": leaky_relu,
    "Mish": mish,
    "PRelu": prelu,
    "ReduceL1": reduce_l1,
    "ReduceL2": reduce_l2,
    "ReduceLogSum": reduce_log_sum,
    "ReduceLogSumExp": reduce_log_sum_exp,
    "ReduceSumSquare": reduce_sum_square,
    "Resize": resize,
    "Selu": selu,
    "Sign": sign,
    "Softplus": softplus,
    "Softsign": softsign,
    "Tan": tangent,
    "ThresholdedRelu": thresholded_relu,
}
"""By operator."""
