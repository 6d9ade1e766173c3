"""`tosa.rescale` written out in StableHLO integer ops: `tosa-rescale-legalize-to-stablehlo`.

`((value - input_zp) * multiplier + round) >> shift`, plus the output zero point, clamped to the result's
type, all in i64: exact for every rescale TOSA allows. Both roundings, both widths of multipliers, per
channel along the last axis, signed and unsigned. Source: TOSA 1.0, RESCALE and apply_scale_32.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt
from xdsl.builder import Builder
from xdsl.dialects import builtin
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, Signedness
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.formats.mlir.attributes import dense_array
from planner.formats.mlir.passes.dead_code import sweep
from planner.formats.mlir.stablehlo_ops import (
    I64,
    Known,
    Sharing,
    bitcast,
    constant,
    convert,
    foreign,
    is_ranked,
    items_of,
    name_of,
    parameters,
    put,
    shape_of,
    stored_type,
)
from planner.formats.mlir.types import element_of, with_element
from planner.formats.mlir.verbatim_types import WrittenStorage, WrittenUniform
from planner.ir.arithmetic.rescaling import DOUBLE_ROUND_ABOVE
from planner.ir.types.qtypes import full_range

_CONSTANTS: Final = frozenset({"tosa.const", "stablehlo.constant", "arith.constant"})
_ALIVE: Final = "SINGLE_ROUND"
_STORE: Final = WrittenStorage("i64", -(1 << 63), (1 << 63) - 1)


def rescale_to_math(module: builtin.ModuleOp) -> None:
    """Write out every rescale whose multiplier, shift and zero points are constants; others stay."""
    known: Known = {}
    for op in list(module.walk()):
        if name_of(op) == "tosa.rescale":
            _write_out(op, known)
    sweep(module)


def _write_out(op: Operation, known: Known) -> None:
    numbers = [_numbers(operand) for operand in op.operands[1:]]
    value, kind = op.operands[0], op.results[0].type
    if len(numbers) != len(_OPERANDS) or not all(map(is_ranked, (value.type, kind))):
        return
    if any(number is None for number in numbers) or not _fits(value.type, kind):
        return
    multiplier, shift, zero_in, zero_out = (
        [int(n) for n in number.flat] for number in numbers if number is not None
    )
    items = items_of(op)
    double = "DOUBLE_ROUND" in str(items.get("rounding_mode", _ALIVE))
    build = Sharing(op, known)
    wide = _widened(build, value, is_unsigned=_flag(items, "input_unsigned"))
    wide = _offset(build, "subtract", wide, zero_in)
    product = put(build, "multiply", [wide, _spread(build, multiplier, wide)], wide.type)
    # apply_scale_32: half of 2^shift makes the arithmetic shift, a floor, round half up.
    halves = [1 << amount - 1 for amount in shift]
    total = put(build, "add", [product, _spread(build, halves, wide)], wide.type)
    # Double rounding of TOSA adds 2^30 as well, signed as the value, for the first of two shifts.
    if double and max(shift) > DOUBLE_ROUND_ABOVE:
        total = put(build, "add", [total, _first_rounding(build, wide, shift)], wide.type)
    total = put(build, "shift_right_arithmetic", [total, _spread(build, shift, wide)], wide.type)
    total = _offset(build, "add", total, zero_out)
    Rewriter.replace_op(op, [], [_finished(build, total, kind, is_unsigned=_flag(items, "output_unsigned"))])


_OPERANDS: Final = ("multiplier", "shift", "input_zp", "output_zp")


def _numbers(value: SSAValue) -> npt.NDArray[Any] | None:
    """Numbers of a constant; None for any other value."""
    owner = value.owner
    if not isinstance(owner, Operation) or name_of(owner) not in _CONSTANTS:
        return None
    items = items_of(owner)
    numbers = items.get("values", items.get("value"))
    return dense_array(numbers) if isinstance(numbers, DenseIntOrFPElementsAttr) else None


def _fits(*kinds: Attribute) -> bool:
    return all(isinstance(element_of(stored_type(kind)), IntegerType) for kind in kinds)


def _flag(items: dict[str, Attribute], name: str) -> bool:
    flag = items.get(name)
    return isinstance(flag, builtin.IntegerAttr) and bool(flag.value.data)


def _spread(build: Builder, numbers: Sequence[int], like_: SSAValue) -> SSAValue:
    """One number for all elements, or one for each place along the last axis, as i64."""
    axis = len(shape_of(like_.type)) - 1
    row = WrittenUniform(_STORE, "f64", (1.0,) * len(numbers), tuple(numbers), axis)
    return parameters(build, numbers, row, like_, I64)


def _offset(build: Builder, name: str, value: SSAValue, zero: Sequence[int]) -> SSAValue:
    if not any(zero):
        return value
    return put(build, name, [value, _spread(build, zero, value)], value.type)


def _widened(build: Builder, value: SSAValue, *, is_unsigned: bool) -> SSAValue:
    """The stored integers of a value, in i64."""
    stored = bitcast(build, value, stored_type(value.type))
    if is_unsigned:
        stored = bitcast(build, stored, with_element(stored.type, _unsigned(element_of(stored.type))))
    return convert(build, stored, I64)


def _unsigned(element: Any) -> IntegerType:
    return IntegerType(element.width.data, Signedness.UNSIGNED)


def _first_rounding(build: Builder, wide: SSAValue, shift: Sequence[int]) -> SSAValue:
    """The addend of double rounding: 2^30 away from zero, where the shift exceeds 31."""
    sizes = [1 << 30 if amount > DOUBLE_ROUND_ABOVE else 0 for amount in shift]
    up, down = (_spread(build, [sign * size for size in sizes], wide) for sign in (1, -1))
    zero = _spread(build, [0], wide)
    direction = {"comparison_direction": foreign("stablehlo.comparison_direction", " GE", opaque=True)}
    is_up = put(build, "compare", [wide, zero], with_element(wide.type, builtin.i1), direction)
    return put(build, "select", [is_up, up, down], wide.type)


def _finished(build: Builder, total: SSAValue, kind: Attribute, *, is_unsigned: bool) -> SSAValue:
    """Clamp to the result's stored type, which its quantized type or its flag may make unsigned."""
    stored = stored_type(kind)
    element: Any = element_of(stored)
    unsigned = is_unsigned or element.signedness.data is Signedness.UNSIGNED
    qmin, qmax = full_range(element.width.data, signed=not unsigned)
    low, high = (constant(build, [bound], I64, ()) for bound in (qmin, qmax))
    total = put(build, "clamp", [low, total, high], total.type)
    total = convert(build, total, _unsigned(element) if unsigned else element)
    return bitcast(build, bitcast(build, total, stored), kind)
