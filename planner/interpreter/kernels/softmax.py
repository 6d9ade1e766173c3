"""QLinearSoftmax on stored integers: exponentials from a float32 table, summed one after the other.

Bit for bit ONNX Runtime's CPU kernel, its fault included: the output scale enters as `floor(1 / y_scale)`, so
only scales whose inverse is an integer are honoured. Exact on every x86 (plain float32 and libm's double
`exp`). Source: com.microsoft.QLinearSoftmax, read for its order of operations.
"""

import math
from typing import Final

import numpy as np

from planner.interpreter.requantize import Array, Float32Array, Grid
from planner.ir.graph import Op, Shape

_HEADROOM: Final = 5.0

_ROOM: Final = 128
"""Steps in 1/n, what n numbers all alike are, that surely do not overflow; e^5 = 148 do not."""


def overflows(size: int, step: float) -> bool:
    """Whether a softmax of so many numbers may overflow at such a step of its result: files avoid the kernel.

    The kernel lifts its numbers to the largest float32 over `size` e^5 and multiplies them by the steps in 1.
    """
    return step * _ROOM * size < 1


def least_size(op: Op, shape: Shape | None) -> int:
    """Of how many numbers a Softmax is, at least: the size of its axis, 1 where that is open.

    Args:
      shape: that the model declares for the result, whatever a run gives it.
    """
    size = shape[int(op.attributes.get("axis", -1))] if shape else None
    return size if isinstance(size, int) else 1


def qlinear_softmax(x: Array, x_grid: Grid, y_grid: Grid, *, axis: int = -1, opset: int = 13) -> Array:
    """Softmax of stored 8-bit integers.

    Args:
      x: stored integers of `x_grid`, any shape; only the scale of the grid matters.
      x_grid: u8 or i8.
      y_grid: of the same storage as `x_grid`.
      axis: the axis that sums to one; below opset 13, the first of the axes that do.
      opset: of the ONNX operator; 13 and above normalise one axis.

    Returns:
      Stored integers of `x`'s shape, in `y_grid`'s dtype.
    """
    if opset < 13:
        flat = x.reshape(math.prod(x.shape[: axis % x.ndim]), -1)
        return _rows(flat, x_grid, y_grid).reshape(x.shape)
    moved = np.moveaxis(x, axis, -1)
    rows = np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])
    return np.moveaxis(_rows(rows, x_grid, y_grid).reshape(moved.shape), -1, axis)


def _rows(x: Array, x_grid: Grid, y_grid: Grid) -> Array:
    table = _exponentials(x_grid.scale32, x.shape[1])
    shift = 255 - x.max(axis=1, keepdims=True).astype(np.int32)
    exponentials = table[x.astype(np.int32) + shift]
    # accumulate, not sum: numpy sums pairwise, the kernel from left to right.
    total = np.add.accumulate(exponentials, axis=1)[:, -1:]
    steps = np.floor(np.float32(1) / y_grid.scale32)
    with np.errstate(over="ignore", invalid="ignore"):
        levels = np.rint(exponentials * steps / total)
    # One element with a fine output scale overflows; the C conversion of inf differs by signedness.
    overflown = np.float32(-(2**31) if y_grid.qmin < 0 else 0)
    integers = np.where(np.isfinite(levels), levels, overflown).astype(np.int32) + np.int32(y_grid.zero_point)
    return np.asarray(np.clip(integers, y_grid.qmin, y_grid.qmax).astype(y_grid.dtype))


def _exponentials(x_scale: np.float32, length: int) -> Float32Array:
    """Exp of (i - 255) steps for i in 0..255, lifted so far that `length` of them still sum to a float32."""
    lift = float(np.log(np.finfo(np.float32).max / np.float32(length))) - _HEADROOM
    shift = max(0.0, lift) / float(x_scale)
    values = [math.exp((i - 255 + shift) * float(x_scale)) for i in range(256)]
    return np.array(values, np.float32)
