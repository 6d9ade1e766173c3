"""CONV2D, CONV3D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D and MATMUL: of reals as ONNX's, of integers exactly.

ONNX convolves channels first; the transposes around are sunk and cancelled as those of StableHLO are.
Integers are added up by ConvInteger and MatMulInteger of unsigned bytes, whose products no processor
saturates; 16 bits are two bytes. Source: TOSA 1.0, tensor operators; ONNX operators, opset 21.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.onnx.dtypes import enum_of
from planner.formats.tosa.reader.builder import CENTRE, Builder, Unread, several

Sizes = tuple[int, ...]
_BYTES: Final = frozenset({"i4", "i8", "u8"})
_BYTE: Final = 256


def _first(rank: int) -> Sizes:
    """Channels first, of channels last."""
    return (0, rank - 1, *range(1, rank - 1))


def _last(rank: int) -> Sizes:
    return (0, *range(2, rank), 1)


def conv(draft: Builder, op: Operation) -> None:
    """CONV2D and CONV3D."""
    x = draft.operand(op, 0)
    rank = len(draft.shape_of(x))
    w = draft.transposed(draft.operand(op, 1), _first(rank))
    _convolved(draft, op, draft.transposed(x, _first(rank)), w, 1)


def depthwise(draft: Builder, op: Operation) -> None:
    """DEPTHWISE_CONV2D: a group a channel."""
    x, w = draft.operand(op, 0), draft.operand(op, 1)
    height, width, channels, count = draft.shape_of(w)
    turned = _kept(draft, w, (2, 3, 0, 1), (channels * count, 1, height, width))
    _convolved(draft, op, draft.transposed(x, _first(4)), turned, channels)


def _kept(draft: Builder, w: str, order: Sequence[int], shape: Sequence[int]) -> str:
    return draft.reshaped(draft.transposed(w, order), shape)


def _convolved(draft: Builder, op: Operation, x: str, w: str, group: int) -> None:
    kernel, rank = draft.shape_of(w)[2:], len(draft.shape_of(x))
    pads = several(op, "pad")
    attributes: dict[str, Any] = {
        "dilations": several(op, "dilation"),
        "group": group,
        "kernel_shape": kernel,
        "pads": (*pads[::2], *pads[1::2]),
        "strides": several(op, "stride"),
    }
    made = draft.made(op)
    first = tuple([made[axis] for axis in _first(rank)])
    if draft.is_real(x):
        inputs = [x, draft.cast(w, draft.dtype(x)), *_bias(draft, op)]
        name = draft.between("Conv", inputs, first, attributes)
    else:
        name = _with_bias(draft, op, _summed(draft, op, (x, w), first, attributes), first)
    _placed(draft, op, name, _last(rank))


def _placed(draft: Builder, op: Operation, name: str, order: Sizes) -> None:
    wanted = draft.element(op.results[0])
    draft.result("Transpose", [draft.cast(name, wanted)], op.results[0], {"perm": order})


def _bias(draft: Builder, op: Operation) -> list[str]:
    """The bias of reals, one a channel; none where it is zero."""
    if len(op.operands) < 3:
        return []
    name, channels = draft.operand(op, 2), draft.made(op)[-1]
    array = draft.array(name)
    if array is not None and not np.any(array):
        return []
    if draft.shape_of(name) == (channels,):
        return [name]
    if array is not None:
        return [draft.constant(np.broadcast_to(array, (channels,)).copy(), name)]
    return [draft.between("Expand", [name, draft.integers([channels])], (channels,))]


def _with_bias(draft: Builder, op: Operation, name: str, shape: Sizes) -> str:
    """Sums of integers and their bias, channels first."""
    bias = draft.operand(op, 2)
    array = draft.array(bias)
    if array is not None and not np.any(array):
        return name
    # Sums of 16 bits are in 64 bits, with a bias of 48.
    flat = draft.cast(bias, draft.dtype(name))
    spread = draft.reshaped(flat, (draft.shape_of(bias)[0], *(1,) * (len(shape) - 2)))
    return draft.between("Add", [name, spread], shape)


def _summed(
    draft: Builder, op: Operation, operands: tuple[str, str], shape: Sizes, attributes: Mapping[str, Any]
) -> str:
    """Sums of products of integers, their zero points taken off first."""
    x, w = operands
    w_byte, w_zero = _byte(draft, w, draft.zero(op, 4))
    parts = _parts(draft, x, draft.zero(op, 3))
    found = ""
    for name, zero, weight in parts:
        zeros = [draft.fixed(zero, "u8"), draft.fixed(w_zero, "u8")]
        made = draft.between("ConvInteger", [name, w_byte, *zeros], shape, attributes, "i32")
        if len(parts) > 1:
            made = draft.cast(made, "i64")
            made = draft.between("Mul", [made, draft.fixed(weight)], shape) if weight > 1 else made
        found = draft.between("Add", [found, made], shape) if found else made
    return found


def _byte(draft: Builder, name: str, zero: int) -> tuple[str, int]:
    """Integers as unsigned bytes, and their zero point among those."""
    dtype = draft.dtype(name)
    if dtype not in _BYTES:
        raise Unread(f"weights of {dtype} are convolved with reals only")
    if dtype == "u8":
        return name, zero
    array = draft.array(name)
    if array is not None:
        moved = (array.astype(np.int64) + CENTRE).astype(np.uint8)
        return draft.constant(moved, name), zero + CENTRE
    moved32 = draft.between("Add", [draft.wide(name), draft.fixed(CENTRE, "i32")], draft.shape_of(name))
    return draft.cast(moved32, "u8"), zero + CENTRE


def _parts(draft: Builder, name: str, zero: int) -> list[tuple[str, int, int]]:
    """Integers as unsigned bytes, each with its zero point and its factor; 16 bits are two bytes."""
    if draft.dtype(name) in _BYTES:
        return [(*_byte(draft, name, zero), 1)]
    if draft.dtype(name) != "i16" or zero:
        raise Unread(f"ONNX convolves no {draft.dtype(name)}")
    shape = draft.shape_of(name)
    moved = draft.between("Add", [draft.wide(name), draft.fixed(CENTRE * _BYTE, "i32")], shape)
    low = draft.between("Mod", [moved, draft.fixed(_BYTE, "i32")], shape)
    high = draft.between("Div", [moved, draft.fixed(_BYTE, "i32")], shape)
    return [(draft.cast(high, "u8"), CENTRE, _BYTE), (draft.cast(low, "u8"), 0, 1)]


def transpose_conv(draft: Builder, op: Operation) -> None:
    """TRANSPOSE_CONV2D: of reals ConvTranspose; of integers a convolution of spread data."""
    x, w = draft.operand(op, 0), draft.operand(op, 1)
    strides, (top, bottom, left, right) = several(op, "stride"), several(op, "out_pad")
    height, width = draft.shape_of(w)[1:3]
    made = draft.made(op)
    first = (made[0], made[3], made[1], made[2])
    x = draft.transposed(x, _first(4))
    if not draft.is_real(x):
        _transposed_sums(draft, op, x, first)
        return
    turned = draft.cast(draft.transposed(w, (3, 0, 1, 2)), draft.dtype(x))
    crops = [max(0, -pad) for pad in (top, left, bottom, right)]
    more = [max(0, pad) for pad in (top, left, bottom, right)]
    attributes = {"kernel_shape": (height, width), "pads": tuple(crops), "strides": strides}
    if not any(more):
        name = draft.between("ConvTranspose", [x, turned, *_bias(draft, op)], first, attributes)
        _placed(draft, op, name, _last(4))
        return
    inner = [first[0], first[1], first[2] - more[0] - more[2], first[3] - more[1] - more[3]]
    name = draft.between("ConvTranspose", [x, turned], inner, attributes)
    pads = draft.integers([0, 0, *more[:2], 0, 0, *more[2:]])
    name = draft.between("Pad", [name, pads], first, {"mode": "constant"})
    for bias in _bias(draft, op):
        spread = draft.reshaped(bias, (first[1], 1, 1))
        name = draft.between("Add", [name, spread], first)
    _placed(draft, op, name, _last(4))


def _transposed_sums(draft: Builder, op: Operation, x: str, first: Sizes) -> None:
    w = draft.array(draft.operand(op, 1))
    if w is None or draft.dtype(x) not in _BYTES:
        raise Unread("its weights are no constant, or its operand has more than 8 bits")
    strides, out = several(op, "stride"), several(op, "out_pad")
    flipped = np.ascontiguousarray(np.flip(w, (1, 2)).transpose(0, 3, 1, 2))
    weight, w_zero = _byte(draft, draft.constant(flipped, draft.operand(op, 1)), draft.zero(op, 4))
    byte, zero = _byte(draft, x, draft.zero(op, 3))
    batch, channels, height, width = draft.shape_of(x)
    # Zeros between: a row of `stride` places for each number, cut behind the last one.
    tall = draft.reshaped(byte, (batch, channels, height, 1, width, 1))
    fill = draft.fixed(zero, "u8")
    ends = [0] * 6 + [0, 0, 0, strides[0] - 1, 0, strides[1] - 1]
    wide = (batch, channels, height, strides[0], width, strides[1])
    apart = draft.between("Pad", [tall, draft.integers(ends), fill], wide, {"mode": "constant"})
    flat = draft.reshaped(apart, (batch, channels, height * strides[0], width * strides[1]))
    kernel = flipped.shape[2:]
    lows = [kernel[i] - 1 + out[2 * i] for i in (0, 1)]
    highs = [kernel[i] - 1 + out[2 * i + 1] - (strides[i] - 1) for i in (0, 1)]
    sizes = [size + low + high for size, low, high in zip(draft.shape_of(flat)[2:], lows, highs, strict=True)]
    pads = draft.integers([0, 0, *lows, 0, 0, *highs])
    around = draft.between("Pad", [flat, pads, fill], (batch, channels, *sizes), {"mode": "constant"})
    zeros = [fill, draft.fixed(w_zero, "u8")]
    name = draft.between("ConvInteger", [around, weight, *zeros], first, {"kernel_shape": kernel}, "i32")
    _placed(draft, op, _with_bias(draft, op, name, first), _last(4))


def matmul(draft: Builder, op: Operation) -> None:
    """MATMUL of two batches of matrices."""
    a, b = draft.operand(op, 0), draft.operand(op, 1)
    if draft.is_real(a):
        draft.through(op.results[0], "MatMul", [a, b], draft.made(op))
        return
    zeros = draft.zero(op, 2), draft.zero(op, 3)
    if {draft.dtype(a), draft.dtype(b)} <= _BYTES:
        (left, first), (right, second) = _byte(draft, a, zeros[0]), _byte(draft, b, zeros[1])
        points = [draft.fixed(first, "u8"), draft.fixed(second, "u8")]
        draft.result("MatMulInteger", [left, right, *points], op.results[0])
        return
    names = [draft.wide(name, "i64") for name in (a, b)]
    draft.through(op.results[0], "MatMul", names, draft.made(op))


def fully_connected(draft: Builder, op: Operation) -> None:
    """FULLY_CONNECTED of TOSA before 1.0."""
    x, w = draft.operand(op, 0), draft.operand(op, 1)
    if not draft.is_real(x):
        raise Unread("its operand is no real; TOSA 1.0 has conv2d for it")
    inputs = [x, draft.transposed(w, (1, 0)), *_bias(draft, op)]
    draft.result("Gemm", inputs, op.results[0])


def average(draft: Builder, op: Operation) -> None:
    """AVG_POOL2D: what is padded does not count; of integers a sum, times a reciprocal of each count."""
    x = draft.transposed(draft.operand(op, 0), _first(4))
    kernel, strides, pads = _windows(draft, op)
    made = draft.made(op)
    first = (made[0], made[3], made[1], made[2])
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides}
    if draft.is_real(x):
        name = draft.between("AveragePool", [x], first, {**attributes, "count_include_pad": 0})
        _placed(draft, op, name, _last(4))
        return
    channels = first[1]
    shape = draft.shape_of(x)
    ones = draft.constant(np.ones((channels, 1, *kernel), np.uint8), "ones")
    found = ""
    zero = draft.zero(op, 1)
    for name, centre, factor in _parts(draft, x, zero):
        inputs = [name, ones, draft.fixed(centre, "u8"), draft.fixed(0, "u8")]
        part = draft.between("ConvInteger", inputs, first, {**attributes, "group": channels}, "i32")
        part = draft.cast(part, "i64")
        part = draft.between("Mul", [part, draft.fixed(factor)], first) if factor > 1 else part
        found = draft.between("Add", [found, part], first) if found else part
    counts = np.multiply.outer(
        *[_counts(shape[2 + i], kernel[i], strides[i], (pads[i], pads[2 + i])) for i in (0, 1)]
    )
    bits = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    # Source: TOSA 1.0, reciprocal_scale: 32 - clz(count - 1) bits.
    multipliers = ((np.int64(1) << 30) + 1 << bits) // counts
    # the product of a sum and a multiplier is below 2^62
    rounding = draft.fixed(np.left_shift(np.int64(1), 29 + bits))
    product = draft.between("Mul", [found, draft.fixed(multipliers)], first)
    total = draft.shifted(draft.between("Add", [product, rounding], first), 30 + bits)
    total = draft.between("Add", [total, draft.fixed(draft.zero(op, 2))], first)
    kind = draft.element(op.results[0])
    top = (1 << (int(kind[1:]) - 1)) - 1
    cut = draft.saturated(total, -top - 1, top)
    _placed(draft, op, draft.between("Cast", [cut], first, {"to": enum_of(kind)}, kind), _last(4))


def _windows(draft: Builder, op: Operation) -> tuple[Sizes, Sizes, Sizes]:
    """Kernel, strides and pads of a pool; the adaptive ones have them as operands."""
    if any(value in draft.sizes for value in op.operands):
        at = next(i for i, value in enumerate(op.operands) if value in draft.sizes)
        kernel, strides, pads = (draft.numbers(op, at + i) for i in range(3))
    else:
        kernel, strides, pads = (several(op, name) for name in ("kernel", "stride", "pad"))
    return kernel, strides, (*pads[::2], *pads[1::2])


def _counts(size: int, kernel: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """How many places of each window are inside."""
    starts = np.arange(0, size + sum(pads) - kernel + 1, stride) - pads[0]
    return np.asarray(np.minimum(starts + kernel, size) - np.maximum(starts, 0))


def largest(draft: Builder, op: Operation) -> None:
    """MAX_POOL2D."""
    x = draft.transposed(draft.operand(op, 0), _first(4))
    kernel, strides, pads = _windows(draft, op)
    made = draft.made(op)
    first = (made[0], made[3], made[1], made[2])
    if draft.dtype(x) == "i16":
        x = draft.cast(x, "f32")  # every 16 bits are a float32
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides}
    _placed(draft, op, draft.between("MaxPool", [x], first, attributes), _last(4))
