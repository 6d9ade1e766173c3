"""Bytes of weights in a search: a goal of their own, and what decides between options that work alike."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

import planner
from planner.plan_search.forecast import TIE, forecast, net_of, priced_by_coverage
from planner.plan_search.goals import goal_of
from planner.plan_search.greedy import greedy
from planner.plan_search.measuring import bench_of, measured_table
from planner.plan_search.options import weight_bytes
from planner.plan_search.program import SLACK, bounds_of, propose
from planner.plan_search.search import SearchRun
from planner.plan_search.trials import Bench, State, kernels_key
from planner.plan_search.weight_bytes import with_fewer_bytes
from planner.target.load import load_target
from tests.formats.plans import model, op

RNG = np.random.default_rng(7)
TABLE = RNG.normal(size=(800, 32)).astype(np.float32)
PLANS = "onnxruntime-cpu"


def embedder():
    """A table that a float op reads, and products behind it."""
    constants = {
        "t": TABLE,
        "v": RNG.normal(size=(32, 64)).astype(np.float32) / 6,
        "w": RNG.normal(size=(64, 16)).astype(np.float32) / 8,
    }
    ops = [
        op("Gather", "t i", "e"),
        op("Sin", "e", "s"),
        op("MatMul", "s v", "a"),
        op("Relu", "a", "r"),
        op("MatMul", "r w", "y"),
    ]
    graph = model(
        ops,
        inputs={"i": (2, 8)},
        outputs={"y": (2, 8, 16)},
        constants=constants,
        dtypes={"i": "i64"},
        shapes={"e": (2, 8, 32), "s": (2, 8, 32), "a": (2, 8, 64), "r": (2, 8, 64)},
    )
    samples = [{"i": RNG.integers(0, 800, (2, 8))} for _ in range(4)]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples


def test_bytes_of_weights_are_those_of_the_file():
    ready, _ = embedder()
    for kernels in ({}, {"*": "float"}):
        asked = planner.annotate(ready, kernels=kernels)
        plan = planner.plan(asked, PLANS)
        size, file = weight_bytes(plan), len(planner.export(asked, plan, "onnx-qdq"))
        assert size < file < size + 4000


def test_a_search_keeps_tables_in_bytes_while_that_is_good_enough():
    ready, samples = embedder()
    found = planner.search(ready, PLANS, samples, goal="sqnr=35", trials=12)
    assert found.met
    assert found.best.sqnr < 60
    assert found.best.size < TABLE.nbytes * 0.6
    finer = planner.search(ready, PLANS, samples, goal="sqnr=70", trials=12)
    assert finer.met
    assert finer.best.size > TABLE.nbytes


@pytest.mark.parametrize(("goal", "is_met"), [("size=45kB", True), ("size=1kB", False)])
def test_a_size_buys_the_best_it_can(goal, is_met):
    ready, samples = embedder()
    found = planner.search(ready, PLANS, samples, goal=goal, trials=14)
    bound = float(goal.removeprefix("size=").removesuffix("kB")) * 1000
    assert found.met == is_met
    fit = [trial for trial in found.trials if trial.size <= bound]
    if is_met:
        assert found.best in fit
        assert found.best.sqnr == max(trial.sqnr for trial in fit)
        assert found.best.sqnr > found.trials[0].sqnr
    else:
        assert found.best.size == min(trial.size for trial in found.trials)


@pytest.mark.parametrize("sqnr", [20.0, 30.0, 38.0, 45.0])
def test_the_program_finds_the_fewest_bytes_of_equal_work(sqnr):
    """Beside all choices of options: none within the bounds works as little with fewer bits of weights."""
    ready, samples = embedder()
    table = measured_table(bench_of(ready, planner.load_target(PLANS), samples), State("", None), samples)
    net, bounds = net_of(table), bounds_of(table, sqnr)
    found = propose(table, net, bounds, greedy(table, net, bounds, weight_bits=np.inf)[0])
    chosen = with_fewer_bytes(table, net, found.chosen, bounds)
    best = forecast(table, net, chosen)
    names = [*table.kernels]
    every = product(*(range(len(table.kernels[name])) for name in names))
    others = [forecast(table, net, dict(zip(names, places, strict=True))) for places in every]
    within = [one for one in others if all(n <= bound for n, bound in zip(one.noise, bounds, strict=True))]
    least = min(one.work for one in within)
    assert best.work <= least * (1 + SLACK)
    assert best.weight_bits == min(one.weight_bits for one in within if one.work <= least)


def test_noise_that_is_spent_elsewhere_leaves_no_table_in_float():
    """This bound allows the table in bytes at the same work, not beside the first choice of the others."""
    rng = np.random.default_rng(1)
    constants, shapes = {"t": TABLE}, {"e": (2, 8, 32), "s": (2, 8, 32)}
    ops, last = [op("Gather", "t i", "e"), op("Sin", "e", "s")], "s"
    for k in range(5):
        constants[f"w{k}"] = rng.normal(size=(32, 32)).astype(np.float32) / 6
        ops += [op("MatMul", f"{last} w{k}", f"m{k}"), op("Sin", f"m{k}", f"r{k}")]
        shapes |= {f"m{k}": (2, 8, 32), f"r{k}": (2, 8, 32)}
        last = f"r{k}"
    graph = model(
        [*ops, op("MatMul", f"{last} w0", "y")],
        inputs={"i": (2, 8)},
        outputs={"y": (2, 8, 32)},
        constants=constants,
        dtypes={"i": "i64"},
        shapes=shapes,
    )
    samples = [{"i": rng.integers(0, 800, (2, 8))} for _ in range(3)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    table = measured_table(bench_of(ready, planner.load_target(PLANS), samples), State("", None), samples)
    net, bounds = net_of(table), bounds_of(table, 32.75)
    found = propose(table, net, bounds, greedy(table, net, bounds, weight_bits=np.inf)[0])
    assert forecast(table, net, with_fewer_bytes(table, net, found.chosen, bounds)).weight_bits < 16


STORED = {"in": ["i8<-127:127>"], "out": ["f32"]}


def test_a_trial_drops_the_wish_that_its_neighbour_makes_impossible():
    """A table's stored rows with float results want a reader in float, and options are chosen one by one."""
    ready, samples = embedder()
    bench = bench_of(ready, load_target(PLANS), samples)
    alone = bench.measured("program", {"op_e": STORED}, 0.0)
    assert (alone.error, alone.kernels) == ("", {"op_e": STORED})
    floats = {"op_a": "float", "op_s": "float"}
    found = bench.measured(
        "program", {"op_y": "float", "op_e": {"in": ["u8"], "out": ["f32"]}, **floats}, 0.0
    )
    assert not found.error
    assert found.kernels == {"op_y": "float", **floats}


class Stubborn(Bench):
    """Drops every wish; counts what is measured."""

    __slots__ = ("measured_plans",)

    def measured(self, origin, kernels, predicted, plan=None):
        """Measure the plan without wishes."""
        self.measured_plans.append(kernels)
        return super().measured(origin, {}, predicted, plan)


def test_trials_without_their_wishes_are_spent_and_change_no_other():
    ready, samples = embedder()
    plain = bench_of(ready, load_target(PLANS), samples)
    bench = Stubborn(*(getattr(plain, item.name) for item in fields(Bench)))
    object.__setattr__(bench, "measured_plans", [])
    state = State("", None)
    table = measured_table(bench, state, bench.samples)
    found = SearchRun(bench, state, table, goal=goal_of("sqnr=34"), most=5, progress=None).search()
    assert len(bench.measured_plans) == 5
    assert [trial.origin for trial in found.trials] == ["planned"]
    assert state.trials[kernels_key({})].origin == "planned"
    assert (found.bound, found.gap) == (None, None)


def test_coverage_is_bought_by_products_and_not_by_work():
    """Casts cost more than a small product saves: of least work is the plan that has it in float."""
    ready, samples = embedder()
    bench = bench_of(ready, load_target(PLANS), samples)
    table = measured_table(bench, State("", None), bench.samples)
    net = net_of(table)
    covered, covered_net = priced_by_coverage(table, net)
    bounds = bounds_of(table, 30.0)

    def macs_in_float(priced, edges):
        chosen = propose(priced, edges, bounds, {}).chosen
        return sum(options[chosen.get(name, 0)].float_macs for name, options in table.kernels.items())

    assert macs_in_float(covered, covered_net) <= macs_in_float(table, net)
    macs = sum(max(one.float_macs for one in options) for options in table.kernels.values())
    for name, options in table.kernels.items():
        for own, one in zip(covered.kernels[name], options, strict=True):
            assert one.float_macs <= own.work <= one.float_macs + TIE * macs
