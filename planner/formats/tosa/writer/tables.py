"""Tables: ops that a row computes in float on one stored tensor, as TABLE, or as GATHER.

GATHER has the tables of a byte and its channel, and those of 16 bits, whole: TABLE interpolates there. The
numbers are the reference interpreter's: dequantize, the ops in float32, quantize, for every stored value.
Source: TOSA 1.0, TABLE, GATHER; docs/specification.md, section 8.
"""

from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import plain
from planner.formats.common.pointwise import only_stored, varying_axis
from planner.formats.common.values import Array
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, element_of, held, width_of
from planner.formats.tosa.writer.scaling import widened
from planner.interpreter.kernels.litert import LITERT, tabulated
from planner.interpreter.memory import as_f32
from planner.interpreter.programs import Read, program_of
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand
from planner.ops import defined

_WIDEST: Final = 16
_ENTRIES: Final = 1 << 22
"""More entries than this are no table: the ops then run in float."""


def pointwise(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Any pointwise ops on one stored tensor and constants that vary along one axis at most."""
    x = only_stored(builder.values, block)
    if x is None or not all(defined(op.type).is_pointwise for op in block.core):
        return False
    tensor = builder.values.integers(x.value, x.kind)
    axis = varying_axis(builder.values, block, len(tensor.shape))
    if axis is None or width_of(x.kind) > _WIDEST:
        return False
    shape = [1] * len(tensor.shape)
    if axis >= 0:
        shape[axis] = tensor.sizes[axis]
    if prod(shape) << width_of(x.kind) > _ENTRIES:
        return False
    table = _tabulated(builder, block, x, y, shape).clip(clamp.low, clamp.high)
    if len(table) == 1 and tensor.element == element_of(y) == "i8":
        name = builder.program.constant(table[0], "i8", f"{block.result}_table")
        stored = builder.program.emit("table", [tensor, name], tensor, block.result)
    else:
        stored = _looked_up(builder, replace(tensor, element=element_of(y)), tensor, axis, table)
    builder.values.define_stored(block.kernel.outputs[0].value, y, stored)
    return True


def _tabulated(builder: ProgramBuilder, block: Block, x: Operand, y: Uniform, shape: list[int]) -> Array:
    """The stored results of every stored value, (channels, values) int64; `shape` has the channels' axis."""
    one, result, count = held(x.kind), block.core[-1].outputs[0], 1 << width_of(x.kind)
    values = np.arange(-count // 2, count // 2).reshape(-1, *(1 for _ in shape))
    ramp = np.ascontiguousarray(np.broadcast_to(dequantize_array(values, one), (count, *shape)))

    def feed(read: Read) -> Array:
        if not isinstance(read.kind, Uniform) or not builder.values.is_constant(read.value):
            return ramp
        return dequantize_array(quantize_array(builder.values.array(read.value), read.kind), read.kind)

    if builder.values.arithmetic == LITERT and len(block.core) == 1:
        own = tabulated(block.core[0], one, held(y), np.broadcast_to(values, (count, *shape)))
        if own is not None:
            return own.astype(np.int64).reshape(count, -1).T
    real = as_f32(
        program_of(builder.graph, block.core, (result,), block.kinds, in_f32=True).run(feed)[result]
    )
    stored = quantize_array(np.ascontiguousarray(np.broadcast_to(real, (count, *shape))), held(y))
    return stored.astype(np.int64).reshape(count, -1).T


def _looked_up(builder: ProgramBuilder, like: Tensor, tensor: Tensor, axis: int, table: Array) -> Tensor:
    """A table per channel: GATHER at `channel * values + value + values / 2`."""
    program, (channels, count) = builder.program, table.shape
    shape = [1] * len(tensor.shape)
    if axis >= 0:
        shape[tensor.at(axis)] = channels
    firsts = program.constant((np.arange(channels) * count + count // 2).reshape(shape), "i32")
    places = widened(program, tensor, 0)
    places = program.emit("add", [places, firsts], places, f"{tensor.name}_at")
    places = program.reshaped(places, (1, prod(tensor.shape)))
    numbers = program.constant(table.reshape(1, -1, 1), like.element, f"{tensor.name}_table")
    flat = Tensor("", (1, prod(tensor.shape), 1), like.element, plain(3))
    found = program.emit("gather", [numbers, places], flat, f"{tensor.name}_found")
    return program.reshaped(found, tensor.shape, tensor.order)
