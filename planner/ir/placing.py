"""Placing: names and values of bodies as `expand` puts them in place.

Every value and kernel of a body gets a flat name of its own, by path; a constant of a function gets one for
all its places. State of one expansion, nothing more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from planner.ir.graph import Constant, Facts, Graph, Op, Region, Value
from planner.ir.structure import Scope
from planner.ir.types.qtypes import Calibrated


@dataclass(slots=True)
class Flat:
    """The flat graph under construction.

    Attributes:
      observed: ranges that parameters and results bring to the values they are one with.
      constants_of: flat name of each constant of each function.
    """

    source: Graph
    in_regions: bool
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    steps: list[Op | Region] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    observed: dict[str, list[Calibrated]] = field(default_factory=dict)
    constants_of: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """One body (or the model) in its place: its graph, its path, and the flat names of its values."""

    graph: Graph
    path: str
    scope: str
    trips: int
    flat_names: dict[str, str]
    chain: tuple[str, ...] = ()


def observe(flat: Flat, name: str, facts: Facts) -> None:
    """Note the ranges that a body knows of a value of its caller."""
    found = [fact for fact in facts if isinstance(fact, Calibrated)]
    if name and found:
        flat.observed.setdefault(name, []).extend(found)


def named(flat: Flat, place: Place, name: str) -> str:
    """The flat name of a value of a body, "" for an absent one; made where it has none yet."""
    if not name:
        return ""
    known = place.flat_names.get(name)
    if known is None:
        known = place.flat_names[name] = _new_name(flat, place, name)
    if known and known not in flat.values:
        value = place.graph.values[name]
        flat.values[known] = value if known == name else replace(value, name=known)
    return known


def _new_name(flat: Flat, place: Place, name: str) -> str:
    if name not in place.graph.constants:
        return _fresh(prefixed(place.path, name), flat)
    function = place.chain[-1]
    key = (function, name)
    if key not in flat.constants_of:
        flat.constants_of[key] = _fresh(prefixed(function, name), flat)
    return flat.constants_of[key]


def new_value(flat: Flat, name: str, like: Value) -> str:
    """Add a value like another, under a name of its own."""
    known = _fresh(name, flat)
    flat.values[known] = replace(like, name=known)
    return known


def _fresh(name: str, flat: Flat) -> str:
    return next(
        text for text in _numbered(name) if text not in flat.values and text not in flat.source.values
    )


def all_named(flat: Flat, place: Place, names: Sequence[str]) -> tuple[str, ...]:
    """The flat names of several values."""
    return tuple(named(flat, place, name) for name in names)


def kernel_name(flat: Flat, place: Place, name: str) -> str:
    """The flat name of a kernel of a body: its path, numbered where that is taken."""
    found = next(text for text in _numbered(prefixed(place.path, name)) if text not in flat.names)
    flat.names.add(found)
    return found


def op_name(flat: Flat, place: Place, name: str, kernel: str, flat_kernel: str) -> str:
    """The flat name of an op inside a kernel, which may be called like it."""
    if not place.path:
        return name
    return flat_kernel if name == kernel else kernel_name(flat, place, name)


def path_of(flat: Flat, place: Place, name: str) -> str:
    """The path of a body that a kernel of this place runs."""
    return next(text for text in _numbered(prefixed(place.path, name)) if text not in flat.scopes)


def prefixed(path: str, name: str) -> str:
    """A name behind the path of the body it stands in, as it is where it says that path already."""
    return name if not path or name.startswith(f"{path}/") else f"{path}/{name.lstrip('/')}"


def _numbered(name: str) -> Iterator[str]:
    yield name
    n = 1
    while True:
        yield f"{name}_{n}"
        n += 1
