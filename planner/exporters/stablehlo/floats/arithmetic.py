"""Arithmetic: element-wise ONNX ops as StableHLO operations on plain tensors.

The error function is no operation of StableHLO, so it is written out, within 1.5e-7.
Source: ONNX operator pages; StableHLO specification.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.exporters.stablehlo.calls import Call, Maker
from planner.exporters.stablehlo.function import Program
from planner.exporters.stablehlo.operations import (
    binary,
    clamp,
    compare,
    convert,
    full,
    select,
    spread,
    unary,
)
from planner.exporters.stablehlo.tensors import ELEMENTS, Tensor
from planner.onnx.dtypes import NAMES
from planner.ops import of_form
from planner.ops.forms import Form

Results = tuple[Tensor, ...]

OPERATIONS: Final[Mapping[str, str]] = {
    "Abs": "abs",
    "Add": "add",
    "Ceil": "ceil",
    "Cos": "cosine",
    "Div": "divide",
    "Equal": "EQ",
    "Exp": "exponential",
    "Floor": "floor",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
    "Log": "log",
    "Mul": "multiply",
    "Neg": "negate",
    "Pow": "power",
    "Round": "round_nearest_even",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sine",
    "Sqrt": "sqrt",
    "Sub": "subtract",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""ONNX ops that are one operation, or a direction of `compare`."""
UNARY: Final = of_form(Form.UNARY) & OPERATIONS.keys()
BINARY: Final = of_form(Form.BINARY, Form.PRODUCT, Form.SUM) & OPERATIONS.keys()

# M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 7.1.26: within 1.5e-7 of the error function.
_SELU: Final = (1.67326319217681884765625, 1.05070102214813232421875)
_ERF_SLOPE: Final = 0.3275911
_ERF_TERMS: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)


def _one(kind: str) -> Maker:
    return lambda call: (unary(call.p, kind, call.x),)


def _two(kind: str) -> Maker:
    def make(call: Call) -> Results:
        a, b = call.tensor_of(0), call.tensor_of(1)
        return (binary(call.p, kind, a, convert(call.p, b, a.element)),)

    return make


def _compared(direction: str) -> Maker:
    return lambda call: (compare(call.p, call.tensor_of(0), call.tensor_of(1), direction),)


def relu(call: Call) -> Results:
    """Nothing below zero."""
    return (binary(call.p, "maximum", call.x, full(call.p, 0.0, call.x)),)


def clip(call: Call) -> Results:
    """Between bounds, which may come at run time."""
    p, x = call.p, call.x
    for index, key, kind in ((1, "min", "maximum"), (2, "max", "minimum")):
        if call.has(index):
            x = binary(p, kind, x, convert(p, call.tensor_of(index), x.element))
        elif key in call.attributes:
            x = binary(p, kind, x, full(p, call.attributes[key], x))
    return (x,)


def _leaky_relu(call: Call) -> Results:
    p, x = call.p, call.x
    slope = full(p, call.attributes.get("alpha", 0.01), x)
    is_positive = compare(p, x, full(p, 0.0, x), "GE")
    return (select(p, is_positive, x, binary(p, "multiply", x, slope)),)


def _prelu(call: Call) -> Results:
    p, x = call.p, call.x
    scaled = binary(p, "multiply", x, call.tensor_of(1))
    return (select(p, compare(p, x, full(p, 0.0, x), "GE"), x, scaled),)


def _elu(call: Call) -> Results:
    p, x = call.p, call.x
    grown = unary(p, "exponential_minus_one", x)
    scaled = binary(p, "multiply", grown, full(p, call.attributes.get("alpha", 1.0), x))
    return (select(p, compare(p, x, full(p, 0.0, x), "GE"), x, scaled),)


def hard_sigmoid(p: Program, x: Tensor, alpha: float, beta: float) -> Tensor:
    """A line clamped to [0, 1]."""
    line = binary(p, "add", binary(p, "multiply", x, full(p, alpha, x)), full(p, beta, x))
    return clamp(p, full(p, 0.0, x), line, full(p, 1.0, x))


def _hard_sigmoid(call: Call) -> Results:
    alpha, beta = call.attributes.get("alpha", 0.2), call.attributes.get("beta", 0.5)
    return (hard_sigmoid(call.p, call.x, alpha, beta),)


def _hard_swish(call: Call) -> Results:
    gate = hard_sigmoid(call.p, call.x, 1 / 6, 0.5)
    return (binary(call.p, "multiply", call.x, gate),)


def _softplus(call: Call) -> Results:
    return (softplus(call.p, call.x),)


def _selu(call: Call) -> Results:
    p, x, attributes = call.p, call.x, call.attributes
    alpha, gamma = attributes.get("alpha", _SELU[0]), attributes.get("gamma", _SELU[1])
    bent = binary(p, "multiply", unary(p, "exponential_minus_one", x), full(p, alpha, x))
    chosen = select(p, compare(p, x, full(p, 0.0, x), "GT"), x, bent)
    return (binary(p, "multiply", chosen, full(p, gamma, x)),)


def _celu(call: Call) -> Results:
    p, x = call.p, call.x
    alpha = full(p, call.attributes.get("alpha", 1.0), x)
    grown = unary(p, "exponential_minus_one", binary(p, "divide", x, alpha))
    low = binary(p, "minimum", binary(p, "multiply", grown, alpha), full(p, 0.0, x))
    return (binary(p, "add", binary(p, "maximum", x, full(p, 0.0, x)), low),)


def _mish(call: Call) -> Results:
    p, x = call.p, call.x
    return (binary(p, "multiply", x, unary(p, "tanh", softplus(p, x))),)


def _softsign(call: Call) -> Results:
    p, x = call.p, call.x
    return (binary(p, "divide", x, binary(p, "add", unary(p, "abs", x), full(p, 1.0, x))),)


def softplus(p: Program, x: Tensor) -> Tensor:
    """`log(1 + exp(x))`, without overflow."""
    tail = unary(p, "log_plus_one", unary(p, "exponential", unary(p, "negate", unary(p, "abs", x))))
    return binary(p, "add", tail, binary(p, "maximum", x, full(p, 0.0, x)))


def _reciprocal(call: Call) -> Results:
    return (binary(call.p, "divide", full(call.p, 1.0, call.x), call.x),)


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


def _erf(call: Call) -> Results:
    return (error_function(call.p, call.x),)


def _gelu(call: Call) -> Results:
    p, x = call.p, call.x
    half = binary(p, "multiply", x, full(p, 0.5, x))
    if call.attributes.get("approximate", "none") == "tanh":
        cube = binary(p, "multiply", binary(p, "multiply", x, x), x)
        inner = binary(p, "add", x, binary(p, "multiply", cube, full(p, 0.044715, x)))
        bent = unary(p, "tanh", binary(p, "multiply", inner, full(p, float(np.sqrt(2 / np.pi)), x)))
    else:
        bent = error_function(p, binary(p, "multiply", x, full(p, float(np.sqrt(0.5)), x)))
    return (binary(p, "multiply", half, binary(p, "add", bent, full(p, 1.0, x))),)


def _cast(call: Call) -> Results:
    p, x = call.p, call.x
    wanted = ELEMENTS.get(NAMES.get(call.attributes["to"], ""))
    if wanted is None:
        raise call.refusal(f"a cast to ONNX element type {call.attributes['to']}")
    if wanted == "i1" and x.element != "i1":
        return (compare(p, x, full(p, 0, x), "NE"),)
    return (convert(p, x, wanted),)


def _sum(*, is_mean: bool = False) -> Maker:
    def make(call: Call) -> Results:
        x, count = call.x, len(call.op.inputs)
        for i in range(1, count):
            x = binary(call.p, "add", x, call.tensor_of(i))
        return (binary(call.p, "divide", x, full(call.p, count, x)) if is_mean else x,)

    return make


ARITHMETIC: Final[Mapping[str, Maker]] = {
    **{kind: _one(OPERATIONS[kind]) for kind in UNARY},
    **{kind: _two(OPERATIONS[kind]) for kind in BINARY},
    **{kind: _compared(OPERATIONS[kind]) for kind in of_form(Form.COMPARISON)},
    "And": _two("and"),
    "Cast": _cast,
    "Celu": _celu,
    "Clip": clip,
    "Elu": _elu,
    "Erf": _erf,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mean": _sum(is_mean=True),
    "Mish": _mish,
    "Not": _one("not"),
    "Or": _two("or"),
    "PRelu": _prelu,
    "Reciprocal": _reciprocal,
    "Relu": relu,
    "Selu": _selu,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Sum": _sum(),
}
