"""Re-verify rows with float results: they serve kernels whose results nothing stores, where they fit.

Source: docs/specification.md, section 11.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from planner.checker.figures.ranges import Ranges, Step
from planner.checker.kernel_ports import Served, own_facts, refuse
from planner.checker.rows.asked import asked_of, has_asked
from planner.checker.rows.merit import Merit, merit_of
from planner.checker.rows.reading import gives_floats, read_row
from planner.ir.types.qtypes import AnyType, Calibrated, NoneType, Uniform
from planner.target.borders import rows_for
from planner.target.records import Row, Target

MOVED: Final = "moves data between float ops"


def check_float_results(ranges: Ranges, target: Target, left: Mapping[str, Mapping[str, str]]) -> None:
    """A kernel is served by a row with float results where nothing stores them, and nowhere else.

    Args:
      left: rows that kernels could not keep, by kernel and key, as the log says.

    Raises:
      PlanInvalid: the row is of the other sort than the readers ask for.
    """
    used = {step.kernel.kernel for step in ranges.steps if step.served is not None or _is_moved(step)}
    known = {name: rows for name in used if any(map(gives_floats, rows := rows_for(target, name)))}
    storing = _storing(ranges) if known else {}
    for step in ranges.steps:
        rows = known.get(step.kernel.kernel, ())
        gone = left.get(step.kernel.name, {})
        if _is_moved(step):
            tables = [row for row in rows if gives_floats(row) and row.key not in gone]
            _check_moved(ranges, step, tables, target)
        if step.served is None or not rows:
            continue
        fit = [
            row for row in rows if row.key not in gone and gives_floats(row) != gives_floats(step.served.row)
        ]
        merits = [(merit, row) for row in fit if (merit := _merit(step.served, row, target)) is not None]
        if merits:
            best = max(merits, key=lambda entry: entry[0])
            _check_sort(ranges, (step, step.served), best, storing, target)


def _is_moved(step: Step) -> bool:
    return step.served is None and step.kernel.reason == MOVED


def _check_moved(ranges: Ranges, step: Step, rows: Sequence[Row], target: Target) -> None:
    """A kernel that moves data between float kernels had no row that reads its table in integers."""
    kernel, ports = step.kernel, (*step.kernel.inputs, *step.kernel.outputs)
    if _is_read_in_float(ranges, step):
        return
    for row in rows:
        reading = read_row(row, step.region)
        if isinstance(reading, str):
            continue
        served = Served(kernel, step.region, reading, ports, ranges.graph, ranges.numbers)
        if merit_of(served, row, target.costs) is not None and not _asked_for(ranges, served):
            refuse(kernel.name, f"moves {kernel.inputs[0].value!r} in float; accepted: {row.key}")


def _is_read_in_float(ranges: Ranges, step: Step) -> bool:
    """Whether another kernel reads a constant of this one in float, not just for its neighbours' sake."""
    tables = {port.value for port in step.kernel.inputs if port.value in ranges.graph.constants}
    return any(
        port.value in tables and not isinstance(port.type, Uniform)
        for other in ranges.steps
        if other is not step and not _is_moved(other)
        for port in other.kernel.inputs
    )


def _reaches_float(ranges: Ranges, step: Step) -> bool:
    """Whether a kernel or the model's end takes a result of a kernel in float."""
    names = {port.value for port in step.kernel.outputs}
    taken = any(
        port.value in names and not isinstance(port.type, Uniform)
        for other in ranges.steps
        for port in other.kernel.inputs
    )
    return taken or any(name in names and name not in ranges.pins for name in ranges.graph.outputs)


def _check_sort(
    ranges: Ranges,
    place: tuple[Step, Served],
    best: tuple[Merit, Row],
    storing: Mapping[str, str],
    target: Target,
) -> None:
    """One kernel beside the best row of the other sort."""
    step, served = place
    (merit, other), row = best, served.row
    own = _merit(served, row, target) or (False, False, 0, 0, -math.inf)
    reader = next((storing[port.value] for port in served.kernel.outputs if port.value in storing), None)
    if reader and row.reads_table and _reaches_float(ranges, step):
        return  # a consumer that stores it starts from float, as from a table in float
    reader = reader or _asked_for(ranges, served)
    if not reader and step.moves and _is_read_in_float(ranges, step):
        reader = f"another kernel reads {served.kernel.inputs[0].value!r} in float"
    if gives_floats(row) and reader:
        refuse(
            served.kernel.name, f"hands on floats by {row.source}, and {reader}; accepted: {other.key}", row
        )
    if gives_floats(row) and merit > own:
        why = f"{other.source} holds its ranges or meets more pins"
        refuse(served.kernel.name, f"hands on floats by {row.source}, {why}; accepted: {other.key}", row)
    if not gives_floats(row) and not reader and merit >= own:
        why = f"by {row.source}, and nothing stores its results"
        refuse(served.kernel.name, f"is rounded {why}; accepted: {other.key}", row)


def _merit(served: Served, row: Row, target: Target) -> Merit | None:
    return merit_of(served, row, target.costs)


def _asked_for(ranges: Ranges, served: Served) -> str:
    """What a fact asks of a result that a row with float results does not give; "" for nothing."""
    for i, port in enumerate(served.ports):
        if i < len(served.kernel.inputs) or not port.value:
            continue
        for fact in (*ranges.graph.values[port.value].facts, *own_facts(served.region, i)):
            if not isinstance(fact, Calibrated | NoneType):
                return f"{port.value!r} is to be {fact}"
    return ""


def _storing(ranges: Ranges) -> dict[str, str]:
    """Values that something stores in integers, looked at past movers that can be float; and what does."""
    found: dict[str, str] = {}
    for name, value in ranges.graph.values.items():
        fact = next((fact for fact in value.facts if isinstance(fact, Uniform | AnyType)), None)
        if fact is not None:
            found[name] = f"{name!r} is to be {fact}"
    ends = {id(step) for step in ranges.steps if step.partner is not None} | ranges.entered
    for step in reversed(ranges.steps):
        passes = step.moves and id(step) not in ends and _can_be_float(ranges, step)
        behind = next((found[port.value] for port in step.kernel.outputs if port.value in found), None)
        for port in step.kernel.inputs:
            if passes and behind:
                found.setdefault(port.value, behind)
            elif not passes and isinstance(port.type, Uniform):
                found.setdefault(port.value, f"{step.kernel.name!r} stores {port.value!r}")
    return found


def _can_be_float(ranges: Ranges, step: Step) -> bool:
    """Whether a mover is stored or float as its neighbours are."""
    if step.served is None:
        return step.kernel.reason == MOVED
    asked = asked_of(ranges.graph, step.region)
    if asked is not None and not asked.wanted.float and has_asked(step.served, asked.wanted):
        return False
    present = [i for i, port in enumerate(step.served.ports) if port.value]
    if not any(set(present) <= set(group) for group in step.served.groups):
        return False
    for i in present:
        facts = (*ranges.graph.values[step.ports[i].value].facts, *own_facts(step.region, i))
        if step.fixed[i] is not None or any(isinstance(fact, Uniform | AnyType) for fact in facts):
            return False
    return True
