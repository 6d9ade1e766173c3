"""Derived ports: what `derive` and `fn` rules yield for ports whose label others depend on.

A rule needs the labels of its kernel's other ports, and those are chosen with the derived ones known: so
guess, label, derive again, and repeat while something moves. Rules that ask for each other's results are
followed round until they come to rest, or refused. Source: docs/specification.md, section 4.
"""

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import Conflict, RuleError
from planner.ir.graph import port_address
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.typetext import brief
from planner.propagation.network.ports import (
    DERIVED,
    Kernel,
    Port,
    ports_of,
)
from planner.propagation.parameters.constant_types import derive_parameters
from planner.propagation.parameters.typed import Typing, kernel_views, known_types
from planner.propagation.selection.conflicts import Concession
from planner.propagation.solver.classes import LabelClass
from planner.target.circular_rules import LEAST, ROUNDS, agree, at_rest, circles
from planner.target.ports.labels import label_of, typed
from planner.target.records import PortId, Rule
from planner.target.rules import in_storage, rule_function


def guess_derived(network: Typing, classes: Sequence[LabelClass]) -> list[LabelClass]:
    """Fix derived ports at what their rules yield for the labels that their kernels would choose alone."""
    found = [*classes]
    for entry in classes:
        if not _may_be_derived(network, entry):
            continue
        mine = ports_of(network, network.kernels[entry.kernel])
        for port in mine:
            group = network.groups[port.id]
            own = found[group].own if group >= 0 and group != entry.id else None
            if own is not None and isinstance(port.spec.storage, Storage):
                network.types[port.id] = typed(own, port.spec.storage)
        found[entry.id] = _derived(network, entry)
        forget(network, mine)
    return found


def derive_again(network: Typing, classes: Sequence[LabelClass]) -> list[LabelClass] | None:
    """Fix derived ports at what their rules yield for the chosen labels; None where none moved.

    Forgets all types where one moved: they have to be written anew.
    """
    found = [
        _derived(network, entry)
        if network.is_derived(entry.ports[0]) and network.types[entry.ports[0].id] is not None
        else entry
        for entry in classes
    ]
    if all(new.fixed == old.fixed for new, old in zip(found, classes, strict=True)):
        return None
    network.types[:] = known_types(network)
    return found


def _may_be_derived(network: Typing, entry: LabelClass) -> bool:
    row = network.kernels[entry.kernel].choice.row
    calls = row is not None and any(rule.kind == "fn" for rule in row.rules)
    return entry.ports[0].kind == DERIVED or calls


def _derived(network: Typing, entry: LabelClass) -> LabelClass:
    """The class, fixed at what its kernel's rules yield for the types of the other ports."""
    port = entry.ports[0]
    network.rounds.append(entry.kernel)
    derived = come_to_rest(network, network.kernels[entry.kernel])
    kind: Uniform | None = network.types[port.id] if port.side in derived else None
    if kind is None or not kind.is_per_tensor:
        return entry
    network.computed.add(port.id)
    return replace(entry, fixed=kind, own=label_of(kind), fixed_source="derived")


def come_to_rest(network: Typing, kernel: Kernel) -> list[PortId]:
    """Derive a kernel's parameters; round and round where its rules ask for each other's results.

    Raises:
      Conflict: that leads nowhere.
    """
    layout, row = kernel.choice.layout, kernel.choice.row
    if layout is None or row is None or not layout.circular:
        return derive_parameters(network, kernel)
    ports, found, rests = ports_of(network, kernel), list[PortId](), False
    for _ in range(ROUNDS):
        before = [network.types[port.id] for port in ports]
        try:
            found = derive_parameters(network, kernel)
        except RuleError:  # it grew or shrank beyond what a rule has an answer for
            rests = False
            break
        after = [network.types[port.id] for port in ports]
        rests = at_rest(before, after) and not any(_vanished(network, port) for port in ports)
        # On to the very type: whoever derives again must not find another. Roundings may go to and fro.
        if after == before:
            break
    if rests:
        return found
    rules = [rule for circle in circles(row) for rule in circle]
    told = " and ".join(repr(rule.args["port"]) for rule in rules)
    raise _contradiction(kernel, rules, f"rules derive {told} in a circle")


def _vanished(network: Typing, port: Port) -> bool:
    kind = network.types[port.id]
    return network.is_derived(port) and kind is not None and kind.scale <= LEAST


def refuse_disagreement(network: Typing, kernel: Kernel) -> None:
    """Refuse types that a row's rules, or a fact of the port, ask for and do not agree on.

    Raises:
      Conflict: a port that two of the rules decide, or that has another fixed type.
    """
    layout, row = kernel.choice.layout, kernel.choice.row
    if layout is None or row is None:
        return
    ports = {port.side: port for port in ports_of(network, kernel)}
    for rule in layout.deriving:
        answers = rule_function(rule, network.target)(*kernel_views(network, kernel), rule.args)
        for side, kind in answers.items() if rule.kind == "derive" else ():
            port, address = ports[side], port_address(kernel.choice.region.name, *side)
            joined = [
                ports[other] for group in layout.groups if side in group for other in group if other in ports
            ]
            wanted = [kind, port.fixed, *(_in_storage_of(port, network.types[other.id]) for other in joined)]
            own = network.types[port.id]
            for other in wanted:
                if own is not None and other is not None and not agree(own, other):
                    problem = f"{address} cannot be both {brief(own)} and {brief(other)}"
                    raise _contradiction(kernel, [*filter(_decides, row.rules)], problem)
            if port.pin is not None and not network.values[port.value].constant and not agree(kind, port.pin):
                raise _against_pin(rule, address, port.pin, kind)


def _in_storage_of(port: Port, kind: Uniform | None) -> Uniform | None:
    store = port.spec.storage
    return in_storage(kind, store) if kind is not None and isinstance(store, Storage) else None


def _decides(rule: Rule) -> bool:
    return rule.kind in ("derive", "same_scale", "fixed_scale")


def _contradiction(kernel: Kernel, rules: Sequence[Rule], problem: str) -> Conflict:
    name = kernel.choice.region.name
    return Conflict(
        f"{name!r}: {problem}: no scales and zero points were found that satisfy its row",
        facts=tuple(f"{rule.source}: {rule.kind} of {_said(rule)}" for rule in rules),
        hint="derive a port by one rule, from ports that do not rest on it",
        concession=Concession(floats=(name,)),
    )


def _said(rule: Rule) -> str:
    if rule.kind == "same_scale":
        return ", ".join(rule.args["ports"])
    words = [f"{key} {rule.args[key]}" for key in ("scale", "zero_point") if rule.args.get(key)]
    return f"{rule.args['port']!r}: {', '.join(words)}"


def _against_pin(rule: Rule, address: str, pin: Uniform, kind: Uniform) -> Conflict:
    return Conflict(
        f"{address} has the fixed type {brief(pin)}, and is derived as {brief(kind)}",
        facts=(f"port {address}: {pin}", f"{rule.source}: {rule.kind} of {_said(rule)}"),
        hint="drop the fixed type: the type is derived",
        concession=Concession(facts=((address, pin),)),
    )


def forget(network: Typing, ports: Sequence[Port]) -> None:
    """Take the types off all ports but those that were given or are plain values."""
    settled = network.settled
    for port in ports:
        network.types[port.id] = port.given or settled.get(port.id)
