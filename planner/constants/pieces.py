"""Pieces: an array cut into parts that stay in the processor's cache, each with the parameters that serve it.

No arithmetic here: `quantize` works on a piece at a time, so beside input and result no memory is needed. A
piece of short slices gets its parameters spread over it, one of long slices a column of them.
"""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError
from planner.ir.types.qtypes import Uniform

Array: TypeAlias = npt.NDArray[Any]

PIECE: Final = 1 << 17
"""Elements of a piece: half a megabyte of floats."""
_SMALL: Final = 1 << 14
_LONG_RUN: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class Params:
    """Parameters of one piece: arrays that broadcast against it, or one-element arrays.

    Attributes:
      scales: floats.
      zero_points: floats of the same type; None where all are 0.
      low: ends of the stored values, floats; arrays only where slices have ranges of their own.
      high: likewise.
    """

    scales: Array
    zero_points: Array | None
    low: Array
    high: Array

    def map(self, change: Callable[[Array], Array]) -> "Params":
        """Change all arrays that hold one number per slice."""
        many = self.low.ndim > 0
        return Params(
            change(self.scales),
            None if self.zero_points is None else change(self.zero_points),
            change(self.low) if many else self.low,
            change(self.high) if many else self.high,
        )

    def part(self, begin: int, end: int) -> "Params":
        """The parameters of some slices."""
        if begin == 0 and end == len(self.scales):
            return self
        return self.map(operator.itemgetter(slice(begin, end)))

    def spread(self, count: int) -> "Params":
        """Each parameter `count` times."""
        return self.map(lambda values: np.repeat(values, count))

    def tiled(self, count: int) -> "Params":
        """All parameters `count` times over."""
        return self.map(lambda values: np.tile(values, count))

    def column(self) -> "Params":
        """Parameters of rows."""
        return self.map(lambda values: values[:, None])


def params_of(kind: Uniform, dtype: npt.DTypeLike) -> Params:
    """The parameters of a type, one per slice, as floats of this type."""
    count, zeros, store = len(kind.scales), kind.zero_points, kind.storage
    if kind.ranges:
        low = np.asarray([qmin for qmin, _ in kind.ranges], dtype)
        high = np.asarray([_below(qmax, dtype) for _, qmax in kind.ranges])
    else:
        low, high = np.asarray(store.qmin, dtype), _below(store.qmax, dtype)
    return Params(
        np.asarray(kind.scales, np.float64).astype(dtype, copy=False),
        None if zeros.count(0) == count else np.asarray(zeros, np.float64).astype(dtype),
        low,
        high,
    )


def _below(end: int, dtype: npt.DTypeLike) -> Array:
    """A greatest stored value as a float; beyond its digits the greatest float that still fits."""
    found = np.asarray(end, dtype)
    return found if int(found) <= end else np.nextafter(found, np.zeros((), dtype))


def pieces(
    source: Array, target: Array, kind: Uniform, params: Params
) -> Iterator[tuple[Array, Array, Params]]:
    """Cut a contiguous source and target of one shape into equal pieces, each with its parameters.

    Raises:
      QTypeError: slices that do not fit the shape.
    """
    if kind.is_sub_channel:
        yield from _blocks(source, target, kind, params)
        return
    if kind.axis is None:
        whole = params.map(lambda values: values[0])
        flat, out = source.reshape(-1), target.reshape(-1)
        for begin in range(0, flat.size, PIECE):
            yield flat[begin : begin + PIECE], out[begin : begin + PIECE], whole
        return
    axis = kind.axis
    if not 0 <= axis < source.ndim or source.shape[axis] != len(kind.scales):
        raise QTypeError(
            f"{kind.storage} with {len(kind.scales)} scales along axis {axis} does not fit the shape "
            f"{source.shape}; it needs one scale per slice of an existing axis"
        )
    inner = math.prod(source.shape[axis + 1 :])
    if source.size <= _SMALL:
        if source.size:
            yield source.reshape(-1, len(kind.scales), inner), _alike(target, kind, inner), params.column()
        return
    yield from _slices(source, target, params, inner=inner)


def _alike(target: Array, kind: Uniform, inner: int) -> Array:
    return target.reshape(-1, len(kind.scales), inner)


def _slices(
    source: Array, target: Array, params: Params, *, inner: int
) -> Iterator[tuple[Array, Array, Params]]:
    """Pieces of an array that is (outer, slices, inner) in memory."""
    flat, out = source.reshape(-1), target.reshape(-1)
    if not flat.size:
        return
    n = len(params.scales)
    period = n * inner
    if period <= PIECE and period < flat.size:
        pattern = params.spread(inner).tiled(PIECE // period)
        for begin in range(0, flat.size, len(pattern.scales)):
            end = min(begin + len(pattern.scales), flat.size)
            yield flat[begin:end], out[begin:end], pattern.part(0, end - begin)
        return
    if inner >= _LONG_RUN:
        yield from _long_slices(flat, out, params, inner=inner)
        return
    step = max(1, PIECE // inner)
    for outer in range(0, flat.size, period):
        for j in range(0, n, step):
            k = min(step, n - j)
            span = slice(outer + j * inner, outer + (j + k) * inner)
            yield flat[span], out[span], params.part(j, j + k).spread(inner)


def _long_slices(
    flat: Array, out: Array, params: Params, *, inner: int
) -> Iterator[tuple[Array, Array, Params]]:
    """Several long slices at once, or part of one."""
    n = len(params.scales)
    rows, results = flat.reshape(-1, inner), out.reshape(-1, inner)
    step, columned = max(1, PIECE // inner), params.column()
    for outer in range(0, len(rows), n):
        for j in range(0, n, step):
            k = min(step, n - j)
            part = columned.part(j, j + k)
            span = slice(outer + j, outer + j + k)
            for begin in range(0, inner, PIECE):
                columns = slice(begin, min(begin + PIECE, inner))
                yield rows[span, columns], results[span, columns], part


def _blocks(
    source: Array, target: Array, kind: Uniform, params: Params
) -> Iterator[tuple[Array, Array, Params]]:
    sizes = dict(kind.blocks)
    blocks = [sizes.get(axis, dim) for axis, dim in enumerate(source.shape)]
    grid = tuple(-(-dim // max(1, block)) for dim, block in zip(source.shape, blocks, strict=True))
    if kind.grid != grid:
        raise QTypeError(
            f"{kind.storage} with blocks {dict(kind.blocks)} and a grid of {kind.grid} scales does not fit "
            f"the shape {source.shape}; it needs a grid of {grid}"
        )
    if all(block == 1 for block in blocks[:-1]) and source.shape[-1] % max(1, blocks[-1]) == 0:
        yield from _slices(source, target, params, inner=blocks[-1])
        return
    gridded = params.map(lambda values: values.reshape(grid))
    shape = source.shape[1:]
    # Rows of one element each have scales of their own, so several make a piece.
    step = max(1, PIECE // max(1, math.prod(shape))) if blocks[0] == 1 else 1
    for i in range(0, grid[0], step):
        rows = slice(i * blocks[0], (i + step) * blocks[0])
        part = gridded.map(operator.itemgetter(slice(i, i + step)))
        yield from _slices(
            source[rows], target[rows], part.map(partial(_spread, blocks=blocks[1:], shape=shape)), inner=1
        )


def _spread(values: Array, blocks: list[int], shape: tuple[int, ...]) -> Array:
    """Parameters of rows of blocks, one for each element of a row; the last block may be shorter."""
    for axis, (block, size) in enumerate(zip(blocks, shape, strict=True), start=1):
        values = np.repeat(values, block, axis=axis)
        if values.shape[axis] > size:
            values = values.take(range(size), axis=axis)
    return values.reshape(-1)
