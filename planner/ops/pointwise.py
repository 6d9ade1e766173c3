"""Operators on one element at a time: arithmetic, activations, casts. Source: ONNX operator schemas."""

from functools import partial
from typing import Final

import numpy as np

from planner.ir.graph import Op
from planner.ops import axes, limits, needs, sums
from planner.ops.definition import OpDef, always, rising
from planner.ops.forms import Factors, Form
from planner.ops.needs import LEAK


def _by_slope(op: Op) -> str:
    return "+" if op.attributes.get("alpha", LEAK) >= 0 else ""


_function: Final = partial(OpDef, form=Form.UNARY, is_pointwise=True)
_pair: Final = partial(OpDef, form=Form.BINARY)
_sum: Final = partial(OpDef, form=Form.SUM, is_pointwise=True)
_product: Final = partial(OpDef, form=Form.PRODUCT, is_pointwise=True)
_logical: Final = partial(OpDef, form=Form.LOGICAL, commutes=True)
_compared: Final = partial(OpDef, form=Form.COMPARISON)
_of_many: Final = partial(OpDef, form=Form.VARIADIC, commutes=True, is_pointwise=True)
_quantizer: Final = partial(OpDef, form=Form.QUANTIZER)

POINTWISE: Final = (
    _function("Abs"),
    _function("Acos"),
    _function("Acosh"),
    _sum("Add", commutes=True, needed=needs.added, monotone=rising, terms=sums.added),
    _logical("And"),
    _function("Asin"),
    _function("Asinh"),
    _function("Atan"),
    _function("Atanh"),
    OpDef("BitCast", "to"),
    _pair("BitShift", "direction"),
    _pair("BitwiseAnd", commutes=True),
    OpDef("BitwiseNot", form=Form.UNARY),
    _pair("BitwiseOr", commutes=True),
    _pair("BitwiseXor", commutes=True),
    OpDef("Cast", "round_mode=up saturate=1 to", form=Form.UNARY, axes=axes.handed),
    OpDef("CastLike", "round_mode=up saturate=1", parameters=frozenset({1})),
    _function("Ceil", monotone=rising),
    _function("Celu", "alpha=1.0"),
    _function("Clip", moves=always, parameters=frozenset({1, 2}), monotone=rising),
    _function("Cos", bounds=(-1.0, 1.0)),
    _function("Cosh"),
    _quantizer("DequantizeLinear", "axis=1 block_size=0 output_dtype=0", parameters=frozenset({1, 2})),
    _product("Div", needed=needs.divided, is_singular=True),
    _quantizer("DynamicQuantizeLinear"),
    _function("Elu", "alpha=1.0"),
    _compared("Equal", evaluate=np.equal, commutes=True),
    _function("Erf", needed=needs.bounded(needs.ERF), monotone=rising, bounds=(-1.0, 1.0)),
    _function("Exp", monotone=rising),
    _function("Floor", monotone=rising),
    _function("Gelu", "approximate=none", needed=needs.gated(needs.GELU)),
    _compared("Greater", evaluate=np.greater),
    _compared("GreaterOrEqual", evaluate=np.greater_equal),
    _function(
        "HardSigmoid",
        "alpha=0.2 beta=0.5",
        needed=needs.bounded(needs.HARD),
        gate=needs.HARD,
        monotone=_by_slope,
        bounds=(0.0, 1.0),
    ),
    _function("HardSwish", needed=needs.gated(needs.HARD_SWISH)),
    OpDef("IsInf", "detect_negative=1 detect_positive=1", form=Form.UNARY),
    OpDef("IsNaN", form=Form.UNARY),
    _function("LeakyRelu", "alpha=0.01", needed=needs.leaky, factors=Factors.POSITIVE, monotone=_by_slope),
    _compared("Less", evaluate=np.less),
    _compared("LessOrEqual", evaluate=np.less_equal),
    _function("Log", is_singular=True, monotone=rising),
    _of_many("Max", moves=always, monotone=rising),
    _of_many("Mean"),
    _of_many("Min", moves=always, monotone=rising),
    _function("Mish"),
    _pair("Mod", "fmod=0", is_pointwise=True, is_singular=True),
    _product("Mul", commutes=True, needed=needs.multiplied, terms=sums.multiplied),
    _function("Neg", factors=Factors.ANY, monotone=lambda _: "-"),
    OpDef("Not", form=Form.UNARY),
    _logical("Or"),
    _pair("PRelu", is_pointwise=True, limits=(limits.slope,), factors=Factors.POSITIVE),
    _pair("Pow", is_pointwise=True, is_singular=True, terms=sums.squared),
    _quantizer(
        "QuantizeLinear",
        "axis=1 block_size=0 output_dtype=0 precision=0 saturate=1",
        parameters=frozenset({1, 2}),
    ),
    _function("Reciprocal", is_singular=True),
    _function("Relu", moves=always, factors=Factors.POSITIVE, monotone=rising),
    _function("Round", monotone=rising),
    _function("Selu", "alpha=1.6732632 gamma=1.050701"),
    _function("Shrink", "bias=0.0 lambd=0.5"),
    _function(
        "Sigmoid",
        axes=axes.sigmoid,
        needed=needs.bounded(needs.SIGMOID),
        gate=needs.SIGMOID,
        monotone=rising,
        bounds=(0.0, 1.0),
    ),
    _function("Sign", monotone=rising),
    _function("Sin", bounds=(-1.0, 1.0)),
    _function("Sinh"),
    _function("Softplus", monotone=rising),
    _function("Softsign", monotone=rising, bounds=(-1.0, 1.0)),
    _function("Sqrt", is_singular=True, monotone=rising),
    _sum("Sub", needed=needs.subtracted, monotone=lambda _: "+-", terms=sums.subtracted),
    _of_many("Sum", monotone=rising),
    OpDef("SwiGLU", "alpha=1.0"),
    _function("Swish", "alpha=1.0", needed=needs.gated(needs.SIGMOID)),
    _function("Tan"),
    _function("Tanh", needed=needs.bounded(needs.TANH), monotone=rising, bounds=(-1.0, 1.0)),
    _function("ThresholdedRelu", "alpha=1.0"),
    OpDef("Where", form=Form.SELECT, moves=always),
    _logical("Xor"),
)
