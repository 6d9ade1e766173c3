"""Block packing: a matrix of reals to the bytes of MatMulNBits in one pass, piece by piece.

The numbers are those of `constants.quantize`, ONNX QuantizeLinear in float32; here the stored integers never
stand in memory unpacked, and the transposition is done on bytes. Source: onnxruntime's MatMulNBits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

PIECE: Final = 1 << 17
"""Elements of a piece: floats, quotients and bytes of one stay in the processor's cache."""
_WORDS: Final[Mapping[int, np.dtype[Any]]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Parameters of a matrix in blocks along one axis.

    Attributes:
      scales: float32, in the shape of the grid.
      zero_points: the same of zero points, plus `shift`; one element where all are alike.
      low, high: ends of the stored values, plus `shift`; from 0 to 2^bits - 1.
      bits: 2, 4 or 8.
      block: elements of a block.
    """

    scales: Array
    zero_points: Array
    low: int
    high: int
    bits: int
    block: int


def packed_blocks(array: Array, steps: Steps, *, axis: int) -> Array:
    """Quantize and pack.

    Args:
      array: reals, (K, N) with `axis` 0 or (N, K) with `axis` 1; a shorter last block is filled up.

    Returns:
      (N, blocks, block * bits / 8) bytes, low bits first.
    """
    depth, columns = array.shape[axis], array.shape[1 - axis]
    count, whole, size = -(-depth // steps.block), depth // steps.block, steps.block * steps.bits // 8
    out = np.empty((columns, count, size), np.uint8)
    pack, end = (_rows if axis else _columns), whole * steps.block
    first, last = ((..., slice(end)), (..., slice(end, None))) if axis else (slice(end), slice(end, None))
    with np.errstate(over="ignore", invalid="ignore"):
        if whole:
            pack(array[first], _of_blocks(steps, slice(whole), axis), out[:, :whole])
        if whole < count:
            # The operator reads whole blocks; what fills the last one is never multiplied.
            missing = count * steps.block - depth
            tail = np.pad(array[last], [(0, 0), (0, missing)] if axis else [(0, missing), (0, 0)])
            pack(tail, _of_blocks(steps, slice(whole, None), axis), out[:, whole:])
    return out


def _of_blocks(steps: Steps, blocks: slice, axis: int) -> Steps:
    """The parameters of some blocks."""
    place = (slice(None), blocks) if axis else blocks
    zeros = steps.zero_points
    return replace(steps, scales=steps.scales[place], zero_points=zeros if zeros.size == 1 else zeros[place])


def _rows(array: Array, steps: Steps, out: Array) -> None:
    """Pack rows whose blocks lie along them."""
    columns, count, size = out.shape
    each, wide = 8 // steps.bits, min(count, max(1, PIECE // steps.block))
    high = max(1, PIECE // (wide * steps.block))
    for row in range(0, columns, high):
        for begin in range(0, count, wide):
            part = array[row : row + high, begin * steps.block : (begin + wide) * steps.block]
            shape = (part.shape[0], part.shape[1] // steps.block, steps.block)
            span = slice(row, row + high), slice(begin, begin + wide)
            stored = _stored(part.reshape(shape), steps, span, (slice(None), slice(None), None))
            words = stored.reshape(-1).view(_WORDS[each])
            out[span] = _joined(words, steps.bits).reshape(*shape[:2], size)


def _columns(array: Array, steps: Steps, out: Array) -> None:
    """Pack columns whose blocks lie down them: neighbours in a byte are rows apart."""
    columns, count, size = out.shape
    each, wide = 8 // steps.bits, min(columns, max(1, PIECE // steps.block))
    high = max(1, PIECE // (wide * steps.block))
    for begin in range(0, count, high):
        for column in range(0, columns, wide):
            part = array[begin * steps.block : (begin + high) * steps.block, column : column + wide]
            shape = (part.shape[0] // steps.block, steps.block, part.shape[1])
            span = slice(begin, begin + high), slice(column, column + wide)
            stored = _stored(part.reshape(shape), steps, span, (slice(None), None, slice(None)))
            lanes = stored.reshape(shape[0], size, each, shape[2])
            packed = lanes[:, :, 0]
            for lane in range(1, each):
                packed = packed | lanes[:, :, lane] << np.uint8(steps.bits * lane)
            out[span[1], span[0]] = packed.transpose(2, 0, 1)


def _stored(part: Array, steps: Steps, span: tuple[slice, slice], spread: tuple[Any, ...]) -> Array:
    """Stored values of a piece as bytes from 0 on."""
    quotient: Array = np.divide(part, steps.scales[span][spread], dtype=np.float32)
    np.rint(quotient, out=quotient)
    zeros = steps.zero_points
    quotient += zeros.reshape(()) if zeros.size == 1 else zeros[span][spread]
    flat = quotient.reshape(-1)
    # The reductions alone are quicker than clipping, and NaN fails both; fmax makes it the lowest value.
    if not (np.minimum.reduce(flat) >= steps.low and np.maximum.reduce(flat) <= steps.high):
        np.fmax(quotient, np.float32(steps.low), out=quotient)
        np.minimum(quotient, np.float32(steps.high), out=quotient)
    stored: Array = quotient.astype(np.uint8)
    return stored


def _joined(words: Array, bits: int) -> Array:
    """The low bits of a word's bytes, beside each other in one byte."""
    found = words
    for lane in range(1, 8 // bits):
        found = np.bitwise_or(found, np.right_shift(words, words.dtype.type((8 - bits) * lane)))
    joined: Array = found.astype(np.uint8)
    return joined
