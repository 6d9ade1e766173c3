"""Movement: ops whose results are elements of their operands, on stored integers or on floats alike.

A TRANSPOSE of the model is no operation, only another order of the same tensor. An op that picks elements
axis by axis (slices, tiles, gathers, nearest resizes, splits) is SLICE where they are contiguous, TILE where
the axis repeats, else GATHER along that axis. Source: TOSA 1.0, data layout and gather operators.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import axes_of, cut_and_grown, filling_of, pads_of, plain
from planner.formats.common.moves import Lowering
from planner.formats.common.values import Array
from planner.formats.tosa.vocabulary import BINARIES
from planner.formats.tosa.writer.elementwise import concatenated, extreme, selected
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.pooling import max_pool, reduced
from planner.formats.tosa.writer.program_builder import ProgramBuilder, held
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of
from planner.ops import CONCATS


@dataclass(frozen=True, slots=True)
class Move:
    """An op to write.

    Attributes:
      tensors: operands that are data, in order.
      kind: the type of all data; None: float.
    """

    op: Op
    tensors: Sequence[Tensor]
    kind: Uniform | None


MoveWriter: TypeAlias = Callable[[ProgramBuilder, Move], Sequence[Tensor] | None]


def move(
    builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor], kind: Uniform | None
) -> Sequence[Tensor] | None:
    """The results of an op that only moves data; None where TOSA has no way to say it."""
    return MOVEMENT.get(op.type, _moved)(builder, Move(op, tensors, kind))


def picked(builder: ProgramBuilder, tensor: Tensor, picks: Mapping[int, Array], stem: str) -> Tensor:
    """The elements at the indices given, axis by axis of the model; other axes whole."""
    for axis, indices in picks.items():
        tensor = _pick(builder, tensor, tensor.at(axis), np.asarray(indices, np.int64).reshape(-1), stem)
    return tensor


def _pick(builder: ProgramBuilder, tensor: Tensor, at: int, indices: Array, stem: str) -> Tensor:
    program, size = builder.program, tensor.shape[at]
    shape = (*tensor.shape[:at], len(indices), *tensor.shape[at + 1 :])
    like = replace(tensor, shape=shape)
    if len(indices) == size and (indices == np.arange(size)).all():
        return tensor
    if not len(indices):
        raise builder.refuse(f"{stem!r} has no elements; tosa accepts no empty tensor")
    start = int(indices[0])
    if (indices == np.arange(start, start + len(indices))).all():
        starts = [start if i == at else 0 for i in range(len(shape))]
        return program.emit("slice", [tensor, program.shape(starts), program.shape(shape)], like, stem)
    times, rest = divmod(len(indices), size)
    if not rest and (indices == np.tile(np.arange(size), times)).all():
        multiples = [times if i == at else 1 for i in range(len(shape))]
        return program.emit("tile", [tensor, program.shape(multiples)], like, stem)
    outer, inner = prod(shape[:at]), prod(shape[at + 1 :])
    flat = program.reshaped(tensor, (outer, size, inner))
    where = program.constant(np.broadcast_to(indices, (outer, len(indices))), "i32", f"{stem}_at")
    rows = Tensor("", (outer, len(indices), inner), tensor.element, plain(3))
    found = program.emit("gather", [flat, where], rows, stem)
    return program.reshaped(found, shape, tensor.order)


def _moved(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    """An op by its definition."""
    lowering = Lowering(builder.program, builder.values, builder.sizes, partial(picked, builder))
    return lowering.moved(call.op, call.tensors[0])


def _concat(builder: ProgramBuilder, call: Move) -> Sequence[Tensor]:
    order = call.tensors[0].order
    tensors = [builder.program.ordered(tensor, order) for tensor in call.tensors]
    return [concatenated(builder, tensors, call.op.attributes["axis"], call.op.outputs[0])]


def _gather(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    """Gather by constant indices, or by indices computed or given (not below 0, as TOSA has them)."""
    x, op = call.tensors[0], call.op
    axis = op.attributes.get("axis", 0) % len(x.shape)
    if not builder.values.is_constant(op.inputs[1]):
        return [_gathered(builder, x, axis, builder.real(op.inputs[1]), op.outputs[0])]
    indices = builder.values.array(op.inputs[1])
    found = picked(builder, x, {axis: np.where(indices < 0, indices + x.sizes[axis], indices)}, op.outputs[0])
    if indices.ndim == 1:
        return [found]
    found = builder.program.ordered(found, plain(len(found.shape)))
    return [builder.program.reshaped(found, (*x.sizes[:axis], *indices.shape, *x.sizes[axis + 1 :]))]


def _gathered(builder: ProgramBuilder, x: Tensor, axis: int, indices: Tensor, stem: str) -> Tensor:
    """GATHER along an axis of the model, the same indices for all that stands before it."""
    program, sizes, count = builder.program, x.sizes, prod(indices.shape)
    outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
    flat = program.reshaped(program.ordered(x, plain(len(sizes))), (outer, sizes[axis], inner))
    where = program.reshaped(program.ordered(indices, plain(len(indices.shape))), (1, count))
    if outer > 1:
        like = Tensor("", (outer, count), where.element, plain(2))
        where = program.emit("tile", [where, program.shape([outer, 1])], like, f"{stem}_at")
    rows = Tensor("", (outer, count, inner), x.element, plain(3))
    found = program.emit("gather", [flat, where], rows, stem)
    return program.reshaped(found, (*sizes[:axis], *indices.sizes, *sizes[axis + 1 :]))


def _pad(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    """PAD with a number; negative pads cut first. Other modes pick along axes."""
    x, op = call.tensors[0], call.op
    if op.attributes.get("mode", "constant") != "constant":
        return _moved(builder, call)
    pads, filling = pads_of(builder.values, op, len(x.shape)), filling_of(builder.values, op)
    if pads is None or filling is None:
        return None
    cut, ends = cut_and_grown(pads, x.sizes)
    x = picked(builder, x, cut, f"{op.outputs[0]}_cut")
    grown = [ends[axis] for axis in x.order]
    if not any(map(any, grown)):
        return [x]
    number = np.asarray(filling, np.float32)
    stored = number if call.kind is None else quantize_array(number, held(call.kind))
    program = builder.program
    amounts = program.shape([count for pair in grown for count in pair])
    shape = tuple(size + sum(pair) for size, pair in zip(x.shape, grown, strict=True))
    fill = program.number(stored.item(), x.element)
    return [program.emit("pad", [x, amounts, fill], replace(x, shape=shape), op.outputs[0])]


def pad_with(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """A Pad with another number than zero, of integers that keep their type."""
    x = operand_of(block, block.core[0], 0)
    if x is None or not builder.values.is_same(x.kind, y):
        return False
    found = _pad(builder, Move(block.core[0], [builder.values.integers(x.value, x.kind)], y))
    if found is None:
        return False
    builder.settle(block.kernel.outputs[0].value, y, found[0], clamp.low, clamp.high)
    return True


def _blocks_to_space(builder: ProgramBuilder, call: Move) -> Sequence[Tensor]:
    """DepthToSpace: the block's axes come out of the channels and go into the rows and columns."""
    x, op = call.tensors[0], call.op
    block, program = op.attributes["blocksize"], builder.program
    batch, channels, height, width = x.sizes
    depth = channels // block**2
    x = program.ordered(x, (0, 2, 3, 1))
    is_dcr = op.attributes.get("mode", "DCR") == "DCR"
    parts = (block, block, depth) if is_dcr else (depth, block, block)
    wide = program.reshaped(x, (batch, height, width, *parts))
    # The stored axes n h w b1 b2 d (or n h w d b1 b2) in the order n h b1 w b2 d.
    order = (0, 1, 3, 2, 4, 5) if is_dcr else (0, 1, 4, 2, 5, 3)
    turned = program.ordered(wide, order)
    return [program.reshaped(turned, (batch, height * block, width * block, depth), (0, 2, 3, 1))]


def _space_to_blocks(builder: ProgramBuilder, call: Move) -> Sequence[Tensor]:
    """SpaceToDepth."""
    x, op = call.tensors[0], call.op
    block, program = op.attributes["blocksize"], builder.program
    batch, channels, height, width = x.sizes
    x = program.ordered(x, (0, 2, 3, 1))
    wide = program.reshaped(x, (batch, height // block, block, width // block, block, channels))
    # The stored axes n h b1 w b2 d in the order n h w b1 b2 d, or n h w d b1 b2.
    is_dcr = op.attributes.get("mode", "DCR") == "DCR"
    turned = program.ordered(wide, (0, 1, 3, 2, 4, 5) if is_dcr else (0, 1, 3, 5, 2, 4))
    shape = batch, height // block, width // block, channels * block**2
    return [program.reshaped(turned, shape, (0, 2, 3, 1))]


def _max_pool(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    if any(call.op.outputs[1:]):
        return None
    found = max_pool(builder, call.tensors[0], call.op, call.op.outputs[0])
    return None if found is None else [found]


def _global_max_pool(builder: ProgramBuilder, call: Move) -> Sequence[Tensor]:
    x = call.tensors[0]
    for axis in range(2, len(x.shape)):
        x = reduced(builder, "reduce_max", x, axis, call.op.outputs[0])
    return [x]


def _reduce(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    """ReduceMax and ReduceMin over constant axes."""
    x, op = call.tensors[0], call.op
    rank = len(x.shape)
    axes = axes_of(builder.values, op, rank)
    if axes is None:
        return None
    name = "reduce_max" if op.type == "ReduceMax" else "reduce_min"
    for axis in axes:
        x = reduced(builder, name, x, axis, op.outputs[0])
    if op.attributes.get("keepdims", 1):
        return [x]
    x = builder.program.ordered(x, plain(rank))
    return [builder.program.reshaped(x, [size for i, size in enumerate(x.shape) if i not in axes])]


def _extreme(builder: ProgramBuilder, call: Move) -> Sequence[Tensor] | None:
    """Max and Min of tensors that broadcast."""
    if call.kind is None:
        return None
    found = builder.program.alike(call.tensors)
    return [extreme(builder, found, call.kind, BINARIES[call.op.type], call.op.outputs[0])]


def _where(builder: ProgramBuilder, call: Move) -> Sequence[Tensor]:
    return [selected(builder, builder.real(call.op.inputs[0]), call.tensors, call.op.outputs[0])]


MOVEMENT: Final[Mapping[str, MoveWriter]] = {
    **dict.fromkeys(CONCATS, _concat),
    "DepthToSpace": _blocks_to_space,
    "Gather": _gather,
    "GlobalMaxPool": _global_max_pool,
    "Max": _extreme,
    "MaxPool": _max_pool,
    "Min": _extreme,
    "Pad": _pad,
    "ReduceMax": _reduce,
    "ReduceMin": _reduce,
    "SpaceToDepth": _space_to_blocks,
    "Where": _where,
}
"""Ops that TOSA has better operators for than their definitions' steps, or that pick by value."""
