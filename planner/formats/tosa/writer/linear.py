"""Linear: CONV2D, CONV3D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D and MATMUL, each with one RESCALE behind it.

A matrix of weights is a CONV2D with a kernel of 1 x 1, which has a multiplier per channel; one spatial axis
is two, the first of size 1. Each says False where its operands are not what the operators take.
Source: TOSA 1.0, tensor operators; docs/specification.md, sections 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import plain
from planner.formats.common.linear_operands import (
    INT32,
    is_plain_transpose,
    largest,
    product_of,
    range_of,
    stored_bias,
    weighted_product_of,
)
from planner.formats.common.values import Array
from planner.formats.mlir.generic import array_text
from planner.formats.tosa.writer.elementwise import concatenated
from planner.formats.tosa.writer.geometry import Windows, trimmed, windows_of
from planner.formats.tosa.writer.matrices import Matrices
from planner.formats.tosa.writer.movement import picked
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, element_of, held, width_of
from planner.formats.tosa.writer.scaling import factor_of, narrowed, rescale
from planner.interpreter.fixed_point import ratios
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of
from planner.lowering.products import Product
from planner.ops.geometry.windows import conv_geometry

WORD_BITS: Final = 16
_INT48: Final = (1 << 47) - 1


@dataclass(frozen=True, slots=True, eq=False)
class _Weighted:
    """An op of a constant weight, ready to be written.

    Attributes:
      weight, bias: numbers as they are stored, the weight's axes as the model has them; the bias (C,).
      names: of weight and bias, for the text.
      elements, zeros: element types and zero points of activation and weight.
      acc_element: of sums and bias.
    """

    op: Op
    weight: Array
    bias: Array
    names: tuple[str, str]
    elements: tuple[str, str]
    zeros: tuple[int, int]
    acc_element: str


@dataclass(frozen=True, slots=True, eq=False)
class _Parts(_Weighted):
    """A product of integers.

    Attributes:
      ends: least and greatest sum of each channel, bias included.
    """

    product: Product
    ends: tuple[Array, Array]


def conv(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Conv of two, three or one spatial axes: one group, one per channel, or group by group."""
    product = weighted_product_of(builder.values, block, max_bits=WORD_BITS)
    parts = None if product is None else _parts(builder, product)
    if parts is None or parts.product.trailing not in (1, 2, 3):
        return False
    x = builder.values.integers(parts.product.x.value, parts.product.x.kind)
    return _finish(builder, block, parts, _sums(builder, parts, x), y, clamp)


def conv_reals(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """Conv or ConvTranspose in float, with a constant weight and bias; None for others."""
    names = [name for name in op.inputs[1:] if name]
    if not all(builder.values.is_constant(name) for name in names):
        return None
    weight, *more = (builder.values.array(name).astype(np.float32) for name in names)
    trailing, is_transposed = weight.ndim - 2, op.type == "ConvTranspose"
    if is_transposed:
        if trailing not in (1, 2) or not is_plain_transpose(op):
            return None
    elif trailing not in (1, 2, 3):
        return None
    bias = more[0] if more else np.zeros(weight.shape[1 if is_transposed else 0], np.float32)
    parts = _Weighted(op, weight, bias, (names[0], "".join(names[1:])), ("f32", "f32"), (0, 0), "f32")
    found = (_transposed if is_transposed else _sums)(builder, parts, tensors[0])
    return builder.program.out_of_image(found, trailing + 2)


def _sums(builder: ProgramBuilder, parts: _Weighted, x: Tensor) -> Tensor:
    """The sums of a Conv, its bias included; one spatial axis is written as two."""
    x, trailing = builder.program.image(x), parts.weight.ndim - 2
    geometry = conv_geometry(parts.op.attributes, x.sizes[-trailing:], parts.weight.shape[2:])
    windows = windows_of(geometry, parts.weight.shape[2:])
    x = trimmed(builder.program, x, windows)
    windows = windows.fitted(x.sizes[2:])
    kind = "conv2d" if x.order == (0, 2, 3, 1) else "conv3d"
    if geometry.group == 1:
        return _convolved(builder, parts, x, windows, kind)
    if geometry.group == x.sizes[1] and trailing < 3:
        return _depthwise(builder, parts, x, windows)
    return _grouped(builder, parts, x, windows, kind)


def conv_transpose(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """ConvTranspose of two spatial axes or one, without dilations or groups."""
    product = product_of(builder.values, block)
    if product is None or not is_plain_transpose(product.op):
        return False
    parts = _parts(builder, product) if product.trailing in (1, 2) else None
    if parts is None:
        return False
    x_stored = builder.values.integers(parts.product.x.value, parts.product.x.kind)
    return _finish(builder, block, parts, _transposed(builder, parts, x_stored), y, clamp)


def fully_connected(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Gemm and MatMul with a matrix of weights, as CONV2D; MatMul of two activations."""
    product = weighted_product_of(builder.values, block, max_bits=WORD_BITS)
    parts = None if product is None else _parts(builder, product)
    if parts is None:
        return len(block.core) == 1 and block.core[0].type == "MatMul" and matmul(builder, block, y, clamp)
    w_axis = parts.product.w_axis
    program, x = builder.program, builder.values.integers(parts.product.x.value, parts.product.x.kind)
    x = program.ordered(x, plain(len(x.shape)))
    columns, depth = parts.weight.shape[w_axis], x.shape[-1]
    rows = (x.shape[0], prod(x.shape[1:-1])) if len(x.shape) > 1 else (1, 1)
    x4 = program.reshaped(x, (*rows, 1, depth), (0, 2, 3, 1))
    weight = parts.weight if w_axis == 0 else parts.weight.T
    shaped = replace(parts, weight=weight.reshape(columns, depth, 1, 1))
    windows = Windows((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    acc = _convolved(builder, shaped, x4, windows, "conv2d")
    stored = _requantized(builder, block, parts, acc, y)
    shape = (*x.shape[:-1], columns)
    settled = program.reshaped(stored, shape)
    _settle(builder, block, y, settled, clamp)
    return True


def matmul(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """MatMul of two tensors with one scale each."""
    op = block.core[0]
    a, b = operand_of(block, op, 0), operand_of(block, op, 1)
    if a is None or b is None or not (a.kind.is_per_tensor and b.kind.is_per_tensor):
        return False
    if width_of(a.kind) != width_of(b.kind) or width_of(a.kind) > WORD_BITS:
        return False
    sides = Matrices.of(builder.program, *(builder.operand(item.value, item.kind) for item in (a, b)))
    reach = sides.left.shape[-1] * prod(largest(held(item.kind)) for item in (a, b))
    is_word = width_of(a.kind) == WORD_BITS
    if reach > (_INT48 if is_word else INT32):
        return False
    zeros = [builder.program.number(held(item.kind).zero_point, element_of(item.kind)) for item in (a, b)]
    acc = sides.product(builder.program, zeros, "i48" if is_word else "i32", f"{block.result}_acc")
    ratio = ratios((b.kind.scale,), a.kind.scale, y.scale)
    stored = _scaled(builder, acc, ratio, y, (np.asarray([-reach]), np.asarray([reach])), block.result)
    _settle(builder, block, y, builder.program.reshaped(stored, sides.sizes), clamp)
    return True


def _parts(builder: ProgramBuilder, product: Product) -> _Parts | None:
    """The stored weight and bias; None where the operators or the accumulator do not take them."""
    x, w = replace(product.x, kind=held(product.x.kind)), replace(product.w, kind=held(product.w.kind))
    moved = replace(product, x=x, w=w)
    is_word = width_of(x.kind) == WORD_BITS
    if w.kind.storage.bits > 8 or (any(w.kind.zero_points) and not w.kind.is_per_tensor):
        return None
    low, high = range_of(builder.values, moved)
    if max(-int(low.min(initial=0)), int(high.max(initial=0))) > (_INT48 if is_word else INT32):
        raise builder.refuse(
            f"sums of {max(-int(low.min()), int(high.max()))} do not fit its accumulator; tosa accepts "
            f"{'48 bits' if is_word else '32 bits'}"
        )
    bias = stored_bias(builder.values, moved)
    weight = np.asarray(product.weight)
    channels = weight.shape[product.w_axis]
    bias = np.zeros(channels, np.int64) if bias is None else np.broadcast_to(bias, (channels,))
    return _Parts(
        product.op,
        quantize_array(weight, w.kind),
        bias,
        (product.w.value, product.bias.value if product.bias else ""),
        (element_of(x.kind), element_of(w.kind)),
        (x.kind.zero_point, w.kind.zero_point),
        "i48" if is_word else "i32",
        moved,
        (low, high),
    )


def _flat_weight(weight: Array) -> Array:
    """A weight of one spatial axis with two."""
    return weight[:, :, None, :] if weight.ndim == 3 else weight


def _operator(  # noqa: PLR0917
    builder: ProgramBuilder,
    parts: _Weighted,
    kind: str,
    x: Tensor,
    weight: Array,
    sizes: Sequence[int],
    more: dict[str, str],
) -> Tensor:
    """An operator of a stored weight; its result has the sizes given, channels last."""
    program = builder.program
    w = program.constant(np.ascontiguousarray(weight), parts.elements[1], parts.names[0])
    bias = program.constant(parts.bias, parts.acc_element, parts.names[1] or "zeros")
    zeros = [program.number(*pair) for pair in zip(parts.zeros, parts.elements, strict=True)]
    like = Tensor("", tuple(sizes), parts.acc_element, x.order)
    attributes = {**more, "acc_type": parts.acc_element}
    return program.emit(
        kind,
        [x, w, bias, *zeros],
        like,
        f"{parts.op.outputs[0]}_acc",
        attributes=attributes,
    )


def _convolved(builder: ProgramBuilder, parts: _Weighted, x: Tensor, windows: Windows, kind: str) -> Tensor:
    weight = _flat_weight(parts.weight)
    last = weight.transpose(0, *range(2, weight.ndim), 1)
    sizes = (x.shape[0], *windows.sizes(x.sizes[2:]), weight.shape[0])
    return _operator(builder, parts, kind, x, last, sizes, windows.attributes())


def _grouped(builder: ProgramBuilder, parts: _Weighted, x: Tensor, windows: Windows, kind: str) -> Tensor:
    """A convolution for each group of channels, joined."""
    depth, stem = parts.weight.shape[1], parts.op.outputs[0]
    groups = x.sizes[1] // depth
    weights, biases = np.split(parts.weight, groups), np.split(parts.bias, groups)
    found = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        own = picked(builder, x, {1: np.arange(i * depth, (i + 1) * depth)}, f"{stem}_group")
        found.append(_convolved(builder, replace(parts, weight=weight, bias=bias), own, windows, kind))
    return concatenated(builder, found, 1, f"{stem}_acc")


def _depthwise(builder: ProgramBuilder, parts: _Weighted, x: Tensor, windows: Windows) -> Tensor:
    weight = _flat_weight(parts.weight)
    channels = x.sizes[1]
    height, width = weight.shape[2:]
    last = weight.reshape(channels, -1, height, width).transpose(2, 3, 0, 1)
    sizes = (x.shape[0], *windows.sizes(x.sizes[2:]), weight.shape[0])
    return _operator(builder, parts, "depthwise_conv2d", x, last, sizes, windows.attributes())


def _transposed(builder: ProgramBuilder, parts: _Weighted, x: Tensor) -> Tensor:
    x, weight, attributes = builder.program.image(x), parts.weight, parts.op.attributes
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
    return _operator(builder, parts, "transpose_conv2d", x, weight.transpose(1, 2, 3, 0), sizes, found)


def _requantized(builder: ProgramBuilder, block: Block, parts: _Parts, acc: Tensor, y: Uniform) -> Tensor:
    product = parts.product
    ratio = ratios(product.w.kind.scales, product.x.kind.scale * product.alpha, y.scale)
    low, high = parts.ends
    if len(ratio) == 1:
        low, high = low.min()[None], high.max()[None]
    return _scaled(builder, acc, ratio, y, (low, high), block.result)


def _scaled(  # noqa: PLR0917
    builder: ProgramBuilder, acc: Tensor, ratio: Array, y: Uniform, ends: tuple[Array, Array], stem: str
) -> Tensor:
    """An accumulator between ends (per channel) on the grid of `y`, saturated."""
    factor = factor_of(ratio, builder.checked_arithmetic())
    factor.check(*ends)
    if acc.element == "i48":
        if max(-int(ends[0].min()), int(ends[1].max())) > INT32:
            raise builder.refuse(
                "sums beyond 32 bits, which RESCALE multiplies by 16 bits only; tosa accepts 16-bit "
                "activations where the weights keep the sums below 2^31"
            )
        acc = narrowed(builder.program, acc)
    return rescale(builder.program, acc, factor, (0, held(y).zero_point), element_of(y), stem)


def _finish(  # noqa: PLR0917
    builder: ProgramBuilder, block: Block, parts: _Parts, acc: Tensor, y: Uniform, clamp: Clamp
) -> bool:
    stored = _requantized(builder, block, parts, acc, y)
    _settle(builder, block, y, builder.program.out_of_image(stored, parts.weight.ndim), clamp)
    return True


def _settle(builder: ProgramBuilder, block: Block, y: Uniform, tensor: Tensor, clamp: Clamp) -> None:
    builder.settle(block.kernel.outputs[0].value, y, tensor, clamp.low, clamp.high)
