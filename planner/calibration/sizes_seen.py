"""Sizes seen: the shapes that values with open dimensions had while samples ran, and the trips of loops.

Of each value the largest shape, by its elements, and the least and the greatest size of each axis; joining is
exact, whatever the order and grouping. The largest weighs prices and work (`Value.seen`); sizes in which all
samples agree become a program's own. Sizes of values inside loops are read off what is fetched of them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from planner.ir.borders import closed_scope, homes
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Graph, Op, Value

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SizesSeen:
    """Sizes of one value: of its largest shape, and of each axis the least and the greatest.

    A value whose number of axes differs from sample to sample has no sizes: three times ().
    """

    sizes: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]

    @property
    def varies(self) -> tuple[int, ...]:
        """Axes along which samples differ."""
        ends = zip(self.least, self.most, strict=True)
        return tuple([axis for axis, (low, high) in enumerate(ends) if low != high])


NO_RANK: Final = SizesSeen((), (), ())


@dataclass(frozen=True, slots=True)
class AllSizes:
    """Sizes of values by name, and how often the bodies of loops ran, at most, by path."""

    sizes: Mapping[str, SizesSeen]
    trips: Mapping[str, int]


NOTHING: Final = AllSizes({}, {})


def seen_once(shapes: Shapes, trips: Mapping[str, int]) -> AllSizes:
    """Return what one sample shows."""
    return AllSizes({name: SizesSeen(sizes, sizes, sizes) for name, sizes in shapes.items()}, trips)


def join(a: AllSizes, b: AllSizes) -> AllSizes:
    """Return what two sets of samples show together."""
    if a is NOTHING or b is NOTHING:
        return b if a is NOTHING else a
    both = a.sizes.keys() & b.sizes.keys()
    sizes = {**a.sizes, **b.sizes} | {name: _joined(a.sizes[name], b.sizes[name]) for name in both}
    trips = {path: max(a.trips.get(path, 0), b.trips.get(path, 0)) for path in {**a.trips, **b.trips}}
    return AllSizes(sizes, trips)


def _joined(a: SizesSeen, b: SizesSeen) -> SizesSeen:
    if a == b:
        return a
    if len(a.sizes) != len(b.sizes):
        return NO_RANK
    largest = max(a.sizes, b.sizes, key=lambda sizes: (math.prod(sizes), sizes))
    least, most = (
        tuple(map(choose, *ends)) for choose, ends in ((min, (a.least, b.least)), (max, (a.most, b.most)))
    )
    return SizesSeen(largest, least, most)


def agreed_sizes(graph: Graph, samples: Iterable[Shapes]) -> dict[str, int]:
    """Return the sizes of the open dimensions of the inputs, by name or place; {} where samples differ.

    Args:
      samples: the shapes of the inputs of each.
    """
    places = [
        (size or f"{name}[{axis}]", name, axis)
        for name in graph.inputs
        for axis, size in enumerate(graph.values[name].shape or ())
        if not isinstance(size, int)
    ]
    found: dict[str, int] = {}
    for shapes in samples if places else ():
        for key, name, axis in places:
            size = shapes[name][axis]
            if found.setdefault(key, size) != size:
                return {}
    return found


def open_values(graph: Graph) -> tuple[str, ...]:
    """Return the values outside of bodies that are computed and whose sizes are not known before running."""
    inside = homes(graph)
    made = (name for op in graph.ops for name in op.outputs if name)
    return tuple(
        [
            name
            for name in made
            if name not in inside and graph.values[name].is_open and graph.values[name].dtype != UNKNOWN
        ]
    )


def output_of(name: str) -> str:
    """Return the name of the output that tells the sizes of a value."""
    return f"{name}:sizes"


def with_shapes(graph: Graph, names: Iterable[str]) -> Graph:
    """Append an op that tells its sizes behind each of these values."""
    ops = [Op(output_of(name), "Shape", (name,), (output_of(name),)) for name in names]
    values = {op.name: Value(op.name, None, "i64") for op in ops}
    return replace(graph, values={**graph.values, **values}, ops=(*graph.ops, *ops))


def inner_shapes(graph: Graph, fetched: Shapes) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Return the sizes of values inside bodies, and the trips of loops, from the shapes that came out.

    A value of a loop comes out with an axis of trips in front; one of a branch that did not run, as nothing.
    """
    inside = homes(graph)
    shapes: dict[str, tuple[int, ...]] = {}
    trips: dict[str, int] = {}
    for name, came in fetched.items():
        loops = [*_loops(graph, inside.get(name, ""))] if name in inside else []
        value = graph.values[name]
        # In a branch a value may be of no trip, and what a Loop adds up has lost its axes.
        if not loops or None in loops or value.shape is None or len(came) != len(loops) + len(value.shape):
            continue
        runs = came[: len(loops)]
        if all(runs):
            for k, path in enumerate(reversed(loops)):
                assert path is not None  # noqa: S101 - looked at above
                trips[path] = math.prod(runs[: k + 1])
            if value.is_open:
                shapes[name] = came[len(loops) :]
    return shapes, trips


def _loops(graph: Graph, path: str) -> Iterator[str | None]:
    """The loops around a body, from the inside; None of a branch."""
    while path:
        scope = graph.scopes[path]
        if scope.kind != "call":
            yield path if scope.kind == "loop" else None
        path = closed_scope(graph.scopes, scope.parent)
