"""Signs: of two rows that differ in the sign of their activations alone, the one that its neighbours have.

Rows are chosen kernel by kernel, so a kernel that may have either sign takes the row that stands first, and
data change their sign in front of it and behind it where its neighbours have the other. Once all rows are
known these kernels are looked at together: the fewest changes of sign, by price; of those the fewest kernels
that leave the row that stands first. Two labels with a price between neighbours are a minimum cut.
Source: Greig, Porteous, Seheult, "Exact maximum a posteriori estimation for binary images", 1989, section 2.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from planner.ir.graph import Graph
from planner.ir.types.qtypes import FloatType, NoneType, Storage, Uniform
from planner.propagation.selection.choice import Choice, sides_of
from planner.propagation.selection.remedies import Left
from planner.propagation.selection.rows import equal_choices
from planner.target.records import PortType, Rule, Target

End: TypeAlias = tuple[int, Storage | None]
"""A kernel at a value, and what its port stores; None: whatever its neighbour does."""

Ends: TypeAlias = tuple[Mapping[str, Sequence[End]], Mapping[str, Sequence[End]]]
"""The writers of each value, and its consumers."""
UNIT: Final = 1 << 10
"""Parts of an element-rescale that prices are counted in."""
PIN: Final = -1
"""In place of the kernel: what a fact says that the value is stored in."""


class _Change(NamedTuple):
    """A place where data may change their sign: a writer, the consumers that share the change, its price."""

    writer: End
    readers: tuple[End, ...]
    price: int


def with_few_signs(
    graph: Graph, choices: Sequence[Choice], target: Target, left: Mapping[str, Mapping[str, Left]]
) -> tuple[Sequence[Choice], bool]:
    """The choices with the fewest changes of sign between kernels; the same list where none is saved.

    Args:
      choices: of all live kernels.
      left: rows that kernels could not keep, by kernel and key.

    Returns:
      The choices, and whether some of these kernels may have either sign, beside data of both.
    """
    ends = _ends(graph, choices)
    stores = {store for side in ends for some in side.values() for _, store in some if store is not None}
    # A value that is pinned may be written in float, as those that a model quantizes first are.
    stores |= {pin for side in ends for name in side if (pin := _pin(graph, name)) is not None}
    if len({store.signed for store in stores}) < 2:  # most plans end here
        return choices, False
    mirrored = ((at, _mirrored(graph, choice, target, left)) for at, choice in enumerate(choices))
    others = {at: other for at, other in mirrored if other is not None}
    if not others:
        return choices, False
    changes = [change for change in _changes(graph, choices, target, ends) if change.price]
    flipped = _least_cut(changes, {at: _is_signed(graph, choices[at]) for at in others})
    return [
        others[at] if at in flipped else one for at, one in enumerate(choices)
    ] if flipped else choices, True


def _ends(graph: Graph, choices: Sequence[Choice]) -> Ends:
    writers: dict[str, list[End]] = {}
    readers: dict[str, list[End]] = {}
    for at, choice in enumerate(choices):
        for side, _, name, pattern in sides_of(choice) if choice.row is not None else ():
            store = pattern.type.storage
            if name in graph.constants or isinstance(store, FloatType) or (store and store.float_name):
                continue
            (readers if side == "in" else writers).setdefault(name, []).append((at, store))
    return writers, readers


def _pin(graph: Graph, name: str) -> Storage | None:
    """The storage that facts give a value."""
    return next((fact.storage for fact in graph.values[name].facts if isinstance(fact, Uniform)), None)


def _changes(graph: Graph, choices: Sequence[Choice], target: Target, ends: Ends) -> Iterator[_Change]:
    writers, readers = ends
    for name in {**writers, **readers}:
        value = graph.values[name]
        if any(isinstance(fact, FloatType | NoneType) for fact in value.facts):
            continue
        price = round(value.elements * target.costs.zero_point * UNIT)
        for base, group in _bases(
            _pin(graph, name), next(iter(writers.get(name, ())), None), readers.get(name, ())
        ):
            for some in [[one] for one in group] if target.rescale_single_consumer else [group]:
                trips = max(choices[at].region.trip_count if at != PIN else 1 for at, _ in some)
                yield _Change(base, tuple(some), price * trips)


def _bases(
    pin: Storage | None, writer: End | None, readers: Iterable[End]
) -> Iterator[tuple[End, Sequence[End]]]:
    """Ends of a value that are as wide as what they start from: its fixed type, else its writer.

    A fixed type of fewer bits is kept in bytes, so what its writer and its consumers have counts.
    """
    if pin is not None and writer is not None and _are_as_wide(writer[1], pin):
        yield writer, [(PIN, pin)]
    shared: dict[End, list[End]] = {}
    for reader in readers:
        base = (PIN, pin) if pin is not None and _are_as_wide(reader[1], pin) else writer
        if base is not None and _are_as_wide(base[1], reader[1]):
            shared.setdefault(base, []).append(reader)
    yield from shared.items()


def _are_as_wide(a: Storage | None, b: Storage | None) -> bool:
    return a is None or b is None or a.bits == b.bits


def _mirrored(
    graph: Graph, choice: Choice, target: Target, left: Mapping[str, Mapping[str, Left]]
) -> Choice | None:
    """The choice of the first row as good for a kernel as its own that mirrors it; None: there is none."""
    if choice.row is None or choice.layout is None or choice.layout.wild:
        return None
    for other in equal_choices(graph, choice, target, left.get(choice.region.name, {})):
        if other.row is not None and _mirrors(graph, choice, other):
            return other._replace(reason=choice.reason, short=choice.short, mirrors=choice.row.key)
    return None


def _mirrors(graph: Graph, one: Choice, other: Choice) -> bool:
    """Whether two rows differ in nothing but that activations are signed in one and unsigned in the other."""
    if one.row is None or other.row is None:
        return False
    signs = set[tuple[bool, bool]]()
    moved: dict[str, int] = {}
    for (_, _, name, a), (_, _, _, b) in zip(sides_of(one), sides_of(other), strict=True):
        kinds = a.type.storage, b.type.storage
        if name in graph.constants or not (isinstance(kinds[0], Storage) and isinstance(kinds[1], Storage)):
            if a != b:
                return False
            continue
        shift = kinds[1].offset - kinds[0].offset
        bare = _without_sign(a.type, 0), _without_sign(b.type, shift)
        if None in bare or bare[0] != bare[1] or a.name != b.name:
            return False
        moved[a.name] = shift
        signs.add((kinds[0].signed, kinds[1].signed))
    if len(signs) != 1 or signs <= {(True, True), (False, False)}:
        return False
    rest = [replace(row, inputs=(), outputs=(), rules=(), source="", mark="") for row in (one.row, other.row)]
    rules = [(rule.kind, _moved(rule, {})) for rule in other.row.rules]
    return rest[0] == rest[1] and rules == [(rule.kind, _moved(rule, moved)) for rule in one.row.rules]


def _without_sign(kind: PortType, shift: int) -> tuple[int, PortType] | None:
    """Bits and demands of a port that has a whole storage and any zero point, or one; None of others."""
    store = kind.storage
    if not isinstance(store, Storage) or kind.symmetric or not store.is_full:
        return None
    zero = None if kind.zero_point is None else kind.zero_point - shift
    return store.bits, replace(kind, storage=None, zero_point=zero)


def _moved(rule: Rule, shifts: Mapping[str, int]) -> Mapping[str, Any]:
    """A rule's arguments where the integers of ports are shifted."""
    if rule.kind != "fixed_scale":
        return rule.args
    zero = int(rule.args.get("zero_point", 0)) + shifts.get(rule.args["port"], 0)
    return {**rule.args, "zero_point": zero}


def _is_signed(graph: Graph, choice: Choice) -> bool:
    """Whether activations are signed, of a row that has a mirror and so none but signed or unsigned ones."""
    stores = (pattern.type.storage for _, _, name, pattern in sides_of(choice) if name not in graph.constants)
    return next(store.signed for store in stores if isinstance(store, Storage))


def _least_cut(changes: Sequence[_Change], free: Mapping[int, bool]) -> set[int]:
    """Numbers of the kernels that take the other row in the labelling of least price.

    Args:
      free: of kernels that may have either sign, whether the first row is signed.
    """
    nx = importlib.import_module("networkx")  # a fifth of a second, which few plans need
    net = nx.DiGraph()
    net.add_nodes_from(("signed", "unsigned"))

    def node(end: End) -> str | int:
        at, store = end
        if at in free or store is None:
            return at
        return "signed" if store.signed else "unsigned"

    for at, signed in free.items():
        # Of equal prices the one with fewer kernels away from their first row.
        net.add_edge(*(("signed", at) if signed else (at, "unsigned")), capacity=1)
    for number, (writer, readers, price) in enumerate(changes):
        # A shared change is paid once: a node between for each way that the signs may differ.
        down, up = ("down", number), ("up", number)
        net.add_edge(node(writer), down, capacity=price * (len(free) + 1))
        net.add_edge(up, node(writer), capacity=price * (len(free) + 1))
        for reader in readers:
            net.add_edge(down, node(reader))  # without a capacity: it is never cut
            net.add_edge(node(reader), up)
    _, (signed_side, _) = nx.minimum_cut(net, "signed", "unsigned")
    return {at for at, signed in free.items() if (at in signed_side) != signed}
