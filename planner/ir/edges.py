"""Edges: rescales that a text shows as kernels, on the edges they sit on again.

A planned text shows each rescale as a kernel `qplan.rescale` between a value and the ports that read it. One
that the types of both ends imply is derived from them again, so it goes. Any other was written by hand and
stays a kernel, with a note: it computes in float and its result has a fixed type, which gives equal numbers.
Source: docs/specification.md, sections 3 and 5 ("planning a planned module again").
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.ir.graph import BOUNDARY, Facts, Graph, Op, Region, Value, port_address
from planner.ir.types.held_pins import same_numbers
from planner.ir.types.qtypes import Bipolar, FloatType, NoneType, QType, Uniform
from planner.ir.types.typetext import brief

RESCALE: Final = "qplan.rescale"
"""Kernel name of a rescale in a quantized module."""

FLOAT: Final = NoneType()


def with_edges(graph: Graph) -> Graph:
    """A model whose rescales are edges; the same graph where it shows none."""
    if not any(_is_rescale(region) for part in (graph, *graph.functions.values()) for region in part.regions):
        return graph
    notes: list[str] = []
    found = _with_edges(graph, notes, borders=True)
    functions = {name: _with_edges(body, notes, borders=False) for name, body in graph.functions.items()}
    return replace(found, functions=functions, notes=(*graph.notes, *notes))


def _is_rescale(region: Region) -> bool:
    ports = (*region.inputs, *region.outputs)
    return (
        region.kernel == RESCALE
        and not region.ops
        and len(region.inputs) == len(region.outputs) == 1
        and all(ports)
    )


def _with_edges(graph: Graph, notes: list[str], *, borders: bool) -> Graph:
    shown = _shown(graph, borders=borders)
    kept: dict[str, str] = {}
    for address, name, wanted in _readers(shown):
        problem = _problem(shown, address, name, wanted)
        if problem:
            kept.setdefault(shown.sources[name], problem)
    gone = {name: source for name, source in shown.sources.items() if source not in kept}
    values, regions = dict(graph.values), list[Region]()
    for region in graph.regions:
        name = region.outputs[0] if region.outputs else ""
        if name in gone:
            del values[name]
        elif name in shown.sources:
            values[name], region = _standing(shown, region, kept[shown.sources[name]])  # noqa: PLW2901
            notes.append(f"rescale {region.name!r} stays a kernel in float: {region.reason}")
            regions.append(region)
        else:
            regions.append(_reading(region, gone))
    outputs = tuple([gone.get(name, name) for name in graph.outputs])
    return replace(graph, values=values, regions=tuple(regions), outputs=outputs)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Rescales of a text by result, the value at the start of each chain, and types where values begin.

    Attributes:
      borders: whether inputs and outputs are the model's own, which are float unless their type is fixed.
    """

    graph: Graph
    rescales: Mapping[str, Region]
    sources: Mapping[str, str]
    made: Mapping[str, QType | None]
    borders: bool


def _shown(graph: Graph, *, borders: bool) -> _Shown:
    rescales = {region.outputs[0]: region for region in graph.regions if _is_rescale(region)}
    sources: dict[str, str] = {}
    for name, region in rescales.items():
        sources[name] = sources.get(region.inputs[0], region.inputs[0])
    made: dict[str, QType | None] = dict.fromkeys(graph.inputs, FLOAT if borders else None)
    for region in graph.regions:
        facts = region.output_facts or ((),) * len(region.outputs)
        made |= {
            name: _said(own, graph.values[name])
            for name, own in zip(region.outputs, facts, strict=True)
            if name
        }
    return _Shown(graph, rescales, sources, made, borders)


def _said(facts: Facts, value: Value) -> QType | None:
    """The type that facts fix, `FLOAT` for the tensor's own; None where they fix none."""
    for fact in facts:
        if isinstance(fact, Uniform) or (isinstance(fact, FloatType) and fact.name != value.dtype):
            return fact
        if isinstance(fact, NoneType | Bipolar | FloatType):
            return FLOAT
    return None


def _readers(shown: _Shown) -> Iterator[tuple[str, str, QType | None]]:
    """Consumers of results of rescales: address, value, and the type that the consumer needs."""
    graph = shown.graph
    for region in graph.regions:
        if _is_rescale(region):
            continue
        facts = region.input_facts or ((),) * len(region.inputs)
        for i, (name, own) in enumerate(zip(region.inputs, facts, strict=True)):
            if name in shown.sources:
                yield port_address(region.name, "in", i), name, _said(own, graph.values[name])
    for op in graph.ops:
        for i, name in enumerate(op.inputs):
            if name in shown.sources:
                yield port_address(op.name, "in", i), name, None
    for i, name in enumerate(graph.outputs):
        if name in shown.sources:
            value = graph.values[shown.sources[name]]
            pin = _said(value.facts, value)
            yield port_address(BOUNDARY, "in", i), name, pin or (FLOAT if shown.borders else None)


def _problem(shown: _Shown, address: str, name: str, wanted: QType | None) -> str:
    """The reason why the ends of an edge do not imply the rescales on it; "" where they do."""
    value = shown.graph.values[shown.sources[name]]
    made, pin = shown.made.get(value.name), _said(value.facts, value)
    way = _way(shown, name)
    first, last = way[0][0], way[-1][1]
    if value.name in shown.graph.constants:
        return f"{value.name!r} is a constant, which nothing rescales while the model runs"
    if first != made and not _is_pin(first, pin):
        return f"{value.name!r} may be of another type than {_text(first)}, which it starts from"
    if wanted is None:
        return f"{address} may take another type than {_text(last)}"
    if last != wanted and not _enters(last, wanted):
        return f"{address} is {_text(wanted)}, not {_text(last)}"
    own = shown.graph.values[name].facts
    if own and own != (last,):
        return f"{name!r} has constraints of its own"
    # A plan needs one rescale without a pin in between, or two
    # that meet at the pin: no other chain can be derived again.
    if len(way) == 1 and (pin is None or _is_pin(first, pin) or _is_pin(last, pin)):
        return ""
    if len(way) == 2 and way[0][1] == way[1][0] and _is_pin(way[0][1], pin):
        return ""
    if pin is None:
        return f"{len(way)} of them stand behind each other in front of {address}"
    return f"{value.name!r} has the fixed type {_text(pin)}, which {address} would start from"


def _is_pin(kind: QType, pin: QType | None) -> bool:
    """Whether a type equals the fixed type, in whatever storage the device holds it."""
    if isinstance(kind, Uniform) and isinstance(pin, Uniform):
        return kind == pin or same_numbers(kind, pin)
    return kind == pin


def _enters(last: QType, wanted: QType) -> bool:
    """Whether numbers of one type are those of another as they are stored, so that no rescale is between."""
    if not (isinstance(last, Uniform) and isinstance(wanted, Uniform)):
        return False
    return last.storage.lies_in(wanted.storage) and replace(last, storage=wanted.storage) == wanted


def _way(shown: _Shown, name: str) -> list[tuple[QType, QType]]:
    """The two types of each rescale on the way from the first source to this value."""
    found: list[tuple[QType, QType]] = []
    while name in shown.rescales:
        region = shown.rescales[name]
        found.append(_ends(shown.graph, region))
        name = region.inputs[0]
    return found[::-1]


def _ends(graph: Graph, region: Region) -> tuple[QType, QType]:
    """The two types of a rescale: of its ports, else of its values, else float."""
    sides = (region.inputs[0], region.input_facts), (region.outputs[0], region.output_facts)
    first, last = ([*(own[0] if own else ()), *graph.values[name].facts] for name, own in sides)
    values = graph.values
    return _said(tuple(first), values[region.inputs[0]]) or FLOAT, _said(
        tuple(last), values[region.outputs[0]]
    ) or FLOAT


def _text(kind: QType) -> str:
    return "float" if kind == FLOAT else brief(kind)


def _standing(shown: _Shown, region: Region, problem: str) -> tuple[Value, Region]:
    """A rescale as a kernel that hands its value on, and its result, with its type fixed."""
    source, value = (shown.graph.values[name] for name in (region.inputs[0], region.outputs[0]))
    first, last = _ends(shown.graph, region)
    # The port's own type is dropped only if the value has it anyway; else it would be lost.
    holds = first in (shown.made.get(source.name), _said(source.facts, source), FLOAT)
    standing = replace(
        region,
        ops=(Op(region.name, "Identity", region.inputs, region.outputs),),
        input_facts=() if holds else region.input_facts,
        output_facts=(),
        reason=problem,
    )
    pinned = value if value.facts or last == FLOAT else replace(value, facts=(last,))
    return pinned, standing


def _reading(region: Region, gone: Mapping[str, str]) -> Region:
    """A kernel that reads the values at which the rescales in front of it started."""
    read = [*region.inputs, *(name for op in region.ops for name in op.inputs)]
    if gone.keys().isdisjoint(read):
        return region
    ops = [replace(op, inputs=tuple([gone.get(name, name) for name in op.inputs])) for op in region.ops]
    return replace(region, inputs=tuple([gone.get(name, name) for name in region.inputs]), ops=tuple(ops))
