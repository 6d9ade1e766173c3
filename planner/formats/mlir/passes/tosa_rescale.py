"""`tosa.rescale` in StableHLO programs: quantized ops to it, and it to StableHLO integer ops.

`stablehlo-quant-legalize-to-tosa-rescale`: operands become i32 of one scale with 20 bits (16-bit storages:
15) to spare, the op is on i32, the result is rescaled. `tosa-rescale-legalize-to-stablehlo` writes the
arithmetic of a rescale out in i64. Anything else (per axis, unsigned, other ops) stays as it is.
Source: StableHLO's passes of these names; TOSA 1.0, RESCALE.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from xdsl.builder import Builder
from xdsl.dialects import builtin
from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.errors import RuleError
from planner.formats.mlir.passes.dead_code import sweep
from planner.formats.mlir.passes.qdq_to_quantized import is_per_tensor, is_quantized
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.stablehlo_ops import (
    I32,
    I64,
    Known,
    Sharing,
    dense,
    foreign,
    like,
    make,
    name_of,
    put,
)
from planner.formats.mlir.types import element_of, uniform_of, with_element
from planner.formats.mlir.verbatim_types import WrittenUniform
from planner.ir.arithmetic.rescaling import multiplier_and_shift

RESCALE: Final = "tosa.rescale"
_CONST: Final = "tosa.const"
_I8: Final = IntegerType(8)
_STORAGES: Final[Mapping[str, int]] = {"i8": 20, "i16": 15}
"""Storages that a rescale takes, with the bits of headroom that i32 leaves them."""
_ROUNDING: Final = "SINGLE_ROUND"


@dataclass(frozen=True, slots=True)
class Factors:
    """Real factors of a rescaled op: of each operand, and of the result (None: not quantized)."""

    operands: tuple[float, ...]
    result: float | None


def quant_to_rescale(module: builtin.ModuleOp) -> None:
    """Rewrite quantized element-wise ops on i32 between rescales; others stay.

    Raises:
      StuckAt: scales so far apart that no multiplier and shift bridges them.
    """
    known: Known = {}
    for op in list(module.walk()):
        factors = _FACTORS.get(name_of(op))
        if factors is not None and is_quantized(op):
            _rescaled(op, factors, known)
    sweep(module)


def _known(op: Operation) -> list[WrittenUniform] | None:
    """Types of operands and result where the pass knows them: per tensor, i8, or i16 with zero point 0."""
    values = [*op.operands] if name_of(op) == "stablehlo.compare" else [*op.operands, *op.results]
    found = []
    for value in values:
        uniform = uniform_of(value.type)
        if uniform is None or not is_per_tensor(uniform) or not isinstance(value.type, TensorType):
            return None
        if uniform.storage.name not in _STORAGES or (
            uniform.storage.name == "i16" and uniform.zero_points[0]
        ):
            return None
        found.append(uniform)
    return found


def _rescaled(op: Operation, factors: Callable[[list[float], int], Factors], known: Known) -> None:
    kinds = _known(op)
    if kinds is None:
        return
    spare = min(_STORAGES[kind.storage.name] for kind in kinds)
    wanted = factors([kind.scales[0] for kind in kinds], spare)
    build = Sharing(op, known)
    made: SSAValue
    try:
        values = [
            rescale(build, value, (kind.zero_points[0], 0), factor, with_element(value.type, I32))
            for value, kind, factor in zip(op.operands, kinds, wanted.operands, strict=False)
        ]
        kind = op.results[0].type
        if wanted.result is None:
            compared = like(op, values, [kind])
            for home in (compared.properties, compared.attributes):
                home.pop("compare_type", None)  # of reals; that of signed integers is the default
            made = build.insert(compared).results[0]
        else:
            if name_of(op) == "stablehlo.divide":
                # An integer quotient drops its fraction: the dividend
                # is shifted first to keep that many bits of it.
                values[0] = _shifted(build, values[0], spare)
            total = build.insert(like(op, values, [with_element(kind, I32)])).results[0]
            made = rescale(build, total, (0, kinds[-1].zero_points[0]), wanted.result, kind)
            made = _narrowed(build, made, kinds[-1])
    except RuleError as error:
        raise StuckAt(op, f"{name_of(op)}: {error.message}") from None
    Rewriter.replace_op(op, [], [made])


def _shifted(build: Builder, value: SSAValue, bits: int) -> SSAValue:
    """Multiply by a power of two, so that a quotient of integers keeps that many binary places."""
    scalar = put(build, "constant", [], TensorType(I32, []), {"value": dense([1 << bits], I32, [])})
    factor = put(build, "broadcast_in_dim", [scalar], value.type, {"broadcast_dimensions": _NONE})
    return put(build, "multiply", [value, factor], value.type)


_NONE: Final = builtin.DenseArrayBase.from_list(I64, [])


def _narrowed(build: Builder, value: SSAValue, uniform: WrittenUniform) -> SSAValue:
    """Clamp to a storage range: a rescale saturates to the full type only."""
    store = uniform.storage
    if (store.qmin, store.qmax) == store.full:
        return value
    scalar = TensorType(element_of(value.type), [])
    number = IntegerType(store.bits)
    low, high = (
        put(build, "constant", [], scalar, {"value": dense([bound], number, [])})
        for bound in (store.qmin, store.qmax)
    )
    return put(build, "clamp", [low, value, high], value.type)


def rescale(
    build: Builder, value: SSAValue, zeros: tuple[int, int], factor: float, kind: Attribute
) -> SSAValue:
    """Insert a rescale: one factor, rounded once, 32-bit multiplier.

    Args:
      zeros: zero points of the operand and of the result.

    Raises:
      RuleError: a factor too large for a multiplier and a shift.
    """
    multiplier, shift = multiplier_and_shift(factor)
    widths = [_width(value.type), _width(kind)]
    operands = [
        value,
        _constant(build, int(multiplier), I32),
        _constant(build, int(shift), _I8),
        _constant(build, zeros[0], IntegerType(widths[0])),
        _constant(build, zeros[1], IntegerType(widths[1])),
    ]
    flags: dict[str, Attribute] = {
        name: builtin.IntegerAttr.from_bool(name == "scale32")
        for name in ("scale32", "per_channel", "input_unsigned", "output_unsigned")
    }
    flags["rounding_mode"] = foreign("tosa.rounding_mode", _ROUNDING)
    return build.insert(make(RESCALE, operands, [kind], dict(sorted(flags.items())))).results[0]


def _width(kind: Attribute) -> int:
    uniform = uniform_of(kind)
    return uniform.storage.bits if uniform is not None else element_of(kind).width.data  # type: ignore[attr-defined]


def _constant(build: Builder, number: int, element: IntegerType) -> SSAValue:
    values = {"values": dense([number], element, [1])}
    kind = TensorType(element, [1])
    if isinstance(build, Sharing):
        return build.once(_CONST, [], kind, values)
    return build.insert(make(_CONST, [], [kind], values)).results[0]


def _sum(scales: list[float], spare: int) -> Factors:
    # Twice the greater scale leaves a bit for the carry of the sum, as TFLite's add does.
    common = 2 * max(scales[:2])
    return Factors(
        tuple([scale / common * (1 << spare) for scale in scales[:2]]), common / (scales[2] * (1 << spare))
    )


def _choice(scales: list[float], spare: int) -> Factors:
    common = max(scales[:2])
    return Factors(
        tuple([scale / common * (1 << spare) for scale in scales[:2]]), common / (scales[2] * (1 << spare))
    )


def _compared(scales: list[float], spare: int) -> Factors:
    common = max(scales)
    return Factors(tuple([scale / common * (1 << spare) for scale in scales]), None)


def _product(scales: list[float], _: int) -> Factors:
    return Factors((1.0, 1.0), scales[0] * scales[1] / scales[2])


def _quotient(scales: list[float], spare: int) -> Factors:
    return Factors((1.0, 1.0), scales[0] / (scales[1] * scales[2] * (1 << spare)))


def _single(scales: list[float], _: int) -> Factors:
    return Factors((1.0,), scales[0] / scales[1])


_FACTORS: Final[Mapping[str, Callable[[list[float], int], Factors]]] = {
    "stablehlo.abs": _single,
    "stablehlo.add": _sum,
    "stablehlo.compare": _compared,
    "stablehlo.divide": _quotient,
    "stablehlo.maximum": _choice,
    "stablehlo.minimum": _choice,
    "stablehlo.multiply": _product,
    "stablehlo.subtract": _sum,
}
