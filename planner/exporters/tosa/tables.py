"""Tables: what a row computes in float from one byte, as TABLE; from one byte and its channel, as GATHER.

The numbers are the reference interpreter's: dequantize, the ops in float32, quantize, for every stored value.
Source: TOSA 1.0, TABLE; design 01, section 8.
"""

from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.exporters.blocks import Block, Clamp
from planner.exporters.qlinear import Operand
from planner.exporters.tosa.program import Tensor, plain
from planner.exporters.tosa.scaling import UNIT, rescale
from planner.exporters.tosa.sheet import Array, Sheet, held, width_of
from planner.interpreter.memory import as_f32
from planner.interpreter.programs import Read, program_of
from planner.ir.qtypes import Uniform

POINTWISE: Final = frozenset(
    {
        *("Abs", "Add", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu"),
        *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg"),
        *("PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu"),
    }
)
"""Ops whose result at an element depends on their operands at that element."""

_COUNT: Final = 256


def pointwise(sheet: Sheet, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Any ops of `POINTWISE` on one tensor of bytes and constants that vary along one axis at most."""
    x = _only(sheet, block)
    if (
        x is None
        or width_of(x.kind) != 8
        or width_of(y) != 8
        or not all(op.type in POINTWISE for op in block.core)
    ):
        return False
    tensor = sheet.stored(x.value, x.kind)
    axis = _varying(sheet, block, len(tensor.shape))
    if axis is None:
        return False
    channels = 1 if axis < 0 else tensor.sizes[axis]
    shape = [1] * len(tensor.shape)
    if axis >= 0:
        shape[axis] = channels
    table = _tabulated(sheet, block, x, y, shape).clip(clamp.low, clamp.high)
    if channels == 1:
        stored = _table(sheet, tensor, table[0], block.result)
    else:
        stored = _tables(sheet, tensor, axis, table, block.result)
    sheet.define_stored(block.kernel.outputs[0].value, y, stored)
    return True


def _only(sheet: Sheet, block: Block) -> Operand | None:
    """The only operand that is not constant, if it is stored with one scale."""
    inner = {name for op in block.core for name in op.outputs}
    found: dict[Operand, None] = {}
    for op in block.core:
        for i, name in enumerate(op.inputs):
            if not name or name in inner or sheet.is_constant(name):
                continue
            kind = block.kinds.get((op.name, i))
            if not isinstance(kind, Uniform) or not kind.is_per_tensor:
                return None
            found[Operand(name, kind)] = None
    return next(iter(found)) if len(found) == 1 else None


def _varying(sheet: Sheet, block: Block, rank: int) -> int | None:
    """The axis along which constants vary, -1 where they are single numbers, None where several do."""
    axes: set[int] = set()
    for op in block.core:
        for name in op.inputs:
            if not name or not sheet.is_constant(name):
                continue
            shape = sheet.array(name).shape
            if len(shape) > rank:
                return None
            axes.update(i + rank - len(shape) for i, size in enumerate(shape) if size != 1)
    return None if len(axes) > 1 else next(iter(axes), -1)


def _tabulated(sheet: Sheet, block: Block, x: Operand, y: Uniform, shape: list[int]) -> Array:
    """The stored results of every stored value, (channels, 256) int64; `shape` has the channels' axis."""
    one, result = held(x.kind), block.core[-1].outputs[0]
    values = np.arange(-_COUNT // 2, _COUNT // 2).reshape(-1, *(1 for _ in shape))
    ramp = np.ascontiguousarray(np.broadcast_to(dequantize_array(values, one), (_COUNT, *shape)))

    def feed(read: Read) -> Array:
        if not isinstance(read.kind, Uniform) or not sheet.is_constant(read.value):
            return ramp
        return dequantize_array(quantize_array(sheet.array(read.value), read.kind), read.kind)

    real = as_f32(program_of(sheet.graph, block.core, (result,), block.kinds).run(feed)[result])
    stored = quantize_array(np.ascontiguousarray(np.broadcast_to(real, (_COUNT, *shape))), held(y))
    return stored.astype(np.int64).reshape(_COUNT, -1).T


def _table(sheet: Sheet, tensor: Tensor, table: Array, stem: str) -> Tensor:
    name = sheet.program.constant(table, "i8", f"{stem}_table")
    return sheet.program.emit("table", [tensor, name], replace(tensor, element="i8"), stem)


def _tables(sheet: Sheet, tensor: Tensor, axis: int, table: Array, stem: str) -> Tensor:
    """A table per channel: GATHER at `channel * 256 + value + 128`."""
    program = sheet.program
    at = tensor.at(axis)
    places = rescale(program, tensor, UNIT, (-_COUNT // 2, 0), "i32", f"{stem}_at")
    shape = [1] * len(tensor.shape)
    shape[at] = len(table)
    firsts = program.constant((np.arange(len(table)) * _COUNT).reshape(shape), "i32")
    places = program.emit("add", [places, firsts], places, f"{stem}_at")
    places = program.reshaped(places, (1, prod(tensor.shape)))
    numbers = program.constant(table.reshape(1, -1, 1), "i8", f"{stem}_table")
    like = Tensor("", (1, prod(tensor.shape), 1), "i8", plain(3))
    found = program.emit("gather", [numbers, places], like, stem)
    return program.reshaped(found, tensor.shape, tensor.order)
