"""Followers: kernels that move data of any storage, and are stored as what is around them.

Nobody can ask such a kernel for a storage: it has one where a kernel beside it, or the end of the model,
stores the same value so, and runs in float where none does. Kernels that follow and touch each other follow
the same ones. Source: docs/specification.md, section 11.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.ir.graph import BOUNDARY
from planner.plan_search.edges import Chosen, Edge
from planner.plan_search.options import FLOAT, Table


@dataclass(frozen=True, slots=True)
class Follower:
    """A kernel with options that follow.

    Attributes:
      around: kernels beside it, or beside those it touches that follow too, with the value in between.
      ends: storages, or `float`, that the ends of the model have there.
      falls_to: the place of its option in float; None where it has none.
    """

    around: tuple[tuple[str, str], ...]
    ends: frozenset[str]
    falls_to: int | None


def followers_of(table: Table, edges: Sequence[Edge]) -> Mapping[str, Follower]:
    """Every kernel that has options which follow."""
    names = {name for name, options in table.kernels.items() if any(option.follows for option in options)}
    lead = {name: name for name in names}

    def find(name: str) -> str:
        while lead[name] != name:
            name = lead[name]
        return name

    touching = [(edge, [edge.writer, *edge.readers]) for edge in edges]
    for _, beside in touching:
        own = [find(name) for name in beside if name in names]
        for name in own[1:]:
            lead[find(name)] = find(own[0])
    around: dict[str, dict[tuple[str, str], None]] = {}
    ends: dict[str, set[str]] = {}
    for edge, beside in touching:
        for group in {find(name) for name in beside if name in names}:
            others = [name for name in beside if name not in names and name not in ("", BOUNDARY)]
            around.setdefault(group, {}).update(dict.fromkeys((name, edge.value) for name in others))
            ends.setdefault(group, set()).update(
                end
                for end, is_there in ((edge.held, not edge.writer), (edge.wanted, BOUNDARY in beside))
                if is_there
            )
    return {
        name: Follower(
            tuple(around.get(find(name), ())), frozenset(ends.get(find(name), ())), _falls_to(table, name)
        )
        for name in sorted(names)
    }


def _falls_to(table: Table, name: str) -> int | None:
    options = table.kernels[name]
    return next((at for at, option in enumerate(options) if set(option.stores.values()) == {FLOAT}), None)


def settled(table: Table, followers: Mapping[str, Follower], chosen: Chosen) -> Chosen:
    """The choice as a plan makes it: what follows and has nothing to follow runs in float."""
    moved: dict[str, int] = {}
    for name, follower in followers.items():
        option = table.kernels[name][chosen.get(name, 0)]
        if (
            option.follows
            and follower.falls_to is not None
            and not _is_held(table, follower, option.stores, chosen)
        ):
            moved[name] = follower.falls_to
    return {**chosen, **moved} if moved else chosen


def _is_held(table: Table, follower: Follower, stores: Mapping[str, str], chosen: Chosen) -> bool:
    """Whether something around stores its value in one of these."""
    wanted = {*stores.values()} - {FLOAT}
    return bool(wanted & follower.ends) or any(
        table.kernels[name][chosen.get(name, 0)].stores[value] in wanted for name, value in follower.around
    )
