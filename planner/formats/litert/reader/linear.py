"""Linear: CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL as ONNX ops.

Weights are transposed from OHWI to ONNX's order at once, their types' axes with them.
Source: TensorFlow Lite, reference kernels (padding: ComputePaddingHeightWidth).
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.formats.litert.reader.builder import FIRST, LAST, Builder, Unread
from planner.formats.litert.reader.file import File, Operator

Reader: TypeAlias = Callable[[Builder, Operator], None]
"""Adds the ops that an operator is; raises Unread where none are it."""

SAME: Final = 0
_EXPLICIT: Final = (0, 1)


def same_pads(
    sizes: Sequence[int], count: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """The padding of SAME, begins and then ends: the smaller half in front.

    Args:
      count: windows along each axis.
      kernel: pixels that a window spans.
    """
    totals = [
        max(0, (windows - 1) * stride + reach - size)
        for size, windows, reach, stride in zip(sizes, count, kernel, strides, strict=True)
    ]
    return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))


def window_attributes(
    builder: Builder,
    op: Operator,
    x: int,
    given: tuple[Sequence[int], Sequence[int], Sequence[int]],
    padding: int,
) -> dict[str, object]:
    """Kernel, strides, dilations and pads of windows over the spatial axes of an operand.

    Args:
      given: kernel, strides, dilations.
    """
    kernel, strides, dilations = given
    if min(*strides, *dilations, *kernel) < 1 or padding not in _EXPLICIT:
        raise Unread("its windows have sizes or steps below 1, or another padding than SAME and VALID")
    sizes = builder.tensor(op, x).shape[1:3]
    result = builder.file.tensors[op.outputs[0]].shape
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    if padding == SAME:
        count = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
        pads = same_pads(sizes, count, reach, strides)
    else:
        count = [
            (size - span) // stride + 1 for size, span, stride in zip(sizes, reach, strides, strict=True)
        ]
        pads = (0, 0, 0, 0)
    if len(result) != 4 or tuple(count) != result[1:3]:
        raise Unread(f"its result has shape {list(result)}, its windows are {count}")
    if all(sizes[i] + pads[i] + pads[2 + i] == reach[i] for i in range(2)):
        # One window over everything: devices limit steps, and there are none.
        strides = (1, 1)
    return {
        "dilations": tuple(dilations),
        "kernel_shape": tuple(kernel),
        "pads": pads,
        "strides": tuple(strides),
    }


def conv(builder: Builder, op: Operator) -> None:
    """CONV_2D; groups where the filter is less deep than the input."""
    options = builder.options(op, "Conv2DOptions")
    w = builder.tensor(op, 1)
    depth = builder.tensor(op, 0).shape[-1:]
    if len(w.shape) != 4 or not w.shape[3] or depth == () or depth[0] % w.shape[3]:
        raise Unread(f"its filter has shape {list(w.shape)}")
    strides = options.StrideH(), options.StrideW()
    dilations = options.DilationHFactor(), options.DilationWFactor()
    attributes = window_attributes(builder, op, 0, (w.shape[1:3], strides, dilations), options.Padding())
    attributes["group"] = depth[0] // w.shape[3]
    inputs = [builder.image(op), builder.turned(builder.value(op, 1), FIRST), *builder.bias(op, 2, 0, 1)]
    builder.result(op, "Conv", inputs, attributes, activation=options.FusedActivationFunction(), order=LAST)


def depthwise(builder: Builder, op: Operator) -> None:
    """DEPTHWISE_CONV_2D: one group per channel."""
    options = builder.options(op, "DepthwiseConv2DOptions")
    w, x = builder.tensor(op, 1), builder.tensor(op, 0)
    if len(w.shape) != 4 or len(x.shape) != 4 or w.shape[0] != 1 or w.shape[3] % max(1, x.shape[3]):
        raise Unread(f"its filter has shape {list(w.shape)}")
    strides = options.StrideH(), options.StrideW()
    dilations = options.DilationHFactor(), options.DilationWFactor()
    attributes = window_attributes(builder, op, 0, (w.shape[1:3], strides, dilations), options.Padding())
    attributes["group"] = x.shape[3]
    weight = builder.turned(builder.value(op, 1), (3, 0, 1, 2))
    inputs = [builder.image(op), weight, *builder.bias(op, 2, 0, 1)]
    builder.result(op, "Conv", inputs, attributes, activation=options.FusedActivationFunction(), order=LAST)


def transpose_conv(builder: Builder, op: Operator) -> None:
    """TRANSPOSE_CONV: its first operand says the sizes of the result."""
    options = builder.options(op, "TransposeConvOptions")
    w, x, result = builder.tensor(op, 1), builder.tensor(op, 2), builder.file.tensors[op.outputs[0]]
    strides = options.StrideH(), options.StrideW()
    if len(w.shape) != 4 or len(x.shape) != 4 or len(result.shape) != 4 or min(strides) < 1:
        raise Unread(f"its filter has shape {list(w.shape)}, its strides are {list(strides)}")
    kernel, count, sizes = w.shape[1:3], x.shape[1:3], result.shape[1:3]
    pads = same_pads(sizes, count, kernel, strides) if options.Padding() == SAME else (0, 0, 0, 0)
    reach = [(n - 1) * step + size for n, step, size in zip(count, strides, kernel, strict=True)]
    more = [sizes[i] + pads[i] + pads[2 + i] - reach[i] for i in range(2)]
    if any(not 0 <= extra < strides[i] for i, extra in enumerate(more)):
        raise Unread(f"its result has sizes {list(sizes)}, its windows reach {reach}")
    attributes = {
        "kernel_shape": kernel,
        "output_padding": tuple(more),
        "pads": pads,
        "strides": strides,
    }
    weight = builder.turned(builder.value(op, 1), (3, 0, 1, 2))
    inputs = [builder.image(op, 2), weight, *builder.bias(op, 3, 2, 1)]
    builder.result(op, "ConvTranspose", inputs, attributes, activation=_activation(options), order=LAST)


def _activation(options: object) -> int:
    """The activation of options that have one in newer schemas alone."""
    found = getattr(options, "FusedActivationFunction", None)
    return int(found()) if found is not None else 0


def fully_connected(builder: Builder, op: Operator) -> None:
    """FULLY_CONNECTED: rows of all axes but the last, by the transposed weights."""
    options = builder.options(op, "FullyConnectedOptions")
    if options.WeightsFormat():
        raise Unread("its weights are shuffled")
    w, x, result = builder.tensor(op, 1), builder.tensor(op, 0), builder.file.tensors[op.outputs[0]]
    if len(w.shape) != 2 or not w.shape[1] or prod(x.shape) % w.shape[1]:
        raise Unread(f"its operands have shapes {list(x.shape)} and {list(w.shape)}")
    name, activation = builder.value(op, 0), options.FusedActivationFunction()
    weight = builder.turned(builder.value(op, 1), (1, 0))
    rows = prod(x.shape) // w.shape[1]
    if prod(result.shape) != rows * w.shape[0]:
        raise Unread(f"its result has shape {list(result.shape)}")
    bias = builder.bias(op, 2, 0, 1)
    if len(result.shape) == 2 and tuple(result.shape) == (rows, w.shape[0]):
        flat = builder.shaped(name, (rows, w.shape[1]))
        builder.result(op, "Gemm", [flat, weight, *bias], activation=activation)
        return
    if x.shape[:-1] != result.shape[:-1]:
        raise Unread(f"its result has shape {list(result.shape)}")
    if not bias or not np.any(builder.array(bias[0]) if builder.array(bias[0]) is not None else 1):
        builder.result(op, "MatMul", [name, weight], activation=activation)
        return
    product = builder.between("MatMul", [name, weight], result.shape)
    builder.result(op, "Add", [product, *bias], activation=activation)


def batch_matmul(builder: Builder, op: Operator) -> None:
    """BATCH_MATMUL: either operand may be transposed."""
    options = builder.options(op, "BatchMatMulOptions")
    names = []
    for i, is_turned in enumerate((options.AdjX(), options.AdjY())):
        rank = len(builder.tensor(op, i).shape)
        if rank < 2:
            raise Unread(f"operand {i} has {rank} axes")
        order = (*range(rank - 2), rank - 1, rank - 2)
        name = builder.value(op, i)
        names.append(builder.turned(name, order) if is_turned else name)
    builder.result(op, "MatMul", names)


def hybrid_operands(file: File) -> frozenset[int]:
    """The tensors that hybrid kernels of a file quantize while they run: floats beside weights in bytes."""
    found = set()
    for op in file.operators:
        x, w = (op.inputs[i] if len(op.inputs) > i else -1 for i in (0, 1))
        if op.is_custom or op.name not in _HYBRID or min(x, w) < 0:
            continue
        # With a zero point for each row nothing here computes a product.
        options = op.options("FullyConnectedOptions")
        is_moved = options is not None and options.AsymmetricQuantizeInputs()
        left, right = file.tensors[x], file.tensors[w]
        is_hybrid = left.element == "f32" and left.data is None and right.element == "i8"
        if is_hybrid and right.kind is not None and not is_moved:
            found.add(x)
    return frozenset(found)


_HYBRID: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})

LINEAR: Final[Mapping[str, Reader]] = {
    "BATCH_MATMUL": batch_matmul,
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transpose_conv,
}
