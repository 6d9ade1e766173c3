"""Loops: `while` and `if`, and the slices that a trip takes and leaves, on any element type.

Bodies read what stands outside of them, as the specification lets them. Source: StableHLO specification,
while, if, dynamic_slice, dynamic_update_slice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.mlir.generic import Block, array_text
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.operations import broadcast, compare, like, reshape
from planner.formats.stablehlo.writer.tensors import Tensor

Tensors = Sequence[Tensor]

COUNT: Final = "i64"
"""Element type of what counts trips, as ONNX has it."""


def repeat(
    p: Program, carried: Tensors, going: Callable[[Tensors], Tensor], step: Callable[[Tensors], Tensors]
) -> tuple[Tensor, ...]:
    """A while loop: what is carried after the last trip.

    Args:
      going: whether another trip follows, from what is carried.
      step: what a trip makes of it.
    """
    regions = [_region(p, carried, lambda seen: (going(seen),)), _region(p, carried, step)]
    return p.emit_many("while", carried, carried, tuple(regions))


def _region(p: Program, carried: Tensors, make: Callable[[Tensors], Tensors]) -> Block:
    seen = renamed(p, carried, "in")
    with p.inside() as operations:
        results = make(seen)
    return p.closed(seen, operations, results)


def renamed(p: Program, tensors: Tensors, stem: str) -> tuple[Tensor, ...]:
    """Tensors of the same types with fresh names, for the arguments of a body."""
    return tuple(replace(tensor, name=p.name(stem)) for tensor in tensors)


def counted(p: Program, number: int) -> Tensor:
    """A number of trips."""
    return p.number(number, COUNT)


def is_before(p: Program, count: Tensor, end: Tensor) -> Tensor:
    """Whether a count has not reached its end."""
    return compare(p, count, end, "LT")


def sliced(p: Program, x: Tensor, at: Tensor, axis: int = 0) -> Tensor:
    """The slice at a place along an axis, which goes."""
    sizes = tuple(1 if i == axis else size for i, size in enumerate(x.shape))
    attributes = {"slice_sizes": array_text(sizes)}
    found = p.emit("dynamic_slice", [x, *_starts(p, x, at, axis)], like(x, sizes), attributes=attributes)
    return reshape(p, found, (*x.shape[:axis], *x.shape[axis + 1 :]))


def placed(p: Program, whole: Tensor, part: Tensor, at: Tensor, axis: int = 0) -> Tensor:
    """A tensor with a slice (without the axis) put at a place along an axis."""
    slab = reshape(p, part, tuple(1 if i == axis else size for i, size in enumerate(whole.shape)))
    return p.emit("dynamic_update_slice", [whole, slab, *_starts(p, whole, at, axis)], whole)


def filled(p: Program, number: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of one number, to be filled slice by slice."""
    return broadcast(p, number, shape, ())


def _starts(p: Program, x: Tensor, at: Tensor, axis: int) -> list[Tensor]:
    zero = p.constant(np.asarray(0), at.element)
    return [at if i == axis else zero for i in range(x.rank)]
