"""Quantized types: the one type language of the planner, with MLIR's `quant` text as its text form.

`real = (stored - zero_point) * scale`. Data only: reading text is `typetext`, deriving parameters
from a range is `ranges`. Every scale is exactly a value of its expressed type: build types with
`uniform(...)`, which rounds. Source: MLIR quant dialect; design 01, section 2.
"""

import math
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.errors import QTypeError

EXPRESSED: Final = ("f16", "bf16", "tf32", "f32", "f64", "f80")
FLOAT_STORAGE: Final = {"f8E4M3FN": 448, "f8E5M2": 57344}
MAX_BITS: Final = 64
_F32: Final = struct.Struct("<f")
F32_TINY: Final = 1.1754943508222875e-38  # the least normal f32: a scale is never smaller
_F32_MAX: Final = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Storage:
    """An integer format: width, sign, and the part of its range in use. Text: `i8<-127:127>`.

    Float storages (`f8E4M3FN`, `f8E5M2`) name themselves in `float_name`; their range is in reals.
    """

    bits: int
    signed: bool
    qmin: int
    qmax: int
    float_name: str = ""

    def __post_init__(self) -> None:
        if self.float_name:
            return
        if not 1 <= self.bits <= MAX_BITS:
            raise QTypeError(f"storage of {self.bits} bits: a storage has 1 to {MAX_BITS} bits")
        low, high = full_range(self.bits, signed=self.signed)
        if not low <= self.qmin < self.qmax <= high:
            raise QTypeError(
                f"storage range {self.qmin}:{self.qmax} must not be empty and lie within "
                f"{low}:{high} of {'i' if self.signed else 'u'}{self.bits}"
            )

    @property
    def name(self) -> str:
        """The format without its range: `i8`, `u4`, `f8E4M3FN`."""
        return self.float_name or f"{'i' if self.signed else 'u'}{self.bits}"

    @property
    def offset(self) -> int:
        """What a zero point moves by from the signed format of this width to this one: 128 for `u8`."""
        return 0 if self.signed or self.float_name else 1 << self.bits - 1

    @property
    def is_full(self) -> bool:
        """Whether the whole range of the format is in use."""
        if self.float_name:
            limit = FLOAT_STORAGE[self.float_name]
            return (self.qmin, self.qmax) == (-limit, limit)
        return (self.qmin, self.qmax) == full_range(self.bits, signed=self.signed)

    @property
    def steps(self) -> int:
        """Number of steps between the smallest and the largest stored value."""
        return self.qmax - self.qmin

    @property
    def range_bits(self) -> int:
        """Bits that the range in use needs: 4 for `i8<-8:7>`."""
        if self.float_name:
            return self.bits
        if not self.signed:
            return max(1, self.qmax.bit_length())
        return max((-self.qmin - 1).bit_length() if self.qmin < 0 else 0, self.qmax.bit_length()) + 1

    def __str__(self) -> str:
        return self.name if self.is_full else f"{self.name}<{self.qmin}:{self.qmax}>"


@dataclass(frozen=True, slots=True)
class Uniform:
    """A fully decided affine type, per tensor, per axis or per block.

    Attributes:
      scales: one per slice, row-major over `grid`; each exactly a value of `expressed`.
      zero_points: stored units, as many as scales.
      axis: the quantized dimension of a per-axis type.
      blocks: (axis, block size) pairs of a sub-channel type, axes ascending.
      grid: shape of the nested scale list of a sub-channel type, one entry per tensor dimension.
    """

    storage: Storage
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    expressed: str = "f32"
    axis: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.expressed not in EXPRESSED:
            raise QTypeError(f"expressed type {self.expressed!r} is none of {', '.join(EXPRESSED)}")
        if not self.scales or len(self.scales) != len(self.zero_points):
            raise QTypeError(f"{len(self.scales)} scales for {len(self.zero_points)} zero points")
        for scale in self.scales:
            if not (0.0 < scale < math.inf):
                raise QTypeError(f"scale {scale!r} must be positive and finite")
        for zero_point in self.zero_points:
            if not self.storage.qmin <= zero_point <= self.storage.qmax:
                raise QTypeError(
                    f"zero point {zero_point} lies outside the storage range "
                    f"{self.storage.qmin}:{self.storage.qmax} of {self.storage.name}"
                )

    @property
    def is_per_tensor(self) -> bool:
        """One scale for the whole tensor."""
        return self.axis is None and not self.blocks

    @property
    def scale(self) -> float:
        """The scale of a per-tensor type (of the first slice otherwise)."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor type (of the first slice otherwise)."""
        return self.zero_points[0]

    @property
    def lo(self) -> float:
        """Smallest real this type holds (over all slices)."""
        q = self.storage.qmin
        return min((q - z) * s for s, z in zip(self.scales, self.zero_points, strict=True))

    @property
    def hi(self) -> float:
        """Largest real this type holds (over all slices)."""
        q = self.storage.qmax
        return max((q - z) * s for s, z in zip(self.scales, self.zero_points, strict=True))

    def __str__(self) -> str:
        head = f"{self.storage}:{self.expressed}"
        params = [pair_text(s, z) for s, z in zip(self.scales, self.zero_points, strict=True)]
        if self.blocks:
            sizes = ", ".join(f"{axis}:{size}" for axis, size in self.blocks)
            return f"!quant.uniform<{head}:{{{sizes}}}, {nested_text(params, self.grid)}>"
        if self.axis is not None:
            return f"!quant.uniform<{head}:{self.axis}, {{{','.join(params)}}}>"
        return f"!quant.uniform<{head}, {params[0]}>"


@dataclass(frozen=True, slots=True)
class AnyType:
    """At least the bits that the storage range needs; parameters free. Text: `!quant.any<i4>`."""

    storage: Storage
    expressed: str | None = None

    @property
    def bits(self) -> int:
        """The least width that satisfies this fact."""
        return self.storage.range_bits

    def __str__(self) -> str:
        tail = f":{self.expressed}" if self.expressed else ""
        return f"!quant.any<{self.storage}{tail}>"


@dataclass(frozen=True, slots=True)
class Calibrated:
    """An observed range [lo, hi] in reals, per tensor or (ours) per slice of an axis."""

    los: tuple[float, ...]
    his: tuple[float, ...]
    expressed: str = "f32"
    axis: int | None = None

    def __post_init__(self) -> None:
        for lo, hi in zip(self.los, self.his, strict=True):
            if not (math.isfinite(lo) and math.isfinite(hi)):
                raise QTypeError(f"calibrated range {lo}:{hi} must be finite")
            if lo > hi:
                raise QTypeError(f"calibrated range {lo}:{hi} has min > max")

    @property
    def lo(self) -> float:
        """Smallest observed real over all slices."""
        return min(self.los)

    @property
    def hi(self) -> float:
        """Largest observed real over all slices."""
        return max(self.his)

    def __str__(self) -> str:
        pairs = [f"{float_text(lo)}:{float_text(hi)}" for lo, hi in zip(self.los, self.his, strict=True)]
        if self.axis is not None:
            return f"!quant.calibrated<{self.expressed}:{self.axis}, {{{', '.join(pairs)}}}>"
        return f"!quant.calibrated<{self.expressed}<{pairs[0]}>>"


@dataclass(frozen=True, slots=True)
class NoneType:
    """Keep this value in its expressed type although a quantized kernel exists (RFC NoQuantizedType)."""

    def __str__(self) -> str:
        return "!quant.none"


@dataclass(frozen=True, slots=True)
class Bipolar:
    """One bit, values +-scale, never zero (QONNX BipolarQuant)."""

    expressed: str
    scale: float

    def __str__(self) -> str:
        return f"!quant.bipolar<{self.expressed}, {float_text(self.scale)}>"


@dataclass(frozen=True, slots=True)
class FloatType:
    """Run there in this float (`bf16`, `f16`, `f32`): a fact or a port type, not an integer type."""

    name: str

    def __str__(self) -> str:
        return self.name


QType: TypeAlias = Uniform | AnyType | Calibrated | NoneType | Bipolar | FloatType


def full_range(bits: int, *, signed: bool) -> tuple[int, int]:
    """Smallest and largest stored value of an integer format."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def storage(name: str, qmin: int | None = None, qmax: int | None = None) -> Storage:
    """Build a storage from its format name (`i8`, `u4`, `ui8`, `f8E4M3FN`) and, if narrower, its range.

    Raises:
      QTypeError: unknown format, or a range outside it.
    """
    if name in FLOAT_STORAGE:
        limit = FLOAT_STORAGE[name]
        return Storage(8, True, -limit if qmin is None else qmin, limit if qmax is None else qmax, name)
    match = re.fullmatch(r"(i|u|ui|si)([1-9][0-9]{0,2})", name)
    if match is None:
        raise QTypeError(
            f"unknown storage {name!r}; a storage is i1..i64, u1..u64 or {' or '.join(FLOAT_STORAGE)}"
        )
    bits, signed = int(match[2]), match[1] in ("i", "si")
    if bits > MAX_BITS:
        raise QTypeError(f"storage {name!r} has more than {MAX_BITS} bits")
    low, high = full_range(bits, signed=signed)
    return Storage(bits, signed, low if qmin is None else qmin, high if qmax is None else qmax)


def uniform(
    store: Storage,
    scales: float | Sequence[float],
    zero_points: int | Sequence[int] = 0,
    *,
    expressed: str = "f32",
    axis: int | None = None,
) -> Uniform:
    """Build a per-tensor or per-axis type, each scale rounded to a value of `expressed`.

    Args:
      store: storage of the stored integers.
      scales: one real, or one per slice along `axis`.
      zero_points: stored units; a single one serves all slices.
    """
    many = [float(scales)] if isinstance(scales, (int, float)) else [float(s) for s in scales]
    zeros = [zero_points] * len(many) if isinstance(zero_points, int) else [int(z) for z in zero_points]
    return Uniform(store, round_scales(many, expressed), tuple(zeros), expressed, axis)


def round_scales(scales: Iterable[float], expressed: str) -> tuple[float, ...]:
    """Round reals to values of the expressed type, never to 0 or infinity.

    Raises:
      QTypeError: a scale beyond the largest value of the type.
    """
    array = np.asarray(list(scales), dtype=np.float64)
    if expressed in ("f32", "f16"):
        dtype = np.float32 if expressed == "f32" else np.float16
        info = np.finfo(dtype)
        if array.size and float(np.max(array)) > float(info.max):
            raise QTypeError(f"scale {float(np.max(array))!r} is beyond {expressed}")
        rounded = np.where(array > 0, np.maximum(array, float(info.tiny)), array).astype(dtype)
        return tuple(rounded.astype(np.float64).tolist())
    mantissa = {"bf16": 8, "tf32": 11}.get(expressed)
    if mantissa is None:
        return tuple(array.tolist())
    fraction, exponent = np.frexp(array)
    return tuple(np.ldexp(np.rint(np.ldexp(fraction, mantissa)), exponent - mantissa).tolist())


def round_scale(scale: float, expressed: str) -> float:
    """Round one real to a value of the expressed type; see `round_scales`."""
    if expressed == "f32" and F32_TINY <= scale <= _F32_MAX:
        rounded: float = _F32.unpack(_F32.pack(scale))[0]
        return rounded
    return round_scales([scale], expressed)[0]


def float_text(value: float) -> str:
    """Shortest decimal text that reads back as the same double, always with a decimal point."""
    text = repr(float(value))
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"


def pair_text(scale: float, zero_point: int) -> str:
    """`scale` or `scale:zero_point`, the default 0 dropped."""
    return f"{float_text(scale)}:{zero_point}" if zero_point else float_text(scale)


def nested_text(items: Sequence[str], grid: Sequence[int]) -> str:
    """Nest row-major `items` in braces by the shape `grid`."""
    level = list(items)
    for size in reversed(grid):
        level = ["{" + ", ".join(level[i : i + size]) + "}" for i in range(0, len(level), size)]
    return level[0]
