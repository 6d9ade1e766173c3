"""The step log: which fact or rule decided each port, and on which earlier steps it rests.

Facts come first, then per kernel its remedies, its row and its ports, so that the number of each step is
known at once; what the steps say stands in the network, and is written out when somebody looks. Read by
`explain`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from planner.ir.graph import Facts, port_address
from planner.ir.inner_types import ineffective_facts
from planner.ir.kernel_requests import Asked, asked_of
from planner.ir.types.intervals import Interval, cut_to, hull
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, QType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.records import BETWEEN_FLOATS, Refused, StepRow, StepRows
from planner.propagation.network.constant_ranges import observed
from planner.propagation.network.ports import CONSTANT, FLOAT, GIVEN, Kernel, Port, base_of, ports_of, present
from planner.propagation.parameters.typed import Typed
from planner.propagation.result.alternatives import Alternatives
from planner.propagation.solver.classes import hull_of
from planner.target.ports.labels import label_of
from planner.target.records import PortId, Row

RANGE: Final = "%g to %g"
BY_RANGE: Final = "the range it has to hold"
RANGE_TEXT: Final = f"{BY_RANGE}, %g to %g"
"""The same with its ends; a long log formats one for each value, and this way takes half the time."""
SHARED: Final = "the label that costs its component least"
NO_EFFECT: Final = "no effect"
SIGN: Final = "it differs in the sign of its activations alone, and kernels around have the other"
_FACTS: Mapping[type[QType], str] = {
    AnyType: "any",
    Bipolar: "bipolar",
    Calibrated: "calibrated",
    FloatType: "float",
    NoneType: "none",
    Uniform: "pinned",
}


class Steps(StepRows):
    """The log of an outcome: numbered at once, written when it is first looked at."""

    def __init__(self, outcome: Typed) -> None:
        network = outcome
        self._of_ports = [-1] * len(network.ports)
        number = sum(len(network.graph.values[value.name].facts) for value in network.values)
        number += sum(describe_needs(network, index) is not None for index in range(len(network.values)))
        number += sum(len(facts) + 1 for _, facts, _ in _ineffective(network))
        for kernel in network.kernels:
            ports = [p for p in (*kernel.inputs, *kernel.outputs) if p >= 0]
            number += bool(ports)  # the step that says the row
            number += len(_remedies(outcome, kernel)) if ports else 0
            if kernel.choice.layout is not None:
                for p in ports:
                    self._of_ports[p] = number
                    number += 1
        self._count = number
        self._outcome: Typed | None = outcome
        self._rows: Sequence[StepRow] = ()

    def of_ports(self) -> list[int]:
        """The number of each port's step, by the port's in the network; -1 where it has none."""
        return self._of_ports

    def rows(self) -> Sequence[StepRow]:
        """Return the rows of all steps."""
        outcome = self._outcome
        if outcome is not None:
            self._rows = _written(outcome, self.of_ports())
            self._outcome = None
        return self._rows

    def __len__(self) -> int:
        return self._count


class _Log:
    """Steps under construction; `port_step` and `facts_of` find the ones to rest on.

    `numbers`: of the step of each port. `facts_at`: numbers of the facts of each value.
    """

    def __init__(self, outcome: Typed, numbers: Sequence[int]) -> None:
        self.network, self.numbers = outcome, numbers
        self.alternatives = Alternatives(outcome)
        self.steps: list[StepRow] = []
        self.facts_at: list[range] = []
        self.port_step: dict[int, int] = {}
        self.class_step: dict[int, int] = {}
        self._texts: dict[int, str] = {}
        self._ranges: dict[Interval, str] = {}

    def range(self, extent: Interval | None) -> str:
        """The range that a port has to hold as the source of its type."""
        if extent is None:
            return BY_RANGE
        found = self._ranges.get(extent)
        if found is None:
            found = self._ranges[extent] = RANGE_TEXT % extent
        return found

    def text(self, kind: Uniform | None) -> str:
        """`brief` of a type, once for each (the network keeps them alive)."""
        found = self._texts.get(id(kind))
        if found is None:
            found = self._texts[id(kind)] = brief(kind)
        return found

    def add(
        self,
        port: str,
        kind: str,
        rule: str,
        source: str,
        *,
        because: Sequence[int] = (),
        refused: tuple[Refused, ...] = (),
    ) -> int:
        """Append a step and return its number."""
        number = len(self.steps)
        # Most steps rest on two others.
        rests = (because[1], because[0]) if len(because) == 2 and because[1] < because[0] else None
        self.steps.append((number, port, kind, rule, source, rests or tuple(sorted(set(because))), refused))
        return number

    def facts_of(self, index: int) -> Sequence[int]:
        """Steps of the facts of a value."""
        return self.facts_at[index]

    def behind(self, index: int) -> Sequence[int]:
        """Steps that say what is known of a value: its facts, else the port that defines it."""
        if self.facts_at[index]:
            return self.facts_at[index]
        definition = self.network.values[index].definition
        number = self.numbers[definition] if definition >= 0 else -1
        return [number] if 0 <= number < len(self.steps) else []


def _written(outcome: Typed, numbers: Sequence[int]) -> list[StepRow]:
    """The log: one step for each fact of the annotated model, then kernel by kernel."""
    log = _Log(outcome, numbers)
    values = outcome.graph.values
    for index, value in enumerate(outcome.values):
        first = len(log.steps)
        for fact in values[value.name].facts:
            log.add(value.name, str(fact), _FACTS[type(fact)], "model")
        told = describe_needs(outcome, index)
        if told is not None:
            log.add(value.name, told[0], "needed", told[1], because=range(first, len(log.steps)))
        log.facts_at.append(range(first, len(log.steps)))
    for name, facts, why in _ineffective(outcome):
        rests = [log.add(name, str(fact), _FACTS[type(fact)], "model") for fact in facts]
        if not facts:
            rests = [*log.facts_at[outcome.value_ids[name]]]
        log.add(name, "float", NO_EFFECT, why, because=rests)
    for number in range(len(outcome.kernels)):
        _kernel_steps(log, outcome, number)
    return log.steps


def _ineffective(network: Typed) -> list[tuple[str, Facts, str]]:
    """Values with facts that have no effect, those of the facts that have no step so far, and the reason."""
    found = {name: why for name, _, why in ineffective_facts(network.graph)}
    values, told = network.graph.values, network.value_ids
    return [(name, () if name in told else values[name].facts, why) for name, why in found.items()]


def describe_needs(network: Typed, index: int) -> tuple[str, str] | None:
    """Return the needed range of a value that a consumer needs only in part, and who says so; else None."""
    value, extent, needed = network.values[index], network.ranges[index], network.needed
    uses = present(network, value.uses)
    readers = [network.kernels[port.kernel] for port in uses]
    if value.constant and all(reader.choice.row is None and not reader.moves for reader in readers):
        return None  # in float alone it is read as it is, whatever its pin says
    asking = [
        port for port in uses if port.id in needed and extent and cut_to(extent, needed[port.id]) != extent
    ]
    if not asking or extent is None:
        return None
    first = network.kernels[asking[0].kernel].choice.region.name
    held = extent if value.outputs else hull(network.required[port.id] for port in uses) or extent
    if held != extent:
        return RANGE % held, f"{first!r} cannot tell apart the rest of {RANGE % extent}"
    whole = [
        network.kernels[port.kernel].choice.region.name
        for port in uses
        if network.required[port.id] == extent
    ]
    other = "an output of the model" if value.outputs else repr(whole[0]) if whole else "its other consumers"
    least = RANGE % cut_to(extent, needed[asking[0].id])
    return RANGE % held, f"{first!r} needs {least}, {other} all of it"


def _kernel_steps(log: _Log, outcome: Typed, number: int) -> None:
    """Log one kernel: its row (or why none), then its ports."""
    network, kernel = log.network, log.network.kernels[number]
    region, row, layout = kernel.choice.region, kernel.choice.row, kernel.choice.layout
    ports = ports_of(network, kernel)
    if not ports:
        return
    tried = [log.add(region.name, *said) for said in _remedies(outcome, kernel)]
    if row is None or layout is None:
        log.add(region.name, "float", "no row", kernel.choice.reason, because=tried)
        return
    because = [n for port in ports for n in log.facts_of(port.value)]
    head = log.add(region.name, layout.key, "row", row.source, because=[*tried, *because])
    derived = outcome.derived.get(number, ())
    for port in ports:
        address, text = port_address(region.name, *port.side), log.text(log.network.types[port.id])
        if port.side in derived:
            rule, source = rule_source(kernel, port.side, network)
            rests = [log.port_step[p.id] for p in ports if p.id in log.port_step]
            step = log.add(address, text, rule, source, because=[head, *rests])
        elif network.groups[port.id] >= 0:
            step = _class_step(log, outcome, kernel, port, head=head)
        elif port.id in network.settled:
            step = log.add(
                address,
                text,
                "range",
                log.range(log.network.required[port.id]),
                because=[head, *log.behind(port.value)],
            )
        elif port.kind == CONSTANT:
            rests = [head, *log.behind(port.value)]
            step = log.add(address, text, "constant", _content(network, port), because=rests)
        elif port.kind == GIVEN:
            step = _given_step(log, kernel, port, head=head)
        else:
            rule = "float" if port.kind == FLOAT else "undecided"
            step = log.add(address, text, rule, row.source, because=[head])
        log.port_step[port.id] = step


def _remedies(outcome: Typed, kernel: Kernel) -> list[tuple[str, str, str]]:
    """The remedies for a kernel before it had its row: (what it is about, the rule, why)."""
    name, remedies = kernel.choice.region.name, outcome.chosen.remedies
    network = outcome
    asked = asked_of(network.graph, kernel.choice.region)
    said = [] if asked is None else [(str(asked.wanted), "annotated", _source(kernel, asked))]
    said += [(whole.kernel, "apart", why) for whole, why in remedies.apart.get(name, ())]
    for rule, rows in (("let go", remedies.let_go), ("left", remedies.left)):
        for key, left in rows.get(name, {}).items():
            said.append((key, rule, f"{left.why} ({left.seen})" if left.seen else left.why))
    if kernel.choice.row is None:
        return said
    if not outcome.moves_in_float(kernel):
        said += [(key, "short", why) for key, why in kernel.choice.short]
        said += [(kernel.choice.mirrors, "sign", SIGN)] if kernel.choice.mirrors else []
    for side, grown in remedies.grown.get(name, {}).items():
        said.append((port_address(name, *side), "grown", grown.why))
    for rule, reasons in (("grown", network.widened), ("finer", network.finer)):
        for p in kernel.inputs if reasons else ():
            if p in reasons:
                said.append((port_address(name, *network.ports[p].side), rule, reasons[p]))
    return said


def _source(kernel: Kernel, asked: Asked) -> str:
    """The key by which something was asked of a kernel, and whether it has it."""
    met = asked.wanted.float or kernel.wanted is not None or kernel.moves
    return repr(asked.key) if met else f"{asked.key!r}, and no row of it runs so"


def _content(network: Typed, port: Port) -> str:
    """The source of a constant's type: its fixed type, a range observed of it, or its numbers."""
    value = network.values[port.value]
    if port.pin is not None or value.pin is not None:
        return "its fixed type"
    return "the range observed" if value.signs or observed(network, port) is not None else "its own numbers"


_GIVEN: Mapping[str, str] = {"": "model", "moved": "the slices of its input", "pinned": "model"}
"""Sources of types per axis or block, by how they came about."""


def _given_step(log: _Log, kernel: Kernel, port: Port, *, head: int) -> int:
    why = port.fixed_source
    read = [log.port_step[p] for p in kernel.inputs if p in log.port_step and port.side[0] == "out"]
    rests = [head, *log.behind(port.value), *(read if why == "moved" else ())]
    address = port_address(kernel.choice.region.name, *port.side)
    source = log.range(log.network.required[port.id]) if why == "range" else _GIVEN[why]
    return log.add(address, brief(log.network.types[port.id]), why or "pinned", source, because=rests)


def _class_step(log: _Log, outcome: Typed, kernel: Kernel, port: Port, *, head: int) -> int:
    """Log a port of a class: the first with what decided the class, the others as joined to it."""
    group = log.network.groups[port.id]
    seen, row = log.class_step.get(group), kernel.choice.row
    if seen is not None and row is not None:
        address, source = (
            port_address(kernel.choice.region.name, *port.side),
            _same_scale_source(row, port.name),
        )
        return log.add(
            address, log.text(log.network.types[port.id]), "same_scale", source, because=[head, seen]
        )
    log.class_step[group] = step = _first_step(log, outcome, kernel, port, head=head)
    return step


def _first_step(log: _Log, outcome: Typed, kernel: Kernel, port: Port, *, head: int) -> int:
    """Log what decided a class, at its first port."""
    entry = outcome.labelled.classes[log.network.groups[port.id]]
    address, text = port_address(kernel.choice.region.name, *port.side), log.text(log.network.types[port.id])
    rests = [n for member in entry.entering for n in log.behind(member.value)]
    rests = [head, *rests, *log.behind(port.value)]
    if entry.fixed is not None:
        rule = "fixed_scale" if port.fixed is not None else "pinned"
        return log.add(address, text, rule, entry.fixed_source, because=rests)
    solution = outcome.labelled.solutions.get(entry.id)
    refused = log.alternatives.of(entry, port) if solution else ()
    label = solution.labels[entry.id] if solution else entry.own
    pin = base_of(log.network, log.network.values[port.value])
    if label is None:
        text, rule, source = "float", "float", BETWEEN_FLOATS
    elif pin is not None and pin.is_per_tensor and label == label_of(pin):
        rule, source = "pinned", "model"
    elif label == entry.own:
        rule, source = "range", log.range(hull_of([entry]))
    else:
        rule, source = "shared", SHARED
    return log.add(address, text, rule, source, because=rests, refused=refused)


def _same_scale_source(row: Row, port: str) -> str:
    """Source of the rule that joins a port, by its name in the row; a row may have several."""
    rules = [rule for rule in row.rules if rule.kind == "same_scale" and rule.source]
    return next((rule.source for rule in rules if port in rule.args["ports"]), row.source)


def rule_source(kernel: Kernel, side: PortId, network: Typed) -> tuple[str, str]:
    """(rule kind, file:line) of the rule that derives a port."""
    row = kernel.choice.row
    ports = {port.side: port.name for port in ports_of(network, kernel)}
    for rule in row.rules if row else ():
        if rule.args.get("port") == ports.get(side) or rule.kind == "fn":
            return rule.kind, rule.source or (row.source if row else "")
    return "derive", row.source if row else ""
