"""A law of rows: the first row that fits a kernel serves it, or the plan says of each one before why not.

The checker does not choose rows again, so this does, where nothing but the order of the file has a say: no
fact that fixes a type, nothing requested, no port that cannot hold every range.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.checker.conditions import broken_predicate
from planner.checker.kernel_ports import Served, read_row
from planner.errors import Conflict
from planner.ir.graph import Graph, Region, model_digest
from planner.ir.kernel_requests import asked_of
from planner.ir.operators.standard_op import misses_its_name
from planner.ir.types.qtypes import Calibrated, Storage
from planner.plans.plan import Planned
from planner.propagation.propagate import propagate
from planner.target.borders import rows_for
from planner.target.load import load_target, target_ids
from planner.target.records import Row, Target
from tests.plans.movement_models import movement_model
from tests.plans.planned import digits
from tests.propagation.small import graph_of, target_of
from tests.propagation.test_remedies import devices, nets

SAID = ("left", "short", "let go")
"""Rules of the steps that say why a row does not serve."""


def passed_over(plan: Planned, target: Target) -> Iterator[tuple[str, str]]:
    """Kernels with a row that stands before the one that serves, fits, and of which nothing is said."""
    regions = {region.name: region for region in plan.fused.regions}
    said = {(step.port, step.type) for step in plan.steps if step.rule in SAID}
    for kernel in plan.kernels_in_order:
        region, rows = regions[kernel.name], rows_for(target, kernel.kernel)
        own = next((row for row in rows if row.key == kernel.row), None)
        by_rows = own is not None or any(row.source in (kernel.reason or "") for row in rows)
        if not by_rows or not is_free(plan.fused, region):
            continue
        # The mirror of a first row serves in its place, whatever stands between them.
        mirrored = {step.type for step in plan.steps if (step.port, step.rule) == (kernel.name, "sign")}
        first = next((row for row in rows if row.key in mirrored), own)
        for row in rows[: rows.index(first)] if first is not None else rows:
            reading = read_row(row, region)
            if reading is None or is_picky(row) or (kernel.name, row.key) in said:
                continue
            if own is not None and row.hands_on_floats != own.hands_on_floats:
                continue
            ports = (*kernel.inputs, *kernel.outputs)
            numbers, most = plan.fused.constants, plan.target.costs.max_clip
            served = Served(kernel, region, reading, ports, plan.fused, numbers, most)
            if broken_predicate(served) is None:
                yield kernel.name, row.key


def is_free(graph: Graph, region: Region) -> bool:
    """Whether ranges alone are said of a kernel."""
    facts = [fact for name in (*region.inputs, *region.outputs) if name for fact in graph.values[name].facts]
    facts += [fact for own in (*region.input_facts, *region.output_facts) for fact in own]
    ranges = all(isinstance(fact, Calibrated) for fact in facts)
    return ranges and asked_of(graph, region) is None and not misses_its_name(region)


def is_picky(row: Row) -> bool:
    """Whether a row asks more of its ports than a storage and a predicate can say."""
    specs = [port.type for port in (*row.inputs, *row.outputs)]
    ends = [s for s in specs if isinstance(s.storage, Storage) and 0 in (s.storage.qmin, s.storage.qmax)]
    return (
        row.table is not None
        or row.dynamic is not None
        or any(s.granularity == "block" or s.sparsity or s.scale_max is not None for s in specs)
        or any(s.zero_point is not None for s in specs)
        or any(s.symmetric for s in ends)
    )


@given(nets(), devices(), st.sampled_from(["minimal", "rfc"]))
def test_rows_that_kernels_cannot_keep(graph, rows, strategy):
    target = target_of("\n".join(rows))
    plan = propagate(graph, target, model=model_digest(graph), strategy=strategy)
    assert [*passed_over(plan, target)] == []


@settings(max_examples=60)
@given(st.integers(0, 1 << 20), st.integers(1, 16), st.sampled_from(target_ids()))
def test_movers_and_floats_on_shipped_targets(seed, steps, name):
    target = load_target(name)
    try:
        plan = planner.plan(movement_model(seed, steps), target)
    except Conflict:
        return
    assert [*passed_over(plan, target)] == []


@pytest.mark.parametrize("name", target_ids())
def test_the_example_on_shipped_targets(name):
    target = load_target(name)
    try:
        plan = planner.plan(digits(), target)
    except Conflict:
        return
    assert [*passed_over(plan, target)] == []


def test_a_row_in_front_is_found():
    """The same plan beside a target whose two rows changed places."""
    rows = (
        "{kernel: neg, in: {x: a8}, out: {y: a8}}",
        "{kernel: neg, in: {x: u8}, out: {y: u8}}",
    )
    target = target_of("\n".join(f"- {row}" for row in rows))
    graph = graph_of({"x": "[-1, 1]", "y": "[-1, 1]"}, [("k", "neg", "x", "y")], outputs="y")
    plan = propagate(graph, target, model=model_digest(graph))
    assert [*passed_over(plan, target)] == []
    first, second = target.rows["neg"]
    turned = replace(target, rows={"neg": (second, first)})
    assert [*passed_over(plan, turned)] == [("k", second.key)]
