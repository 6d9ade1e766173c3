"""Quantized: kernels of `stablehlo`, operations on quantized element types.

A dot or convolution ends in i32 at the scale of its products, the bias is added there, and one
uniform_quantize follows. A kernel that breaks a constraint of the specification, or has no operation on
quantized types, is dequantized, computed in f32 and quantized, as the specification says of the others.
Source: StableHLO specification; docs/specification.md, sections 8 and 9.4.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.linear_operands import INT32, product_of, stored_bias
from planner.formats.stablehlo.vocabulary import BINARIES, OPERATIONS, UNARIES, VARIADICS
from planner.formats.stablehlo.writer.floats.windows import conv_shape, multiplied
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.linear_operands import geometry_of, reach_of, weight_of
from planner.formats.stablehlo.writer.operations import (
    Dots,
    along,
    binary,
    clamp,
    convolution,
    dequantize,
    dot_general,
    quantize,
    transpose,
    unary,
)
from planner.formats.stablehlo.writer.program_builder import Form, ProgramBuilder
from planner.formats.stablehlo.writer.tensors import Tensor, quantized, quantized_text, storage_width
from planner.ir.graph import Op
from planner.ir.types.qtypes import Storage, Uniform, uniform
from planner.lowering.blocks import Block, Operand, operand_of
from planner.lowering.products import Product

Kernel: TypeAlias = Callable[[ProgramBuilder, Block, Uniform], Tensor | None]

_ACCUMULATOR: Final = Storage(32, True, -(1 << 31), INT32)


def linear(builder: ProgramBuilder, block: Block, y: Uniform) -> Tensor | None:
    """Conv, ConvTranspose, Gemm, MatMul, and MatMul with an Add of one number per column."""
    found, p = product_of(builder.values, block), builder.p
    if found is None or not y.is_per_tensor or found.alpha != 1.0 or found.real_bias is not None:
        return None
    if reach_of(builder, found) > INT32:
        return None
    if found.op.attributes.get("transA") or (not found.is_conv and any(found.w.kind.zero_points)):
        return None
    x, w = _sides(builder, found)
    kind = _accumulator(found, x.rank - 1)
    acc = _products(p, found, x, w, kind)
    stored = stored_bias(builder.values, found)
    if stored is not None:
        row = p.stored_constant(stored, replace(kind, axis=None if kind.axis is None else 0))
        acc = binary(p, "add", acc, along(p, row, acc.shape, acc.rank - 1), kind)
    q = quantize(p, acc, y)
    return transpose(p, q, (0, q.rank - 1, *range(1, q.rank - 1))) if found.is_conv else q


def _products(p: Program, found: Product, x: Tensor, w: Tensor, kind: Uniform) -> Tensor:
    """Products with the channels of kernel and result last: jaxlib lowers types per axis only there."""
    if not found.is_conv:
        if found.weight is None or w.rank > 2:
            return multiplied(p, x, w, kind)
        return dot_general(p, x, w, Dots((), (), (x.rank - 1,), (0,)), kind)
    shape = (w.shape[-1], w.shape[-2], *w.shape[:-2])
    if found.op.type == "ConvTranspose":
        shape = (shape[1], shape[0], *shape[2:])
    geometry = replace(geometry_of(found.op, x.shape, shape), kernel="last", is_last=True)
    return convolution(p, x, w, geometry, kind)


def _accumulator(found: Product, last: int) -> Uniform:
    """The type of the products: that of the bias where there is one."""
    axis = None if found.w.kind.is_per_tensor else last
    if found.bias is not None and len(found.bias.kind.scales) == len(found.w.kind.scales):
        return Uniform(_ACCUMULATOR, found.bias.kind.scales, found.bias.kind.zero_points, axis=axis)
    scales = [found.x.kind.scale * scale for scale in found.w.kind.scales]
    return uniform(_ACCUMULATOR, scales[0] if axis is None else scales, 0, axis=axis)


def _sides(builder: ProgramBuilder, found: Product) -> tuple[Tensor, Tensor]:
    """Both operands in one storage type: the wider one, signed where either is."""
    bits = max(storage_width(found.x.kind), storage_width(found.w.kind))
    is_signed = found.x.kind.storage.signed or found.w.kind.storage.signed
    x_kind, w_kind = (_held_in(side.kind, bits, is_signed=is_signed) for side in (found.x, found.w))
    x = builder.values.integers(found.x.value, found.x.kind)
    if x_kind != found.x.kind:
        x = quantize(builder.p, x, x_kind)
    weight = weight_of(found)
    if weight is None:
        w = builder.values.integers(found.w.value, found.w.kind)
        return x, w if w_kind == found.w.kind else quantize(builder.p, w, w_kind)
    moved = w_kind.zero_point - found.w.kind.zero_point
    stored = quantize_array(weight, found.w.kind).astype(np.int64) + moved
    return x, channels_last(builder.p, found.op, stored, w_kind)


def channels_last(p: Program, op: Op, stored: Array, kind: Uniform) -> Tensor:
    """A constant weight with its output channels last: (*spatial, in, out), (in, out)."""
    if op.type in ("Conv", "ConvTranspose"):
        pair = (1, 0) if op.type == "Conv" else (0, 1)
        stored = stored.transpose((*range(2, stored.ndim), *pair))
    elif op.attributes.get("transB"):
        stored = stored.T
    last = None if kind.axis is None else stored.ndim - 1
    return p.stored_constant(np.ascontiguousarray(stored), replace(kind, axis=last))


def _held_in(kind: Uniform, bits: int, *, is_signed: bool) -> Uniform:
    """The same numbers in another storage type: wider, or from unsigned to signed with all moved down."""
    store = kind.storage
    if is_signed and not store.signed:
        down = 1 << bits - 1 if store.qmax >= 1 << bits - 1 else 0
        moved = Storage(bits, True, store.qmin - down, store.qmax - down)
        return replace(kind, storage=moved, zero_points=tuple(zero - down for zero in kind.zero_points))
    return (
        kind
        if store.bits == bits
        else replace(kind, storage=Storage(bits, store.signed, store.qmin, store.qmax))
    )


def _one(builder: ProgramBuilder, block: Block, y: Uniform) -> Tensor | None:
    op = block.core[0]
    x = operand_of(block, op, 0)
    if x is None or not _is_baseline(x, y=y):
        return None
    return unary(builder.p, OPERATIONS[op.type], builder.values.integers(x.value, x.kind), y)


def _two(builder: ProgramBuilder, block: Block, y: Uniform) -> Tensor | None:
    op = block.core[0]
    sides = [operand_of(block, op, i) for i in range(len(op.inputs))]
    kept = [side for side in sides if side is not None]
    if len(kept) != 2 or len(sides) != 2 or not _is_baseline(*kept, y=y):
        return None
    a, b = (builder.values.integers(side.value, side.kind) for side in kept)
    return binary(builder.p, OPERATIONS[op.type], a, b, y)


def _is_baseline(*operands: Operand, y: Uniform) -> bool:
    """Whether all are per tensor in one storage type."""
    kinds = [*(operand.kind for operand in operands), y]
    texts = {(kind.storage.signed, storage_width(kind)) for kind in kinds}
    return len(texts) == 1 and all(kind.is_per_tensor for kind in kinds)


def hybrid(builder: ProgramBuilder, block: Block) -> Tensor | None:
    """A float convolution or product that reads its quantized weights as they are; None for other blocks."""
    op, p = block.core[0], builder.p
    w, axis = operand_of(block, op, 1), 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    if op.type not in ("Conv", "Gemm", "MatMul") or w is None or operand_of(block, op, 0) is not None:
        return None
    array, values = builder.values.known(w.value), builder.graph.values
    if array is None or not values[w.value].dtype == values[op.inputs[0]].dtype == "f32":
        return None
    if w.kind.grid or w.kind.axis not in (None, axis) or op.attributes.get("transA"):
        return None
    if op.type != "Conv" and (any(w.kind.zero_points) or array.ndim != 2):
        return None
    x = builder.values.real(op.inputs[0])
    held = channels_last(p, op, quantize_array(array, w.kind), w.kind)
    if op.type == "Conv":
        return convolution(p, x, held, replace(conv_shape(op, x.shape, array.shape), kernel="last"))
    return dot_general(p, x, held, Dots((), (), (x.rank - 1,), (0,)))


def _held(shape: tuple[int, ...], kind: Uniform) -> Tensor:
    return quantized(shape, kind)


def _constant(p: Program, stored: Array, kind: Uniform) -> Tensor:
    return p.stored_constant(stored, kind)


def _quantize(p: Program, x: Tensor, kind: Uniform) -> Tensor:
    """Types per axis are met on the last axis only, see `_products`."""
    order = _last(x.rank, kind)
    turned = transpose(p, x, order)
    last = kind if kind.axis is None else replace(kind, axis=x.rank - 1)
    return transpose(p, quantize(p, turned, last), _back(order))


def _dequantize(p: Program, x: Tensor, kind: Uniform) -> Tensor:
    order = _last(x.rank, kind)
    return transpose(p, dequantize(p, transpose(p, x, order)), _back(order))


def _last(rank: int, kind: Uniform) -> tuple[int, ...]:
    """The order of axes that brings a quantization dimension last."""
    if kind.axis is None:
        return tuple(range(rank))
    return (*(i for i in range(rank) if i != kind.axis), kind.axis)


def _back(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(i) for i in range(len(order)))


def _rescale(p: Program, x: Tensor, _: Uniform, wanted: Uniform) -> Tensor:
    return x if x.element == quantized_text(wanted) else _quantize(p, x, wanted)


def clamped(p: Program, x: Tensor, kind: Uniform, low: int, high: int) -> Tensor:
    """Cut by an activation."""
    bounds = [p.stored_constant(np.asarray(end), kind) for end in (low, high)]
    return clamp(p, bounds[0], x, bounds[1])


QUANTIZED_KERNELS: Final[Mapping[tuple[str, ...], Kernel]] = {
    **{(kind,): _two for kind in (*BINARIES, *VARIADICS)},
    **{(kind,): _one for kind in UNARIES},
    ("Conv",): linear,
    ("ConvTranspose",): linear,
    ("Gemm",): linear,
    ("MatMul",): linear,
    ("MatMul", "Add"): linear,
}

QUANTIZED: Final = Form("stablehlo", _held, _constant, _quantize, _dequantize, _rescale)
