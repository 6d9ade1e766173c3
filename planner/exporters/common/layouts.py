"""Layouts: the order in which a tensor's axes are stored, and what ops that move data do to sizes and axes.

For formats whose programs have fixed sizes and their channels last (tosa, litert); nothing here writes.
Source: ONNX Reshape, Squeeze, Unsqueeze, Pad and the reductions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from planner.exporters.common.values import Array, Values
from planner.interpreter.programs import Read, program_of
from planner.ir.graph import Graph, Op

Order: TypeAlias = tuple[int, ...]
"""The model's axis that each stored axis is; ascending where a tensor is stored as the model has it."""


def plain(rank: int) -> Order:
    """The order of a tensor stored as the model has it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """The order in which axis 1 comes last."""
    return (0, *range(2, rank), 1)


def sizes_after(values: Values[Any], op: Op, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Sizes of the result of a Reshape, Flatten, Squeeze or Unsqueeze by the op's own numbers.

    None where they are no constants, or do not fit the sizes of the operand.
    """
    given = op.attributes.get("axes")
    if len(op.inputs) > 1 and op.inputs[1]:
        is_constant = values.is_constant(op.inputs[1])
        given = values.array(op.inputs[1]).reshape(-1).tolist() if is_constant else None
    if op.type == "Flatten":
        axis = op.attributes.get("axis", 1)
        axis += len(sizes) if axis < 0 else 0
        return prod(sizes[:axis]), prod(sizes[axis:])
    if given is None:
        return None
    if op.type == "Squeeze":
        gone = {axis % len(sizes) for axis in given}
        return tuple(size for i, size in enumerate(sizes) if i not in gone)
    if op.type == "Unsqueeze":
        rank, rest = len(sizes) + len(given), iter(sizes)
        new = {axis % rank for axis in given}
        return tuple(1 if i in new else next(rest) for i in range(rank))
    keeps = not op.attributes.get("allowzero")
    wanted = [sizes[i] if keeps and size == 0 else int(size) for i, size in enumerate(given)]
    if -1 in wanted:
        wanted[wanted.index(-1)] = prod(sizes) // max(1, -prod(wanted))
    return tuple(wanted) if prod(wanted) == prod(sizes) else None


def resized(sizes: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Sizes whose product is the number of elements: what the batch was left open for goes in front."""
    if prod(sizes) == elements or not sizes or prod(sizes[1:]) == 0:
        return sizes
    return (elements // prod(sizes[1:]), *sizes[1:])


def order_after(order: Order, old: Sequence[int], new: Sequence[int]) -> Order:
    """The order of a tensor whose axes of one element changed: the others as they are stored.

    Args:
      order: before.
      old, new: sizes by the model's axes, alike but for ones.
    """
    kept = [axis for axis in range(len(old)) if old[axis] != 1]
    after = [axis for axis in range(len(new)) if new[axis] != 1]
    moved = [after[kept.index(axis)] for axis in order if axis in kept]
    ones = [axis for axis in range(len(new)) if new[axis] == 1]
    if moved == sorted(moved):
        return plain(len(new))
    return (*ones, *moved)


def source_indices(
    graph: Graph, op: Op, sizes: tuple[int, ...], *, is_float: bool = True
) -> list[Array] | None:
    """The indices of an operand that each axis of a result has, from running the op on each axis' numbers.

    Args:
      graph: of the op.
      op: picks along axes (Slice, Tile, Expand, nearest Resize, Pad by reflection).
      sizes: of its operand.
      is_float: whether the operand is; other elements are taken for floats.

    Returns:
      One array an axis of the result, axes in front that the operand lacks included; None where axes mix,
      or the op reads other data.
    """
    ends = {name: replace(graph.values[name], dtype="f32") for name in (op.inputs[0], op.outputs[0])}
    if not is_float:
        graph = replace(graph, values={**graph.values, **ends})
    program = program_of(graph, (op,), op.outputs[:1], {(op.name, 0): None})
    if len(program.reads) != 1:
        return None
    if not sizes:  # one number has no axis to pick along: it is repeated
        result = program.run(partial(_given, np.zeros((), np.float32)))[op.outputs[0]]
        return [np.zeros(size, np.int64) for size in result.shape] if result.size else None
    found: list[Array] = []
    for axis in range(len(sizes)):
        shape = [1] * len(sizes)
        shape[axis] = sizes[axis]
        ramp = np.broadcast_to(np.arange(sizes[axis], dtype=np.float32).reshape(shape), sizes)
        result = program.run(partial(_given, np.ascontiguousarray(ramp)))[op.outputs[0]]
        own = axis + result.ndim - len(sizes)
        if own < 0 or not result.size:
            return None
        line = np.moveaxis(result, own, 0).reshape(result.shape[own], -1)
        if (line != line[:, :1]).any():
            return None
        found.append(line[:, 0].astype(np.int64))
        if axis == 0:
            found = [np.zeros(size, np.int64) for size in result.shape[:own]] + found
    return found


def _given(array: Array, _: Read) -> Array:
    return array


def pads_of(values: Values[Any], op: Op, rank: int) -> list[int] | None:
    """The begins, then the ends of a Pad, of every axis; None where they are known only at run time."""
    if "pads" in op.attributes:
        return [int(count) for count in op.attributes["pads"]]
    names = [op.inputs[i] if len(op.inputs) > i else "" for i in (1, 3)]
    if not all(values.is_constant(name) for name in names if name):
        return None
    given = values.array(names[0]).tolist()
    axes = [axis % rank for axis in values.array(names[1]).tolist()] if names[1] else list(range(rank))
    pads = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        pads[axis], pads[axis + rank] = given[i], given[i + len(axes)]
    return pads


def filling_of(values: Values[Any], op: Op) -> float | None:
    """The number that a constant Pad puts around its operand; None where it comes at run time."""
    if len(op.inputs) < 3 or not op.inputs[2]:
        return float(op.attributes.get("value", 0.0))
    known = values.known(op.inputs[2])
    return None if known is None else float(known.reshape(-1)[0])


def axes_of(values: Values[Any], op: Op, rank: int) -> Sequence[int] | None:
    """The axes that a reduction is over, ascending; None where they are known only at run time."""
    axes = op.attributes.get("axes")
    if axes is None and len(op.inputs) > 1 and op.inputs[1]:
        if not values.is_constant(op.inputs[1]):
            return None
        axes = values.array(op.inputs[1]).tolist()
    if axes is not None and len(axes):
        return sorted({axis % rank for axis in axes})
    return [] if op.attributes.get("noop_with_empty_axes") else list(range(rank))


def laid(order: Order, shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes by the model's axes of a tensor of a shape, stored in an order."""
    by_axis: Mapping[int, int] = dict(zip(order, shape, strict=True))
    return tuple(by_axis[axis] for axis in range(len(shape)))
