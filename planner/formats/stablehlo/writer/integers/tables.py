"""Tables: functions of one or two stored tensors as gathers from what the reference interpreter computes.

A function of 8 or 16 stored bits has few enough arguments to be tried out: the interpreter's float32 steps
run on all of them when the file is written, and the file holds stored integers. Source:
docs/specification.md, section 8.
"""

from collections.abc import Mapping
from math import prod
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array, stored_dtype
from planner.formats.common.blocks import Clamp
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.operations import binary, convert, joined, reshape, spread, take
from planner.formats.stablehlo.writer.program_builder import ProgramBuilder
from planner.formats.stablehlo.writer.tensors import Tensor, storage_element
from planner.interpreter.programs import Program as FloatProgram
from planner.interpreter.programs import Read, program_of
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.ops import OPERATORS, of_form
from planner.ops.forms import Form

ELEMENTWISE: Final = of_form(Form.COMPARISON) | {name for name, one in OPERATORS.items() if one.is_pointwise}
_BITS: Final = 16


def tabulated(builder: ProgramBuilder, block: Block, y: Uniform | None, ends: Clamp | None) -> Tensor | None:
    """The result of an element-wise block of one or two stored operands; None where it is none.

    Args:
      y: type of the result; None: of a comparison.
    """
    if any(op.type not in ELEMENTWISE or op.captures for op in block.core):
        return None
    if y is not None and not y.is_per_tensor:
        return None
    sources = _sources(builder, block)
    if sources is None:
        return None
    program = program_of(builder.graph, block.core, (block.result,), block.kinds)
    results = _tried(builder, program, sources)
    if y is None or ends is None:
        element, stored = "i1", results
    else:
        element = storage_element(y)
        stored = np.clip(quantize_array(results.astype(np.float32), y), ends.low, ends.high)
    tensors = [builder.values.integers(value, kind) for value, kind in sources]
    found = looked_up(builder.p, tensors, [kind for _, kind in sources], stored, element)
    missing = _rank(builder, block) - len(found.shape)
    return reshape(builder.p, found, (*(1,) * missing, *found.shape)) if missing > 0 else found


def _rank(builder: ProgramBuilder, block: Block) -> int:
    """The most axes of a constant: one number of shape (1, 1, 1) gives the result three."""
    constants = [builder.graph.constants.get(name) for op in block.core for name in op.inputs]
    return max(
        (item.array.ndim for item in constants if item is not None and item.array is not None), default=0
    )


def _sources(builder: ProgramBuilder, block: Block) -> list[tuple[str, Uniform]] | None:
    """The one or two stored operands all others derive from, constants of one number aside."""
    inside = {name for op in block.core for name in op.outputs}
    found: dict[tuple[str, Uniform], None] = {}
    for op in block.core:
        for i, name in enumerate(op.inputs):
            kind = block.kinds.get((op.name, i))
            if not name or name in inside:
                continue
            array = builder.graph.constants.get(name)
            if array is not None and array.array is not None and array.array.size == 1:
                continue
            if not isinstance(kind, Uniform) or not kind.is_per_tensor:
                return None
            found[name, kind] = None
    bits = sum(kind.storage.bits for _, kind in found)
    is_plain = all(builder.graph.values[name].dtype == "f32" for name, _ in found)
    return list(found) if 1 <= len(found) <= 2 and bits <= _BITS and is_plain else None


def _tried(builder: ProgramBuilder, program: FloatProgram, sources: list[tuple[str, Uniform]]) -> Array:
    """Float32 results for every stored value, (A,) or (A, B)."""
    arrays: Mapping[tuple[str, Uniform], Array] = {
        (name, kind): _all_reals(kind).reshape(
            -1 if i == 0 else 1, *[1 if i == 0 else -1] * (len(sources) - 1)
        )
        for i, (name, kind) in enumerate(sources)
    }

    def fed(read: Read) -> Array:
        found = arrays.get((read.value, read.kind)) if isinstance(read.kind, Uniform) else None
        return _constant(builder, read) if found is None else found

    shape = tuple(array.size for array in arrays.values())
    (result,) = program.run(fed).values()
    return np.broadcast_to(result, shape)


def _constant(builder: ProgramBuilder, read: Read) -> Array:
    """A constant of one number, seen through its type."""
    number = builder.values.array(read.value).reshape(())
    if not isinstance(read.kind, Uniform):
        return number
    return dequantize_array(quantize_array(number, read.kind), read.kind).reshape(())


def _all_reals(kind: Uniform) -> Array:
    stored = np.arange(kind.storage.qmin, kind.storage.qmax + 1).astype(stored_dtype(kind.storage))
    return dequantize_array(stored, kind)


def looked_up(p: Program, tensors: list[Tensor], kinds: list[Uniform], table: Array, element: str) -> Tensor:
    """Look every element up.

    Args:
      tensors: one or two of stored integers, of shapes that broadcast.
      kinds: their types.
      table: results for every stored value, (A,) or (A, B).
      element: type of the results.
    """
    held = p.constant(table.reshape(-1), element if element != "i1" else "i8")
    shape = joined(*(tensor.shape for tensor in tensors))
    place: Tensor | None = None
    for tensor, kind in zip(tensors, kinds, strict=True):
        index = spread(p, convert(p, tensor, "i32"), shape)
        if kind.storage.qmin:
            index = binary(p, "subtract", index, p.number(kind.storage.qmin, "i32"))
        if place is not None:
            columns = p.number(kind.storage.qmax - kind.storage.qmin + 1, "i32")
            index = binary(p, "add", binary(p, "multiply", place, columns), index)
        place = index
    assert place is not None  # noqa: S101 - there is a tensor
    flat = take(p, held, reshape(p, place, (prod(shape),)), 0)
    return convert(p, reshape(p, flat, shape), element)
