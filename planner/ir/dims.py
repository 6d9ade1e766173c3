"""Dims: sizes for dimensions that a model leaves open.

An open dimension has a name in the file (`batch`), which means the same wherever it stands; one without is
identified by its place, `input[0]`. Some exporters write one and the same word where they know no name; such
dimensions have none (`symbol_of`). Nothing here infers a shape.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from planner.errors import InputError, unknown_name
from planner.ir.graph import Graph, Value
from planner.ops import of_form
from planner.ops.forms import Form

_NAMELESS: Final = re.compile(r"\s*(\?+|\*|-1|none|unk__\d*)?\s*", re.IGNORECASE | re.ASCII)
"""Words that say that a size is not known, of as many dimensions as they stand at: they are no names."""


_OF_DATA: Final = of_form(Form.COUNTED)
"""Ops the sizes of whose results follow from numbers and not from sizes."""
COUNTED: Final = "open sizes weigh as the samples have them"
"""Note of a model with statistics of sizes that it leaves open."""
TAKEN: Final = "sizes are those of all samples"
"""Note of a model whose open sizes became fixed."""
MOST: Final = 1 << 31
"""No size of a tensor is as large."""


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


def odd_sizes(value: Value) -> str:
    """Return what is wrong with the sizes that samples are said to show of a value; "" where nothing is."""
    shape, seen = value.shape, value.seen or ()
    if not all(type(size) is int and 0 <= size < MOST for size in seen):
        return f"{[*seen]} are no sizes; accepted: whole numbers of at least 0"
    if not value.is_open:
        return f"all sizes of {value.name!r} are known, so samples add none"
    if shape is not None and (
        len(shape) != len(seen)
        or any(isinstance(dim, int) and dim != size for dim, size in zip(shape, seen, strict=True))
    ):
        return f"sizes {[*seen]} do not fit shape {[*shape]}"
    if not all(type(axis) is int and 0 <= axis < len(seen) for axis in value.varies):
        return f"{[*value.varies]} are no axes of sizes {[*seen]}"
    return ""


def named_sizes(values: Mapping[str, Value], inputs: Iterable[str]) -> dict[str, Value]:
    """Return the values; those without observed sizes take those of the inputs' dimensions by name."""
    known: dict[str, tuple[int, bool]] = {}
    for name in inputs:
        value = values[name]
        pairs = zip(value.shape or (), value.seen or (), strict=False)
        for axis, (symbol, size) in enumerate(pairs):
            if isinstance(symbol, str):
                old, varied = known.get(symbol, (size, False))
                known[symbol] = max(old, size), varied or old != size or axis in value.varies
    found = dict(values)
    for name, value in values.items() if known else ():
        shape = value.shape
        if not value.is_open or value.seen is not None or shape is None:
            continue
        if all(isinstance(dim, int) or dim in known for dim in shape):
            seen = tuple([dim if isinstance(dim, int) else known[str(dim)][0] for dim in shape])
            varies = [axis for axis, dim in enumerate(shape) if isinstance(dim, str) and known[dim][1]]
            found[name] = replace(value, seen=seen, varies=tuple(varies))
    return found


def seen_sizes(graph: Graph) -> dict[str, int]:
    """Return the sizes of open dimensions of the inputs in which all samples agree, by name or place."""
    found: dict[str, int] = {}
    varied: set[str] = set()
    for name in graph.inputs:
        value = graph.values[name]
        for axis, symbol in enumerate(value.shape or ()):
            if isinstance(symbol, int):
                continue
            key = symbol or f"{name}[{axis}]"
            size = None if value.seen is None or axis in value.varies else value.seen[axis]
            if not size or found.get(key, size) != size:
                varied.add(key)
            else:
                found[key] = size
    return {key: size for key, size in found.items() if key not in varied}


def open_sizes(value: Value) -> tuple[int, ...]:
    """Return the sizes that samples show of the open dimensions of a value."""
    pairs = zip(value.shape or (), value.seen or (), strict=False)
    return tuple([size for dim, size in pairs if not isinstance(dim, int)])


def seen_text(graph: Graph) -> str:
    """Return the sizes that samples show of open dimensions of the inputs, in words; "" without any."""
    told = []
    for name in graph.inputs:
        value = graph.values[name]
        for axis, symbol in enumerate(value.shape or ()) if value.seen is not None else ():
            if not isinstance(symbol, int) and value.seen is not None:
                largest = " at most" if axis in value.varies else ""
                told.append(f"{_place(name, axis, symbol)} is {value.seen[axis]}{largest}")
    return ", ".join(told)


def left_open(graph: Graph) -> tuple[str, str]:
    """Return the dimensions that the inputs leave open, and the options that size them; ("", "") without any.

    Those in which samples differ are reported as such; those in which they agree need no option.
    """
    found, names, sizes = [], dict[str, None](), seen_sizes(graph)
    for name in graph.inputs:
        value = graph.values[name]
        for axis, symbol in enumerate(value.shape or ()):
            if isinstance(symbol, int):
                continue
            key = symbol or f"{name}[{axis}]"
            differs = " (samples differ)" if value.seen is not None and key not in sizes else ""
            found.append(f"{_place(name, axis, symbol)}{differs}")
            if key not in sizes:
                names[key] = None
    return ", ".join(found), " ".join(f"--dim {shlex.quote(key)}=N" for key in names)


def fixed_as_seen(graph: Graph) -> Graph:
    """Return the graph with the sizes that all samples agree in as its own, where these settle every input.

    Each value gets the sizes that it had when the model ran, so nothing has to be inferred. Sizes that data
    decides stay open, and so does what follows from them.
    """
    sizes = seen_sizes(graph)
    opened = [symbol or place for place, symbol in open_dims(graph)]
    if not opened or not sizes.keys() >= set(opened):
        return graph
    loose = _decided_by_data(graph)
    values = {name: _fixed(value, sizes, is_loose=name in loose) for name, value in graph.values.items()}
    notes = [note for note in graph.notes if not note.startswith(COUNTED)]
    return replace(graph, values=values, notes=(*notes, f"{TAKEN}: {seen_text(graph)}"))


def _decided_by_data(graph: Graph) -> set[str]:
    found: set[str] = set()
    for op in graph.all_ops():
        if op.type in _OF_DATA or not found.isdisjoint(op.inputs) or not found.isdisjoint(op.captures):
            found.update(op.outputs)
    return found


def _fixed(value: Value, sizes: Mapping[str, int], *, is_loose: bool) -> Value:
    if not value.is_open:
        return value
    if value.seen is not None and not value.varies and not is_loose:
        return replace(value, shape=value.seen, seen=None)
    return _sized(value, sizes)


def _place(name: str, axis: int, symbol: str | None) -> str:
    return f"{name}[{axis}] {symbol!r}" if symbol else f"{name}[{axis}]"


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
