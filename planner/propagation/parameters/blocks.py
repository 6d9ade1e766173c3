"""Blocks: the sub-channel type of a constant, one scale per output channel and block of what is summed over.

A row lists the sizes its device knows; the first that divides the summed dimension is taken. A row of which
none does is no match, unless its last block may be shorter than the others. Source: docs/targets/reference.md
(`granularity: block`); tests/cases, cases 17 to 24; ONNX MatMulNBits, whose blocks these are.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Constant
from planner.ir.mapped import let_go
from planner.ir.types.many_numbers import compact
from planner.ir.types.qtypes import Uniform
from planner.target.ports.slices import HELD, slices_of_blocks
from planner.target.records import PortType

Reals = npt.NDArray[np.float64]


def block_type(
    ranges: tuple[Reals, Reals], shape: tuple[int, ...], axes: tuple[int, int], size: int, *, spec: PortType
) -> Uniform:
    """The tightest type with a scale per channel and block.

    Args:
      ranges: least and greatest real of each block (`block_ranges`).
      shape: of the constant.
      axes: the axes of channels and of blocks.
      size: elements of a block.
      spec: what the port accepts; its storage is one of integers.
    """
    channel, along = axes
    grid = [1] * len(shape)
    grid[channel], grid[along] = shape[channel], -(-shape[along] // size)
    kind = slices_of_blocks(*ranges, spec)
    blocks = tuple(sorted(((channel, 1), (along, size))))
    scales, zeros = kind.scales, kind.zero_points
    if len(scales) >= HELD:
        scales, zeros = compact(scales, zeros)
    return Uniform(kind.storage, scales, zeros, "f32", None, blocks, tuple(grid))


def block_ranges(
    constant: Constant, shape: tuple[int, ...], axes: tuple[int, int], size: int
) -> tuple[Reals, Reals]:
    """Least and greatest real of each block, in the order of the grid."""
    channel, along = axes
    count = shape[channel] * -(-shape[along] // size)
    if constant.array is None:
        return np.full(count, min(constant.lo, default=0.0)), np.full(count, max(constant.hi, default=0.0))
    # The two axes in front, in their order, then all that shares a scale.
    first, second = sorted(axes)
    moved = np.moveaxis(np.asarray(constant.array), (first, second), (0, 1))
    moved = moved.reshape(*moved.shape[:2], -1)
    cut = 1 if second == along else 0
    whole = shape[along] // size * size
    parts = [part for part in np.split(moved, [whole], axis=cut) if part.size]
    found = [_ends_of(part, min(size, part.shape[cut]), cut) for part in parts]
    let_go(constant.array)
    low, high = (np.concatenate(ends, axis=cut).astype(np.float64) for ends in zip(*found, strict=True))
    return low.reshape(-1), high.reshape(-1)


def _ends_of(part: npt.NDArray[Any], size: int, cut: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Least and greatest of whole blocks along axis `cut`, of the two in front."""
    shape = (*part.shape[:cut], part.shape[cut] // size, size, *part.shape[cut + 1 :])
    blocks = part.reshape(shape)
    rest = tuple(range(cut + 1, cut + 2)) + ((len(shape) - 1,) if shape[-1] > 1 else ())
    low, high = blocks.min(axis=rest), blocks.max(axis=rest)
    wanted = (*shape[: cut + 1], *shape[cut + 2 : -1])
    return low.reshape(wanted), high.reshape(wanted)
