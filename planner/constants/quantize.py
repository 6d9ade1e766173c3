"""Quantize: an array of reals onto a Uniform, and back. Per tensor, per axis and per block.

Up to 16 bits this is ONNX QuantizeLinear in float32 (`saturate(rint(x / scale) + zero_point)`); wider
storages (biases) divide in float64. Work goes through buffers of `_CHUNK` elements that stay in the
processor's cache, so beside input and result no memory is needed. Source: ONNX QuantizeLinear.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError
from planner.ir.qtypes import Storage, Uniform

Array = npt.NDArray[Any]

_CHUNK: Final = 1 << 14
_LONG_RUN: Final = 512
_DTYPES: Final = {
    (signed, bits): np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    for signed in (False, True)
    for bits in (8, 16, 32, 64)
}


def stored_dtype(store: Storage) -> np.dtype[Any]:
    """The numpy integer type that holds a storage: the least of 8, 16, 32 and 64 bits, of its sign.

    Raises:
      QTypeError: a float storage, which has no integers.
    """
    if store.float_name:
        raise QTypeError(f"storage {store} holds floats; integer storages are i1..i64 and u1..u64")
    width = next(bits for bits in (8, 16, 32, 64) if store.bits <= bits)
    return _DTYPES[store.signed, width]


def quantize_array(array: Array, type: Uniform) -> Array:  # noqa: A002
    """Stored integers of reals: `clip(rint(array / scale) + zero_point, qmin, qmax)`, half to even.

    NaN becomes qmin.

    Args:
      array: reals of any float type and shape.
      type: per tensor, per axis or per block; its slices must fit the shape.

    Returns:
      Shape of `array`, dtype `stored_dtype(type.storage)`.

    Raises:
      QTypeError: slices that do not fit the shape, or a float storage.
    """
    result = np.empty(array.shape, stored_dtype(type.storage))
    work = np.dtype(np.float32 if type.storage.bits <= 16 else np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for source, target, run in _runs(np.ascontiguousarray(array), result, type, work):
            _quantize_run(source, target, run, type.storage)
    return result


def dequantize_array(stored: Array, type: Uniform) -> npt.NDArray[np.float32]:  # noqa: A002
    """Reals of stored integers: `float32(stored - zero_point) * scale`, as ONNX DequantizeLinear.

    Raises:
      QTypeError: slices that do not fit the shape.
    """
    result = np.empty(stored.shape, np.float32)
    for source, target, run in _runs(np.ascontiguousarray(stored), result, type, np.dtype(np.float32)):
        shifted = source
        if run.zero_points.any():
            shifted = source.astype(np.int64) - run.zero_points.astype(np.int64)
        np.multiply(shifted.astype(np.float32), run.scales, out=target)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Scales (float) and zero points (same dtype) that broadcast against one piece of work."""

    scales: Any
    zero_points: Any

    def part(self, begin: int, end: int) -> "_Run":
        return _Run(self.scales[begin:end], self.zero_points[begin:end])

    def spread(self, count: int) -> "_Run":
        return _Run(np.repeat(self.scales, count), np.repeat(self.zero_points, count))

    def tiled(self, count: int) -> "_Run":
        return _Run(np.tile(self.scales, count), np.tile(self.zero_points, count))

    def column(self) -> "_Run":
        return _Run(self.scales[:, None], self.zero_points[:, None])


def _quantize_run(source: Array, target: Array, run: _Run, store: Storage) -> None:
    work = np.divide(source, run.scales, dtype=run.scales.dtype, casting="same_kind")
    np.rint(work, out=work)
    if run.zero_points.any():
        np.add(work, run.zero_points, out=work)
    low, high = _float_bounds(store, work.dtype)
    # fmax, not maximum: NaN becomes qmin.
    np.fmax(work, low, out=work)
    np.minimum(work, high, out=work)
    target[...] = work.astype(target.dtype)


def _float_bounds(store: Storage, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Storage bounds as floats; above 53 bits the greatest double that still fits."""
    high = dtype.type(store.qmax)
    if int(high) > store.qmax:
        high = np.nextafter(high, dtype.type(0))
    return dtype.type(store.qmin), high


def _runs(
    source: Array, target: Array, kind: Uniform, work: np.dtype[Any]
) -> Iterator[tuple[Array, Array, _Run]]:
    """Cut source and target into equal pieces, each with the parameters that serve it."""
    run = _Run(np.asarray(kind.scales, work), np.asarray(kind.zero_points, work))
    if kind.blocks:
        yield from _block_runs(source, target, kind, run)
        return
    if kind.axis is None:
        whole = _Run(run.scales[0], run.zero_points[0])
        flat, out = source.reshape(-1), target.reshape(-1)
        for begin in range(0, flat.size, _CHUNK):
            yield flat[begin : begin + _CHUNK], out[begin : begin + _CHUNK], whole
        return
    axis = kind.axis
    if not 0 <= axis < source.ndim or source.shape[axis] != len(kind.scales):
        raise QTypeError(
            f"{kind.storage} with {len(kind.scales)} scales along axis {axis} does not fit the shape "
            f"{source.shape}; it needs one scale per slice of an existing axis"
        )
    if source.size <= _CHUNK:
        shape = (-1, *(1 for _ in source.shape[axis + 1 :]))
        yield source, target, _Run(run.scales.reshape(shape), run.zero_points.reshape(shape))
        return
    yield from _sliced_runs(source, target, run, inner=math.prod(source.shape[axis + 1 :]))


def _sliced_runs(
    source: Array, target: Array, run: _Run, *, inner: int
) -> Iterator[tuple[Array, Array, _Run]]:
    """Pieces of an array that is (outer, len(scales), inner) in memory."""
    flat, out = source.reshape(-1), target.reshape(-1)
    if not flat.size:
        return
    n = len(run.scales)
    period = n * inner
    if period <= _CHUNK and period < flat.size:
        pattern = run.spread(inner).tiled(_CHUNK // period)
        for begin in range(0, flat.size, len(pattern.scales)):
            end = min(begin + len(pattern.scales), flat.size)
            yield flat[begin:end], out[begin:end], pattern.part(0, end - begin)
        return
    if inner < _LONG_RUN:
        step = max(1, _CHUNK // inner)
        for outer in range(0, flat.size, period):
            for j in range(0, n, step):
                k = min(step, n - j)
                span = slice(outer + j * inner, outer + (j + k) * inner)
                yield flat[span], out[span], run.part(j, j + k).spread(inner)
        return
    yield from _long_runs(flat, out, run, inner=inner)


def _long_runs(flat: Array, out: Array, run: _Run, *, inner: int) -> Iterator[tuple[Array, Array, _Run]]:
    """Pieces of slices of at least `_LONG_RUN` elements: several slices at once, or part of one."""
    n = len(run.scales)
    rows, results = flat.reshape(-1, inner), out.reshape(-1, inner)
    step = max(1, _CHUNK // inner)
    for outer in range(0, len(rows), n):
        for j in range(0, n, step):
            k = min(step, n - j)
            part = run.part(j, j + k).column()
            span = slice(outer + j, outer + j + k)
            for begin in range(0, inner, _CHUNK):
                columns = slice(begin, min(begin + _CHUNK, inner))
                yield rows[span, columns], results[span, columns], part


def _block_runs(
    source: Array, target: Array, kind: Uniform, run: _Run
) -> Iterator[tuple[Array, Array, _Run]]:
    sizes = dict(kind.blocks)
    blocks = [sizes.get(axis, dim) for axis, dim in enumerate(source.shape)]
    grid = tuple(dim // max(1, block) for dim, block in zip(source.shape, blocks, strict=True))
    if any(d % max(1, b) for d, b in zip(source.shape, blocks, strict=True)) or kind.grid != grid:
        raise QTypeError(
            f"{kind.storage} with blocks {dict(kind.blocks)} and a grid of {kind.grid} scales does not fit "
            f"the shape {source.shape}; every dimension must be a multiple of its block"
        )
    if all(block == 1 for block in blocks[:-1]):
        yield from _sliced_runs(source, target, run, inner=blocks[-1])
        return
    scales, zeros = run.scales.reshape(grid), run.zero_points.reshape(grid)
    for i in range(grid[0]):
        rows = slice(i * blocks[0], (i + 1) * blocks[0])
        part = _Run(_expand(scales[i], blocks[1:]), _expand(zeros[i], blocks[1:]))
        yield from _sliced_runs(source[rows], target[rows], part, inner=1)


def _expand(values: Array, blocks: list[int]) -> Array:
    for axis, block in enumerate(blocks):
        values = np.repeat(values, block, axis=axis)
    return values.reshape(-1)
