"""Linear: CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL.

Weights are stored OHWI with a scale for each output channel (`quantized_dimension`), biases in 32 bits, or 64
beside 16-bit activations. One spatial axis is two, the first of size 1. A writer says None where its operands
are not what the operators take. Source: LiteRT 8-bit quantization specification.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.layouts import channels_last, plain
from planner.formats.common.linear_operands import is_plain_transpose
from planner.formats.common.values import Array
from planner.formats.litert.writer.calls import NONE, Call
from planner.formats.litert.writer.geometry import VALID, Windows, padded, windows_over
from planner.formats.litert.writer.operations import Tensor
from planner.formats.litert.writer.program_builder import element_of
from planner.ir.types.qtypes import Storage, Uniform
from planner.ops.geometry.windows import conv_geometry, output_sizes

_LAST: Final = channels_last(4)
_DEEP: Final = 3
"""The axis of channels of depthwise weights."""
_WORD: Final = Storage(32, signed=True, qmin=-(1 << 31), qmax=(1 << 31) - 1)


def conv(call: Call) -> Sequence[Tensor] | None:
    """Conv of two spatial axes or one: one group, one per channel, or groups."""
    weight = _weight(call, 0)
    if weight is None or weight.ndim not in (3, 4):
        return None
    x, rank = call.image(), weight.ndim - 2
    geometry = conv_geometry(call.op.attributes, x.sizes[4 - rank :], weight.shape[2:]).filled(rank)
    count = output_sizes(x.sizes[4 - rank :], weight.shape[2:], geometry)
    windows = windows_over(weight.shape[2:], geometry.strides, geometry.dilations, geometry.pads, count)
    x, padding = _fitted(call, x, windows)
    weight = weight if rank == 2 else weight[:, :, None]
    channels = weight.shape[0]
    options = {**windows.options(padding), "FusedActivationFunction": call.activation}
    like = call.like((x.shape[0], *windows.count, channels), _LAST)
    if geometry.group == x.sizes[1] > 1:
        options["DepthMultiplier"] = channels // geometry.group
        w = _stored(call, weight.transpose(1, 2, 3, 0), _DEEP)
        operands = (x, w, _bias(call, channels))
        result = call.emit("DEPTHWISE_CONV_2D", operands, like, "DepthwiseConv2DOptions", options)
    else:
        w = _stored(call, weight.transpose(0, 2, 3, 1), 0)
        operands = (x, w, _bias(call, channels))
        result = call.emit("CONV_2D", operands, like, "Conv2DOptions", options)
    return [call.builder.program.out_of_image(result, rank + 2)]


def conv_transpose(call: Call) -> Sequence[Tensor] | None:
    """ConvTranspose of two spatial axes or one, one group, no dilations: what its pads cut is sliced off."""
    weight, attributes = _weight(call, 1), call.op.attributes
    if weight is None or weight.ndim not in (3, 4) or not is_plain_transpose(call.op):
        return None
    x, rank = call.image(), weight.ndim - 2
    geometry = conv_geometry(attributes, x.sizes[4 - rank :], weight.shape[2:]).filled(rank)
    strides, pads, more = geometry.strides, geometry.pads, geometry.output_padding
    if rank == 1:  # a row of pixels
        weight, strides, more = weight[:, :, None], (1, *strides), (0, *more)
        pads = (0, pads[0], 0, pads[1])
    kernel = weight.shape[2:]
    count = [
        (x.sizes[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[2 + i] + more[i] for i in range(2)
    ]
    # Forward, the result's windows would be the input's pixels.
    forward = windows_over(kernel, strides, (1, 1), pads, x.sizes[2:])
    # What VALID gives is all that the windows reach: begins and ends are sliced off, or missing ends added.
    # Compilers take no other sizes than one stride a pixel, beyond which a window may reach in VALID.
    steps = [x.sizes[2 + i] * strides[i] for i in range(2)]
    reach = [steps[i] + max(kernel[i] - strides[i], 0) for i in range(2)]
    padding = forward.padding(count) if count in (steps, reach) else None
    whole = count if padding is not None else [max(count[i] + pads[i], reach[i]) for i in range(2)]
    sizes = (x.shape[0], *whole, weight.shape[1])
    options = {"Padding": VALID if padding is None else padding, "StrideH": strides[0], "StrideW": strides[1]}
    w = _stored(call, weight.transpose(1, 2, 3, 0), 0)
    operands = (call.builder.program.numbers(sizes), w, x, _bias(call, weight.shape[1]))
    result = call.emit("TRANSPOSE_CONV", operands, call.like(sizes, _LAST), "TransposeConvOptions", options)
    if whole == count and not any(pads[:2] if padding is None else ()):
        return [call.builder.program.out_of_image(result, rank + 2)]
    program, shape = call.builder.program, (x.shape[0], *count, weight.shape[1])
    window = (program.numbers((0, *pads[:2], 0)), program.numbers(shape))
    like = replace(result, shape=shape)
    result = call.emit("SLICE", (result, *window), like, "SliceOptions", {})
    return [program.out_of_image(result, rank + 2)]


def fully_connected(call: Call) -> Sequence[Tensor] | None:
    """Gemm and MatMul with a matrix of weights; other MatMuls are BATCH_MATMUL."""
    op, attributes = call.op, call.op.attributes
    has_bias = call.has(2) or call.bias is not None
    is_gemm = op.type == "Gemm"
    axis = 0 if attributes.get("transB") else 1
    weight = _weight(call, axis) if call.builder.values.is_constant(op.inputs[1]) else None
    if weight is None or weight.ndim != 2:
        return None if is_gemm or has_bias else batch_matmul(call)
    is_scaled = attributes.get("alpha", 1.0) != 1.0 or (call.has(2) and attributes.get("beta", 1.0) != 1.0)
    if attributes.get("transA") or (is_gemm and is_scaled):
        return None
    x = call.tensor(0)
    x = call.builder.program.ordered(x, plain(len(x.shape)))
    is_row = len(x.shape) == 1
    if is_row:
        x = call.builder.program.reshaped(x, (1, *x.shape))
    columns = weight.shape[axis]
    bias = _bias(call, columns)
    w = _stored(call, weight if axis == 0 else weight.T, 0)
    options = {"FusedActivationFunction": call.activation, "KeepNumDims": len(x.shape) > 2}
    like = call.like((*x.shape[:-1], columns), x.order)
    result = call.emit("FULLY_CONNECTED", (x, w, bias), like, "FullyConnectedOptions", options)
    return [call.builder.program.reshaped(result, (columns,)) if is_row else result]


def batch_matmul(call: Call) -> Sequence[Tensor] | None:
    """MatMul of two tensors with one scale each; a vector is a matrix of one row or column."""
    program = call.builder.program
    a, b = (program.ordered(side, plain(len(side.shape))) for side in (call.tensor(0), call.tensor(1)))
    kinds = [call.kind(i) for i in (0, 1)]
    if any(kind is not None and not kind.is_per_tensor for kind in kinds) or call.activation != NONE:
        return None
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    a = program.reshaped(a, (1, *a.shape)) if len(a.shape) == 1 else a
    b = program.reshaped(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    like = call.like((*batch, a.shape[-2], b.shape[-1]), plain(len(batch) + 2))
    found = call.emit("BATCH_MATMUL", (a, b), like, "BatchMatMulOptions", {})
    return [program.reshaped(found, (*batch, *rows, *columns))]


def _weight(call: Call, axis: int) -> Array | None:
    """The reals of a constant weight, one scale or one per output channel."""
    name, kind, values = call.op.inputs[1], call.kind(1), call.builder.values
    if not values.is_constant(name) or (kind is not None and (kind.grid or kind.axis not in (None, axis))):
        return None
    if kind is not None and (kind.storage.bits > 8 or not kind.storage.signed or any(kind.zero_points)):
        return None
    if kind is None and call.kind(0) is not None:
        return None
    return values.array(name)


def _stored(call: Call, moved: Array, dimension: int) -> Tensor:
    """A weight as the operator stores it: `moved` has its reals with the output channels at `dimension`."""
    kind, name, program = call.kind(1), call.op.inputs[1], call.builder.program
    if kind is None:
        return program.constant(moved, "f32", name)
    own = kind if kind.axis is None else replace(kind, axis=dimension)
    if kind.axis is None and dimension == _DEEP and call.kind(0) is None:
        many = moved.shape[dimension]  # the hybrid kernel reads a scale for each channel
        own = replace(kind, scales=kind.scales * many, zero_points=kind.zero_points * many, axis=dimension)
    return program.constant(quantize_array(moved, own), "i8", name, kind=own, dimension=dimension)


def _bias(call: Call, channels: int) -> Tensor:
    """The bias on the accumulator's grid; zeros where there is none, which every runtime takes."""
    program, values = call.builder.program, call.builder.values
    name, given = call.bias or ((call.op.inputs[2], call.kinds.get(2)) if call.has(2) else ("", None))
    x, w = call.kind(0), call.kind(1)
    reals = values.array(name).reshape(-1) if name else np.zeros(channels, np.float32)
    reals = np.broadcast_to(reals, (channels,))
    stem = name or f"{call.stem}_bias"
    if x is None or w is None:
        return program.constant(reals, "f32", stem)
    # Scales come from the operands where the model has no bias of its own.
    scales = tuple(float(np.float32(x.scale) * np.float32(scale)) for scale in w.scales)
    axis = None if w.axis is None else 0
    kind = given if isinstance(given, Uniform) else Uniform(_WORD, scales, (0,) * len(scales), axis=axis)
    if kind.axis is not None:
        kind = replace(kind, axis=0)
    element = "i64" if element_of(x) == "i16" else "i32"
    return program.constant(quantize_array(reals, kind), element, stem, kind=kind)


def _fitted(call: Call, x: Tensor, windows: Windows) -> tuple[Tensor, int]:
    """The input, padded by an operator of its own where neither SAME nor VALID says the windows."""
    padding = windows.padding(x.sizes[2:])
    if padding is not None:
        return x, padding
    top, left, bottom, right = windows.missing(x.sizes[2:])
    x = padded(call.builder.program, x, {1: (top, bottom), 2: (left, right)}, call.stem)
    return x, VALID
