"""Arithmetic: element-wise ONNX ops as StableHLO operations on plain tensors.

The error function is no operation of StableHLO, so it is written out, within 1.5e-7.
Source: ONNX operator pages; StableHLO specification.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from planner.formats.onnx.dtypes import NAMES
from planner.formats.stablehlo.writer.calls import Call, Maker
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.operations import (
    binary,
    clamp,
    compare,
    convert,
    full,
    select,
    spread,
    unary,
)
from planner.formats.stablehlo.writer.tensors import ELEMENTS, Tensor

Results = tuple[Tensor, ...]

# M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 7.1.26: within 1.5e-7 of the error function.
_SELU: Final = (1.67326319217681884765625, 1.05070102214813232421875)
_ERF_SLOPE: Final = 0.3275911
_ERF_TERMS: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)


def one(kind: str) -> Maker:
    """An operation on one tensor."""
    return lambda call: (unary(call.p, kind, call.x),)


def two(kind: str) -> Maker:
    """An operation on two tensors of the first one's element type."""

    def make(call: Call) -> Results:
        a, b = call.tensor_of(0), call.tensor_of(1)
        return (binary(call.p, kind, a, convert(call.p, b, a.element)),)

    return make


def compared(direction: str) -> Maker:
    """A comparison of two tensors."""
    return lambda call: (compare(call.p, call.tensor_of(0), call.tensor_of(1), direction),)


def applied(function: Callable[[Program, Tensor], Tensor]) -> Maker:
    """A function of the first operand alone."""
    return lambda call: (function(call.p, call.x),)


def relu(p: Program, x: Tensor) -> Tensor:
    """Nothing below zero."""
    return binary(p, "maximum", x, full(p, 0.0, x))


def clip(call: Call) -> Results:
    """Between bounds, which may come at run time."""
    p, x = call.p, call.x
    for index, key, kind in ((1, "min", "maximum"), (2, "max", "minimum")):
        if call.has(index):
            x = binary(p, kind, x, convert(p, call.tensor_of(index), x.element))
        elif key in call.attributes:
            x = binary(p, kind, x, full(p, call.attributes[key], x))
    return (x,)


def leaky_relu(call: Call) -> Results:
    """A line of another slope below zero."""
    p, x = call.p, call.x
    slope = full(p, call.attributes.get("alpha", 0.01), x)
    is_positive = compare(p, x, full(p, 0.0, x), "GE")
    return (select(p, is_positive, x, binary(p, "multiply", x, slope)),)


def prelu(call: Call) -> Results:
    """The same, with slopes from an operand."""
    p, x = call.p, call.x
    scaled = binary(p, "multiply", x, call.tensor_of(1))
    return (select(p, compare(p, x, full(p, 0.0, x), "GE"), x, scaled),)


def elu(call: Call) -> Results:
    """`alpha (exp(x) - 1)` below zero."""
    p, x = call.p, call.x
    grown = unary(p, "exponential_minus_one", x)
    scaled = binary(p, "multiply", grown, full(p, call.attributes.get("alpha", 1.0), x))
    return (select(p, compare(p, x, full(p, 0.0, x), "GE"), x, scaled),)


def hard_sigmoid(p: Program, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """A line clamped to [0, 1]."""
    line = binary(p, "add", binary(p, "multiply", x, full(p, alpha, x)), full(p, beta, x))
    return clamp(p, full(p, 0.0, x), line, full(p, 1.0, x))


def sloped_sigmoid(call: Call) -> Results:
    """HardSigmoid with the attributes of its op."""
    alpha, beta = call.attributes.get("alpha", 0.2), call.attributes.get("beta", 0.5)
    return (hard_sigmoid(call.p, call.x, alpha, beta),)


def hard_swish(p: Program, x: Tensor) -> Tensor:
    """`x` behind a gate of straight lines."""
    return binary(p, "multiply", x, hard_sigmoid(p, x, 1 / 6, 0.5))


def selu(call: Call) -> Results:
    """An Elu times `gamma`."""
    p, x, attributes = call.p, call.x, call.attributes
    alpha, gamma = attributes.get("alpha", _SELU[0]), attributes.get("gamma", _SELU[1])
    bent = binary(p, "multiply", unary(p, "exponential_minus_one", x), full(p, alpha, x))
    chosen = select(p, compare(p, x, full(p, 0.0, x), "GT"), x, bent)
    return (binary(p, "multiply", chosen, full(p, gamma, x)),)


def celu(call: Call) -> Results:
    """An Elu that is smooth at zero for every `alpha`."""
    p, x = call.p, call.x
    alpha = full(p, call.attributes.get("alpha", 1.0), x)
    grown = unary(p, "exponential_minus_one", binary(p, "divide", x, alpha))
    low = binary(p, "minimum", binary(p, "multiply", grown, alpha), full(p, 0.0, x))
    return (binary(p, "add", binary(p, "maximum", x, full(p, 0.0, x)), low),)


def mish(p: Program, x: Tensor) -> Tensor:
    """`x tanh(softplus(x))`."""
    return binary(p, "multiply", x, unary(p, "tanh", softplus(p, x)))


def softsign(p: Program, x: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    return binary(p, "divide", x, binary(p, "add", unary(p, "abs", x), full(p, 1.0, x)))


def softplus(p: Program, x: Tensor) -> Tensor:
    """`log(1 + exp(x))`, without overflow."""
    tail = unary(p, "log_plus_one", unary(p, "exponential", unary(p, "negate", unary(p, "abs", x))))
    return binary(p, "add", tail, binary(p, "maximum", x, full(p, 0.0, x)))


def reciprocal(p: Program, x: Tensor) -> Tensor:
    """`1 / x`."""
    return binary(p, "divide", full(p, 1.0, x), x)


def error_function(p: Program, x: Tensor) -> Tensor:
    """Erf: `sign(x) (1 - polynomial(t) exp(-x^2))` with `t = 1 / (1 + slope |x|)`."""
    size, one = unary(p, "abs", x), full(p, 1.0, x)
    t = binary(p, "divide", one, binary(p, "add", binary(p, "multiply", size, full(p, _ERF_SLOPE, x)), one))
    bell = unary(p, "exponential", unary(p, "negate", binary(p, "multiply", x, x)))
    tail = binary(p, "multiply", _polynomial(p, t, _ERF_TERMS), bell)
    return binary(p, "multiply", unary(p, "sign", x), binary(p, "subtract", one, tail))


def _polynomial(p: Program, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    total = spread(p, full(p, coefficients[0], x), x.shape)
    for coefficient in coefficients[1:]:
        scaled = binary(p, "multiply", total, x)
        total = binary(p, "add", scaled, full(p, coefficient, x)) if coefficient else scaled
    return total


def gelu(call: Call) -> Results:
    """`x` times the normal distribution below it, or its approximation by tanh."""
    p, x = call.p, call.x
    half = binary(p, "multiply", x, full(p, 0.5, x))
    if call.attributes.get("approximate", "none") == "tanh":
        cube = binary(p, "multiply", binary(p, "multiply", x, x), x)
        inner = binary(p, "add", x, binary(p, "multiply", cube, full(p, 0.044715, x)))
        bent = unary(p, "tanh", binary(p, "multiply", inner, full(p, float(np.sqrt(2 / np.pi)), x)))
    else:
        bent = error_function(p, binary(p, "multiply", x, full(p, float(np.sqrt(0.5)), x)))
    return (binary(p, "multiply", half, binary(p, "add", bent, full(p, 1.0, x))),)


def cast(call: Call) -> Results:
    """To another element type.

    Raises:
      UnsupportedExport: StableHLO has no such type.
    """
    p, x = call.p, call.x
    wanted = ELEMENTS.get(NAMES.get(call.attributes["to"], ""))
    if wanted is None:
        raise call.refusal(f"a cast to ONNX element type {call.attributes['to']}")
    if wanted == "i1" and x.element != "i1":
        return (compare(p, x, full(p, 0, x), "NE"),)
    return (convert(p, x, wanted),)


def added(*, is_mean: bool = False) -> Maker:
    """The sum or mean of all operands."""

    def make(call: Call) -> Results:
        x, count = call.x, len(call.op.inputs)
        for i in range(1, count):
            x = binary(call.p, "add", x, call.tensor_of(i))
        return (binary(call.p, "divide", x, full(call.p, count, x)) if is_mean else x,)

    return make
