"""Sub-channel: a constant with a scale per block, through reshapes and a type per axis.

StableHLO has no sub-channel types, so blocks become slices of one axis, are dequantized along it, and are put
back in place. Source: design 05, "Out"; MLIR quant dialect, "Sub-channel quantization".
"""

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from planner.exporters.stablehlo.function import Array, Program
from planner.exporters.stablehlo.operations import reshape, transpose
from planner.exporters.stablehlo.tensors import Tensor
from planner.ir.types.qtypes import Uniform


class Storing(Protocol):
    """What a form does with stored constants."""

    def constant(self, p: Program, array: Array, kind: Uniform, /) -> Tensor:
        """Stored integers as a constant."""

    def dequantize(self, p: Program, tensor: Tensor, kind: Uniform, /) -> Tensor:
        """Stored to f32."""


def from_blocks(p: Program, form: Storing, stored: Array, kind: Uniform) -> Tensor:
    """The reals of a stored constant whose type has a scale per block.

    Args:
      stored: integers of any shape; block sizes divide it.
    """
    grid = kind.grid
    sizes = [n // g for n, g in zip(stored.shape, grid, strict=True)]
    rank = stored.ndim
    split = stored.reshape([part for pair in zip(grid, sizes, strict=True) for part in pair])
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    blocks = np.ascontiguousarray(split.transpose(order)).reshape(math.prod(grid), -1).T
    per_axis = replace(kind, axis=1, blocks=(), grid=())
    if len(kind.scales) == 1:
        per_axis = replace(kind, axis=None, blocks=(), grid=())
    p.remark(f"sub-channel {list(sizes)} of {list(stored.shape)}: a scale per block, held per axis")
    held = form.constant(p, np.ascontiguousarray(blocks), per_axis)
    flat = transpose(p, form.dequantize(p, held, per_axis), (1, 0))
    back = [axis for i in range(rank) for axis in (i, rank + i)]
    return reshape(p, transpose(p, reshape(p, flat, (*grid, *sizes)), back), stored.shape)
