"""Layouts: the storage order of a tensor's axes, and the effect of data movement on sizes and axes.

For formats whose programs have fixed sizes and their channels last (tosa, litert); nothing here writes.
Source: ONNX Pad and the reductions.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from planner.formats.common.values import Array, Values
from planner.ir.graph import Op
from planner.ops.operands import Operands, reduced_axes

Places: TypeAlias = Mapping[int, Array]
Order: TypeAlias = tuple[int, ...]
"""The model's axis that each stored axis is; ascending where a tensor is stored as the model has it."""


def plain(rank: int) -> Order:
    """The order of a tensor stored as the model has it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """The order in which axis 1 comes last."""
    return (0, *range(2, rank), 1)


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


def cut_and_grown(pads: Sequence[int], sizes: Sequence[int]) -> tuple[Places, Mapping[int, tuple[int, int]]]:
    """The part of each axis that negative pads leave, and the sizes that others put before and behind it."""
    ends = {axis: (pads[axis], pads[axis + len(sizes)]) for axis in range(len(sizes))}
    cut = {axis: np.arange(max(0, -begin), sizes[axis] - max(0, -end)) for axis, (begin, end) in ends.items()}
    return cut, {axis: (max(0, begin), max(0, end)) for axis, (begin, end) in ends.items()}


def filling_of(values: Values[Any], op: Op) -> float | None:
    """The number that a constant Pad puts around its operand; None where it comes at run time."""
    if len(op.inputs) < 3 or not op.inputs[2]:
        return float(op.attributes.get("value", 0.0))
    known = values.known(op.inputs[2])
    return None if known is None else float(known.reshape(-1)[0])


def axes_of(values: Values[Any], op: Op, rank: int) -> Sequence[int] | None:
    """The axes that a reduction is over, ascending; None where they are known only at run time."""
    return reduced_axes(Operands(op, lambda _: None, values.known), rank)


def laid(order: Order, shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes by the model's axes of a tensor of a shape, stored in an order."""
    by_axis: Mapping[int, int] = dict(zip(order, shape, strict=True))
    return tuple(by_axis[axis] for axis in range(len(shape)))
