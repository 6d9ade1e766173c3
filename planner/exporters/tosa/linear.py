"""Linear: CONV2D, CONV3D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D and MATMUL, each with one RESCALE behind it.

A matrix of weights is a CONV2D with a kernel of 1 x 1, which has a multiplier per channel; one spatial axis
is two, the first of size 1. Each says False where its operands are not what the operators take.
Source: TOSA 1.0, tensor operators; design 01, sections 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.exporters.blocks import Block, Clamp
from planner.exporters.products import INT32, Product, product_of, range_of, stored_bias
from planner.exporters.qlinear import is_accumulator, operand_of
from planner.exporters.tosa.elementwise import concatenated
from planner.exporters.tosa.geometry import Windows, trimmed, windows_of
from planner.exporters.tosa.moving import picked
from planner.exporters.tosa.program import Tensor, channels_last, plain
from planner.exporters.tosa.scaling import factor_of, narrowed, rescale
from planner.exporters.tosa.sheet import Array, Sheet, element_of, held, width_of
from planner.interpreter.fixed_point import ratios
from planner.interpreter.geometry import conv_geometry
from planner.ir.qtypes import Uniform
from planner.mlir.generic import array_text

WORD_BITS: Final = 16
_INT48: Final = (1 << 47) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """A product ready to be written.

    Attributes:
      weight: stored integers, as the model has them.
      bias: (C,) stored integers on the accumulator's grid.
      ends: least and greatest sum of each channel, bias included.
    """

    product: Product
    weight: Array
    bias: Array
    ends: tuple[Array, Array]

    @property
    def acc_element(self) -> str:
        return "i48" if width_of(self.product.x.kind) == WORD_BITS else "i32"


def conv(sheet: Sheet, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Conv of two, three or one spatial axes: one group, one per channel, or group by group."""
    product = product_of(sheet, block, max_bits=WORD_BITS)
    parts = None if product is None else _parts(sheet, product)
    if parts is None or parts.product.trailing not in (1, 2, 3):
        return False
    x = _spread(sheet, parts)
    spatial = x.sizes[-parts.product.trailing :]
    geometry = conv_geometry(parts.product.op.attributes, spatial, parts.weight.shape[2:])
    windows = windows_of(geometry, parts.weight.shape[2:])
    x = trimmed(sheet.program, x, windows)
    windows = windows.fitted(x.sizes[2:])
    group, channels = geometry.group, x.sizes[1]
    kind = "conv2d" if x.order == (0, 2, 3, 1) else "conv3d"
    if group == 1:
        acc = _convolved(sheet, parts, x, windows, kind)
    elif group == channels and parts.product.trailing < 3:
        acc = _depthwise(sheet, parts, x, windows)
    else:
        acc = _grouped(sheet, parts, x, windows, kind)
    return _finish(sheet, block, parts, acc, y, clamp)


def conv_transpose(sheet: Sheet, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """ConvTranspose of two spatial axes or one, without dilations or groups."""
    op = block.core[0]
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    attributes = op.attributes
    is_plain = attributes.get("group", 1) == 1 and set(attributes.get("dilations", (1,))) == {1}
    is_explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes
    if x is None or w is None or not is_plain or not is_explicit or not sheet.is_constant(w.value):
        return False
    product = Product(op, x, w, 1, trailing=sheet.array(w.value).ndim - 2)
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    if name:
        bias = operand_of(block, op, 2)
        if bias is None or not is_accumulator(bias.kind, x.kind, w.kind):
            return False
        product = replace(product, bias=bias)
    parts = _parts(sheet, product) if product.trailing in (1, 2) else None
    if parts is None:
        return False
    return _finish(sheet, block, parts, _transposed(sheet, parts), y, clamp)


def fully_connected(sheet: Sheet, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Gemm and MatMul with a matrix of weights, as CONV2D; MatMul of two activations."""
    product = product_of(sheet, block, max_bits=WORD_BITS)
    parts = None if product is None else _parts(sheet, product)
    if parts is None:
        return len(block.core) == 1 and block.core[0].type == "MatMul" and matmul(sheet, block, y, clamp)
    w_axis = parts.product.w_axis
    program, x = sheet.program, sheet.stored(parts.product.x.value, parts.product.x.kind)
    x = program.ordered(x, plain(len(x.shape)))
    columns, depth = parts.weight.shape[w_axis], x.shape[-1]
    rows = (x.shape[0], prod(x.shape[1:-1])) if len(x.shape) > 1 else (1, 1)
    x4 = program.reshaped(x, (*rows, 1, depth), (0, 2, 3, 1))
    weight = parts.weight if w_axis == 0 else parts.weight.T
    shaped = replace(parts, weight=weight.reshape(columns, depth, 1, 1))
    windows = Windows((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    acc = _convolved(sheet, shaped, x4, windows, "conv2d")
    stored = _requantized(sheet, block, parts, acc, y)
    shape = (*x.shape[:-1], columns)
    settled = program.reshaped(stored, shape)
    _settle(sheet, block, y, settled, clamp)
    return True


def matmul(sheet: Sheet, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """MatMul of two tensors with one scale each."""
    op = block.core[0]
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if a is None or b is None or not (a.kind.is_per_tensor and b.kind.is_per_tensor):
        return False
    if width_of(a.kind) != width_of(b.kind) or width_of(a.kind) > WORD_BITS:
        return False
    left, right = (sheet.operand(item.value, item.kind) for item in (a, b))
    left, right = (sheet.program.ordered(item, plain(len(item.shape))) for item in (left, right))
    if len(left.shape) < 2 or len(right.shape) < 2:
        return False
    batch = left.shape[:-2]
    if len(right.shape) == 2 and len(batch) > 0:
        left = sheet.program.reshaped(left, (1, prod(left.shape[:-1]), left.shape[-1]))
    elif right.shape[:-2] != batch:
        return False
    depth = left.shape[-1]
    reach = depth * prod(_magnitude(held(item.kind)) for item in (a, b))
    is_word = width_of(a.kind) == WORD_BITS
    if reach > (_INT48 if is_word else INT32):
        return False
    left3, right3 = (
        sheet.program.reshaped(item, (prod(item.shape[:-2]), *item.shape[-2:])) for item in (left, right)
    )
    zeros = [sheet.program.number(held(item.kind).zero_point, element_of(item.kind)) for item in (a, b)]
    shape = (*left3.shape[:-1], right3.shape[-1])
    like = Tensor("", shape, "i48" if is_word else "i32", plain(3))
    acc = sheet.program.emit("matmul", [left3, right3, *zeros], like, f"{block.result}_acc")
    ratio = ratios((b.kind.scale,), a.kind.scale, y.scale)
    stored = _scaled(sheet, acc, ratio, y, (np.asarray([-reach]), np.asarray([reach])), block.result)
    sizes = (*batch, sheet.sizes(a.value)[-2], right.shape[-1])
    _settle(sheet, block, y, sheet.program.reshaped(stored, sizes), clamp)
    return True


def _magnitude(kind: Uniform) -> int:
    return max(abs(end - kind.zero_point) for end in (kind.storage.qmin, kind.storage.qmax))


def _parts(sheet: Sheet, product: Product) -> _Parts | None:
    """The stored weight and bias; None where the operators or the accumulator do not take them."""
    x, w = replace(product.x, kind=held(product.x.kind)), replace(product.w, kind=held(product.w.kind))
    moved = replace(product, x=x, w=w)
    is_word = width_of(x.kind) == WORD_BITS
    if w.kind.storage.bits > 8 or (any(w.kind.zero_points) and not w.kind.is_per_tensor):
        return None
    low, high = range_of(sheet, moved)
    if max(-int(low.min(initial=0)), int(high.max(initial=0))) > (_INT48 if is_word else INT32):
        raise sheet.refuse(
            f"sums of {max(-int(low.min()), int(high.max()))} do not fit its accumulator; tosa accepts "
            f"{'48 bits' if is_word else '32 bits'}"
        )
    bias = stored_bias(sheet, moved)
    channels = sheet.array(w.value).shape[product.w_axis]
    bias = np.zeros(channels, np.int64) if bias is None else np.broadcast_to(bias, (channels,))
    return _Parts(moved, quantize_array(sheet.array(w.value), w.kind), bias, (low, high))


def _spread(sheet: Sheet, parts: _Parts) -> Tensor:
    """The activation with its channels last, one spatial axis made two."""
    x = sheet.stored(parts.product.x.value, parts.product.x.kind)
    if len(x.shape) > 3:
        return sheet.program.ordered(x, channels_last(len(x.shape)))
    x = sheet.program.ordered(x, channels_last(3))
    return sheet.program.reshaped(x, (x.shape[0], 1, *x.shape[1:]), (0, 2, 3, 1))


def _flat_weight(weight: Array) -> Array:
    """A weight of one spatial axis with two."""
    return weight[:, :, None, :] if weight.ndim == 3 else weight


def _zeros(sheet: Sheet, parts: _Parts) -> list[str]:
    x, w = parts.product.x.kind, parts.product.w.kind
    number = sheet.program.number
    return [number(x.zero_point, element_of(x)), number(w.zero_point, element_of(w))]


def _operator(  # noqa: PLR0917
    sheet: Sheet,
    parts: _Parts,
    kind: str,
    x: Tensor,
    weight: Array,
    sizes: Sequence[int],
    more: dict[str, str],
) -> Tensor:
    """An operator of a stored weight; its result has the sizes given, channels last."""
    program, product = sheet.program, parts.product
    w = program.constant(np.ascontiguousarray(weight), element_of(product.w.kind), product.w.value)
    bias = program.constant(parts.bias, parts.acc_element, product.bias.value if product.bias else "zeros")
    like = Tensor("", tuple(sizes), parts.acc_element, x.order)
    attributes = {**more, "acc_type": parts.acc_element}
    return program.emit(
        kind, [x, w, bias, *_zeros(sheet, parts)], like, f"{product.op.outputs[0]}_acc", attributes=attributes
    )


def _convolved(sheet: Sheet, parts: _Parts, x: Tensor, windows: Windows, kind: str) -> Tensor:
    weight = _flat_weight(parts.weight)
    last = weight.transpose(0, *range(2, weight.ndim), 1)
    sizes = (x.shape[0], *windows.sizes(x.sizes[2:]), weight.shape[0])
    return _operator(sheet, parts, kind, x, last, sizes, windows.attributes())


def _grouped(sheet: Sheet, parts: _Parts, x: Tensor, windows: Windows, kind: str) -> Tensor:
    """A convolution for each group of channels, joined."""
    depth, stem = parts.weight.shape[1], parts.product.op.outputs[0]
    groups = x.sizes[1] // depth
    weights, biases = np.split(parts.weight, groups), np.split(parts.bias, groups)
    found = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        own = picked(sheet, x, {1: np.arange(i * depth, (i + 1) * depth)}, f"{stem}_group")
        found.append(_convolved(sheet, replace(parts, weight=weight, bias=bias), own, windows, kind))
    return concatenated(sheet, found, 1, f"{stem}_acc")


def _depthwise(sheet: Sheet, parts: _Parts, x: Tensor, windows: Windows) -> Tensor:
    weight = _flat_weight(parts.weight)
    channels = x.sizes[1]
    height, width = weight.shape[2:]
    last = weight.reshape(channels, -1, height, width).transpose(2, 3, 0, 1)
    sizes = (x.shape[0], *windows.sizes(x.sizes[2:]), weight.shape[0])
    return _operator(sheet, parts, "depthwise_conv2d", x, last, sizes, windows.attributes())


def _transposed(sheet: Sheet, parts: _Parts) -> Tensor:
    x, weight, attributes = _spread(sheet, parts), parts.weight, parts.product.op.attributes
    geometry = conv_geometry(attributes, x.sizes[2 - weight.ndim :], weight.shape[2:])
    filled = geometry.filled(weight.ndim - 2)
    strides, pads, more = filled.strides, filled.pads, filled.output_padding
    if weight.ndim == 3:
        strides, pads, more = (1, *strides), (0, pads[0], 0, pads[1]), (0, *more)
    weight = _flat_weight(weight)
    kernel = weight.shape[2:]
    out_pad = (-pads[0], more[0] - pads[2], -pads[1], more[1] - pads[3])
    spatial = [
        (x.sizes[2 + i] - 1) * strides[i] + kernel[i] + out_pad[2 * i] + out_pad[2 * i + 1] for i in range(2)
    ]
    sizes = (x.shape[0], *spatial, weight.shape[1])
    found = {"out_pad": array_text(out_pad), "stride": array_text(strides)}
    return _operator(sheet, parts, "transpose_conv2d", x, weight.transpose(1, 2, 3, 0), sizes, found)


def _requantized(sheet: Sheet, block: Block, parts: _Parts, acc: Tensor, y: Uniform) -> Tensor:
    product = parts.product
    ratio = ratios(product.w.kind.scales, product.x.kind.scale * product.alpha, y.scale)
    low, high = parts.ends
    if len(ratio) == 1:
        low, high = low.min()[None], high.max()[None]
    return _scaled(sheet, acc, ratio, y, (low, high), block.result)


def _scaled(  # noqa: PLR0917
    sheet: Sheet, acc: Tensor, ratio: Array, y: Uniform, ends: tuple[Array, Array], stem: str
) -> Tensor:
    """An accumulator between ends (per channel) on the grid of `y`, saturated."""
    factor = factor_of(ratio, sheet.checked_arithmetic())
    factor.check(*ends)
    if acc.element == "i48":
        if max(-int(ends[0].min()), int(ends[1].max())) > INT32:
            raise sheet.refuse(
                "sums beyond 32 bits, which RESCALE multiplies by 16 bits only; tosa accepts 16-bit "
                "activations where the weights keep the sums below 2^31"
            )
        acc = narrowed(sheet.program, acc)
    return rescale(sheet.program, acc, factor, (0, held(y).zero_point), element_of(y), stem)


def _finish(  # noqa: PLR0917
    sheet: Sheet, block: Block, parts: _Parts, acc: Tensor, y: Uniform, clamp: Clamp
) -> bool:
    stored = _requantized(sheet, block, parts, acc, y)
    if parts.product.trailing == 1:
        shape = (stored.shape[0], *stored.shape[2:])
        stored = sheet.program.reshaped(stored, shape, channels_last(3))
    _settle(sheet, block, y, stored, clamp)
    return True


def _settle(sheet: Sheet, block: Block, y: Uniform, tensor: Tensor, clamp: Clamp) -> None:
    sheet.settle(block.kernel.outputs[0].value, y, tensor, clamp.low, clamp.high)
