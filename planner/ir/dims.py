"""Dims: sizes for dimensions that a model leaves open, for formats that need them all (StableHLO, TOSA).

An open dimension has a name in the file (`batch`), which means the same wherever it stands; one without is
told by its place, `input[0]`. Nothing here infers a shape.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.errors import InputError, unknown_name
from planner.ir.graph import Graph, Value


def with_dims(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """Give open dimensions of the inputs their sizes, and all values whose shapes name them."""
    return named_dims(graph, sizes_of(graph, dims))


def sizes_of(graph: Graph, dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes by name, or by place where a dimension has none.

    Args:
      dims: sizes, by the dimension's name, or by its place at an input.

    Raises:
      UnknownName: no input has such an open dimension.
      InputError: a size that is no whole number of at least 1.
    """
    known = dict(open_dims(graph))
    for name, size in dims.items():
        if name not in known and name not in known.values():
            raise unknown_name("open dimension", name, {*known, *filter(None, known.values())})
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"dimension {name!r} cannot be {size!r}; accepted: a whole number of at least 1")
    return {known.get(name) or name: size for name, size in dims.items()}


def named_dims(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """The graph with these dimensions sized, wherever its values have them."""
    if not dims:
        return graph
    return replace(graph, values={name: _sized(value, dims) for name, value in graph.values.items()})


def open_dims(graph: Graph) -> Iterator[tuple[str, str | None]]:
    """Open dimensions of the inputs: place, and name where there is one."""
    for name in graph.inputs:
        for axis, size in enumerate(graph.values[name].shape or ()):
            if not isinstance(size, int):
                yield f"{name}[{axis}]", size


def _sized(value: Value, dims: Mapping[str, int]) -> Value:
    if value.shape is None or all(isinstance(size, int) for size in value.shape):
        return value
    shape = tuple(
        size if isinstance(size, int) else dims.get(size or f"{value.name}[{axis}]", size)
        for axis, size in enumerate(value.shape)
    )
    return replace(value, shape=shape)
