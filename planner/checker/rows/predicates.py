"""Verify that a row's `when` holds for its kernel, and that its types meet the conditions of `requires`.

Predicates have one evaluator, `target.predicates`. What facts and requests say of a kernel is read here:
its types in the plan would make `min_bits` circular. Source: docs/targets/reference.md.
"""

from collections.abc import Iterator

from planner.checker.kernel_ports import Served, own_facts
from planner.checker.rows.asked import asked_bits, runs_as_asked
from planner.errors import LimitError, PlannerError
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.qtypes import AnyType, Bipolar, Uniform
from planner.target.conditions.on_types import unmet
from planner.target.predicates import failing
from planner.target.records import PortView


def broken_predicate(served: Served) -> str | None:
    """Say the first `when` predicate of the row that does not hold for the kernel; None if all hold.

    Those that ask for numbers of a model that was not given hold.
    """
    row = served.row
    if row.is_on_request and not runs_as_asked(served):
        return "nothing asks the kernel to run so"
    for name, least in row.when.get("min_bits", {}).items():
        most = max(_asked_bits(served, name), default=0)
        if most < least:
            return f"min_bits is {least}, and the facts of {name!r} ask for {most} bits"
    try:
        return failing(
            row.when,
            ports=_values_by_name(served),
            ops=ops_to_run(served.region),
            attributes=served.region.attributes,
            graph=served.graph,
            bits=lambda name: _asked_bits(served, name),
            place=(row.source, f"when of {row.kernel}"),
            numbers=bool(served.numbers),
        )
    except LimitError:
        raise
    except PlannerError as error:
        return error.message


def broken_requirement(served: Served, text: str) -> str | None:
    """Say the condition of a `requires` rule with the types that break it; None where it holds."""
    views = (
        PortView(("in", i), pattern.name, pattern.type, port.type)
        for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True))
        if isinstance(port.type, Uniform)
    )
    return unmet(text, views)


def _values_by_name(served: Served) -> dict[str, str | tuple[str, ...]]:
    """The value at each port of the row, "" where it is absent, all of them at a variadic one."""
    found: dict[str, str | tuple[str, ...]] = {}
    for pattern in (*served.row.inputs, *served.row.outputs):
        names = tuple(port.value for port in served.named(pattern.name))
        found[pattern.name] = names if pattern.variadic else "".join(names)
    return found


def _asked_bits(served: Served, name: str) -> Iterator[int]:
    """The width that facts and requests ask for at each value of a port."""
    for i, port in enumerate(served.ports):
        if port.value and served.patterns[i].name == name:
            facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
            asked = [f.storage.bits for f in facts if isinstance(f, Uniform)]
            asked += [1 for f in facts if isinstance(f, Bipolar)]
            asked += [f.bits for f in facts if isinstance(f, AnyType)]
            yield max(0, *asked, asked_bits(served, i))
