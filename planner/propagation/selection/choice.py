"""The row that was chosen for a kernel, its signature over the ports, and the facts that meet each of them.

Source: docs/specification.md, section 4.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from planner.ir.graph import Facts, Graph, Region
from planner.ir.types.qtypes import FloatType, NoneType, Storage, Uniform
from planner.propagation.selection.row_layout import Layout
from planner.target.records import PortId, PortPattern, Row

NO_RANGE: Final = "no range"

FLOATING: Final = (FloatType, NoneType)
"""Facts that keep a value in a float."""


class Choice(NamedTuple):
    """The row for one region with its signature spread over the actual ports; or the reason for none.

    With a row, `reason` is why no requested row serves; `short` maps keys of rows that hold too little to
    reasons: those passed over, and this one where none holds enough; `mirrors` is the key of the row that
    would come first, if this one differs from it in the sign of its activations alone.
    """

    region: Region
    row: Row | None = None
    layout: Layout | None = None
    reason: str = ""
    short: tuple[tuple[str, str], ...] = ()
    mirrors: str = ""

    @property
    def inputs(self) -> tuple[PortPattern, ...]:
        """The row's entry for each input port; () without a row."""
        return self.layout.inputs if self.layout is not None else ()

    @property
    def outputs(self) -> tuple[PortPattern, ...]:
        """The row's entry for each output port; () without a row."""
        return self.layout.outputs if self.layout is not None else ()


def in_float(choice: Choice, reason: str) -> Choice:
    """The same region without a row."""
    return Choice(choice.region, reason=reason)


def port_facts(graph: Graph, region: Region, side: str, index: int) -> Facts:
    """Constraints that meet one port: its value's, and its own."""
    names, own = (
        (region.inputs, region.input_facts) if side == "in" else (region.outputs, region.output_facts)
    )
    facts = graph.values[names[index]].facts if names[index] else ()
    return (*facts, *(own[index] if own else ()))


def binding_facts(graph: Graph, region: Region, side: str, index: int) -> Facts:
    """Constraints that say which row a port asks for: the port's own for a constant of fixed type there."""
    facts = port_facts(graph, region, side, index)
    names, own = (
        (region.inputs, region.input_facts) if side == "in" else (region.outputs, region.output_facts)
    )
    pinned = bool(own) and names[index] in graph.constants and any(isinstance(f, Uniform) for f in own[index])
    return own[index] if pinned else facts


def sides_of(choice: Choice) -> Iterable[tuple[Literal["in", "out"], int, str, PortPattern]]:
    """Each port that is there: its side, its position, its value, and the row's entry for it."""
    region = choice.region
    for i, (name, pattern) in enumerate(zip(region.inputs, choice.inputs, strict=True)):
        if name:
            yield "in", i, name, pattern
    for i, (name, pattern) in enumerate(zip(region.outputs, choice.outputs, strict=True)):
        if name:
            yield "out", i, name, pattern


def follows_factors(choice: Choice, name: str) -> bool:
    """Whether a port has as many scales as its factors, whatever its own type says (a bias)."""
    rules = choice.row.rules if choice.row is not None else ()
    return any(rule.kind == "multiplier_accumulator_scale" and rule.args["port"] == name for rule in rules)


def shared_storage(choice: Choice, side: PortId) -> Storage | None:
    """Return the storage that the row gives a wildcard port through a port that has the same storage."""
    layout = choice.layout
    if layout is None:
        return None
    group = next((group for group in layout.alike if side in group), ())
    stores = (spec.storage for other, spec in layout.specs if other in group)
    return next((store for store in stores if isinstance(store, Storage)), None)
