"""Linear operands: Conv, ConvTranspose, Gemm and MatMul on stored integers, taken apart for both forms.

A kernel has an integer accumulator here if it has one in the reference interpreter.
Source: docs/specification.md, sections 3, 7.
"""

from dataclasses import dataclass

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.exporters.common.blocks import Block, Operand, operand_of
from planner.exporters.common.linear_operands import is_accumulator, largest, shifted_weight
from planner.exporters.stablehlo.floats.windows import (
    conv_shape,
    gemm_dots,
    multiplied,
    transposed_shape,
    turned,
)
from planner.exporters.stablehlo.function import Array, Program
from planner.exporters.stablehlo.operations import Geometry, convolution, dot_general
from planner.exporters.stablehlo.program_builder import ProgramBuilder
from planner.exporters.stablehlo.tensors import Tensor
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A linear op on stored integers.

    Attributes:
      weight: reals of constant weights, a transposed convolution's turned; None for an activation.
      channel_axis: of the result.
      bias: stored on the accumulator's grid.
      real_bias: reals of a bias that is float or has a grid of its own.
      reach: the largest magnitude the accumulator may have, bias included.
    """

    op: Op
    x: Operand
    w: Operand
    weight: Array | None
    channel_axis: int
    bias: Operand | None
    real_bias: Array | None
    alpha: float
    reach: int

    @property
    def is_conv(self) -> bool:
        """Whether channels come before spatial axes."""
        return self.op.type in ("Conv", "ConvTranspose")


def linear_of(builder: ProgramBuilder, block: Block, y: Uniform | None) -> Linear | None:
    """The linear op of a block; None where its operands have no common integer accumulator.

    Args:
      y: type of the result; None: float.
    """
    op = block.core[0]
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    w_axis = 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    is_plain = y is None or y.is_per_tensor
    if x is None or w is None or not (x.kind.is_per_tensor and is_plain) or w.kind.grid:
        return None
    if w.kind.axis not in (None, w_axis) or not _is_plain(op, w.kind):
        return None
    array = builder.values.known(w.value)
    if array is None and not w.kind.is_per_tensor:
        return None
    if op.type == "MatMul" and not w.kind.is_per_tensor and len(builder.shape(w.value)) != 2:
        return None
    alpha = float(op.attributes.get("alpha", 1.0)) if op.type == "Gemm" else 1.0
    channels = builder.shape(w.value)[w_axis if len(builder.shape(w.value)) > 1 else 0]
    if op.type == "ConvTranspose":
        channels *= op.attributes.get("group", 1)
    bias, real, is_right = _bias_of(builder, block, (x.kind, w.kind), channels, alpha)
    if not is_right:
        return None
    if array is not None and op.type == "ConvTranspose":
        array = turned(array, op.attributes.get("group", 1))
    rank = len(builder.shape(x.value))
    # Of a vector times a matrix the one axis left is that of the channels.
    last = max(rank, len(builder.shape(w.value))) - (2 if rank == 1 else 1)
    axis = 1 if op.type in ("Conv", "ConvTranspose") else max(last, 0)
    reach = _reach(builder, op, x, w, array) + _bias_reach(builder, bias)
    return Linear(op, x, w, array, axis, bias, real, alpha, reach)


def _is_plain(op: Op, w: Uniform) -> bool:
    """Whether the interpreter has an integer kernel for the op's attributes."""
    attributes = op.attributes
    if op.type == "ConvTranspose":
        is_explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in attributes
        return is_explicit and (w.is_per_tensor or attributes.get("group", 1) == 1)
    if op.type == "Gemm":
        has_bias = len(op.inputs) > 2 and bool(op.inputs[2])
        return not has_bias or attributes.get("beta", 1.0) == 1.0
    return True


def _bias_of(
    builder: ProgramBuilder, block: Block, kinds: tuple[Uniform, Uniform], channels: int, alpha: float
) -> tuple[Operand | None, Array | None, bool]:
    """Stored bias, real bias, and whether the accumulator can take it."""
    op, index = block.core[0], 2
    if len(block.core) > 1:
        op = block.core[1]
        index = 1 if op.inputs[0] == block.core[0].outputs[0] else 0
    name = op.inputs[index] if len(op.inputs) > index else ""
    if not name:
        return None, None, True
    array = builder.values.known(name)
    if array is None or array.size != channels or array.shape[-1:] != (channels,):
        return None, None, False
    bias = operand_of(block, op, index)
    if bias is not None and is_accumulator(bias.kind, *kinds, alpha):
        return bias, None, True
    reals = array.astype(np.float32)
    if bias is not None:
        reals = dequantize_array(quantize_array(reals, bias.kind), bias.kind)
    return None, reals.reshape(-1), builder.form.arithmetic == "exact_even"


def _reach(builder: ProgramBuilder, op: Op, x: Operand, w: Operand, array: Array | None) -> int:
    most = largest(x.kind)
    if array is None:
        shape = builder.shape(w.value)
        depth = shape[1] if op.attributes.get("transB") else shape[max(0, len(shape) - 2)]
        return (
            most
            * largest(w.kind)
            * (depth if op.type not in ("Conv", "ConvTranspose") else int(np.prod(shape[1:])))
        )
    axis = 1 if op.type == "ConvTranspose" else (w.kind.axis if w.kind.axis is not None else None)
    stored = np.abs(shifted_weight(array, w.kind))
    if axis is None:
        axis = 0 if op.type == "Conv" or op.attributes.get("transB") else stored.ndim - 1
    return most * int(stored.sum(tuple(i for i in range(stored.ndim) if i != axis)).max(initial=0))


def _bias_reach(builder: ProgramBuilder, bias: Operand | None) -> int:
    if bias is None:
        return 0
    return int(np.abs(stored_bias(builder, bias)).max(initial=0))


def stored_bias(builder: ProgramBuilder, bias: Operand) -> Array:
    """The bias on the accumulator's grid, (C,) int64."""
    array = builder.values.known(bias.value)
    return quantize_array(np.asarray(array), bias.kind).astype(np.int64).reshape(-1)


def multiply_out(p: Program, linear: Linear, x: Tensor, w: Tensor) -> Tensor:
    """The products of two plain tensors in the op's geometry, `w` turned already."""
    op = linear.op
    if linear.is_conv:
        return convolution(p, x, w, geometry_of(op, x.shape, w.shape))
    return dot_general(p, x, w, gemm_dots(op)) if op.type == "Gemm" else multiplied(p, x, w)


def geometry_of(op: Op, x: tuple[int, ...], w: tuple[int, ...]) -> Geometry:
    """Geometry of a Conv or ConvTranspose, its weight turned already."""
    return (conv_shape if op.type == "Conv" else transposed_shape)(op, x, w)
