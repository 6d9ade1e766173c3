"""Verify the conditions of a row: its `when`, its `requires`, and what was requested of kernels.

Predicates have one evaluator, `target.predicates`. The facts and requests of a kernel are read here:
its types in the plan would make `min_bits` circular. How many kernels of a glob do not run so is a warning,
which is verified with all others. Source: docs/specification.md, section 11; docs/targets/reference.md.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from planner.checker.kernel_ports import Served, own_facts, refuse
from planner.errors import LimitError, PlannerError
from planner.ir.graph import Region
from planner.ir.kernel_requests import asked_of
from planner.ir.types.typetext import brief
from planner.ir.types.wanted import Wanted, wanted_bits
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, runs_as
from planner.target.conditions.on_types import unmet
from planner.target.ports.accepts import bits_of, broken_when


def broken_predicate(served: Served) -> str | None:
    """Say the first `when` predicate of the row that does not hold for the kernel; None if all hold.

    Those that ask for numbers of a model that was not given hold.
    """
    row = served.row
    if row.is_on_request and not runs_as_asked(served):
        return "no request names the kernel"
    bits, numbers = partial(_asked_bits, served), bool(served.numbers)
    try:
        return broken_when(row, served.patterns, served.region, served.graph, bits, numbers=numbers)
    except LimitError:
        raise
    except PlannerError as error:
        return error.message


def broken_requirement(served: Served, text: str) -> str | None:
    """Say the condition of a `requires` rule with the types that break it; None where it holds."""
    inputs, outputs = served.views
    return unmet(text, (*inputs, *outputs))


def _asked_bits(served: Served, name: str) -> Iterator[int]:
    """The width that facts and requests ask for at each value of a port."""
    asked = asked_of(served.graph, served.region)
    wanted = asked.wanted if asked is not None and runs_as_asked(served) else Wanted()
    for i, port in enumerate(served.ports):
        if port.value and served.patterns[i].name == name:
            facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
            yield max(bits_of(facts), wanted_bits(wanted, served.side_of(i)))


REASON: Final = "annotated: float"


def check_asked(plan: Plan, kernel: KernelPlan, region: Region) -> None:
    """A kernel runs in float for being asked if and only if it was; one that is named has what was asked.

    Raises:
      PlanInvalid: what was asked, and what the plan has.
    """
    asked = asked_of(plan.graph, region)
    if asked is None or not asked.wanted.float:
        if kernel.reason == REASON:
            refuse(kernel.name, f"runs in float as {REASON!r}, and nothing requests that; accepted: its row")
    elif kernel.reason != REASON:
        refuse(kernel.name, f"has to run in float, by {asked.key!r}; accepted: no row, {REASON!r}")
    if asked is None or not asked.by_name or asked.wanted.float:
        return
    if kernel.row not in {None, *plan.target.rows} or not runs_as(kernel, asked.wanted, plan.target.rows):
        has = ", ".join(brief(port.type) for port in kernel.outputs if port.value)
        refuse(
            kernel.name,
            f"gives {has}, and {asked.key!r} asks for {asked.wanted}; accepted: the requested storages",
        )


def runs_as_asked(served: Served) -> bool:
    """Whether something was asked of a kernel, and its row and types are that."""
    asked, row = asked_of(served.graph, served.region), served.row
    if asked is None or asked.wanted.float:
        return False
    # The results of a row on request that quantizes at run time do not tell it from rows of stored operands.
    by_result = asked.wanted.result is not None and row.dynamic is not None and row.is_on_request
    return not by_result and runs_as(served.kernel, asked.wanted, {row.key: row})
