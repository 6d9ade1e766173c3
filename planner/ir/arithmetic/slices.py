"""Slices of an array, as a type has its scales: the ends of each, and the sum of what is stored of it.

The array is read once, in bands that stay in the processor's cache. Source: docs/specification.md, sections 2
and 6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.ir.types.qtypes import Uniform

Reals = npt.NDArray[Any]

PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Extent:
    """Least and greatest real of each slice (0 included), and its sum of |stored|, shape (n_slices,)."""

    lo: Reals
    hi: Reals
    sums: Reals


def slice_extents(
    array: Reals, kind: Uniform, axis: int | None = None, *, cut: bool = False
) -> Extent | None:
    """The extents of the slices of an array; None where the type is one of another array.

    Args:
      axis: the axis of the slices, for a type with one scale; None: one slice.
      cut: whether what is stored ends at the ends of the storage.
    """
    found = _reduced(array, kind, axis, (np.minimum, np.maximum, np.add), cut=cut)
    return None if found is None else Extent(np.minimum(found[0], 0.0), np.maximum(found[1], 0.0), found[2])


def slice_sums(array: Reals, kind: Uniform, axis: int | None = None, *, cut: bool = False) -> Reals | None:
    """The sums of `slice_extents` alone."""
    found = _reduced(array, kind, axis, (np.add,), cut=cut)
    return None if found is None else found[0]


def _reduced(
    array: Reals, kind: Uniform, axis: int | None, reduces: Sequence[np.ufunc], *, cut: bool
) -> Sequence[Reals] | None:
    array = np.atleast_1d(array)
    steps = _steps(array, kind, axis)
    if steps is None:
        return None
    if not array.size:
        return [np.zeros(len(kind.scales)) for _ in reduces]
    most = max(-kind.storage.qmin, kind.storage.qmax) if cut else None
    scales, within = _spread(kind, array), [1, *steps[1:]]
    # Rows of one block are brought together at the end.
    rows = max(1, PIECE * len(array) // max(1, array.size))
    found = [
        _of_band(array[k : k + rows], scales(k, rows), within, most, reduces)
        for k in range(0, len(array), rows)
    ]
    whole = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return [
        _by_block(reduce, part, [steps[0]]).reshape(-1) for reduce, part in zip(reduces, whole, strict=True)
    ]


def _steps(array: Reals, kind: Uniform, axis: int | None) -> list[int] | None:
    """How many numbers along each axis lie in one slice."""
    if kind.blocks:
        sizes = dict(kind.blocks)
        steps = [max(1, sizes.get(i, size)) for i, size in enumerate(array.shape)]
        counts = tuple(-(-size // step) for size, step in zip(array.shape, steps, strict=True))
        return steps if counts == kind.grid and array.size else None
    axis = axis if kind.axis is None else kind.axis
    if axis is not None and not 0 <= axis < array.ndim:
        return None
    return [1 if i == axis else max(1, size) for i, size in enumerate(array.shape)]


def _spread(kind: Uniform, array: Reals) -> Callable[[int, int], Reals]:
    """The scales of each band of rows, in a shape that broadcasts with it."""
    grid = kind.grid or tuple(len(kind.scales) if i == kind.axis else 1 for i in range(array.ndim))
    scales, sizes = np.asarray(kind.scales, np.float32).reshape(grid), dict(kind.blocks)
    for axis, step in sizes.items():
        if axis and step > 1 and grid[axis] > 1:
            scales = np.repeat(scales, step, axis)[(slice(None),) * axis + (slice(array.shape[axis]),)]
    step = sizes.get(0, 1)

    def of_rows(begin: int, count: int) -> Reals:
        if grid[0] == 1:
            return scales
        return np.asarray(scales[np.arange(begin, min(begin + count, len(array))) // step])

    return of_rows


def _of_band(
    band: Reals, scales: Reals, steps: list[int], most: int | None, reduces: Sequence[np.ufunc]
) -> list[Reals]:
    """The slices of a band reduced: their reals, and for sums what is stored; `most`: that ends there."""
    reals = band if band.dtype == np.float64 else band.astype(np.float32, copy=False)
    stored = np.abs(reals)
    with np.errstate(over="ignore"):  # a mask of -3.4e38 is stored no further than it is needed
        stored /= scales
    np.rint(stored, out=stored)
    if most is not None:
        np.minimum(stored, most, out=stored)
    return [
        _by_block(reduce, stored, steps, np.float64)
        if reduce is np.add
        else _by_block(reduce, reals, steps).astype(np.float64)
        for reduce in reduces
    ]


def _by_block(reduce: np.ufunc, band: Reals, steps: list[int], dtype: type | None = None) -> Reals:
    """Reduce the blocks along every axis to one number; the last block of an axis may be shorter."""
    whole = tuple(axis for axis, step in enumerate(steps) if step >= band.shape[axis])
    band = reduce.reduce(band, axis=whole, keepdims=True, dtype=dtype) if whole else band
    for axis, step in enumerate(steps):
        if axis in whole or step == 1:
            continue
        if band.shape[axis] % step == 0:
            shape = *band.shape[:axis], band.shape[axis] // step, step, *band.shape[axis + 1 :]
            band = reduce.reduce(band.reshape(shape), axis=axis + 1, dtype=dtype)
        else:
            band = reduce.reduceat(band, np.arange(0, band.shape[axis], step), axis, dtype)
    return band
