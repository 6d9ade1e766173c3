"""Ranges, what uses keep, and what ports require: item 1 of the price, as a table."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.constants.quantize import quantize_array
from planner.ir.topology import topological
from planner.plans.write_json import plan_to_json
from planner.propagation import decide as planning
from planner.propagation.decide import moved
from planner.propagation.network.demotions import out_of_reach, without_range
from planner.propagation.network.value_ranges import give_ranges
from planner.propagation.propagate import propagate
from planner.propagation.selection.rows import choose_rows
from tests.propagation.graphs import TARGET, random_graph, seeded
from tests.propagation.small import chosen, graph_of, target_of

ROWS = target_of("""
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
- {kernel: relu, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
- {kernel: split, in: {x: a8}, out: {ys*: a8}, rules: [{same_scale: [x, ys]}]}
- {kernel: mean, in: {x: a8}, out: {y: a8}, computes: true, rules: [{same_scale: [x, y]}]}
- {kernel: asin, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: x, scale: 1/128}}]}
- {kernel: soft, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]}
""")
FOUR = "!quant.uniform<i8:f32, 0.03125>"  # [-4, 3.96875]
K = ("k", "add", "x x", "a")
CUT = [K, ("relu", "relu", "a", "b"), ("m", "add", "b b", "y")]
TWO_READERS = [K, ("l", "asin", "a", "b"), ("m", "add", "a a", "y")]
MOVED = [K, ("v", "view", "a", "b"), ("l", "asin", "b", "y")]
MOVES = {"relu": "Relu", "join": "Concat"}


def settled(values, kernels, outputs, moves=None):
    graph = graph_of(values, kernels, outputs=outputs, moves=moves)
    choices = choose_rows(graph, topological(graph.regions), ROWS)
    ranged = give_ranges(chosen(graph, ROWS, choices))
    while ranged.rangeless:
        ranged = give_ranges(moved(ranged.chosen, without_range(ranged)))
    return ranged


def required(network, kernel, side):
    ports = [p for p in network.ports if network.kernels[p.kernel].choice.region.name == kernel]
    return next(network.required[p.id] for p in ports if p.side == side)


@pytest.mark.parametrize(
    ("values", "kernels", "name", "extent"),
    [
        ({"x": "[-1, 2]", "y": "[-3, 3]"}, [("k", "add", "x x", "y")], "y", (-3, 3)),
        ({"x": "[-1, 2]", "y": ""}, [("k", "add", "x x", "y")], "y", None),
        ({"x": f"[-9, 2] & {FOUR}", "y": "[0, 1]"}, [("k", "add", "x x", "y")], "x", (-4, 2)),
        ({"x": FOUR, "y": "[0, 1]"}, [("k", "add", "x x", "y")], "x", (-4, 3.96875)),
        ({"x": "[-9, 9]", "y": "[0, 0.5]"}, [("k", "soft", "x", "y")], "y", (0, 0.5)),
        ({"x": "[-9, 9]", "y": ""}, [("k", "soft", "x", "y")], "y", (0, 0.99609375)),
        ({"x": "[-9, 2]", "y": ""}, [("k", "view", "x", "y")], "y", (-9, 2)),
        ({"x": "[-9, 2]", "y": "[-20, 1]"}, [("k", "view", "x", "y")], "y", (-9, 1)),
        ({"x": "[-9, 2]", "y": "[-20, 1]"}, [("k", "mean", "x", "y")], "y", (-20, 1)),  # it computes
        ({"x": "[-9, 2]", "z": "[-1, 5]", "y": ""}, [("k", "join", "x z", "y")], "y", (-9, 5)),
        ({"x": "[-9, 2]", "y": ""}, [("relu", "relu", "x", "y")], "y", (0, 2)),
        ({"x": "[-9, -2]", "y": ""}, [("relu", "relu", "x", "y")], "y", (0, 0)),
        # one unknown input of a mover: the hull of the known ones
        ({"x": "[-9, 2]", "u": "", "y": ""}, [("join", "join", "x u", "y")], "y", (-9, 2)),
    ],
)
def test_ranges(values, kernels, name, extent):
    network = settled(values, kernels, "y", MOVES)
    assert network.ranges[network.value_ids[name]] == extent


@pytest.mark.parametrize(
    ("kernels", "facts", "kernel", "side", "extent"),
    [
        # written: the hull of what all its uses keep
        ([K, ("l", "asin", "a", "y")], {}, "k", ("out", 0), (-1, 127 / 128)),
        (TWO_READERS, {}, "k", ("out", 0), (-9, 3)),
        (CUT, {}, "k", ("out", 0), (0, 3)),
        (CUT, {}, "relu", ("in", 0), (0, 3)),
        # through a mover: what the uses of its results keep
        (MOVED, {}, "k", ("out", 0), (-1, 127 / 128)),
        # a pin keeps its own range; a pinned mover's result keeps it cut by its uses
        ([K, ("l", "asin", "a", "y")], {"a": FOUR}, "k", ("out", 0), (-4, 3)),
        (MOVED, {"b": FOUR}, "k", ("out", 0), (-1, 127 / 128)),
        # a read keeps all, even behind an asin that keeps less
        (TWO_READERS, {}, "m", ("in", 0), (-9, 3)),
        # float readers and model outputs keep all
        ([K, ("l", "gelu", "a", "y")], {}, "k", ("out", 0), (-9, 3)),
        # what nothing uses keeps nothing
        ([K, ("s", "split", "a", "y u")], {}, "s", ("out", 1), (0, 0)),
    ],
)
def test_required(kernels, facts, kernel, side, extent):
    values = {"x": "[-9, 9]", "a": f"[-9, 3] & {facts.get('a', '')}", "b": facts.get("b", ""), "y": "[-2, 2]"}
    written = {n for _, _, _, outs in kernels for n in outs.split()}
    values = {n: f for n, f in values.items() if n in written or n == "x"} | (
        {"u": ""} if "u" in written else {}
    )
    if "b" in written and any(k[1] == "asin" and k[3] == "b" for k in kernels):
        values["b"] = "[-2, 2]"
    network = settled(values, kernels, "y b" if values.get("b") == "[-2, 2]" else "y", MOVES)
    assert required(network, kernel, side) == pytest.approx(extent)


def test_a_port_without_a_range_runs_in_float():
    """The uncalibrated result of a computing kernel, and whoever reads it."""
    values = {"x": "[-1, 1]", "a": "", "y": "[-1, 1]"}
    network = settled(values, [K, ("l", "add", "a a", "y")], "y")
    assert [kernel.choice.reason for kernel in network.kernels] == ["no range", "no range"]


@pytest.mark.parametrize(
    ("numbers", "extent"),
    [
        ([1.0, -2.0], (-2.0, 1.0)),
        # As far as a float32 goes: where all of that is needed, the kernel runs in float.
        ([1.0, -np.inf, 3.0], (-float(np.finfo(np.float32).max), 3.0)),
        ([np.nan], None),
        ([], (0.0, 0.0)),
    ],
)
def test_constants(numbers, extent):
    values = {"x": "[-1, 1]", "c": np.array(numbers, np.float32), "y": "[-1, 1]"}
    network = settled(values, [("k", "add", "x c", "y")], "y")
    assert network.ranges[network.value_ids["c"]] == extent


@pytest.mark.parametrize(
    ("op", "numbers", "served"),
    [
        ("", [-np.inf], True),  # a pad in an annotated model
        ("Max", [-np.inf, 0.5], True),
        ("Min", [np.inf], True),
        ("Max", [np.inf], False),
        ("Min", [-np.inf], False),
        ("Max", [np.nan], False),
        ("Where", [-np.inf], True),  # the result is pinned, and cuts it off
    ],
)
def test_an_infinity_that_saturates(op, numbers, served):
    """Case 36: minus infinity pads to the storage's minimum, under the type of what it meets."""
    rows = "- {kernel: pad, in: {x: a8, c: a8}, out: {y: a8}, rules: [{same_scale: [x, c, y]}]}"
    values = {"x": "!quant.uniform<i8:f32, 0.5:3>", "c": np.array(numbers, np.float32), "y": ""}
    moves = {"k": op} if op else {}
    graph = graph_of(values, [("k", "pad", "x c", "y")], outputs="y", moves=moves)
    graph = replace(
        graph, values={**graph.values, "y": replace(graph.values["y"], facts=graph.values["x"].facts)}
    )
    plan = propagate(graph, target_of(rows))
    check(plan)
    assert (plan.kernels["k"].row is not None) == served
    if served:
        kind = plan.kernels["k"].inputs[1].type
        assert kind == plan.kernels["k"].inputs[0].type
        ends = quantize_array(graph.constants["c"].array, kind)
        assert int(ends[0]) == (kind.storage.qmax if op == "Min" else kind.storage.qmin)


def test_kernels_out_of_reach_are_those_that_a_look_at_ranges_finds(monkeypatch):
    """Told before there is a network, or by it: the same plan, whatever values nothing is known of."""
    told = 0

    def counted(graph, choices):
        nonlocal told
        found = out_of_reach(graph, choices)
        told += len(found)
        return found

    for seed in range(60):
        random = seeded(seed)
        graph = random_graph(seed, 4 + seed % 30)
        blank = {name for name in graph.values if name not in graph.constants and random.random() < 0.3}
        values = {n: replace(v, facts=() if n in blank else v.facts) for n, v in graph.values.items()}
        graph = replace(graph, values=values)
        monkeypatch.setattr(planning, "out_of_reach", counted)
        plan = propagate(graph, TARGET)
        monkeypatch.setattr(planning, "out_of_reach", lambda *_: [])
        assert plan_to_json(plan) == plan_to_json(propagate(graph, TARGET)), seed
    assert told > 60
