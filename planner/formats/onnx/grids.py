"""Grids of weights: those fixed on import, and the rest of one whose channels are scaled.

A device that stores symmetric bytes (above 8 bits: symmetric words) says each number of a grid of as many
integers around zero at the grid's own scale. Nothing here knows ops. Source: docs/qonnx.md; QONNX Quant.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Facts
from planner.ir.types.qtypes import AnyType, Bipolar, QType, Storage, Uniform, uniform
from planner.ir.types.ranges import around

Array = npt.NDArray[Any]
Reals = npt.NDArray[np.float64]
_VANISHES: Final = 2.0**34
"""Products with inputs of up to 2^10 that are 2^24 times smaller than a bias leave a float32 sum as it is."""
_LONG: Final = 2.0**10
"""Steps of a weight in a bias from which one of 32 bits is too short beside 16-bit inputs."""
_SIGNS: Final = Storage(2, signed=True, qmin=-1, qmax=1)


def is_common(store: Storage) -> bool:
    """Whether symmetric storage of 8 bits, or of 16 where 8 are too few, holds every integer of a grid."""
    if store.float_name:
        return False
    return -most_of(store) <= store.qmin and store.qmax <= most_of(store)


def most_of(store: Storage) -> int:
    """The greatest integer of symmetric storage of 8 bits, or of 16 where 8 are too few."""
    return 127 if store.range_bits <= 8 else 32767


def scaled(
    facts: Facts, weight: Array, columns: Reals, *, biases: Reals, per_axis: bool
) -> tuple[Facts, Array]:
    """Facts and numbers of a weight times one factor per slice; a grid stays one where it can be said.

    Args:
      columns: the factors, of the weight's rank, dimensions of 1 where they do not vary.
      biases: of the slices, with the factors in them.
      per_axis: whether most devices have such a weight per slice; else only the bits are required.
    """
    array = (weight * columns).astype(weight.dtype)
    grids = [fact for fact in facts if isinstance(fact, Bipolar | Uniform)]
    axes = [axis for axis, size in enumerate(columns.shape) if size > 1] or [0]
    odd = not per_axis or len(grids) != 1 or len(axes) > 1 or biases.size != weight.shape[axes[0]]
    kind = around(_uniform(grids[0]), 0) if grids else None
    if odd or kind is None or not _is_plain(kind, axes[0]):
        return tuple(map(_width, facts)), array
    factors = np.broadcast_to(columns.reshape(-1), biases.shape)
    sums = np.abs(array.astype(np.float64)).sum(axis=tuple(i for i in range(array.ndim) if i != axes[0]))
    # A channel whose sums vanish beside its bias: its own tiny scale would push the bias out of any storage,
    # so it gets the largest factor and zeros for weights.
    dead = sums * _VANISHES <= np.abs(biases)
    scales = np.asarray(kind.scales) * np.where(dead, np.max(np.abs(factors)), np.abs(factors))
    if not np.all(scales > 0) or np.any(~dead & (np.abs(biases) > scales * _LONG)):
        return tuple(map(_width, facts)), array
    # The integers stay as they are, as the factor goes into the scale; a negative factor turns their signs.
    stored = np.rint(np.asarray(weight, np.float64) / _along(kind, weight.ndim))
    stored *= np.where(dead, 0.0, np.sign(factors)).reshape(
        [-1 if i == axes[0] else 1 for i in range(array.ndim)]
    )
    grid = _grid(kind, scales, axes[0], flipped=bool(np.any(factors < 0)))
    array = (stored.astype(np.float32) * _along(grid, weight.ndim)).astype(weight.dtype)
    return tuple(grid if fact is grids[0] else fact for fact in facts), array


def _is_plain(kind: Uniform, axis: int) -> bool:
    """Whether the integers around zero of a type are still those of one once its slices are scaled."""
    odd = kind.blocks or kind.grid or kind.ranges or any(kind.zero_points) or kind.expressed != "f32"
    return not odd and kind.axis in (None, axis) and not kind.storage.float_name


def _grid(kind: Uniform, scales: Reals, axis: int, *, flipped: bool) -> Uniform:
    store = kind.storage
    # -128 turned round is 128, which needs a symmetric range, and a bit more where the storage is full.
    if flipped and store.qmin != -store.qmax:
        most = max(-store.qmin, store.qmax)
        store = Storage(max(store.bits, most.bit_length() + 1), True, -most, most)
    return uniform(store, scales.tolist(), 0, axis=axis)


def _uniform(fact: Bipolar | Uniform) -> Uniform:
    return fact if isinstance(fact, Uniform) else Uniform(_SIGNS, (fact.scale,), (0,))


def _along(kind: Uniform, rank: int) -> npt.NDArray[np.float32]:
    shape = [1] * rank
    if kind.axis is not None:
        shape[kind.axis] = -1
    return np.asarray(kind.scales, np.float32).reshape(shape)


def _width(fact: QType) -> QType:
    """A fact of a weight whose slices are scaled: its types no longer hold, the required bits do."""
    if isinstance(fact, Bipolar | Uniform):
        return AnyType(_uniform(fact).storage)
    return replace(fact, trained=None) if isinstance(fact, AnyType) else fact
