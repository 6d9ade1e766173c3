"""Pooling: AVG_POOL2D within one type, other averages, and products of two, as one RESCALE; MAX_POOL2D.

Source: TOSA 1.0, AVG_POOL2D, REDUCE_SUM; interpreter `kernels`.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import channels_last, plain
from planner.formats.common.linear_operands import INT32
from planner.formats.common.values import Array
from planner.formats.tosa.writer.elementwise import aligned, ends_of, joined
from planner.formats.tosa.writer.geometry import Windows, flat, trimmed
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, element_of, held
from planner.formats.tosa.writer.scaling import Factor, factor_of, narrowed, rescale, widened
from planner.interpreter.calls import terms_of
from planner.interpreter.kernels.litert import LITERT
from planner.interpreter.kernels.table import is_tosa_pool
from planner.ir.arithmetic.rescaling import mean_factor
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand, operand_of
from planner.ops.geometry.windows import pool_geometry, pooled_sizes, window_counts
from planner.ops.operands import Operands


def summed(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Kernels of one term: a product of two, a square, an average over all spatial axes; then one RESCALE."""
    op, program, by = block.core[0], builder.program, builder.checked_arithmetic()
    read = [operand_of(block, op, i) for i in range(len(op.inputs))]
    known = Operands(op, builder.sizes, builder.values.known)
    found = terms_of(known, [None if side is None else side.kind for side in read], y)
    if found is None or len(found) > 1:
        return False
    ((term, ratio),) = found
    sides = [side for i in term.factors if (side := read[i]) is not None]
    factor = _factor(builder, sides[0], y, term.count) if term.count > 1 else factor_of(ratio[None], by)
    reach = term.count * prod(int(np.abs(ends_of(side)).max()) for side in sides)
    if reach > INT32:
        raise _too_many(builder, term.count)
    factor.check(-reach, reach)
    pairs = zip(aligned(builder, sides), sides, strict=True)
    total, *more = (widened(program, tensor, held(side.kind).zero_point) for tensor, side in pairs)
    for other in more:
        total = joined(builder, "mul", (total, other), block.result, program.number(0, "i8"))
    for axis in term.axes or range(2, len(total.shape) if term.windows else 0):
        total = reduced(builder, "reduce_sum", total, axis, f"{block.result}_sum")
    stored = rescale(program, total, factor, (0, held(y).zero_point), element_of(y), block.result)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def average_pool(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """AveragePool over one or two spatial axes."""
    op = block.core[0]
    x = operand_of(block, op, 0)
    rank = 0 if x is None else len(builder.sizes(x.value))
    if x is None or rank not in (3, 4) or not x.kind.is_per_tensor:
        return False
    spatial = builder.sizes(x.value)[2:]
    includes = bool(op.attributes.get("count_include_pad", 0))
    geometry, by = pool_geometry(op.attributes, spatial), builder.checked_arithmetic()
    is_pool = is_tosa_pool(by, x.kind, y, geometry, includes_padding=includes)
    if builder.values.arithmetic == LITERT and not is_pool:
        return False
    is_whole = geometry.kernel == spatial and not any(geometry.pads)
    if is_whole and not is_pool:
        return summed(builder, block, y, clamp)
    tensor, windows = _opened(builder, builder.values.integers(x.value, x.kind), op)
    if any(step != 1 for step in windows.dilations) or (includes and op.attributes.get("ceil_mode", 0)):
        return False
    counts = window_counts(spatial, geometry, includes_padding=includes)
    if counts.min(initial=1) < 1:
        return False
    if is_pool:
        _check_sums(builder, x, int(counts.max(initial=1)))
        stored = _pool(builder, block, x, tensor, windows)
    else:
        stored = _averaged(builder, block, x, y, tensor, windows, counts)
    stored = builder.program.out_of_image(stored, rank)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def average_reals(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """AveragePool in float over one or two spatial axes; None for others."""
    rank, includes = len(tensors[0].shape), bool(op.attributes.get("count_include_pad", 0))
    if rank not in (3, 4) or (includes and op.attributes.get("ceil_mode", 0)):
        return None
    x, windows = _opened(builder, tensors[0], op)
    if any(step != 1 for step in windows.dilations):
        return None
    program, like, stem = builder.program, _pooled(x, windows), op.outputs[0]
    zero, channels = program.number(0, "f32"), x.shape[-1]
    if includes and any(windows.pads):
        share = np.full((*windows.kernel, channels, 1), 1 / prod(windows.kernel), np.float32)
        weights = program.constant(share, "f32", f"{stem}_share")
        zeros = program.constant(np.zeros(channels, np.float32), "f32", "zeros")
        attributes = {**windows.attributes(), "acc_type": "f32"}
        found = program.emit(
            "depthwise_conv2d", (x, weights, zeros, zero, zero), like, stem, attributes=attributes
        )
    else:
        attributes = {**windows.attributes(is_pool=True), "acc_type": "f32"}
        found = program.emit("avg_pool2d", [x, zero, zero], like, stem, attributes=attributes)
    return program.out_of_image(found, rank)


def max_pool(builder: ProgramBuilder, x: Tensor, op: Op, stem: str) -> Tensor | None:
    """MAX_POOL2D of one or two spatial axes, without dilations; None for others."""
    rank = len(x.shape)
    if rank not in (3, 4):
        return None
    tensor, windows = _opened(builder, x, op)
    pads = zip(windows.pads, windows.kernel * 2, strict=True)
    if any(step != 1 for step in windows.dilations) or any(pad >= size for pad, size in pads):
        return None
    like = _pooled(tensor, windows)
    attributes = {**windows.attributes(is_pool=True), "nan_mode": "#tosa.nan_mode<PROPAGATE>"}
    result = builder.program.emit("max_pool2d", [tensor], like, stem, attributes=attributes)
    return builder.program.out_of_image(result, rank)


def reduced(builder: ProgramBuilder, kind: str, tensor: Tensor, axis: int, stem: str) -> Tensor:
    """A reduction over one axis of the model, which stays with size 1."""
    at = tensor.at(axis)
    shape = tuple(1 if i == at else size for i, size in enumerate(tensor.shape))
    attributes = {"axis": f"{at} : i32"}
    if kind != "reduce_sum":
        attributes["nan_mode"] = "#tosa.nan_mode<PROPAGATE>"
    return builder.program.emit(kind, [tensor], replace(tensor, shape=shape), stem, attributes=attributes)


def _opened(builder: ProgramBuilder, x: Tensor, op: Op) -> tuple[Tensor, Windows]:
    """The input with its channels last and two spatial axes, and the windows over it."""
    spatial = x.sizes[2:]
    geometry = pool_geometry(op.attributes, spatial)
    found = Windows(
        geometry.kernel, geometry.filled().strides, geometry.filled().dilations, geometry.filled().pads
    )
    windows = _stretched(found, spatial, pooled_sizes(spatial, geometry.filled()))
    windows = flat(windows) if len(spatial) == 1 else windows
    x = trimmed(builder.program, builder.program.image(x), windows)
    return x, windows.fitted(x.sizes[2:])


def _stretched(windows: Windows, spatial: Sequence[int], wanted: Sequence[int]) -> Windows:
    """The same with as much padding behind as the last windows reach (`ceil_mode`)."""
    rank = len(windows.kernel)
    ends = []
    for i in range(rank):
        reach = (wanted[i] - 1) * windows.strides[i] + (windows.kernel[i] - 1) * windows.dilations[i] + 1
        ends.append(max(windows.pads[rank + i], reach - spatial[i] - windows.pads[i]))
    return replace(windows, pads=(*windows.pads[:rank], *ends))


def _pooled(x: Tensor, windows: Windows) -> Tensor:
    return replace(x, shape=(x.shape[0], *windows.sizes(x.sizes[2:]), x.shape[-1]))


def _averaged(  # noqa: PLR0917
    builder: ProgramBuilder,
    block: Block,
    x: Operand,
    y: Uniform,
    tensor: Tensor,
    windows: Windows,
    counts: Array,
) -> Tensor:
    """Averages, channels last, as sums of a convolution with ones and a RESCALE."""
    distinct = np.unique(counts).tolist()
    factors = {count: _factor(builder, x, y, count) for count in distinct}
    for count, factor in factors.items():
        _check(builder, x, factor, count)
    total = _summed(builder, block, x, tensor, windows)
    zeros = 0, held(y).zero_point
    if len(distinct) == 1:
        return rescale(builder.program, total, factors[distinct[0]], zeros, element_of(y), block.result)
    return _divided(
        builder, block, total, [factors[count] for count in counts.reshape(-1).tolist()], zeros, y
    )


def _pool(builder: ProgramBuilder, block: Block, x: Operand, tensor: Tensor, windows: Windows) -> Tensor:
    # LiteRT averages stored integers, their zero point in them.
    zero_point = 0 if builder.values.arithmetic == LITERT else held(x.kind).zero_point
    zero = builder.program.number(zero_point, tensor.element)
    attributes = {**windows.attributes(is_pool=True), "acc_type": "i32"}
    like = _pooled(tensor, windows)
    return builder.program.emit("avg_pool2d", [tensor, zero, zero], like, block.result, attributes=attributes)


def _summed(builder: ProgramBuilder, block: Block, x: Operand, tensor: Tensor, windows: Windows) -> Tensor:
    """Sums over each window, i32: DEPTHWISE_CONV2D with ones; padding is the zero point, real zero."""
    program, channels = builder.program, tensor.shape[-1]
    acc = "i48" if tensor.element == "i16" else "i32"
    ones = program.constant(np.ones((*windows.kernel, channels, 1), np.int64), "i8", "ones")
    zeros = program.constant(np.zeros(channels, np.int64), acc, "zeros")
    zero = program.number(held(x.kind).zero_point, tensor.element)
    like = replace(_pooled(tensor, windows), element=acc)
    attributes = {**windows.attributes(), "acc_type": acc}
    operands = (tensor, ones, zeros, zero, program.number(0, "i8"))
    total = program.emit("depthwise_conv2d", operands, like, f"{block.result}_sum", attributes=attributes)
    return total if acc == "i32" else narrowed(program, total)


def _divided(  # noqa: PLR0917
    builder: ProgramBuilder,
    block: Block,
    total: Tensor,
    factors: Sequence[Factor],
    zeros: tuple[int, int],
    y: Uniform,
) -> Tensor:
    """Sums each times the factor of its window, which RESCALE has along the last axis."""
    program = builder.program
    batch, height, width, channels = total.shape
    rows = program.reshaped(total, (batch, height * width, channels))
    turned = program.ordered(rows, (0, 2, 1))
    first = factors[0]
    multipliers = np.concatenate([factor.multipliers for factor in factors])
    shifts = np.concatenate([factor.shifts for factor in factors])
    each = Factor(multipliers, shifts, double_round=first.double_round)
    stored = rescale(program, turned, each, zeros, element_of(y), block.result)
    back = program.ordered(stored, plain(3))
    return program.reshaped(back, (batch, height, width, channels), channels_last(4))


def _factor(builder: ProgramBuilder, x: Operand, y: Uniform, count: int) -> Factor:
    ratio = np.empty(1, object)
    ratio[0] = Fraction(x.kind.scale) / Fraction(y.scale) / count
    if builder.checked_arithmetic() == LITERT:
        multiplier, shift = mean_factor(x.kind.scale / y.scale, count)
        return Factor(np.atleast_1d(multiplier), np.atleast_1d(shift), double_round=True)
    return factor_of(ratio, builder.checked_arithmetic())


def _check(builder: ProgramBuilder, x: Operand, factor: Factor, count: int) -> None:
    factor.check(*_check_sums(builder, x, count))


def _check_sums(builder: ProgramBuilder, x: Operand, count: int) -> tuple[int, int]:
    kind = held(x.kind)
    low, high = (count * (end - kind.zero_point) for end in (kind.storage.qmin, kind.storage.qmax))
    if max(-low, high) > INT32:
        raise _too_many(builder, count)
    return low, high


def _too_many(builder: ProgramBuilder, count: int) -> UnsupportedExport:
    return builder.refuse(f"sums of {count} elements do not fit 32 bits; tosa accepts smaller windows")
