"""The formulas of quantizing and dequantizing as `arith` ops on scalars or tensors.

Quantizing rounds half to even and saturates: `rint(clamp(x / scale + zero_point))` in the expressed type.
Rounding is adding and taking away 1.5 * 2^(digits - 1), which no optimiser may undo without fast-math, in
a type whose digits hold the storage; NaN becomes the least stored value. Truncating is the upstream
form: convert to integers towards zero, then clamp. Source: MLIR qcast and dcast pages; docs/specification.md,
9.4.
"""

from collections.abc import Callable
from typing import Any, Final

from xdsl.builder import Builder
from xdsl.dialects import arith, builtin, tensor
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue

from planner.formats.mlir.foreign import ExtFOp, FPToSIOp, FPToUIOp, SIToFPOp, UIToFPOp
from planner.formats.mlir.types import with_element
from planner.formats.mlir.verbatim_types import WrittenStorage

DIGITS: Final = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53, "tf32": 11}
"""Binary digits of a float's significand."""
_WIDER: Final = (("f32", builtin.f32), ("f64", builtin.f64))

Spread = Callable[[SSAValue, Attribute], SSAValue]
"""Brings a scalar into the shape of a type; scalars stay."""
Zero = Callable[[], SSAValue]
"""Makes the zero point, as stored integers, where the formula first needs it; None stands for 0."""


def dequantized(
    build: Builder, stored: SSAValue, scale: SSAValue, zero: Zero | None, real: Attribute, *, signed: bool
) -> SSAValue:
    """Give `(stored - zero) * scale`, a scalar or tensor of `real`."""
    convert = SIToFPOp if signed else UIToFPOp
    value = build.insert(convert(stored, real)).result
    if zero is not None:
        offset = build.insert(convert(zero(), real)).result
        value = build.insert(arith.SubfOp(value, offset)).result
    return build.insert(arith.MulfOp(value, scale)).result


def scaled(build: Builder, value: SSAValue, scale: SSAValue, zero: Zero | None, *, signed: bool) -> SSAValue:
    """Give `value / scale + zero`, in reals."""
    result = build.insert(arith.DivfOp(value, scale)).result
    if zero is None:
        return result
    converted = build.insert((SIToFPOp if signed else UIToFPOp)(zero(), value.type)).result
    return build.insert(arith.AddfOp(result, converted)).result


def truncated(
    build: Builder, value: SSAValue, store: WrittenStorage, integer: Attribute, spread: Spread
) -> SSAValue:
    """Convert towards zero, then clamp where the range is narrow: the upstream form."""
    result = build.insert((FPToSIOp if store.signed else FPToUIOp)(value, integer)).result
    if (store.qmin, store.qmax) == store.full:
        return result
    bits = builtin.IntegerType(store.bits)
    bounds = [constant(build, bound, bits) for bound in (store.qmin, store.qmax)]
    low, high = [spread(bound, integer) for bound in bounds]
    most, least = (arith.MaxSIOp, arith.MinSIOp) if store.signed else (arith.MaxUIOp, arith.MinUIOp)
    result = build.insert(most(result, low)).result
    return build.insert(least(result, high)).result


def saturated(
    build: Builder, value: SSAValue, store: WrittenStorage, integer: Attribute, spread: Spread
) -> SSAValue:
    """Clamp, round half to even, convert: our form."""
    element, digits = _rounding_type(value.type, store)
    wide = with_element(value.type, element)
    if wide != value.type:
        value = build.insert(ExtFOp(value, wide)).result
    numbers = (float(store.qmin), float(store.qmax), 3.0 * 2.0 ** (digits - 2))
    low, high, magic = [spread(constant(build, number, element), wide) for number in numbers]
    value = build.insert(arith.MaxnumfOp(value, low)).result
    value = build.insert(arith.MinnumfOp(value, high)).result
    value = build.insert(arith.AddfOp(value, magic)).result
    value = build.insert(arith.SubfOp(value, magic)).result
    return build.insert((FPToSIOp if store.signed else FPToUIOp)(value, integer)).result


def _rounding_type(kind: Attribute, store: WrittenStorage) -> tuple[Attribute, int]:
    """The narrowest float type, from that of the values on, that rounds every stored value exactly."""
    own = kind.element_type if isinstance(kind, TensorType) else kind
    reach = max(-store.qmin, store.qmax)
    for name, element in ((str(own), own), *_WIDER):
        digits = DIGITS[name]
        # Beside 1.5 * 2^(digits - 1) a number of digits - 2
        # bits keeps the sum in one binade, whose step is 1.
        if digits >= DIGITS[str(own)] and reach <= 1 << digits - 2:
            return element, digits
    raise ValueError(f"storage {store} is too wide to round")


def constant(build: Builder, number: float, kind: Any) -> SSAValue:
    """Make a scalar constant; integers wrap into their type, floats round to theirs."""
    if isinstance(kind, builtin.IntegerType):
        bits = kind.width.data
        wrapped = (int(number) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        return build.insert(arith.ConstantOp(IntegerAttr(wrapped, kind))).result
    if isinstance(kind, builtin.IndexType):
        return build.insert(arith.ConstantOp(IntegerAttr(int(number), kind))).result
    return build.insert(arith.ConstantOp(FloatAttr(float(number), kind))).result


def splat(build: Builder, scalar: SSAValue, sizes: list[SSAValue], shape: Attribute) -> SSAValue:
    """Spread a scalar over a ranked tensor type; `sizes` are its dynamic dimensions."""
    if not isinstance(shape, TensorType):
        return scalar
    kind = TensorType(scalar.type, shape.get_shape())
    return build.insert(tensor.SplatOp(scalar, sizes, kind)).result
