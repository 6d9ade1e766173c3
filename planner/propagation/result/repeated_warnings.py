"""Warnings of a plan, made again: what planning says of its rows and types, from plan and numbers alone.

A network of the plan's own rows and types, with ranges, and nothing chosen or searched. So each warning has
one text, in `plan_warnings`, and a plan that drops or invents one is refused. Concessions to best effort, and
facts that `restore` dropped, came before there was a plan: these are held against what the plan has.
Source: docs/specification.md, section 6.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.errors import PlanInvalid
from planner.ir.expand import expand
from planner.ir.graph import Constant, Graph, Region
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.storages import storage
from planner.plans.plan import Plan, plan_key
from planner.plans.records import KernelPlan, Port
from planner.propagation.network.ports import ports_of
from planner.propagation.network.value_ranges import give_ranges
from planner.propagation.parameters.typed import Typing, start_typing
from planner.propagation.result.plan_warnings import warnings_of, warnings_of_all
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.chosen import Chosen, Request
from planner.propagation.selection.row_layout import Layouts
from planner.propagation.solver.classes import build_classes
from planner.target.records import PortPattern, PortType, Target
from planner.version import WORDS

LEFT_OUT: Final = "left out: "
IN_FLOAT: Final = "runs in float: "
UNKNOWN: Final = " kernels of the annotated model are unknown to "
RESTORED: Final = " was restored to float: "
DONE: Final = "done all the same"


def check_warnings(plan: Plan, model: Graph) -> None:
    """Refuse a plan whose warnings are not those of its rows and types.

    A plan of another planner has its warnings in that one's words, and they are not compared.

    Args:
      model: with the numbers of its constants.

    Raises:
      PlanInvalid: the first warning that is missing, or that nothing in the plan gives rise to.
    """
    graph = replace(plan.graph, module=plan.graph.module or model.module)
    if plan.words != WORDS or plan_key(graph, plan.model, plan.target.digest, plan.options) != plan.key:
        return
    # What a function of the user's derives cannot be derived again here: it is not in the plan.
    derived = tuple(
        f"{kernel.name}."
        for kernel in plan.kernels_in_order
        if (row := plan.row_of(kernel.name)) is not None and any(rule.kind == "fn" for rule in row.rules)
    )
    again = repeat_warnings(plan, expand(model).constants)
    wanted = [text for text in again if not derived or not text.startswith(derived)]
    own = [text for text in plan.warnings if not _is_of_making(plan, text)]
    own = [text for text in own if not derived or not text.startswith(derived)]
    missing = next((text for text in wanted if text not in own), None)
    if missing is not None:
        raise PlanInvalid(f"does not warn that {missing}; accepted: all warnings of its rows and types")
    odd = next((text for text in own if text not in wanted), None)
    if odd is not None:
        raise PlanInvalid(f"warns that {odd}; accepted: nothing that its rows and types do not give rise to")
    twice = next(iter(Counter(own) - Counter(wanted)), None)
    if twice is not None:
        raise PlanInvalid(f"warns twice that {twice}; accepted: each warning once")


def repeat_warnings(plan: Plan, numbers: Mapping[str, Constant]) -> tuple[str, ...]:
    """The warnings that planning gives with these rows and types."""
    network = _network(plan, numbers)
    whole = warnings_of_all(
        network.graph, plan.kernels_in_order, plan.target.rows, plan.target.costs, plan.target
    )
    max_clip = plan.target.costs.max_clip
    return (*whole, *(text for kernel in network.kernels for text in warnings_of(network, kernel, max_clip)))


def _network(plan: Plan, numbers: Mapping[str, Constant]) -> Typing:
    graph = replace(plan.graph, constants={**plan.graph.constants, **numbers})
    regions = {region.name: region for region in graph.regions}
    layouts = Layouts()
    choices = [_choice(plan, kernel, regions[kernel.name], layouts) for kernel in plan.kernels_in_order]
    policy = plan.options.get("bias_pins", "error")
    request = Request("minimal", plan.target.costs, "", False, policy, {}, formats=plan.formats)
    ranged = give_ranges(Chosen(graph, _target(plan), choices, request))
    classed = build_classes(ranged, {}, [0] * len(choices), plan.target.costs.max_clip)
    network = start_typing(classed)
    for kernel, planned in zip(network.kernels, plan.kernels_in_order, strict=True):
        types = [port.type for port in (*planned.inputs, *planned.outputs) if port.value]
        for port, kind in zip(ports_of(network, kernel), types, strict=True):
            network.types[port.id] = kind if isinstance(kind, Uniform) else None
    return network


def _choice(plan: Plan, kernel: KernelPlan, region: Region, layouts: Layouts) -> Choice:
    """The row of a kernel, its wildcards in the storages that they have."""
    row = plan.row_of(kernel.name)
    layout = layouts.of(row, region) if row is not None else None
    if row is None or layout is None:
        return Choice(region, reason=kernel.reason or "")
    if layout.wild:
        layout = replace(
            layout,
            inputs=_stored(layout.inputs, kernel.inputs),
            outputs=_stored(layout.outputs, kernel.outputs),
            wild=False,
        )
    return Choice(region, row, layout)


def _stored(patterns: Sequence[PortPattern], ports: Sequence[Port]) -> tuple[PortPattern, ...]:
    return tuple(
        replace(pattern, type=replace(pattern.type, storage=port.type.storage))
        if pattern.type.is_wildcard and isinstance(port.type, Uniform)
        else pattern
        for pattern, port in zip(patterns, ports, strict=True)
    )


def _target(plan: Plan) -> Target:
    """As much of the target as the plan carries; all its wildcards are resolved."""
    ours = plan.target
    whole: Storage = storage("i8")
    return Target(
        ours.id, ours.version, "", "fixed", ours.file, {}, (), ours.costs, PortType(whole),
        rescale_single_consumer=ours.rescale_single_consumer, storages=ours.storages,
    )  # fmt: skip


def _is_of_making(plan: Plan, text: str) -> bool:
    """Whether a warning tells what was given up before this plan was made, and the plan lacks that."""
    if UNKNOWN in text:
        floats = {kernel.name for kernel in plan.kernels_in_order if kernel.row is None}
        listed = text.partition(": ")[2].partition("; plan ")[0].partition(" and ")[0]
        return all(one.rpartition(" (")[0] in floats for one in listed.split(", "))
    if "best_effort" in plan.options:
        return any(map(bool, parts := [*_given_up(plan, text)])) and all(parts)
    name, found, _ = text.partition(RESTORED)
    return bool(found) and any(
        repr(kernel.name) == name and kernel.row is None and plan.graph.wanted.get(kernel.name) is not None
        for kernel in plan.kernels_in_order
    )


def _given_up(plan: Plan, text: str) -> Iterator[bool]:
    """Of each thing that a warning says was given up, whether the plan is without it."""
    if text.endswith(DONE):
        yield True
    for mark in (LEFT_OUT, IN_FLOAT):
        for part in text.split(mark)[1:]:
            told = part.partition("; ")[0]
            if mark == IN_FLOAT:
                yield told in plan.kernels and plan.kernels[told].row is None
            else:
                fact, _, where = told.rpartition(" at ")
                value = plan.graph.values.get(where)
                yield value is None or fact not in map(str, value.facts)


__all__ = ["check_warnings", "repeat_warnings"]
