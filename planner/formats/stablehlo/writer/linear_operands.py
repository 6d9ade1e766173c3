"""Linear operands: Conv, ConvTranspose, Gemm and MatMul on stored integers, as both forms multiply them.

Source: StableHLO specification, convolution and dot_general; `common.linear_operands`.
"""

import numpy as np

from planner.formats.common.linear_operands import largest, shifted_weight, stored_bias
from planner.formats.stablehlo.writer.floats.windows import (
    conv_shape,
    gemm_dots,
    multiplied,
    transposed_shape,
    turned,
)
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.operations import Geometry, convolution, dot_general
from planner.formats.stablehlo.writer.program_builder import ProgramBuilder
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.ir.graph import Op
from planner.lowering.products import Product


def weight_of(product: Product) -> Array | None:
    """Reals of a constant weight, a transposed convolution's turned; None of an activation."""
    if product.weight is None or product.op.type != "ConvTranspose":
        return product.weight
    return turned(product.weight, product.op.attributes.get("group", 1))


def channel_axis(builder: ProgramBuilder, product: Product) -> int:
    """The axis of the result that the columns or kernels of the weight are."""
    rank, other = (len(builder.shape(side.value)) for side in (product.x, product.w))
    # Of a vector times a matrix the one axis left is that of the channels.
    return 1 if product.is_conv else max(max(rank, other) - (2 if rank == 1 else 1), 0)


def reach_of(builder: ProgramBuilder, product: Product) -> int:
    """The largest magnitude that the accumulator may have, bias included."""
    bias = stored_bias(builder.values, product)
    added = 0 if bias is None else int(np.abs(bias).max(initial=0))
    most, weight = largest(product.x.kind), weight_of(product)
    if weight is None:
        shape = builder.shape(product.w.value)
        depth = shape[1] if product.op.attributes.get("transB") else shape[max(0, len(shape) - 2)]
        count = int(np.prod(shape[1:])) if product.is_conv else depth
        return most * largest(product.w.kind) * count + added
    axis = product.w_axis if product.is_conv or weight.ndim == 2 else weight.ndim - 1
    sums = np.abs(shifted_weight(weight, product.w.kind)).sum(
        tuple(i for i in range(weight.ndim) if i != axis)
    )
    return most * int(sums.max(initial=0)) + added


def multiply_out(p: Program, product: Product, x: Tensor, w: Tensor) -> Tensor:
    """The products of two plain tensors in the op's geometry, `w` turned already."""
    op = product.op
    if product.is_conv:
        return convolution(p, x, w, geometry_of(op, x.shape, w.shape))
    return dot_general(p, x, w, gemm_dots(op)) if op.type == "Gemm" else multiplied(p, x, w)


def geometry_of(op: Op, x: tuple[int, ...], w: tuple[int, ...]) -> Geometry:
    """Geometry of a Conv or ConvTranspose, its weight turned already."""
    return (conv_shape if op.type == "Conv" else transposed_shape)(op, x, w)
