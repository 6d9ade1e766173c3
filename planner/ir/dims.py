"""Dims: sizes for dimensions that a model leaves open.

An open dimension has a name in the file (`batch`), which means the same wherever it stands; one without is
told by its place, `input[0]`. Some exporters write one and the same word where they know no name; such
dimensions have none (`symbol_of`). Nothing here infers a shape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from planner.errors import InputError, unknown_name
from planner.ir.graph import Graph, Value

_NAMELESS: Final = re.compile(r"\s*(\?+|\*|-1|none|unk__\d*)?\s*", re.IGNORECASE | re.ASCII)
"""Words that say that a size is not known, of as many dimensions as they stand at: they are no names."""


def symbol_of(name: str | None) -> str | None:
    """Return the name of a dimension; None of a word that says no more than that its size is not known."""
    return None if name is None or _NAMELESS.fullmatch(name) else name


def with_dims(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """Give open dimensions of the inputs their sizes, and all values whose shapes name them."""
    return named_dims(graph, sizes_of(graph, dims))


def sizes_of(graph: Graph, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes by name, or by place where a dimension has none.

    Args:
      dims: sizes, by the dimension's name, or by its place at an input.

    Raises:
      UnknownName: no input has such an open dimension.
      InputError: a size that is no whole number of at least 1; two sizes for one dimension.
    """
    known = dict(open_dims(graph))
    found: dict[str, int] = {}
    given: dict[str, str] = {}
    for name, size in dims.items():
        if name not in known and name not in known.values():
            raise unknown_name("open dimension", name, {*known, *filter(None, known.values())})
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"dimension {name!r} cannot be {size!r}; accepted: a whole number of at least 1")
        key = known.get(name) or name
        if found.get(key, size) != size:
            raise InputError(
                f"dimension {key!r} cannot be {found[key]} (as {given[key]!r}) and {size} (as {name!r})",
                hint=f"the model says that these are one dimension: {_places(known, key)}",
            )
        found[key], given[key] = size, name
    return found


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


def _places(known: Mapping[str, str | None], name: str) -> str:
    return ", ".join(place for place, symbol in known.items() if symbol == name)


def _sized(value: Value, dims: Mapping[str, int]) -> Value:
    if value.shape is None or all(isinstance(size, int) for size in value.shape):
        return value
    shape = tuple(
        size if isinstance(size, int) else dims.get(size or f"{value.name}[{axis}]", size)
        for axis, size in enumerate(value.shape)
    )
    return replace(value, shape=shape)
