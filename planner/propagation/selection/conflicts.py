"""Conflicts: what a best-effort plan gives up where constraints cannot all hold, and the facts behind that.

A conflict names its concession; giving it up makes the conflict go away, so a plan always comes out in
the end. The facts of a conflict are made few: planning with only these meets it, and dropping any one of
them ends it (delta debugging, Zeller 2002). Source: docs/specification.md, section 6, `conflict`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import Conflict, PlannerError
from planner.ir.graph import Facts, Graph, Region, port_address
from planner.ir.kernel_requests import without_asked
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, QType, Uniform
from planner.target.records import Target

HARD: Final = (Bipolar, FloatType, NoneType, Uniform)
"""Facts that say what a value is; any two that differ contradict each other."""
BINDING: Final = (*HARD, AnyType)
"""Facts that a plan may not break."""
NEAREST: Final = 64
"""Facts looked at first when a conflict is made small: those nearest to it."""

Fact = tuple[str, QType]
"""A fact by where it stands: a value's name, or the address of a port."""


@dataclass(frozen=True, slots=True)
class Concession:
    """Constraints that a plan gives up.

    Attributes:
      facts: facts left out.
      floats: kernels that run in float although the target or the model asks for more.
      casts: rescales where the target forbids them.
      copies: constants stored twice where the target forbids it.
      wanted: kernels that do not run as requested, with the request.
      keys: the keys of these requests: their names, or those of ops in them.
    """

    facts: tuple[Fact, ...] = ()
    floats: tuple[str, ...] = ()
    casts: bool = False
    copies: bool = False
    wanted: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()

    def __or__(self, other: "Concession") -> "Concession":
        return Concession(
            tuple(dict.fromkeys((*self.facts, *other.facts))),
            tuple(dict.fromkeys((*self.floats, *other.floats))),
            self.casts or other.casts,
            self.copies or other.copies,
            tuple(dict.fromkeys((*self.wanted, *other.wanted))),
            tuple(dict.fromkeys((*self.keys, *other.keys))),
        )

    def __str__(self) -> str:
        given = [f"left out: {fact} at {where}" for where, fact in self.facts]
        given += [f"left out: {asked} at kernel {name}" for name, asked in self.wanted]
        given += [f"runs in float: {name}" for name in self.floats]
        given += ["done all the same"] if self.casts or self.copies else []
        return "; ".join(given)

    def graph(self, graph: Graph) -> Graph:
        """The graph without the facts left out, and what was asked in vain."""
        rest = without(graph, self.facts) if self.facts else graph
        return without_asked(rest, [name for name, _ in self.wanted]) if self.wanted else rest

    def target(self, target: Target) -> Target:
        """The target with what it forbids allowed."""
        return replace(
            target,
            on_no_kernel="float" if self.floats else target.on_no_kernel,
            rescale_allowed=target.rescale_allowed or self.casts,
            duplicate_constants=target.duplicate_constants or self.copies,
        )


def without(graph: Graph, facts: Iterable[Fact]) -> Graph:
    """The graph with some facts of values and ports left out."""
    gone = set(facts)

    def kept(where: str, given: Facts) -> Facts:
        return tuple([fact for fact in given if (where, fact) not in gone])

    def region(old: Region) -> Region:
        sides = (
            tuple([kept(port_address(old.name, "in", i), facts) for i, facts in enumerate(old.input_facts)]),
            tuple(
                [kept(port_address(old.name, "out", i), facts) for i, facts in enumerate(old.output_facts)]
            ),
        )
        return replace(old, input_facts=sides[0], output_facts=sides[1])

    places = {where for where, _ in gone}
    values = {
        name: replace(value, facts=kept(name, value.facts)) if name in places else value
        for name, value in graph.values.items()
    }
    return replace(graph, values=values, regions=tuple([region(old) for old in graph.regions]))


def _softened(graph: Graph, facts: Sequence[Fact]) -> Graph:
    """The graph with some facts no longer binding: of a type, the range it stood for remains."""
    rest = without(graph, facts)
    ranges = {where: Calibrated((kind.lo,), (kind.hi,)) for where, kind in facts if isinstance(kind, Uniform)}
    values = dict(rest.values)
    for where, seen in ranges.items():
        value = values.get(where)
        if value is not None and not any(isinstance(fact, Calibrated) for fact in value.facts):
            values[where] = replace(value, facts=(*value.facts, seen))
    return replace(rest, values=values)


def hard_facts(graph: Graph, near: str) -> list[Fact]:
    """Facts that can contradict something, those of values the fewest kernels away from one first."""
    around: dict[str, list[Region]] = {}
    for region in graph.regions:
        for name in dict.fromkeys((*region.inputs, *region.outputs)):
            around.setdefault(name, []).append(region)
    found: dict[Fact, None] = {}
    seen: set[str] = {near}
    queue, visited = [near], set[str]()
    for name in itertools.chain(queue, graph.values):  # what no kernel leads to comes last
        found |= {(name, fact): None for fact in graph.values[name].facts if isinstance(fact, BINDING)}
        for region in around.get(name, ()):
            if region.name in visited:
                continue
            visited.add(region.name)
            found |= dict.fromkeys(_port_facts(region))
            fresh = [n for n in (*region.inputs, *region.outputs) if n and n not in seen]
            queue += list(dict.fromkeys(fresh))
            seen.update(fresh)
    return list(found)


def _port_facts(region: Region) -> Iterable[Fact]:
    for side, sides in (("in", region.input_facts), ("out", region.output_facts)):
        for i, facts in enumerate(sides):
            yield from (
                (port_address(region.name, side, i), fact) for fact in facts if isinstance(fact, BINDING)
            )


def fewest(facts: Sequence[Fact], clashes: Callable[[Sequence[Fact]], bool]) -> list[Fact]:
    """A set of facts that clashes, and does not without any one of them; [] where no fact is at fault.

    Left out are ever smaller shares, the last first. A fact more can end a clash as well as make one, so
    nothing is concluded from other sets: what is returned was tried, and was tried without each member.
    """
    if clashes(()) or not clashes(facts):
        return []
    first = list(facts[:NEAREST])
    kept = first if len(first) < len(facts) and clashes(first) else list(facts)
    share = len(kept)
    while True:
        before, end = len(kept), len(kept)
        share = max(share // 2, 1)
        while end > 0:
            rest = kept[: max(end - share, 0)] + kept[end:]
            kept = rest if rest and clashes(rest) else kept
            end -= share
        if share == 1 and len(kept) == before:
            return kept


Plans = Callable[[Graph, Concession], object]
"""Plans a graph with some constraints given up, and raises a conflict where the others cannot all hold."""


def explained(conflict: Conflict, graph: Graph, plans: Plans) -> Conflict:
    """The same conflict with as few facts as it takes, in the words that planning with only those has.

    Args:
      conflict: as it was met; `.about` is the value it is about, "" where its facts are few already.
      graph: the graph that was planned.
    """
    if not conflict.about:
        return conflict
    every = hard_facts(graph, conflict.about)

    def met(kept: Sequence[Fact]) -> Conflict | None:
        chosen = set(kept)
        return _met(conflict, _softened(graph, [fact for fact in every if fact not in chosen]), plans)

    few = fewest(every, lambda kept: met(kept) is not None)
    shown = met(few) or conflict
    places = tuple(dict.fromkeys(where for where, _ in few))
    texts = [said(fact, graph) for fact in few]
    named = [f"value {shown.about!r}", *(f"{text.partition(': ')[0]}:" for text in texts)]
    rest = [fact for fact in shown.facts if not few or not _is_of(fact, named)]
    return Conflict(
        shown.message,
        facts=(*texts, *rest),
        hint=_hint(shown, places),
        concession=shown.concession,
    )


def _met(conflict: Conflict, graph: Graph, plans: Plans) -> Conflict | None:
    """The conflict as planning this graph meets it; others that are met first are conceded."""
    given = Concession()
    while True:
        try:
            plans(given.graph(graph), given)
        except Conflict as other:
            same = (one for one in (other, *other.others) if _is_same(one, conflict))
            found, more = next(same, None), other.concession
            if found is not None or not isinstance(more, Concession) or given | more == given:
                return found
            given |= more
        except PlannerError:
            return None
        else:
            return None


def _is_same(one: Conflict, conflict: Conflict) -> bool:
    """Whether two conflicts are about one place: what would be given up, and values labelled together."""
    return one.concession == conflict.concession and one.about in (conflict.about, *conflict.within)


def _is_of(fact: str, named: Sequence[str]) -> bool:
    """Whether a line says what another line says already: `value 'x'`, or a type at one of these places."""
    return fact == named[0] or any(fact.startswith(name) for name in named[1:])


def _hint(conflict: Conflict, places: Sequence[str]) -> str:
    """Suggest a way out of a conflict, with the values and ports that its message does not name."""
    quoted = [repr(place) for place in places]
    if all(place in conflict.message for place in quoted):
        return conflict.hint
    advice = f"drop the fact at {' or '.join(quoted)}"
    return advice if conflict.hint in ("", "drop one of them") else f"{conflict.hint}; or {advice}"


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise the first of some conflicts, if there is one, and let it know the others."""
    found = list(conflicts)
    if found:
        found[0].others = tuple(found[1:])
        raise found[0]


def said(fact: Fact, graph: Graph) -> str:
    """`value 'x': !quant.none`, `port k.in[0]: ...`."""
    where, kind = fact
    return f"value {where!r}: {kind}" if where in graph.values else f"port {where}: {kind}"
