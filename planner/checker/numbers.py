"""Re-verify constants independently: the model's own numbers fit the types that a plan gives them.

Weights must not be cut, their scales are no coarser than their numbers ask, biases fit their storage; their
sums are judged by `figures.sums`. Constants are read once, in pieces that stay in the processor's cache.
Source: docs/specification.md, sections 2 and 6; tests/cases, cases 17 to 24.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import (
    Served,
    channel_axis,
    linear_op,
    refuse,
)
from planner.checker.weights import check_content, first_of, observed, sparsity_problem
from planner.ir.graph import Constant
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.records import Port

Reals = npt.NDArray[Any]

Judged = tuple[int, int, int, tuple[float, ...], tuple[float, ...], bool]
"""A type and a row (which the plan keeps alive), a port, and the range of a constant at it."""

PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Extent:
    """Least and greatest real of each slice (0 included), and its sum of |stored|, shape (n_slices,)."""

    lo: Reals
    hi: Reals
    sums: Reals


def check_constants(
    served: Served, known: set[Judged], needed: Mapping[str, tuple[float, float]]
) -> dict[int, Extent]:
    """Judge the constants of one kernel by the model's numbers; return their extents by port position.

    Args:
      known: constants of which only a range is known, judged before; grows.
      needed: by name, what the kernel needs of a constant, where that is not everything.
    """
    extents: dict[int, Extent] = {}
    for i, port in enumerate(served.ports):
        kind, name = port.type, port.value
        if name not in served.graph.constants or not isinstance(kind, Uniform):
            continue
        constant = served.numbers[name]
        dense = sparsity_problem(served, i)
        if dense is not None:
            refuse(port.address, dense, served.row)
        if constant.array is None:
            judged = (id(kind), id(served.row), i, constant.lo, constant.hi, served.pinned(port))
            # Thousands of generated constants share one type,
            # row and range; a bias or a stated range differs.
            if judged in known and not served.reading.has_bias and observed(served, port) is None:
                continue
            known.add(judged)
        extent = extent_of(served, i, kind, constant, cut=name in needed)
        let_go(constant.array)
        if extent is None:
            continue
        if name in needed:
            extent = _cut(extent, needed[name])
        extents[i] = extent
        if served.patterns[i].name in served.reading.biases:
            _check_bias(served, port, kind, extent)
        elif i not in served.reading.ruled and not served.pinned(port):
            check_content(served, i, kind, extent.lo, extent.hi, needed=needed.get(name))
    return extents


def _cut(extent: Extent, to: tuple[float, float]) -> Extent:
    """The extent of numbers that are stored no further than the kernel needs them."""
    lo, hi = np.clip(extent.lo, *to), np.clip(extent.hi, *to)
    return replace(extent, lo=np.minimum(lo, 0.0), hi=np.maximum(hi, 0.0))


def extent_of(
    served: Served, position: int, kind: Uniform, constant: Constant, *, cut: bool = False
) -> Extent | None:
    """The extent of a constant's slices, as its type has them; `cut`: it is stored no further than needed."""
    if kind.blocks and constant.array is not None:
        return _block_extent(served, position, kind)
    is_bias = served.patterns[position].name in served.reading.biases
    cut = cut or observed(served, served.ports[position]) is not None
    return _extent(constant, kind, _slicing_axis(served, position, kind), summed=not is_bias, cut=cut)


def _slicing_axis(served: Served, position: int, kind: Uniform) -> int | None:
    """The axis along which extents are taken: the type's own, else the op's output channels."""
    if kind.blocks:
        return None
    if kind.axis is not None:
        return kind.axis
    op = linear_op(served.region)
    # A per-tensor weight still sums per output channel, and its accumulator is that of the worst channel.
    second = [i for i, port in enumerate(served.ports[: len(served.kernel.inputs)]) if port.value][1:2]
    if op is None or second != [position]:
        return None
    return channel_axis(op, len(served.graph.values[served.ports[position].value].shape or ()))


def _block_extent(served: Served, position: int, kind: Uniform) -> Extent | None:
    """The extent of each block, in the order of the grid; read in bands of whole blocks."""
    array = served.numbers[served.ports[position].value].array
    if array is None or array.ndim != len(kind.grid) or not array.size:
        return None
    sizes = dict(kind.blocks)
    steps = [max(1, sizes.get(axis, size)) for axis, size in enumerate(array.shape)]
    starts = [np.arange(0, size, step) for size, step in zip(array.shape, steps, strict=True)]
    if tuple(map(len, starts)) != kind.grid:
        return None
    scales = np.asarray(kind.scales, np.float32).reshape(kind.grid)
    most = None
    if observed(served, served.ports[position]) is not None:
        most = max(-kind.storage.qmin, kind.storage.qmax)
    rows = max(1, PIECE // max(1, array.size // array.shape[0] * steps[0]))
    found = [
        _band_extent(
            array[begin * steps[0] : (begin + rows) * steps[0]], scales[begin : begin + rows], steps, most
        )
        for begin in range(0, kind.grid[0], rows)
    ]
    lo, hi, sums = (np.concatenate(parts).reshape(-1) for parts in zip(*found, strict=True))
    return Extent(np.minimum(lo, 0.0), np.maximum(hi, 0.0), sums)


def _band_extent(
    band: Reals, scales: Reals, steps: list[int], most: int | None
) -> tuple[Reals, Reals, Reals]:
    """Least, greatest and sum of |stored| of each block of a band, in the shape of its scales."""
    spread = scales
    for axis, step in enumerate(steps):
        if step > 1:
            spread = np.repeat(spread, step, axis)[(slice(None),) * axis + (slice(band.shape[axis]),)]
    stored = np.abs(np.rint(_float(band) / spread))
    if most is not None:
        np.minimum(stored, most, out=stored)
    return (
        _by_block(np.minimum, band, steps).astype(np.float64),
        _by_block(np.maximum, band, steps).astype(np.float64),
        _by_block(np.add, stored.astype(np.float64), steps),
    )


def _by_block(reduce: np.ufunc, band: Reals, steps: list[int]) -> Reals:
    """Reduce the blocks along every axis to one number; the last block of an axis may be shorter."""
    for axis, step in enumerate(steps):
        if step > 1 and band.shape[axis] % step == 0:
            shape = *band.shape[:axis], band.shape[axis] // step, step, *band.shape[axis + 1 :]
            band = reduce.reduce(band.reshape(shape), axis=axis + 1)
        elif step > 1:
            band = reduce.reduceat(band, np.arange(0, band.shape[axis], step), axis)
    return band


def _extent(constant: Constant, kind: Uniform, axis: int | None, *, summed: bool, cut: bool) -> Extent | None:
    """The extent of each slice; `cut`: the type may clip numbers, so that sums are of clipped ones."""
    if constant.array is None:
        # Only ranges are known: those of slices say nothing of one scale for a tensor, and sums stay unknown.
        if not constant.lo or (kind.axis is None and len(constant.lo) > 1):
            return None
        return Extent(np.minimum(constant.lo, 0.0), np.maximum(constant.hi, 0.0), np.zeros(0))
    array = constant.array
    if kind.blocks or (axis is not None and not 0 <= axis < array.ndim):
        return None
    n = 1 if axis is None else array.shape[axis]
    inner = array.size if axis is None else math.prod(array.shape[axis + 1 :])
    scales = np.asarray(kind.scales, np.float32)
    found: Extent | None = None
    for begin, piece in _pieces(array, n, inner):
        part = slice(begin, begin + piece.shape[1])
        own = scales[part] if len(scales) > 1 else scales
        here = _of_piece(piece, kind, own, summed=summed, cut=cut)
        if piece.shape[1] == n and found is None:
            found = here
            continue
        if found is None:
            found = Extent(np.zeros(n), np.zeros(n), np.zeros(n))
        np.minimum(found.lo[part], here.lo, out=found.lo[part])
        np.maximum(found.hi[part], here.hi, out=found.hi[part])
        found.sums[part] += here.sums
    return Extent(np.zeros(n), np.zeros(n), np.zeros(n)) if found is None else found


def _of_piece(piece: Reals, kind: Uniform, scales: Reals, *, summed: bool, cut: bool) -> Extent:
    """The extent of each slice of a piece that is (outer, slices, inner)."""
    lo = np.minimum.reduce(piece, axis=(0, 2), initial=0.0).astype(np.float64)
    hi = np.maximum.reduce(piece, axis=(0, 2), initial=0.0).astype(np.float64)
    if not summed:
        return Extent(lo, hi, np.zeros(len(lo)))
    stored = np.abs(piece)
    with np.errstate(over="ignore"):  # a mask of -3.4e38 is stored no further than it is needed
        stored /= scales[:, None]
    np.rint(stored, out=stored)
    if cut:
        np.minimum(stored, max(-kind.storage.qmin, kind.storage.qmax), out=stored)
    # The widest stored value decides how long a float32 sum stays exact.
    exact = np.float32 if kind.storage.bits <= 8 else np.float64
    return Extent(lo, hi, np.add.reduce(stored, axis=(0, 2), dtype=exact).astype(np.float64))


def _pieces(array: Reals, n: int, inner: int) -> Iterator[tuple[int, Reals]]:
    """Cut an array that is (outer, n, inner) in memory; each piece with the first slice it holds."""
    if array.size == 0:
        return
    view = np.asarray(array).reshape(-1, n, inner)
    rows, columns = max(1, PIECE // max(1, inner)), PIECE
    if n <= rows:
        step = max(1, PIECE // (n * inner))
        for begin in range(0, len(view), step):
            for k in range(0, inner, columns):
                yield 0, _float(view[begin : begin + step, :, k : k + columns])
        return
    for outer in range(len(view)):
        for begin in range(0, n, rows):
            for k in range(0, inner, columns):
                yield begin, _float(view[outer : outer + 1, begin : begin + rows, k : k + columns])


def _float(piece: Reals) -> Reals:
    return piece if piece.dtype == np.float64 else piece.astype(np.float32, copy=False)


def _check_bias(served: Served, port: Port, kind: Uniform, extent: Extent) -> None:
    scales = np.asarray(kind.scales)
    low, high = (extent.lo, extent.hi) if kind.axis is not None else (extent.lo.min(), extent.hi.max())
    i = first_of((low / scales < kind.storage.qmin) | (high / scales > kind.storage.qmax))
    if i is not None:
        refuse(
            port.address,
            f"is {brief(kind)}, its number in slice {i} does not fit; accepted: {kind.storage.qmin} to "
            f"{kind.storage.qmax} times the scale",
            served.row,
        )
