"""Re-verify values and log independently: what a plan says of its ports, and the reasons of each step.

The log is facts, value by value, then kernels in the plan's order: remedies, the row, the ports. Out of
sight: which of two labels was the cheaper one (`range` or `shared`), and whether a remedy was worth it.
Source: docs/specification.md, section 6; docs/formats.md.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.checker.edges import pins_of
from planner.checker.kernel_ports import Served, own_facts, parameter_problem, refuse
from planner.checker.rows.asked import Asked, asked_of, runs_as_asked
from planner.checker.rules import in_storage, one_class
from planner.ir.borders import carried_pairs
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, QType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, PortTyped, StepRow, step_rows

FACTS: Final[Mapping[type[QType], str]] = {
    AnyType: "any",
    Bipolar: "bipolar",
    Calibrated: "calibrated",
    FloatType: "float",
    NoneType: "none",
    Uniform: "pinned",
}
REMEDIES: Final = ("annotated", "apart", "let go", "left", "short", "sign", "grown", "finer")
HEADS: Final = (*REMEDIES, "row", "no row")
BESIDE: Final = ("needed", "no effect")
"""Rules of steps that say more of a value than its facts do."""
SEARCHED: Final = frozenset({"range", "shared"})


def check_values(plan: Plan, log: Sequence[StepRow]) -> None:
    """Every value has the type of the port that defines it, sane figures, and the step that decided it."""
    graph = plan.graph
    defining = {port.value: port for kernel in plan.kernels_in_order for port in kernel.outputs if port.value}
    needed = {port.value for kernel in plan.kernels_in_order for port in kernel.inputs if port.value}
    needed.update(defining, graph.inputs, graph.outputs)
    for name in needed.difference(plan.values, graph.constants):
        if graph.values[name].is_float:
            address = defining[name].address if name in defining else name
            refuse(address, f"carries {name!r}, which the plan does not list; accepted: every float value")
    for name, value in plan.values.items():
        port = defining.get(name)
        address = port.address if port else name
        if name not in graph.values or name in graph.constants:
            refuse(address, f"{name!r} is no value that a kernel or the model's user gives")
        wanted = port.type if port else _pin(plan, name)
        if value.type is not wanted and _stored(value.type) != _stored(wanted):
            refuse(address, f"is {brief(wanted)}, the plan lists {name!r} as {brief(value.type)}")
        # NaN fails `>=`, so it is refused with the negative numbers.
        if not (value.bits_lost >= 0 and math.isfinite(value.bits_lost) and 0 <= value.clip <= 1):
            refuse(
                address,
                f"{name!r} loses {value.bits_lost!r} bits and {value.clip!r} of its range; "
                "accepted: 0 or more bits, 0 to 1",
            )
        _check_decided(log, name, value.decided_by, port)


def _pin(plan: Plan, name: str) -> PortTyped:
    facts = plan.graph.values[name].facts
    return next((fact for fact in facts if isinstance(fact, Uniform)), None)


def _stored(kind: PortTyped) -> Uniform | None:
    return kind if isinstance(kind, Uniform) else None


def _check_decided(log: Sequence[StepRow], name: str, number: int | None, port: Port | None) -> None:
    if number is None:
        if port is not None and isinstance(port.type, Uniform):
            refuse(port.address, f"{name!r} has a type that no step decided; accepted: the step's number")
        return
    if port is None or not 0 <= number < len(log) or log[number][1] != port.address:
        address = port.address if port else name
        refuse(address, f"{name!r} is decided by step {number}, which is none of {address}")


def check_steps(log: Sequence[StepRow]) -> Mapping[str, StepRow]:
    """Steps are numbered in order and rest on earlier ones; return the last one of each address."""
    last: dict[str, StepRow] = {}
    for i, row in enumerate(log):
        number, port, _, _, _, because, _ = row
        if number != i:
            refuse(port, f"step {i} is numbered {number}; accepted: {i}")
        # Reasons that are earlier make the log a DAG: every explanation ends at a fact or a default.
        for n in because:
            if not 0 <= n < i:
                refuse(port, f"step {i} rests on step {n}; accepted: earlier steps")
        last[port] = row
    return last


def check_totals(plan: Plan) -> None:
    """Cost, bound and optimality agree with each other."""
    # The bound is proven from below, so optimal means equal; no plan can cost less.
    if not (plan.cost >= plan.bound >= 0) or plan.optimal != (plan.cost == plan.bound):
        refuse(
            "", f"cost {plan.cost!r}, bound {plan.bound!r} and optimal {plan.optimal} contradict each other"
        )


def check_told(kernel: KernelPlan, steps: Mapping[str, StepRow], texts: Mapping[int, str]) -> None:
    """The log and the plan agree on the row of a served kernel and on the type of each of its ports.

    Args:
      texts: text of each type by its id.
    """
    decided = steps.get(kernel.name)
    if decided is None or decided[2] != kernel.row:
        told = decided[2] if decided else "nothing"
        refuse(kernel.name, f"is served by {kernel.row}, its step says {told}")
    for port in (*kernel.inputs, *kernel.outputs):
        if not port.value:
            continue
        step = steps.get(port.address)
        if step is None:
            refuse(
                port.address, f"is {brief(port.type)} and no step says so; accepted: a step for every port"
            )
        number, said, text = step[0], step[2], texts.get(id(port.type))
        if text is not None and said != text and said != str(port.type):
            refuse(port.address, f"is {brief(port.type)}, step {number} decided {said}")


@dataclass(slots=True)
class _Book:
    """What is known on the way through a log.

    Attributes:
      facts: steps of the facts of each value.
      made: the step of the port that defines a value.
      firsts: the first step of the class at the first end of a carried value, by kernel.
      begins: that kernel, by the one at the last end, and `ends` the other way.
      pins: what the facts about values say, as the device holds them.
    """

    plan: Plan
    log: Sequence[StepRow]
    facts: Mapping[str, Sequence[int]]
    begins: Mapping[str, str]
    ends: Mapping[str, str]
    asked: Mapping[str, Asked]
    pins: Mapping[str, PortTyped]
    made: dict[str, int] = field(default_factory=dict)
    firsts: dict[str, int] = field(default_factory=dict)

    def behind(self, value: str) -> Sequence[int]:
        """Steps that say what is known of a value so far: its facts, else the port that defines it."""
        made = self.made.get(value)
        return self.facts.get(value) or (() if made is None else (made,))


def check_reasons(plan: Plan, log: Sequence[StepRow], served: Mapping[str, Served]) -> None:
    """Every step names the rule that row, facts and type leave it, and rests on what it follows from.

    Args:
      served: the kernels that have a row.
    """
    facts, at = _facts(plan, log)
    pairs = carried_pairs(plan.graph)
    regions = plan.graph.regions if plan.graph.wanted else ()
    told = {region.name: asked_of(plan.graph, region) for region in regions}
    asked = {name: one for name, one in told.items() if one is not None}
    pins = pins_of(plan)
    book = _Book(plan, log, facts, {end: begin for begin, end in pairs}, dict(pairs), asked, pins)
    for kernel in plan.kernels_in_order:
        ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value]
        at = _kernel(book, kernel, ports, at, served.get(kernel.name)) if ports else at
    if at != len(log):
        refuse(log[at][1], f"step {at} is of no kernel; accepted: {at} steps")


def _facts(plan: Plan, log: Sequence[StepRow]) -> tuple[Mapping[str, Sequence[int]], int]:
    """Steps of each value's facts, and the first step that is of no fact."""
    found: dict[str, list[int]] = {}
    carried = {port.value for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)}
    for number, port, text, rule, source, because, _ in log:
        if rule in HEADS:
            break
        if rule in BESIDE:
            # Figures of needs are recomputed in `figures.ranges`.
            if because != tuple(found.get(port, ())) or port not in plan.graph.values:
                refuse(port, f"step {number} rests on {because}; accepted: the facts of {port!r}")
            if rule == "no effect" and port in carried:
                refuse(port, f"step {number} says that no port carries {port!r}, and one does")
            found.setdefault(port, []).append(number)
            continue
        facts = plan.graph.values[port].facts if port in plan.graph.values else ()
        told = found.setdefault(port, [])
        fact = facts[len(told)] if len(told) < len(facts) else None
        if fact is None or (text, rule, source, because) != (str(fact), FACTS[type(fact)], "model", ()):
            wanted = f"{fact} as {FACTS[type(fact)]}" if fact is not None else "the facts of the model alone"
            refuse(port, f"step {number} says {rule} {text} of {source}; accepted: {wanted}")
        told.append(number)
    for name, value in plan.graph.values.items():
        told = [n for n in found.get(name, ()) if log[n][3] not in BESIDE]
        if value.facts and len(told) not in (0, len(value.facts)):
            refuse(name, f"carries {len(value.facts)} facts, the log tells {len(told)} of them")
    return found, sum(map(len, found.values()))


def _kernel(book: _Book, kernel: KernelPlan, ports: Sequence[Port], at: int, served: Served | None) -> int:
    """Check what the log says of one kernel from a step on; return the first step behind it."""
    begin = at
    while at < len(book.log) and book.log[at][1] == kernel.name and book.log[at][3] in REMEDIES:
        if book.log[at][5]:
            refuse(kernel.name, f"step {at} is a remedy and rests on {book.log[at][5]}; accepted: nothing")
        at += 1
    _annotated(book, kernel, book.log[begin:at])
    if at + (len(ports) if kernel.row is not None else 0) >= len(book.log):
        refuse(kernel.name, "the log ends before it; accepted: a step of its row, one for each port")
    number, address, text, rule, source, _, _ = book.log[at]
    if address != kernel.name or rule not in ("row", "no row"):
        refuse(kernel.name, f"step {number} is {rule} of {address!r}; accepted: that of its row")
    if rule == "no row":
        if kernel.row is not None or (text, source) != ("float", kernel.reason):
            refuse(kernel.name, f"step {number} says {text}, {source!r}; accepted: float, {kernel.reason!r}")
        _rests(book, at, range(begin, at))
        return at + 1
    if served is not None and source != served.row.source:
        refuse(kernel.name, f"step {number} quotes {source}; accepted: {served.row.source}")
    _rests(book, at, [*range(begin, at), *(n for port in ports for n in book.facts.get(port.value, ()))])
    _Chapter(book, kernel, at, served).check(ports)
    return at + 1 + len(ports)


def _annotated(book: _Book, kernel: KernelPlan, steps: Sequence[StepRow]) -> None:
    """Of the steps before a kernel's row the first says what was asked of it, and no other does.

    Raises:
      PlanInvalid: what the log tells, and what was asked.
    """
    asked, told = book.asked.get(kernel.name), [step for step in steps if step[3] == "annotated"]
    wanted = [str(asked.wanted)] if asked is not None else []
    if [step[2] for step in told] != wanted or told != [*steps][: len(told)]:
        listed = ", ".join(step[2] for step in told) or "nothing"
        refuse(
            kernel.name, f"is annotated {listed} by the log; accepted: {asked.wanted if asked else 'nothing'}"
        )
    if asked is None:
        return
    sources = [repr(asked.key)]
    if not asked.by_name and not runs_as_asked(book.plan, kernel, asked.wanted):
        sources.append(f"{asked.key!r}, and no row of it runs so")
    if told[0][4] not in sources:
        refuse(kernel.name, f"is annotated by {told[0][4]} in the log; accepted: {' or '.join(sources)}")


def _rests(book: _Book, at: int, wanted: Collection[int], more: Collection[int] = ()) -> None:
    """Refuse a step that rests on other steps than those, and perhaps some `more`."""
    _, address, _, rule, _, because, _ = book.log[at]
    least, given = set(wanted), set(because)
    if not least <= given <= least | set(more) or len(given) != len(because):
        listed = ", ".join(map(str, sorted(least))) or "nothing"
        refuse(address, f"step {at} ({rule}) rests on {because}; accepted: {listed}")


@dataclass(slots=True)
class _Chapter:
    """The steps of one kernel's ports, behind the one of its row."""

    book: _Book
    kernel: KernelPlan
    head: int
    served: Served | None
    first: dict[int, int] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)

    def check(self, ports: Sequence[Port]) -> None:
        """Check the step of each port, in their order."""
        every = (*self.kernel.inputs, *self.kernel.outputs)
        places = [i for i, port in enumerate(every) if port.value]
        for number, (i, port) in enumerate(zip(places, ports, strict=True), self.head + 1):
            if self.book.log[number][1] != port.address:
                refuse(port.address, f"step {number} is of {self.book.log[number][1]!r}; accepted: its own")
            self._port(self.served, i, port, number)
            self.steps.append(number)
            if i >= len(self.kernel.inputs):
                self.book.made[port.value] = number

    def _port(self, served: Served | None, i: int, port: Port, number: int) -> None:
        rests = {self.head, *self.book.behind(port.value)}
        if served is None:
            # A mover between floats was chosen a row and took the float label: its steps say so.
            if self.head not in self.book.log[number][5]:
                refuse(port.address, f"step {number} rests on {self.book.log[number][5]}, not on its row")
            return
        kind, derived = port.type, served.reading.derived[i]
        group = self._group(served, i)
        if not isinstance(kind, Uniform):
            self._says(number, {"float", "undecided"}, [served.row.source])
            _rests(self.book, number, [self.head])
        elif self.book.log[number][3] == "fn" and derived is not None and derived.kind == "fn":
            _rests(self.book, number, [self.head, *self.steps])
        elif derived is not None and derived.kind in ("derive", "multiplier_accumulator_scale"):
            self._says(number, {derived.kind}, [derived.source or served.row.source])
            _rests(self.book, number, [self.head, *self.steps])
        elif self._is_given(served, i, port, kind):
            self._says(number, {"moved", "pinned", "range"})
            moved = self.book.log[number][3] == "moved" and i >= len(self.kernel.inputs)
            read = sum(bool(port.value) for port in self.kernel.inputs)
            _rests(self.book, number, [*rests, *(self.steps[:read] if moved else ())])
        elif port.value in served.graph.constants and group is None:
            self._says(number, {"constant"}, [_content(served, i, port)])
            _rests(self.book, number, rests)
        else:
            self._class(served, i, port, number, group)

    def _class(self, served: Served, i: int, port: Port, number: int, group: int | None) -> None:
        """A port whose label is searched, pinned or fixed; the others of its class follow the first."""
        place = -1 - i if group is None else group
        begin = self.book.begins.get(self.kernel.name)
        seen = self.first.get(
            place, self.book.firsts.get(begin, None) if begin and group is not None else None
        )
        if seen is not None:
            joining = [r for r in served.row.rules if r.kind == "same_scale" and r.source]
            names = [r.source for r in joining if served.patterns[i].name in r.args["ports"]]
            self._says(number, {"same_scale"}, names or [served.row.source])
            _rests(self.book, number, [self.head, seen])
            return
        self.first[place] = number
        self.book.firsts.setdefault(self.kernel.name, number)
        members = served.groups[group] if group is not None else (i,)
        pin = self.book.pins.get(port.value)
        self._says(number, _searched(served, i, pin, members, carried=self.kernel.name in self.book.ends))
        more = [n for k in members if (at := served.ports[k]).value for n in self.book.behind(at.value)]
        other = self.book.plan.kernels.get(self.book.ends.get(self.kernel.name, ""))
        for end in (*other.inputs, *other.outputs) if other is not None else ():
            more += self.book.behind(end.value)
        _rests(self.book, number, {self.head, *self.book.behind(port.value)}, more)

    def _group(self, served: Served, i: int) -> int | None:
        """The class that a port shares, by its number among the row's; None of a port alone."""
        for number, group in enumerate(served.groups):
            if i in group and any(self._is_searched(served, k) for k in group):
                return number
        return None

    def _is_searched(self, served: Served, i: int) -> bool:
        port = served.ports[i]
        kind = port.type
        return (
            bool(port.value)
            and port.value not in served.graph.constants
            and isinstance(kind, Uniform)
            and kind.is_per_tensor
        )

    def _is_given(self, served: Served, i: int, port: Port, kind: Uniform) -> bool:
        """Whether a type per axis or block comes from facts or from what is moved."""
        if kind.is_per_tensor:
            return False
        own = (fact for fact in own_facts(served.region, i) if isinstance(fact, Uniform))
        return port.value not in served.graph.constants or any(not pin.is_per_tensor for pin in own)

    def _says(self, number: int, rules: Collection[str], sources: Collection[str] = ()) -> None:
        _, address, _, rule, source, _, _ = self.book.log[number]
        if rule not in rules:
            refuse(address, f"step {number} names the rule {rule}; accepted: {' or '.join(sorted(rules))}")
        if sources and source not in sources:
            refuse(address, f"step {number} quotes {source}; accepted: {' or '.join(sorted(sources))}")


def _content(served: Served, i: int, port: Port) -> str:
    """Where the type of a constant comes from."""
    facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
    if any(isinstance(fact, Uniform) for fact in facts):
        return "its pin"
    seen = any(isinstance(fact, Calibrated | Bipolar) for fact in facts)
    return "the range observed" if seen else "its own numbers"


def _searched(served: Served, i: int, pin: PortTyped, members: Sequence[int], *, carried: bool) -> set[str]:
    """The rules that may have given a class its label, by its first port; `pin`: of that port's value."""
    fixed = served.reading.fixed
    if i in fixed:
        return {"fixed_scale"}
    region = served.region
    told = members if region.input_facts or region.output_facts else ()
    own = (fact for k in told for fact in own_facts(region, k))
    if not fixed.isdisjoint(members) or any(isinstance(f, Uniform) for f in own):
        return {"pinned"}
    kind = served.ports[i].type
    pinned = (
        isinstance(pin, Uniform) and pin.is_per_tensor and isinstance(kind, Uniform) and one_class(pin, kind)
    )
    return {"pinned"} if pinned else {*SEARCHED, *(("pinned",) if carried else ())}


def check_strategy(plan: Plan, served: Mapping[str, Served]) -> None:
    """The strategy is one of ours; under `rfc` every class has the label decided first at its values.

    Not told again are kernels in loops, with functions, and what grew. Whether `minimal` found the least
    price is out of sight.
    """
    strategy = plan.options.get("strategy")
    if strategy not in ("minimal", "rfc"):
        refuse("", f"was planned by the strategy {strategy!r}; accepted: minimal or rfc")
    if strategy == "minimal" or carried_pairs(plan.graph):
        return
    grown = {row[1] for row in step_rows(plan.steps) if row[3] == "grown"}
    pins = pins_of(plan)
    decided = {n: pin for n, pin in pins.items() if isinstance(pin, Uniform) and pin.is_per_tensor}
    for kernel in plan.kernels_in_order:
        one = served.get(kernel.name)
        for members in _classes(one) if one is not None else ():
            if one is not None and kernel.name not in grown:
                _check_first(one, members, decided)
        for port in kernel.outputs:
            if isinstance(port.type, Uniform) and port.type.is_per_tensor:
                decided.setdefault(port.value, port.type)


def _classes(served: Served) -> Iterator[tuple[int, ...]]:
    """Positions of the ports of each class whose label is searched, those that rules join first."""
    ruled = {rule.args.get("port") for rule in served.row.rules}
    if any(rule.kind == "fn" for rule in served.row.rules):
        return
    free = [
        i
        for i, port in enumerate(served.ports)
        if port.value not in served.graph.constants
        and isinstance(port.type, Uniform)
        and port.type.is_per_tensor
        and served.patterns[i].name not in ruled
        and not any(isinstance(fact, Uniform) for fact in own_facts(served.region, i))
    ]
    joined = {i for group in served.groups for i in group}
    yield from (group for group in served.groups if set(group) <= {*free})
    yield from ((i,) for i in free if i not in joined)


def _check_first(served: Served, members: Sequence[int], decided: Mapping[str, Uniform]) -> None:
    """The first type decided at a value of a class is the class's, if all its ports can hold it."""
    for i in members:
        first = decided.get(served.ports[i].value)
        if first is None:
            continue
        kinds = [served.ports[k].type for k in members]
        held = [in_storage(first, kind.storage) for kind in kinds if isinstance(kind, Uniform)]
        patterns = [served.patterns[k].type for k in members]
        pairs = zip(held, patterns, strict=True)
        if all(kind is not None and parameter_problem(kind, spec) is None for kind, spec in pairs):
            if held != kinds:
                address = served.ports[i].address
                refuse(address, f"is {brief(kinds[0])}, by the strategy rfc it would be {brief(held[0])}")
            return
