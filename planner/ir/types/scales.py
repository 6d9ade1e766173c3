"""Scales: the reals that an expressed type holds, and rounding onto them.

Two ways: `round_scales` for scales we choose (never 0, never infinite, never below the least normal number,
where engines lose precision) and `held_scales` for scales of a file (refused where the type has no such
value, as the quant dialect does). f80 is held in doubles. Source: IEEE 754; docs/specification.md, section 2.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError

Reals = npt.NDArray[np.float64]

EXPRESSED: Final = ("f16", "bf16", "tf32", "f32", "f64", "f80")
F32_TINY: Final = 1.1754943508222875e-38  # the least normal f32: a scale we choose is never smaller
_F32: Final = struct.Struct("<f")
_FEW: Final = 256
_F32_MAX: Final = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary float format.

    Attributes:
      digits: significant bits, the hidden one included.
      least: exponent of the least normal number.
      most: largest finite value.
    """

    digits: int
    least: int
    most: float

    @property
    def tiny(self) -> float:
        """The least normal number."""
        return math.ldexp(1.0, self.least)

    @property
    def step(self) -> float:
        """The least positive number, a subnormal."""
        return math.ldexp(1.0, self.least - self.digits + 1)


FORMATS: Final[Mapping[str, FloatFormat]] = {
    "bf16": FloatFormat(8, -126, 3.3895313892515355e38),
    "f16": FloatFormat(11, -14, 65504.0),
    "f32": FloatFormat(24, -126, _F32_MAX),
    "f64": FloatFormat(53, -1022, 1.7976931348623157e308),
    "f80": FloatFormat(53, -1022, 1.7976931348623157e308),
    "tf32": FloatFormat(11, -126, 3.4011621342146535e38),
}
HELD: Final[Mapping[str, FloatFormat]] = {
    **FORMATS,
    "e8m0": FloatFormat(1, -126, math.ldexp(1.0, 127)),
    "f8E4M3FN": FloatFormat(4, -6, 448.0),
}
"""Formats of scales in files: also an exponent alone (OCP MX), and NVFP4's float with a factor for all."""
TWO_STEPS: Final = "f8E4M3FN"
_E4M3: Final = np.asarray(
    [math.ldexp(m, -9) for m in range(1, 8)]
    + [math.ldexp(1 + m / 8, e) for e in range(-6, 9) for m in range(8)][:-1]
)
"""The positive numbers of f8E4M3FN, ascending; the last one would be its NaN."""
_FACTOR_DIGITS: Final = 20  # and 4 of a block's own: float32 has their product exactly
_NUMPY: Final[Mapping[str, Any]] = {"f16": np.float16, "f32": np.float32}


def nearest(reals: Reals, expressed: str) -> Reals:
    """The nearest values of the expressed type, half to even; beyond its largest one: infinite or larger."""
    if expressed in ("f64", "f80"):
        return reals
    if expressed in _NUMPY:
        with np.errstate(over="ignore"):
            return np.asarray(reals.astype(_NUMPY[expressed]), np.float64)
    digits, least = HELD[expressed].digits, HELD[expressed].least
    _, exponent = np.frexp(reals)
    # The unit in the last place; it stops shrinking below the least normal number (gradual underflow).
    unit = np.maximum(exponent - digits, least - digits + 1)
    return np.asarray(np.ldexp(np.rint(np.ldexp(reals, -unit)), unit), np.float64)


def held_in(exact: Reals, held: str) -> Reals:
    """Positive scales of blocks as a file keeps them in `held`, each the nearest there is.

    f8E4M3FN has a second step, as NVFP4: each is a value of that float times one float32, the largest one 448
    times it. The factor has 20 digits, so every product is exact and engines may multiply in any order.
    Blocks below 1/28672 of the largest one get the least normal scale.

    Raises:
      QTypeError: a scale beyond the format.
    """
    kept = HELD[held]
    if held == TWO_STEPS:
        fraction, exponent = np.frexp(max(float(exact.max()) / kept.most, F32_TINY / kept.tiny))
        factor = np.ldexp(np.ceil(np.ldexp(fraction, _FACTOR_DIGITS)), exponent - _FACTOR_DIGITS)
        return np.asarray(np.maximum(nearest(exact / factor, held), kept.tiny) * factor)
    scales = np.maximum(nearest(exact, held), kept.tiny)
    if not float(scales.max()) <= kept.most:
        raise QTypeError(f"scale {float(scales.max())!r} is beyond {held}")
    return scales


def common_factor(scales: Sequence[float]) -> float | None:
    """The float32 that all scales are f8E4M3FN multiples of, rounded to float32; None: there is none.

    Of several the least is returned: it makes the block's own numbers largest, farthest from the subnormal
    ones.
    """
    distinct = np.unique(np.asarray(scales, np.float64))
    if distinct.size > _E4M3.size:
        return None
    for own in _E4M3[::-1]:
        near = np.float32(distinct[-1] / own)
        for factor in (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))):
            times = nearest(distinct / float(factor), TWO_STEPS)
            if factor > 0 and np.array_equal((times * float(factor)).astype(np.float32), distinct):
                return float(factor)
    return None


def holds_scales(scales: Sequence[float], held: str) -> bool:
    """Whether a file that keeps scales of blocks in `held` has these."""
    if held == TWO_STEPS:
        return common_factor(scales) is not None
    array = np.asarray(scales, np.float64)
    return bool(np.array_equal(nearest(array, held), array))


def _as_f32(reals: Sequence[float]) -> tuple[float, ...]:
    """Reals within float32 as float32, half to even: for a few faster than arrays are."""
    form = f"<{len(reals)}f"
    return struct.unpack(form, struct.pack(form, *reals))


def round_scales(scales: Iterable[float], expressed: str) -> tuple[float, ...]:
    """Round reals to values of the expressed type, positive ones up to its least normal number.

    Raises:
      QTypeError: a scale beyond the largest value of the type.
    """
    many = list(scales)
    # A sum within float32 bounds every scale, as struct raises beyond it; unlike max, no NaN slips through.
    if expressed == "f32" and 0 < len(many) <= _FEW and min(many) >= F32_TINY and sum(many) <= _F32_MAX:
        return _as_f32(many)
    array = np.asarray(many, dtype=np.float64)
    kept = FORMATS[expressed]
    rounded = nearest(np.where(array > 0, np.maximum(array, kept.tiny), array), expressed)
    if array.size and not float(np.max(rounded)) <= kept.most:
        raise QTypeError(f"scale {float(np.max(array))!r} is beyond {expressed}")
    return tuple(rounded.tolist())


def round_scale(scale: float, expressed: str) -> float:
    """Round one real to a value of the expressed type; see `round_scales`."""
    if expressed == "f32" and F32_TINY <= scale <= _F32_MAX:
        rounded: float = _F32.unpack(_F32.pack(scale))[0]
        return rounded
    return round_scales([scale], expressed)[0]


def held_scale(scale: float, expressed: str) -> float:
    """Round one real that a file states to a value of the expressed type; see `held_scales`."""
    if expressed == "f32" and F32_TINY <= scale <= _F32_MAX:
        rounded: float = _F32.unpack(_F32.pack(scale))[0]
        return rounded
    kept = FORMATS[expressed]
    if not kept.step <= scale <= kept.most:
        raise QTypeError(scale_problem(scale, expressed))
    return _nearest_one(scale, kept)


def _nearest_one(scale: float, kept: FloatFormat) -> float:
    # f64 exactly; f80 has 64 digits, of which a Python float keeps 53.
    if kept.digits == 53:
        return scale
    unit = max(math.frexp(scale)[1] - kept.digits, kept.least - kept.digits + 1)
    return math.ldexp(round(math.ldexp(scale, -unit)), unit)


def held_scales(scales: list[float], expressed: str) -> tuple[float, ...]:
    """Round reals that a file states to values of the expressed type, subnormal ones among them.

    Raises:
      QTypeError: a scale that is not positive and finite, or lies outside the values of the type.
    """
    array = np.asarray(scales, dtype=np.float64)
    kept = FORMATS[expressed]
    off = np.flatnonzero(~((array >= kept.step) & (array <= kept.most)))
    if off.size:
        raise QTypeError(scale_problem(scales[off[0]], expressed))
    return tuple(nearest(array, expressed).tolist())


def scale_problem(scale: float, expressed: str) -> str:
    """Say why a real is no scale of the expressed type; "" where it is one."""
    kept = FORMATS[expressed]
    if not 0.0 < scale < float("inf"):
        return f"scale {scale!r} must be positive and finite"
    if scale > kept.most:
        return f"scale {scale!r} is beyond {expressed}"
    if scale < kept.step:
        return f"scale {scale!r} is below the least {expressed}, {kept.step!r}"
    found = _nearest_one(scale, kept)
    if found != scale:
        return f"scale {scale!r} is no value of {expressed}; the nearest one is {found!r}"
    return ""


def check_scales(scales: tuple[float, ...], expressed: str) -> None:
    """Refuse scales that are no values of their expressed type.

    Raises:
      QTypeError: the first one that is not positive, finite and exactly a value of the type.
    """
    if len(scales) == 1:
        scale = scales[0]
        if expressed == "f32" and 0.0 < scale <= _F32_MAX and _F32.unpack(_F32.pack(scale))[0] == scale:
            return
        problem = scale_problem(scale, expressed)
        if problem:
            raise QTypeError(problem)
        return
    few = expressed == "f32" and len(scales) <= _FEW
    if few and min(scales) > 0.0 and sum(scales) <= _F32_MAX and _as_f32(scales) == scales:
        return
    array = np.asarray(scales, np.float64)
    kept = FORMATS[expressed]
    off = np.flatnonzero(~((array > 0) & (array <= kept.most)) | (nearest(array, expressed) != array))
    if off.size:
        raise QTypeError(scale_problem(scales[off[0]], expressed))
