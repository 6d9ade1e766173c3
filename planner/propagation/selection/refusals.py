"""Why a row does not serve a kernel: a fact that a port cannot have, a predicate, a size no block divides.

Facts of activations that a rescale can meet refuse nothing. Source: docs/specification.md, section 4.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from planner.ir.graph import Graph
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.fit import has_short_block
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, Storage, Uniform
from planner.ir.types.typetext import brief
from planner.ir.types.wanted import Wanted, wanted_bits
from planner.propagation.selection.choice import (
    FLOATING,
    Choice,
    binding_facts,
    follows_factors,
    port_facts,
    shared_storage,
    sides_of,
)
from planner.propagation.selection.pinned_constants import restored
from planner.target.ports.accepts import bits_of, broken_when, has_blocks_of, parameter_problem, scale_problem
from planner.target.ports.axes import axis_of_scales, block_size
from planner.target.records import PortPattern, Row

NOT_ASKED: Final = "it runs on request only"


def refused_by_facts(graph: Graph, choice: Choice) -> str | None:
    """The first port whose facts rule the row out."""
    region, sliced = choice.region, _hands_slices_on(graph, choice)
    for side, i, name, pattern in sides_of(choice):
        store = pattern.type.storage or shared_storage(choice, (side, i))
        own_facts = ((region.input_facts if side == "in" else region.output_facts) or ((),) * (i + 1))[i]
        constant = name in graph.constants
        if isinstance(store, FloatType):
            # A value's own pin is met by a quantize beside the port; the port's own can only be met by it.
            asked = next((fact for fact in own_facts if isinstance(fact, (Uniform, AnyType))), None)
            if asked is not None and not constant:
                return f"port {pattern.name} ({name!r}) wants {brief(asked)}, the row has {store}"
            continue
        follows = follows_factors(choice, pattern.name)
        for fact in binding_facts(graph, region, side, i):
            if isinstance(fact, FLOATING) and (constant or fact in own_facts):
                return f"port {pattern.name} ({name!r}) is kept in float ({fact})"
            if isinstance(fact, AnyType) and store is not None and store.range_bits < fact.bits:
                return f"port {pattern.name} ({name!r}) wants {brief(fact)}, the row has {store}"
            if (
                isinstance(fact, Bipolar)
                and constant
                and not (
                    holds_two_signs(pattern) and not scale_problem(pattern.type, [fact.scale]) and not follows
                )
            ):
                return f"port {pattern.name} ({name!r}) is {fact}, the row has {pattern.type}"
            if isinstance(fact, Uniform) and (constant or fact in own_facts):
                joined = store if pattern.type.is_wildcard and not constant else None
                why = _refused_pin(graph, choice, name, pattern, fact, sliced=sliced, joined=joined)
                if why is not None:
                    return f"port {pattern.name} ({name!r}) {why}"
    return None


def _refused_pin(
    graph: Graph,
    choice: Choice,
    name: str,
    pattern: PortPattern,
    fact: Uniform,
    *,
    sliced: bool,
    joined: Storage | None,
) -> str | None:
    """Say how a port's fixed type cannot be met; None where it can.

    Args:
      sliced: whether the kernel hands slices on as they are.
      joined: the storage of the ports that a wildcard is joined with.
    """
    constant, follows = name in graph.constants, follows_factors(choice, pattern.name)
    kind = restored(fact, pattern.type, graph.constants[name]) if constant and not follows else fact
    as_given = follows or (sliced and pattern.type.is_wildcard)
    if joined in (None, kind.storage) and accepts(pattern, kind, follows=as_given):
        if constant and not follows and _is_off_axis(graph, choice, name, pattern, kind):
            return f"has a fixed type along axis {kind.axis}, not the row's"
        return (
            "has a fixed type whose last block is shorter" if _is_short(graph, name, pattern, kind) else None
        )
    wanted = str(joined or pattern.type)
    if pattern.type.scales != "f32":
        wanted += f" with scales in {pattern.type.scales}"
    return f"has the fixed type {brief(fact)}, the row has {wanted}"


def _hands_slices_on(graph: Graph, choice: Choice) -> bool:
    """Whether data-movement ports all have fixed types, to slices that their ops hand on as they are.

    A planned text has no numbers, those of a slice's ends neither: then it is as its fixed types say.
    """
    region, layout = choice.region, choice.layout
    if layout is None or not layout.joins_all or not (region.input_facts and region.output_facts):
        return False
    found: dict[str, Uniform] = {}
    for name, facts in zip(region.inputs, region.input_facts, strict=True):
        kind = next((fact for fact in facts if isinstance(fact, Uniform)), None)
        if kind is None or found.setdefault(name, kind) != kind:
            return False
    read = {name for op in region.ops for name in op.inputs if name in graph.constants}
    if any(graph.constants[name].array is None for name in read - found.keys()):
        return True
    for op in region.ops if any(not kind.is_per_tensor for kind in found.values()) else ():
        made = moved_types(op, found, graph)
        if made is None:
            return False
        found |= made
    made_here = zip(region.outputs, region.output_facts, strict=True)
    return bool(region.ops) and all(found.get(name) in facts for name, facts in made_here)


def _is_off_axis(graph: Graph, choice: Choice, name: str, pattern: PortPattern, kind: Uniform) -> bool:
    """Whether a weight has its scales along another axis than its row says, where that is known."""
    if kind.axis is None or choice.row is None:
        return False
    axis = axis_of_scales(graph, choice.region, choice.row, pattern.name, name)
    return axis is not None and kind.axis != axis


def holds_two_signs(pattern: PortPattern) -> bool:
    """Whether a port can store one bit as -1 and 1 with zero point 0."""
    store = pattern.type.storage
    free = pattern.type.granularity != "block" and not pattern.type.zero_point
    return isinstance(store, Storage) and free and store.qmin <= -1 and store.qmax >= 1


def refused_by_when(graph: Graph, choice: Choice, row: Row, wanted: Wanted | None) -> str | None:
    """The first predicate of the row that does not hold; `wanted`: what was asked, where the row has it."""
    if not row.when:
        return None
    if row.is_on_request and wanted is None:
        return NOT_ASKED
    bits = partial(_asked_bits, graph, choice, wanted)
    return broken_when(row, (*choice.inputs, *choice.outputs), choice.region, graph, bits)


def refused_by_blocks(graph: Graph, choice: Choice, row: Row) -> str | None:
    """The first constant that no block size of its port divides."""
    for i in choice.layout.blocked if choice.layout is not None else ():
        name, pattern = choice.region.inputs[i], choice.inputs[i]
        pinned = any(isinstance(fact, Uniform) for fact in port_facts(graph, choice.region, "in", i))
        constant = name in graph.constants and not pinned
        if constant and block_size(graph, choice.region, row, pattern, name) is None:
            sizes = ", ".join(map(str, pattern.type.block_size))
            return f"port {pattern.name} ({name!r}) cannot be cut into blocks of {sizes}"
    return None


def _asked_bits(graph: Graph, choice: Choice, wanted: Wanted | None, port: str) -> Iterator[int]:
    """The bits that facts ask for at each value of a port; 0 where nothing is asked."""
    for side, i, _, pattern in sides_of(choice):
        if pattern.name != port:
            continue
        asked = wanted_bits(wanted, (side, i)) if wanted is not None else 0
        yield max(asked, bits_of(port_facts(graph, choice.region, side, i)))


def accepts(pattern: PortPattern, pin: Uniform, *, follows: bool) -> bool:
    """Whether a port takes a type as it is; `follows`: it has as many scales as its factors."""
    spec = pattern.type
    if isinstance(spec.storage, Storage) and spec.storage != pin.storage:
        return False
    if parameter_problem(spec, pin) is not None:
        return False
    if spec.granularity == "block" and not follows:
        return has_blocks_of(spec, pin)
    return follows or {"tensor": pin.is_per_tensor, "axis": not pin.blocks}[spec.granularity]


def _is_short(graph: Graph, name: str, pattern: PortPattern, kind: Uniform) -> bool:
    """Whether a type's last block is shorter than a port in blocks takes it."""
    spec = pattern.type
    is_whole = spec.granularity != "block" or spec.short_block
    return not is_whole and has_short_block(kind, graph.values[name].shape)
