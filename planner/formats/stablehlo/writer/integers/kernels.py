"""Integers: kernels of `stablehlo-int`, plain integer operations that equal `exact_even` for every input.

Accumulators are i32 where the weights show that they fit, else i64; each result is rounded once
(`rounding`). Functions of one or two stored tensors that have no integer formula are tables of what the
reference interpreter computes. Source: docs/specification.md, section 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.linear_operands import largest, product_of, shifted_weight, stored_bias
from planner.formats.common.values import is_cut
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.integers.rounding import Grid, Term, fits, rounded
from planner.formats.stablehlo.writer.integers.tables import looked_up
from planner.formats.stablehlo.writer.linear_operands import channel_axis, multiply_out, reach_of, weight_of
from planner.formats.stablehlo.writer.movement import pool_window
from planner.formats.stablehlo.writer.operations import (
    along,
    binary,
    clamp,
    concatenate,
    convert,
    reduce,
    reduce_window,
    reshape,
    select,
    spread,
    unary,
)
from planner.formats.stablehlo.writer.program_builder import Form, ProgramBuilder
from planner.formats.stablehlo.writer.tensors import Tensor, plain, storage_element
from planner.interpreter.calls import onto, terms_of
from planner.interpreter.fixed_point import ratios
from planner.interpreter.requantize import output_multiplier
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of, stored_operands
from planner.lowering.products import Product
from planner.ops import CONCATS, sums
from planner.ops.operands import Operands

Kernel: TypeAlias = Callable[[ProgramBuilder, Block, Uniform, Clamp], Tensor | None]

_INT32: Final = (1 << 31) - 1
_TABLE_BITS: Final = 16


def linear(builder: ProgramBuilder, block: Block, y: Uniform, ends: Clamp) -> Tensor | None:
    """Conv, ConvTranspose, Gemm, MatMul, and MatMul with an Add of one number per column."""
    found, p = product_of(builder.values, block), builder.p
    if found is None or not y.is_per_tensor:
        return None
    reach, axis = reach_of(builder, found), channel_axis(builder, found)
    acc = _accumulated(builder, found, reach, axis)
    trailing = acc.rank - 1 - axis
    ratio = ratios(found.w.kind.scales, prod((found.x.kind.scale, found.alpha)), y.scale)
    added = None
    if found.real_bias is not None:
        added = ratios(found.real_bias, 1.0, y.scale).reshape(-1, *[1] * trailing)
    term = Term(acc, ratio.reshape(-1, *[1] * trailing), reach)
    return rounded(p, [term], grid_of(y, ends), added)


def linear_to_float(builder: ProgramBuilder, block: Block) -> Tensor | None:
    """The same ops with a float result: the sum in float32 times the product of the scales."""
    found, p = product_of(builder.values, block), builder.p
    if found is None or found.real_bias is not None:
        return None
    axis = channel_axis(builder, found)
    reals = convert(p, _accumulated(builder, found, reach_of(builder, found), axis), "f32")
    scales = np.asarray(found.w.kind.scales, np.float32)
    factors = p.constant(output_multiplier(found.x.kind.scale, scales, 1.0, alpha=found.alpha), "f32")
    wide = along(p, factors, reals.shape, axis) if scales.size > 1 else spread(p, factors, reals.shape)
    return binary(p, "multiply", reals, wide)


def _accumulated(builder: ProgramBuilder, found: Product, reach: int, axis: int) -> Tensor:
    """The exact sums, the bias among them, in 32 bits where they fit."""
    p, element = builder.p, "i32" if reach <= _INT32 else "i64"
    x, weight, bias = widened(builder, found.x, element), weight_of(found), stored_bias(builder.values, found)
    if weight is None:
        w = widened(builder, found.w, element)
    else:
        w = p.constant(shifted_weight(weight, found.w.kind), element)
    acc = multiply_out(p, found, x, w)
    if bias is None:
        return acc
    return binary(p, "add", acc, along(p, p.constant(bias, element), acc.shape, axis))


def summed(builder: ProgramBuilder, block: Block, y: Uniform, ends: Clamp) -> Tensor | None:
    """Sums, products of two, averages: their terms on one grid, rounded once."""
    op, p = block.core[0], builder.p
    sides = [operand_of(block, op, i) for i in range(len(op.inputs))]
    known = Operands(op, builder.shape, builder.values.known)
    found = terms_of(known, [None if side is None else side.kind for side in sides], y)
    if found is None:
        return None
    stored = [side for side in sides if side is not None]
    reach = [term.count * prod(largest(stored[i].kind) for i in term.factors) for term, _ in found]
    if max(reach) > _INT32 and found[0][0].count > 1:
        return None
    ratio = [np.asarray(term.sign * each, object) for term, each in found]
    drafts = [Term(plain((), "i32"), *each) for each in zip(ratio, reach, strict=True)]
    if len(found) > 1 and not fits(drafts) and sum(side.kind.storage.bits for side in stored) <= _TABLE_BITS:
        return _pairs_looked_up(builder, stored, ratio, y, ends)
    tensors = _spread_out(
        p, [_integers(builder, stored, each[0], most) for each, most in zip(found, reach, strict=True)]
    )
    terms = [replace(draft, tensor=tensor) for draft, tensor in zip(drafts, tensors, strict=True)]
    return rounded(p, terms, grid_of(y, ends))


def _integers(builder: ProgramBuilder, stored: Sequence[Operand], term: sums.Term, reach: int) -> Tensor:
    """The integers of a term."""
    p, sides = builder.p, [stored[i] for i in term.factors]
    element = "i32" if reach <= _INT32 else "i64"
    x, *more = (widened(builder, side, element) for side in sides)
    for other in more:
        x = binary(p, "multiply", x, other)
    if term.windows is not None:
        return reduce_window(p, "add", x, p.number(0, x.element), pool_window(term.windows, x.shape))
    if not term.axes:
        return x
    total = reduce(p, "add", x, p.number(0, x.element), term.axes)
    kept = tuple(1 if i in term.axes else size for i, size in enumerate(x.shape))
    return reshape(p, total, kept) if term.keeps_axes else total


def _pairs_looked_up(
    builder: ProgramBuilder, sides: list[Operand], ratio: list[Array], y: Uniform, ends: Clamp
) -> Tensor:
    """The sum of scales too far apart for 64 bits, as a table of all pairs."""
    values = [_stored_values(side.kind) for side in sides]
    terms = [(values[0][:, None], ratio[0]), (values[1][None, :], ratio[1])]
    table = np.clip(onto(terms, y, "exact_even").astype(np.int64), ends.low, ends.high)
    tensors = [builder.values.integers(side.value, side.kind) for side in sides]
    return looked_up(builder.p, tensors, [side.kind for side in sides], table, storage_element(y))


def _stored_values(kind: Uniform) -> Array:
    """Every stored value less the zero point."""
    return np.arange(kind.storage.qmin, kind.storage.qmax + 1) - kind.zero_point


def concat(builder: ProgramBuilder, block: Block, y: Uniform, ends: Clamp) -> Tensor | None:
    """Concat: every input on the result's grid."""
    parts = _rescaled(builder, block, y, range(len(block.core[0].inputs)))
    if parts is None:
        return None
    axis = block.core[0].attributes["axis"] % parts[0].rank
    return clamped(builder.p, concatenate(builder.p, parts, axis), y, ends.low, ends.high)


def where(builder: ProgramBuilder, block: Block, y: Uniform, ends: Clamp) -> Tensor | None:
    """Where: both branches on the result's grid."""
    parts = _rescaled(builder, block, y, (1, 2))
    if parts is None:
        return None
    chosen = select(builder.p, builder.values.real(block.core[0].inputs[0]), parts[0], parts[1])
    return clamped(builder.p, chosen, y, ends.low, ends.high)


def widened(builder: ProgramBuilder, operand: Operand, element: str) -> Tensor:
    """A stored tensor less its zero point, in a wider integer type."""
    p = builder.p
    key = (operand.value, operand.kind, element)
    if key not in builder.widened:
        x = convert(p, builder.values.integers(operand.value, operand.kind), element)
        if operand.kind.zero_point:
            x = binary(p, "subtract", x, p.number(operand.kind.zero_point, element))
        builder.widened[key] = x
    return builder.widened[key]


def _spread_out(p: Program, tensors: list[Tensor]) -> list[Tensor]:
    shape = tuple(np.broadcast_shapes(*(tensor.shape for tensor in tensors)))
    return [spread(p, tensor, shape) for tensor in tensors]


def _rescaled(
    builder: ProgramBuilder, block: Block, y: Uniform, indices: "range | tuple[int, ...]"
) -> list[Tensor] | None:
    found = stored_operands(block, block.core[0], indices) if y.is_per_tensor else None
    if found is None:
        return None
    return [rescale(builder.p, builder.values.integers(x.value, x.kind), x.kind, y) for x in found]


def grid_of(y: Uniform, ends: Clamp) -> Grid:
    """The grid of a kernel's results."""
    return Grid(ends.low, ends.high, y.zero_point, storage_element(y))


def rescale(p: Program, x: Tensor, source: Uniform, wanted: Uniform) -> Tensor:
    """Stored integers of one type as those of another: exact per tensor, else through f32."""
    if source == wanted:
        return x
    if is_cut(source, wanted):
        low, high = (p.number(end, x.element) for end in (wanted.storage.qmin, wanted.storage.qmax))
        return clamp(p, low, x, high)
    if not (source.is_per_tensor and wanted.is_per_tensor):
        return quantize(p, dequantize(p, x, source), wanted)
    ratio = ratios((source.scale,), 1.0, wanted.scale).reshape(())
    ends = Clamp(wanted.storage.qmin, wanted.storage.qmax)
    if not fits([Term(x, ratio, largest(source))]) and source.storage.bits <= _TABLE_BITS:
        whole = onto([(_stored_values(source), ratio)], wanted, "exact_even").astype(np.int64)
        table = np.clip(whole, ends.low, ends.high)
        return looked_up(p, [x], [source], table, storage_element(wanted))
    wide = convert(p, x, "i32" if source.storage.bits <= 16 else "i64")
    if source.zero_point:
        wide = binary(p, "subtract", wide, p.number(source.zero_point, wide.element))
    return rounded(p, [Term(wide, ratio, largest(source))], grid_of(wanted, ends))


def quantize(p: Program, x: Tensor, kind: Uniform) -> Tensor:
    """ONNX QuantizeLinear of f32: `round(x / scale) + zero_point`, saturated."""
    scale, zero = (_slices(p, items, kind, x.shape) for items in (kind.scales, kind.zero_points))
    whole = unary(p, "round_nearest_even", binary(p, "divide", x, scale))
    moved = binary(p, "add", whole, zero) if any(kind.zero_points) else whole
    low, high = (p.number(end, "f32") for end in (kind.storage.qmin, kind.storage.qmax))
    return convert(p, clamp(p, low, moved, high), storage_element(kind))


def dequantize(p: Program, x: Tensor, kind: Uniform) -> Tensor:
    """`(q - zero_point) * scale` in f32."""
    whole = convert(p, x, "i32" if kind.storage.bits <= 16 else "i64")
    if any(kind.zero_points):
        zero = _slices(p, kind.zero_points, kind, x.shape, whole.element)
        whole = binary(p, "subtract", whole, zero)
    return binary(p, "multiply", convert(p, whole, "f32"), _slices(p, kind.scales, kind, x.shape))


def _slices(
    p: Program,
    items: "tuple[float, ...] | tuple[int, ...]",
    kind: Uniform,
    shape: tuple[int, ...],
    element: str = "f32",
) -> Tensor:
    """One number per tensor or per slice of the axis, broadcast."""
    dtype = np.float32 if element == "f32" else np.int64
    if kind.axis is None:
        return p.constant(np.asarray(items[0], dtype), element)
    return along(p, p.constant(np.asarray(items, dtype), element), shape, kind.axis)


def clamped(p: Program, x: Tensor, kind: Uniform, low: int, high: int) -> Tensor:
    """Cut by an activation or a narrower range."""
    if (low, high) == (kind.storage.qmin, kind.storage.qmax):
        return x
    return clamp(p, p.number(low, x.element), x, p.number(high, x.element))


def _held(shape: tuple[int, ...], kind: Uniform) -> Tensor:
    return plain(shape, storage_element(kind))


def _constant(p: Program, stored: Array, kind: Uniform) -> Tensor:
    return p.constant(stored, storage_element(kind))


INTEGER_KERNELS: Final[Mapping[tuple[str, ...], Kernel]] = {
    **{(kind,): concat for kind in CONCATS},
    ("Add",): summed,
    ("AveragePool",): summed,
    ("Conv",): linear,
    ("ConvTranspose",): linear,
    ("Gemm",): linear,
    ("GlobalAveragePool",): summed,
    ("MatMul",): linear,
    ("MatMul", "Add"): linear,
    ("Mul",): summed,
    ("ReduceMean",): summed,
    ("ReduceSum",): summed,
    ("Sub",): summed,
    ("Where",): where,
}

INTEGER: Final = Form("stablehlo-int", _held, _constant, quantize, dequantize, rescale, "exact_even")
