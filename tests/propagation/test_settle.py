"""Settling by columns: what it decides is what the search, port by port, would have decided."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.topologies import TOPOLOGIES
from planner.errors import PlannerError
from planner.ir.graph import Constant, Graph, Region, Value
from planner.ir.topology import live, topological
from planner.ir.types.qtypes import Calibrated
from planner.plans.planjson import plan_to_json
from planner.plans.records import Step
from planner.propagation.propagate import decide
from planner.propagation.result.outcome import Request
from planner.propagation.result.plan_builder import assemble
from planner.propagation.selection.rows import choose_rows
from planner.propagation.settle import settle, settle_nothing
from planner.target.load import load_target
from planner.target.records import Target
from tests.propagation.graphs import TARGET, random_graph
from tests.propagation.small import graph_of, target_of

ROWS = target_of("""
- {kernel: conv, in: {x: a8, w: w8, b?: b32}, out: {y: a8}, axis: {w: 0}}
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: sym, in: {x: n8}, out: {y: n8}}
- {kernel: pow, in: {x: p8}, out: {y: p8}}
- {kernel: zero, in: {x: z8}, out: {y: z8}}
- {kernel: cut, in: {x: s8}, out: {y: s8}}
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: soft, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]}
""")

LITERT = load_target("litert-int8")


def planned(graph: Graph, target: Target, settler, *, strategy="minimal") -> tuple[str, int]:
    """The plan as JSON, and how many kernels were left to the search."""
    alive = live(graph)
    regions = topological([region for region in graph.regions if region.name in alive])
    request = Request(strategy, target.costs, "", best_effort=False, bias_pins="error", depths={})
    try:
        outcome = decide(graph, target, choose_rows(graph, regions, target), request, settler)
        return plan_to_json(assemble(outcome)), len(outcome.settled.open)
    except PlannerError as error:
        return str(error), 0


def with_ranges(graph: Graph) -> Graph:
    """The same with constants known by their ranges alone."""
    constants = {
        name: Constant(lo=(float(constant.array.min()),), hi=(float(constant.array.max()),))
        for name, constant in graph.constants.items()
    }
    return replace(graph, constants=constants)


@given(st.integers(1, 40), st.integers(0, 1 << 20), st.sampled_from((0.0, 0.1, 0.3)), st.booleans())
def test_settling_first_changes_nothing(size, seed, facts, ranges):
    graph = random_graph(seed, size, facts=facts)
    graph = with_ranges(graph) if ranges else graph
    for target in (
        TARGET,
        replace(TARGET, rescale_single_consumer=True),
        replace(TARGET, rescale_allowed=False),
    ):
        assert planned(graph, target, settle)[0] == planned(graph, target, settle_nothing)[0]


@pytest.mark.parametrize(("shape", "open_kernels"), [("residual", 0), ("dense", 63), ("transformer", 0)])
def test_what_movers_tie_is_settled_as_the_search_would(shape, open_kernels):
    graph = TOPOLOGIES[shape](400)
    text, count = planned(graph, LITERT, settle)
    assert text == planned(graph, LITERT, settle_nothing)[0]
    assert count == open_kernels


@pytest.mark.parametrize(
    "costs",
    [{"bit_price": 0.0}, {"requantize": 0.5}, {"free_bits": 0.0}, {"max_clip": 0.0}, {"max_bits_lost": 0.25}],
)
@pytest.mark.parametrize("shape", ["dense", "random"])
def test_settling_first_changes_nothing_at_other_prices(shape, costs):
    graph, target = TOPOLOGIES[shape](80), replace(LITERT, costs=replace(LITERT.costs, **costs))
    assert planned(graph, target, settle)[0] == planned(graph, target, settle_nothing)[0]


@pytest.mark.parametrize(
    ("kernels", "open_kernels"),
    [
        ("conv conv add", 0),
        ("conv sym conv", 3),
        ("pow pow sym", 2),
        ("conv view conv", 0),
        ("conv gelu conv gelu", 0),
        ("conv soft conv", 0),
        ("zero zero conv", 3),
        ("cut cut", 2),
    ],
)
def test_kernels_around_settled_values_are_closed(kernels, open_kernels):
    """A value is open where specs differ, and where a port bounds its scale or fixes its zero point."""
    values = {"v0": Value("v0", (1, 4), "f32", (Calibrated((-1.0,), (2.0,)),))}
    regions, constants = [], {}
    for i, kernel in enumerate(kernels.split()):
        reads = [f"v{i}"] * (2 if kernel == "add" else 1)
        if kernel == "conv":
            reads.append(f"w{i}")
            values[f"w{i}"] = Value(f"w{i}", (4, 4))
            constants[f"w{i}"] = Constant(lo=(-1.0,), hi=(1.0,))
        values[f"v{i + 1}"] = Value(f"v{i + 1}", (1, 4), "f32", (Calibrated((-1.0 - i,), (2.0 + i,)),))
        regions.append(Region(f"k{i}", kernel, tuple(reads), (f"v{i + 1}",)))
    last = f"v{len(regions)}"
    graph = Graph("chain", values, (), ("v0",), (last,), constants, tuple(regions))
    text, count = planned(graph, ROWS, settle)
    assert text == planned(graph, ROWS, settle_nothing)[0]
    assert count == open_kernels


def test_the_log_is_a_sequence_of_steps():
    """Counted before it is written; then as good as the tuple it is."""
    graph = graph_of({"x": "[-1, 2]", "y": "[-3, 3]"}, [("k", "add", "x x", "y")], outputs="y")
    request = Request("minimal", ROWS.costs, "", best_effort=False, bias_pins="error", depths={})
    row = ROWS.rows["add"][0]
    steps = assemble(decide(graph, ROWS, choose_rows(graph, graph.regions, ROWS), request)).steps
    assert len(steps) == 6
    assert steps[2] == Step(2, "k", row.key, "row", row.source, (0, 1))
    assert [step.n for step in steps] == list(range(6))
    assert steps == tuple(steps)
    assert (*steps[:2], *steps[2:]) == tuple(steps)
