"""Neighbours: what two weights that follow each other in a sum of products add up to.

Some engines add products in pairs, in fewer bits than all of them: x86 without VNNI multiplies u8 with i8
and adds two products in 16 bits (VPMADDUBSW), which saturate. Pairs are those of the order in which
onnxruntime's MLAS sums: positions of the kernel, then channels, two by two from the first. Depthwise
convolutions add no pairs there. Measured on such a processor by `tests/ir/test_neighbours.py`.
Source: ONNX operator schemas; MLAS, `QgemmU8X8KernelAvx2`.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Op

Reals = npt.NDArray[np.float64]
_PIECE: Final = 1 << 18
"""Elements that are added at a time."""


def greatest_pairs(weight: npt.NDArray[Any], op: Op) -> Reals | None:
    """The greatest |a + b| of neighbouring weights a, b of each output channel, shape (n_channels,).

    Of two signs they add up to less than the greater one alone, so that never counts. None where the op
    adds no pairs: it is none of products, or depthwise.

    Args:
      weight: the op's second operand, reals.
    """
    rows = _rows_of_sums(weight, op)
    if rows is None:
        return None
    found = [_greatest(piece) for piece in rows]
    return np.concatenate(found) if found else np.zeros(0)


def least_scales(pairs: Reals, farthest: Reals, most: int) -> Reals:
    """The finest scales with which pairs add up to no more than so many steps, each of them rounded.

    Args:
      pairs: as `greatest_pairs` has them, of each slice.
      farthest: the greatest |number| that is stored of each slice: what is beyond is cut.
    """
    return np.minimum(pairs, 2 * farthest) / (most - 1)


def _rows_of_sums(weight: npt.NDArray[Any], op: Op) -> Iterator[npt.NDArray[Any]] | None:
    """Pieces of the weight as (channels, any, terms), in the order of a sum; None where it has no pairs."""
    if op.type == "Conv" and weight.ndim > 2:
        count, channels = weight.shape[:2]
        if channels == 1 and op.attributes.get("group", 1) == count:
            return None
        turned = np.moveaxis(weight, 1, -1)
        return (piece.reshape(len(piece), 1, -1) for piece in _pieces(turned))
    if op.type == "Gemm" and weight.ndim == 2:
        rows = weight if op.attributes.get("transB", 0) else weight.T
        return (piece[:, None] for piece in _pieces(rows))
    if op.type == "MatMul" and weight.ndim > 1:
        rows = np.moveaxis(weight, -1, 0)
        return (piece.reshape(len(piece), -1, weight.shape[-2]) for piece in _pieces(rows))
    return None


def _pieces(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    step = max(1, _PIECE * len(rows) // max(1, rows.size))
    return (rows[begin : begin + step] for begin in range(0, len(rows), step))


def _greatest(rows: npt.NDArray[Any]) -> Reals:
    even = rows.shape[-1] // 2 * 2
    sums = np.abs(rows[..., 0:even:2].astype(np.float64) + rows[..., 1:even:2])
    greatest: Reals = sums.max(axis=(1, 2), initial=0.0)
    return greatest
