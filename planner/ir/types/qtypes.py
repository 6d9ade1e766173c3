"""Quantized types: the one type language of the planner, with MLIR's `quant` text as its text form.

`real = (stored - zero_point) * scale`. Data only: reading text is `typetext`, deriving parameters
from a range is `ranges`, fitting a tensor is `fit`. Every scale is exactly a value of its expressed type:
build types with `uniform(...)` or `sub_channel(...)`, which round. Source: MLIR quant dialect;
docs/specification.md, section 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

from planner.errors import QTypeError
from planner.ir.types.many_numbers import ends
from planner.ir.types.parameter_texts import MANY, dense_parameters, float_text, nested_text, pair_text
from planner.ir.types.scales import EXPRESSED, F32_TINY, check_scales, held_scales, round_scale, round_scales
from planner.ir.types.storages import FLOAT_STORAGE, MAX_BITS, Storage, full_range, storage

__all__ = [
    "EXPRESSED",
    "F32_TINY",
    "FLOAT_STORAGE",
    "MAX_BITS",
    "MAX_RANK",
    "AnyType",
    "Bipolar",
    "Calibrated",
    "FloatType",
    "NoneType",
    "QType",
    "RowMax",
    "Storage",
    "Uniform",
    "WidthRange",
    "float_text",
    "full_range",
    "nested_text",
    "pair_text",
    "round_scale",
    "round_scales",
    "storage",
    "sub_channel",
    "uniform",
]

MAX_RANK: Final = 64  # numpy's; a list of scales nests no deeper


@dataclass(frozen=True, slots=True)
class Uniform:
    """A fully decided affine type, per tensor, per axis or per block.

    Attributes:
      scales: one per slice, row-major over `grid`; each exactly a value of `expressed`.
      zero_points: stored units, as many as scales.
      axis: the quantized dimension of a per-axis type.
      blocks: (axis, block size) pairs of a sub-channel type, axes ascending; an axis not named is one block.
      grid: shape of the nested scale list of a sub-channel type, one entry per tensor dimension.
      ranges: (qmin, qmax) per slice where the slices have widths of their own (QONNX); the storage's range
        is their hull. Empty: every slice uses the storage's range.
      written: the scales as a text gave them, where rounding to `expressed` changed one: 0.05. Nothing
        computes or compares with them; texts for other tools show them.
    """

    storage: Storage
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    expressed: str = "f32"
    axis: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    written: tuple[float, ...] = field(default=(), repr=False, compare=False)
    _hash: int = field(default=0, init=False, repr=False, compare=False)
    _text: str = field(default="", init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # Types are keys everywhere, and one with thousands of scales is slow to hash: once is enough.
        if not self._hash:
            parts = (self.storage, self.scales, self.zero_points, self.expressed, self.axis, self.blocks)
            object.__setattr__(self, "_hash", hash(parts) or 1)
        return self._hash

    def __reduce__(self) -> tuple[type["Uniform"], tuple[Any, ...]]:
        # Hashes of text differ from process to process, so none is taken along.
        return Uniform, tuple(getattr(self, item.name) for item in fields(self) if item.init)

    def __post_init__(self) -> None:
        _check_expressed(self.expressed)
        if not self.scales or len(self.scales) != len(self.zero_points):
            raise QTypeError(f"{len(self.scales)} scales for {len(self.zero_points)} zero points")
        check_scales(self.scales, self.expressed)
        if self.written and (
            self.written == self.scales or held_scales([*self.written], self.expressed) != self.scales
        ):
            object.__setattr__(self, "written", ())  # of other scales: `replace` keeps it
        if self.ranges:
            self._check_ranges()
        elif len(self.scales) > 1 or self.zero_points[0] or self.storage.qmin > 0 or self.storage.qmax < 0:
            self._check_zero_points()
        if len(self.scales) > 1 or self.axis is not None or self.blocks or self.grid:
            self._check_slices()

    def _check_zero_points(self) -> None:
        store = self.storage
        least, most = ends(self.zero_points)
        if least >= store.qmin and most <= store.qmax:
            return
        off = next(z for z in self.zero_points if not store.qmin <= z <= store.qmax)
        raise QTypeError(
            f"zero point {off} lies outside the storage range {store.qmin}:{store.qmax} of {store.name}"
        )

    def _check_ranges(self) -> None:
        store = self.storage
        if self.is_per_tensor or len(self.ranges) != len(self.scales):
            raise QTypeError(f"{len(self.ranges)} storage ranges for {len(self.scales)} scales of slices")
        for (qmin, qmax), zero_point in zip(self.ranges, self.zero_points, strict=True):
            if qmin >= qmax:
                raise QTypeError(f"storage range {qmin}:{qmax} of a slice is empty")
            if not qmin <= zero_point <= qmax:
                raise QTypeError(
                    f"zero point {zero_point} lies outside the storage range {qmin}:{qmax} of its slice"
                )
        hull = min(low for low, _ in self.ranges), max(high for _, high in self.ranges)
        if hull != (store.qmin, store.qmax) or len(set(self.ranges)) == 1:
            raise QTypeError(
                f"the storage range {store.qmin}:{store.qmax} must be the hull of ranges that differ, "
                f"these span {hull[0]}:{hull[1]}"
            )

    def _check_slices(self) -> None:
        if self.axis is not None:
            if self.axis < 0:
                raise QTypeError(f"quantized dimension {self.axis} is negative")
            if self.blocks or self.grid:
                raise QTypeError(f"a type along axis {self.axis} has no blocks")
            return
        if not self.grid:
            raise QTypeError(f"{len(self.scales)} scales need an axis, or blocks and a grid")
        if len(self.grid) > MAX_RANK:
            raise QTypeError(f"scales nest {len(self.grid)} deep; at most {MAX_RANK} levels")
        if math.prod(self.grid) != len(self.scales):
            raise QTypeError(f"{len(self.scales)} scales do not fill a grid of {list(self.grid)}")
        for axis, size in self.blocks:
            if axis < 0 or size <= 0:
                raise QTypeError(f"block {axis}:{size}: the axis must not be negative, the size positive")
            if axis >= len(self.grid):
                raise QTypeError(
                    f"block axis {axis} is beyond the scale list, which nests {len(self.grid)} deep"
                )
        if any(a[0] >= b[0] for a, b in zip(self.blocks, self.blocks[1:], strict=False)):
            raise QTypeError("an axis has two block sizes, or the axes do not ascend")

    @property
    def is_per_tensor(self) -> bool:
        """One scale for the whole tensor."""
        return self.axis is None and not self.blocks and not self.grid

    @property
    def is_sub_channel(self) -> bool:
        """One scale per block; with no block size at all the whole tensor is one block."""
        return bool(self.grid)

    @property
    def scale(self) -> float:
        """The scale of a per-tensor type (of the first slice otherwise)."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The zero point of a per-tensor type (of the first slice otherwise)."""
        return self.zero_points[0]

    @property
    def slice_ranges(self) -> tuple[tuple[int, int], ...]:
        """(qmin, qmax) of every slice."""
        return self.ranges or ((self.storage.qmin, self.storage.qmax),) * len(self.scales)

    @property
    def lo(self) -> float:
        """Smallest real this type holds (over all slices)."""
        if not self.ranges:
            q = self.storage.qmin
            return min((q - z) * s for s, z in zip(self.scales, self.zero_points, strict=True))
        rows = zip(self.scales, self.zero_points, self.ranges, strict=True)
        return min((low - z) * s for s, z, (low, _) in rows)

    @property
    def hi(self) -> float:
        """Largest real this type holds (over all slices)."""
        if not self.ranges:
            q = self.storage.qmax
            return max((q - z) * s for s, z in zip(self.scales, self.zero_points, strict=True))
        rows = zip(self.scales, self.zero_points, self.ranges, strict=True)
        return max((high - z) * s for s, z, (_, high) in rows)

    def __str__(self) -> str:
        # Digests, logs and files repeat these texts; those of many scales are not kept.
        if not self._text and self.is_per_tensor:
            object.__setattr__(self, "_text", self._spelled(self.scales))
        return self._text or self._spelled(self.scales)

    @property
    def written_text(self) -> str:
        """The text with the scales as they were written."""
        return self._spelled(self.written) if self.written else str(self)

    def _spelled(self, scales: tuple[float, ...]) -> str:
        if not self.ranges:
            head = f"{self.storage}:{self.expressed}"
        else:
            each = ",".join(f"{low}:{high}" for low, high in self.ranges)
            head = f"{self.storage.name}<{{{each}}}>:{self.expressed}"
        if self.is_per_tensor:
            return f"!quant.uniform<{head}, {pair_text(scales[0], self.zero_points[0])}>"
        sizes = ", ".join(f"{axis}:{size}" for axis, size in self.blocks)
        if self.grid and len(scales) >= MANY:
            dense = dense_parameters(scales, self.zero_points, self.expressed, self.grid)
            return f"!quant.uniform<{head}:{{{sizes}}}, {dense}>"
        params = list(map(pair_text, scales, self.zero_points))
        if self.axis is not None:
            return f"!quant.uniform<{head}:{self.axis}, {{{','.join(params)}}}>"
        return f"!quant.uniform<{head}:{{{sizes}}}, {nested_text(params, self.grid)}>"


@dataclass(frozen=True, slots=True)
class AnyType:
    """Demand for at least the bits of a storage range; parameters free. Text: `!quant.any<i4>`.

    `trained`: the type that a constant had in training; a row that holds it keeps it fixed, any other row
    ignores it. It is of this storage, per tensor or per axis. Text (ours): `!quant.any<u8:f32, 0.05:117>`.
    """

    storage: Storage
    expressed: str | None = None
    trained: "Uniform | None" = None

    def __post_init__(self) -> None:
        if self.expressed is not None:
            _check_expressed(self.expressed)
        kind = self.trained
        if kind is not None and (
            kind.is_sub_channel
            or kind.ranges
            or (kind.storage, kind.expressed) != (self.storage, self.expressed)
        ):
            raise QTypeError(f"{kind} is no type per tensor or axis in {self.storage}:{self.expressed}")

    @property
    def bits(self) -> int:
        """The least width that satisfies this fact."""
        return self.storage.range_bits

    def __str__(self) -> str:
        if self.trained is not None:
            return str(self.trained).replace("!quant.uniform<", "!quant.any<", 1)
        tail = f":{self.expressed}" if self.expressed else ""
        return f"!quant.any<{self.storage}{tail}>"


@dataclass(frozen=True, slots=True)
class RowMax:
    """The smallest maximum of a row along an axis, in reals; rows of equal entries do not count.

    `entries`: of the longest row, where no shape says it. Source: docs/specification.md, section 10.
    """

    axis: int
    least: float
    entries: int | None = None

    def __post_init__(self) -> None:
        if self.axis < 0 or not math.isfinite(self.least) or (self.entries is not None and self.entries < 1):
            accepted = "an axis of at least 0, a real, a count of at least 1"
            raise QTypeError(f"row_max {self}: accepted: {accepted}")

    def __str__(self) -> str:
        rows = "" if self.entries is None else f" of {self.entries}"
        return f"{self.axis}: {float_text(self.least)}{rows}"


@dataclass(frozen=True, slots=True)
class WidthRange:
    """The part [lo, hi] of an observed range that storages of `bits` bits are to hold, in reals."""

    bits: int
    lo: float
    hi: float

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise QTypeError(f"a range for {self.bits} bits; accepted: 1 to {MAX_BITS}")
        if not -math.inf < self.lo <= self.hi < math.inf:
            raise QTypeError(f"the range {self} is none; accepted: two finite ends, min <= max")

    def __str__(self) -> str:
        return f"{self.bits} = {float_text(self.lo)}:{float_text(self.hi)}"


@dataclass(frozen=True, slots=True)
class AtReaders:
    """The worst SQNR (dB) at the results of a value's consumers once it is rounded to `bits` bits.

    Source: docs/specification.md, section 11.
    """

    bits: int
    db: float

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS or not math.isfinite(self.db):
            raise QTypeError(f"dB at consumers {self}: accepted: 1 to {MAX_BITS} bits, finite dB")

    def __str__(self) -> str:
        return f"{self.bits} = {float_text(self.db)}"


@dataclass(frozen=True, slots=True)
class Calibrated:
    """An observed range [lo, hi] in reals, per tensor or (ours) per slice of an axis; and what else was seen.

    Attributes:
      row_max: for each axis that a softmax goes along, the smallest maximum of a row.
      two_values: whether every number observed was `lo` or `hi`.
      widths: ranges chosen for storages of some widths, within [lo, hi], by ascending bits; a storage of
        another width holds all of [lo, hi]. Source: docs/accuracy.md, "Ranges".
      readers: dB at the results of the ops that read it, by ascending bits; of a width that is not there
        nothing is known.
    """

    los: tuple[float, ...]
    his: tuple[float, ...]
    expressed: str = "f32"
    axis: int | None = None
    row_max: tuple[RowMax, ...] = ()
    two_values: bool = False
    widths: tuple[WidthRange, ...] = ()
    readers: tuple[AtReaders, ...] = ()
    _text: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_expressed(self.expressed)
        if not self.los or len(self.los) != len(self.his) or (self.axis is None and len(self.los) > 1):
            where = "without an axis" if self.axis is None else f"along axis {self.axis}"
            raise QTypeError(f"{len(self.los)} minima and {len(self.his)} maxima {where}; one pair a slice")
        if self.axis is not None and self.axis < 0:
            raise QTypeError(f"calibrated axis {self.axis} is negative")
        for lo, hi in zip(self.los, self.his, strict=True):
            if not (math.isfinite(lo) and math.isfinite(hi)):
                raise QTypeError(f"calibrated range {lo}:{hi} must be finite")
            if lo > hi:
                raise QTypeError(f"calibrated range {lo}:{hi} has min > max")
        if len({row.axis for row in self.row_max}) < len(self.row_max):
            raise QTypeError("row_max names an axis twice")
        if self.widths:
            self._check_widths()
        bits = [one.bits for one in self.readers]
        if bits != sorted(set(bits)):
            raise QTypeError(f"dB at consumers at {bits} bits; accepted: each width once, ascending")

    def _check_widths(self) -> None:
        if self.axis is not None:
            raise QTypeError(f"ranges for widths beside ranges along axis {self.axis}; they need one range")
        bits = [width.bits for width in self.widths]
        if bits != sorted(set(bits)):
            raise QTypeError(f"ranges for {bits} bits; accepted: each width once, ascending")
        for width in self.widths:
            if not self.lo <= width.lo <= width.hi <= self.hi:
                raise QTypeError(f"the range {width} leaves the observed one, {self.lo}:{self.hi}")

    @property
    def lo(self) -> float:
        """Smallest observed real over all slices."""
        return min(self.los)

    @property
    def hi(self) -> float:
        """Largest observed real over all slices."""
        return max(self.his)

    def at(self, bits: int) -> tuple[float, float]:
        """The range that a storage of this width is to hold."""
        found = ((width.lo, width.hi) for width in self.widths if width.bits == bits)
        return next(found, (self.lo, self.hi))

    def at_readers(self, bits: int) -> float | None:
        """The dB that a storage of this width leaves at the consumers; None where nothing is known."""
        return next((one.db for one in self.readers if one.bits == bits), None)

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self._written())
        return self._text

    def _written(self) -> str:
        pairs = [f"{float_text(lo)}:{float_text(hi)}" for lo, hi in zip(self.los, self.his, strict=True)]
        seen = [f"row_max = {{{', '.join(map(str, self.row_max))}}}"] if self.row_max else []
        seen += ["two_values = true"] if self.two_values else []
        seen += map(str, self.widths)
        seen += [f"readers = {{{', '.join(map(str, self.readers))}}}"] if self.readers else []
        more = f", {{{', '.join(seen)}}}" if seen else ""
        if self.axis is None:
            return f"!quant.calibrated<{self.expressed}<{pairs[0]}>{more}>"
        return f"!quant.calibrated<{self.expressed}:{self.axis}, {{{', '.join(pairs)}}}{more}>"


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

    def __post_init__(self) -> None:
        _check_expressed(self.expressed)
        check_scales((self.scale,), self.expressed)

    def __str__(self) -> str:
        return f"!quant.bipolar<{self.expressed}, {float_text(self.scale)}>"


@dataclass(frozen=True, slots=True)
class FloatType:
    """Run there in this float (`bf16`, `f16`, `f32`): a fact or a port type, not an integer type."""

    name: str

    def __str__(self) -> str:
        return self.name


QType: TypeAlias = Uniform | AnyType | Calibrated | NoneType | Bipolar | FloatType


def _check_expressed(name: str) -> None:
    if name not in EXPRESSED:
        raise QTypeError(f"expressed type {name!r} is none of {', '.join(EXPRESSED)}")


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


def sub_channel(
    store: Storage,
    scales: Sequence[float],
    zero_points: int | Sequence[int] = 0,
    *,
    blocks: dict[int, int],
    grid: Sequence[int],
    expressed: str = "f32",
) -> Uniform:
    """Build a sub-channel type, each scale rounded to a value of `expressed`.

    Args:
      store: storage of the stored integers.
      scales: one real per block, row-major over `grid`.
      zero_points: stored units; a single one serves all blocks.
      blocks: axis -> block size; an axis not named is one block.
      grid: number of blocks along each axis of the tensor.
    """
    zeros = [zero_points] * len(scales) if isinstance(zero_points, int) else [int(z) for z in zero_points]
    return Uniform(
        store,
        round_scales(scales, expressed),
        tuple(zeros),
        expressed,
        None,
        tuple(sorted(blocks.items())),
        tuple(grid),
    )
