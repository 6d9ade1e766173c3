"""Search among calibrated ranges, ranges at run time and float: measured, forecast, and taken."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import planner
from planner.accuracy.choices import choices_of
from planner.accuracy.own_noise import own_noise
from planner.plan_search import options
from planner.plan_search.search_text import _asked_text
from planner.target.load import load_target
from tests.formats.plans import model, op

TARGET = "onnxruntime-cpu"


@cache
def net():
    """A convolution and products of matrices whose calibration saw one input forty times too large."""
    rng = np.random.default_rng(4)
    constants = {f"w{k}": rng.normal(size=(16, 16)).astype(np.float32) / 4 for k in range(3)}
    constants["kernel"] = rng.normal(size=(4, 4, 1, 1)).astype(np.float32) / 2
    constants["shape"] = np.asarray([4, 16], np.int64)
    ops = [
        op("Conv", "i kernel", "f"),
        op("Reshape", "f shape", "x"),
        op("MatMul", "x w0", "a"),
        op("Relu", "a", "r"),
        op("MatMul", "r w1", "b"),
        op("Add", "b r", "s"),
        op("MatMul", "s w2", "y"),
    ]
    graph = model(ops, inputs={"i": (1, 4, 1, 16)}, outputs={"y": (4, 16)}, constants=constants)
    feeds = [{"i": rng.normal(size=(1, 4, 1, 16)).astype(np.float32)} for _ in range(4)]
    seen = [*feeds, {"i": 40 * feeds[0]["i"]}]
    return planner.annotate(graph, stats=planner.calibrate(graph, seen)), feeds


def levels():
    return options.levels_of(net()[0], load_target(TARGET))


@cache
def table():
    graph, feeds = net()
    found = levels()
    return options.table_of(graph, found, lambda some: own_noise(graph, found[""], some, feeds, groups={}))


def test_products_may_run_at_run_time_and_convolutions_may_not():
    wishes = {name: [option.wish for option in found] for name, found in table().kernels.items()}
    for name in ("op_a", "op_b", "op_y"):
        assert "dynamic" in wishes[name]
    assert "dynamic" not in wishes["op_f"]
    assert "dynamic" not in wishes["op_s"]


def test_noise_at_run_time_is_measured_apart():
    """It knows no calibrated range: that of each call is forty times smaller here."""
    for name in ("op_a", "op_b", "op_y"):
        ways = {str(option.wish): option for option in table().kernels[name]}
        static, dynamic = table().kernels[name][0], ways["dynamic"]
        assert static.work < dynamic.work < ways["float"].work
        assert dynamic.noise[0] > 0
        assert dynamic.weight_bits == static.weight_bits
    # The last product hands on floats; what it reads was rounded by the kernel in front.
    rounded = table().kernels["op_b"]
    assert max(option.noise[0] for option in rounded if option.wish == "dynamic") < rounded[0].noise[0] / 50


def test_own_noise_is_that_of_the_plan_with_this_kernel_alone():
    graph, feeds = net()
    at_run_time = levels()["dynamic"]
    choice = next(one for one in choices_of(at_run_time) if one.name == "op_b")
    found = own_noise(graph, levels()[""], [choice], feeds, groups={})
    asked = planner.annotate(
        graph, annotations={"format": "qplan.annotations/1", "kernels": {"*": "float", "op_b": "dynamic"}}
    )
    plan = planner.plan(asked, TARGET)
    exact = planner.annotate(graph, annotations={"format": "qplan.annotations/1", "kernels": {"*": "float"}})
    in_float = planner.plan(exact, TARGET)
    errors = [
        planner.evaluate(asked, plan, feed).outputs["y"]
        - planner.evaluate(exact, in_float, feed).outputs["y"]
        for feed in feeds
    ]
    assert found.power[0]["y", 0] == pytest.approx(np.mean(np.square(errors)), rel=1e-3)


def test_search_takes_it_where_ranges_lose_too_much():
    graph, feeds = net()
    found = planner.search(graph, TARGET, feeds, goal="sqnr=25", trials=16)
    planned = found.trials[0]
    assert planned.sqnr < 20
    assert found.met
    asked = {name for name, wish in found.best.kernels.items() if wish == "dynamic"}
    assert asked
    assert asked <= {"op_a", "op_b", "op_y"}
    assert found.best.work < 0.7 * found.dearest
    assert not [trial.error for trial in found.trials if trial.error]


def test_no_search_asks_for_it_where_no_matrix_is_multiplied():
    graph, _ = net()
    ops = [op("Conv", "i kernel", "y")]
    alone = model(
        ops,
        inputs={"i": (1, 4, 1, 16)},
        outputs={"y": (1, 4, 1, 16)},
        constants={"kernel": graph.constants["kernel"].array},
    )
    ready = planner.annotate(alone, stats=planner.calibrate(alone, net()[1]))
    assert "dynamic" not in options.levels_of(ready, load_target(TARGET))


def test_effort_takes_it():
    graph, feeds = net()
    outlier = [*feeds, {"i": 40 * feeds[0]["i"]}]
    found = planner.quantize(bare(graph), outlier, target=TARGET, eval_samples=feeds, effort="normal")
    assert any(row.dynamic is not None for row in found.plan.target.rows.values())
    assert "quantized at run time" in found.given_up
    assert found.comparison.verdict.level == "good"


def bare(graph):
    values = {name: replace(value, facts=()) for name, value in graph.values.items()}
    return replace(graph, values=values)


def test_what_was_given_up_names_it():
    graph, _ = net()
    plan = planner.plan(graph, TARGET)
    told = _asked_text(plan, {"op_a": "dynamic", "op_b": "dynamic", "op_f": "float"})
    assert told == "1 kernel (conv) in float and 2 (matmul) quantized at run time"
