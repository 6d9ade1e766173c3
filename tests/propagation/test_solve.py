"""The solver's ways to a labelling against each other: what is dropped or cut is proven."""

import operator
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.genomes import graph_of as graph_of_genome
from benchmarks.genomes import read_genome
from benchmarks.topologies import SHAPES, TOPOLOGIES
from planner.checker.check import check
from planner.ir.graph import Graph, model_digest
from planner.plans.plan import Plan
from planner.plans.write_json import plan_to_json
from planner.propagation.propagate import propagate
from planner.propagation.solver import candidates, dominance, elimination, local_search, solve
from planner.propagation.solver import linear_program as milp
from planner.propagation.solver.price import price_of_labels
from planner.target.load import load_target
from tests.propagation.graphs import TARGET, limit_tables, random_graph, renamed, seeded
from tests.propagation.test_laws import port_types, shuffled

SEEDS = range(0, 40, 2)
GAP = 1.05
LITERT = load_target("litert-int8")


def graph_of(seed: int) -> Graph:
    return random_graph(seed, 10 + seed, facts=0.15)


@pytest.fixture
def searched(monkeypatch):
    """No unit is small enough for an exact answer."""
    limit_tables(monkeypatch, 0)
    monkeypatch.setattr(milp, "MILP_VARIABLES", 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_dropped_labels_change_nothing(monkeypatch, seed):
    plan = propagate(graph_of(seed), TARGET)
    monkeypatch.setattr(dominance, "ROUNDS", 0)
    every = propagate(graph_of(seed), TARGET)
    assert (plan.cost, len(plan.rescales)) == (every.cost, len(every.rescales))


@pytest.mark.parametrize("shape", ["dense", "random"])
def test_one_label_proven_least_is_what_a_search_finds(monkeypatch, shape):
    graph = TOPOLOGIES[shape](600)
    plan = propagate(graph, LITERT)
    monkeypatch.setattr(solve, "_least_change", lambda *_: 0)
    searched = propagate(graph, LITERT)
    assert (plan.cost, plan.bound, port_types(plan)) == (searched.cost, searched.bound, port_types(searched))


@pytest.mark.usefixtures("searched")
def test_regions_take_the_finest_label_they_have_in_common(monkeypatch):
    """A search whose program proves nothing about bits that are free to lose finds them all the same."""
    monkeypatch.setattr(solve, "relax", lambda *_: None)
    graphs = [random_graph(seed, 20 + seed, facts=0.1) for seed in range(30)]
    plans = [propagate(graph, TARGET) for graph in graphs]
    monkeypatch.setattr(local_search, "_improve_regions", lambda *_: {})
    pairs = [(plan, propagate(graph, TARGET)) for plan, graph in zip(plans, graphs, strict=True)]
    assert all(plan.cost <= without.cost for plan, without in pairs)
    assert any((plan.cost, _lost(plan)) < (without.cost, _lost(without)) for plan, without in pairs)


@pytest.mark.usefixtures("searched")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_knows_the_price_of_what_it_found(monkeypatch, seed):
    """Counted change by change, it is the price of the labelling; and what is taken back leaves no trace."""
    found = []

    def looked_at(unit, offered, cost_model, start):
        price, labels = descend(unit, offered, cost_model, start)
        found.append(price == price_of_labels(unit, labels, cost_model))
        return price, labels

    descend = local_search.descend
    monkeypatch.setattr(solve, "descend", looked_at)
    propagate(random_graph(seed, 30 + seed, facts=0.15), TARGET)
    assert all(found)
    assert found or seed


def _lost(plan: Plan) -> float:
    return sum(value.bits_lost for value in plan.values.values())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("searched")
def test_a_linear_program_bounds_the_least_price(seed):
    plan = propagate(graph_of(seed), TARGET)
    assert plan.bound <= plan.cost <= GAP * plan.bound


def test_branching_starts_from_columns_that_cost_what_the_labels_do(monkeypatch):
    limit_tables(monkeypatch, 0)
    met = Counter[str]()

    def looked_at(unit, offered, cost_model, known):
        model = milp._model(unit, offered, cost_model, milp.RELAXED_ROWS)
        point = milp._point(model, offered, known)
        paid = model.base + sum(map(operator.mul, model.cost, point))
        assert paid == price_of_labels(unit, known, cost_model)[0]
        for right, columns, factors in (*model.rows, *model.equal):
            met["tight"] += (
                there := sum(f * point[x] for x, f in zip(columns, factors, strict=True))
            ) == right
            assert there >= right
        return solve_exactly(unit, offered, cost_model, known)

    solve_exactly = milp.solve_exactly
    monkeypatch.setattr(solve, "solve_exactly", looked_at)
    for seed in range(12):
        propagate(random_graph(seed, 40, facts=0.15), TARGET)
    assert met["tight"] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_too_large_for_a_program_bounds_the_least_price(monkeypatch, seed):
    exact = propagate(graph_of(seed), TARGET)
    limit_tables(monkeypatch, 200)
    monkeypatch.setattr(solve, "PROGRAM", 4)
    monkeypatch.setattr(solve, "PROGRAM_LABELS", 4)
    plan = propagate(graph_of(seed), TARGET)
    assert plan.bound <= exact.cost
    assert exact.bound <= plan.cost


def test_a_value_may_have_more_readers_than_numpy_has_axes():
    """Of classes with one label none is an axis; a table for 65 of them was a crash."""
    graph = graph_of_genome(read_genome("2 out 65: Softmax/wide hub3, Split back11"), 150)
    plan = propagate(graph, LITERT, model=model_digest(graph))
    check(plan, graph, LITERT)


@pytest.mark.parametrize("seed", SEEDS)
def test_arrays_offer_what_labels_one_by_one_do(monkeypatch, seed):
    plan = propagate(graph_of(seed), TARGET)
    monkeypatch.setattr(candidates, "FEW", 0)
    assert plan_to_json(propagate(graph_of(seed), TARGET)) == plan_to_json(plan)


@pytest.mark.parametrize("room", [0, 1 << 24, 1 << 40])
@pytest.mark.parametrize("seed", SEEDS)
def test_entries_of_any_size_find_the_same_labels(monkeypatch, seed, room):
    """Machine integers with digits for labels, without where nothing ties, and Python's."""
    monkeypatch.setattr(solve, "LARGE", solve.SMALL)  # large tables have a machine's integers or nothing
    plan = propagate(graph_of(seed), TARGET)
    monkeypatch.setattr(elimination, "ROOM", room)
    assert plan_to_json(propagate(graph_of(seed), TARGET)) == plan_to_json(plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbourhoods_make_valid_plans_and_promise_no_more_than_they_know(monkeypatch, seed):
    monkeypatch.setattr(candidates, "SHARED", 4)
    monkeypatch.setattr(candidates, "NEAR", 3)
    monkeypatch.setattr(candidates, "FINEST", 3)
    graph = random_graph(seed, 10 + seed, facts=0.0)
    plan = propagate(graph, TARGET, model=model_digest(graph))
    check(plan, graph, TARGET)
    assert plan.bound <= plan.cost


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("searched")
def test_listing_order_changes_nothing_where_search_decides(seed):
    graph, random = graph_of(seed), seeded(seed)
    kernels = [f"r{random.randrange(1 << 30)}_{i}" for i in range(len(graph.regions))]
    other = renamed(graph, [f"n{i}_{random.random()}" for i in range(len(graph.values))], kernels)
    other = replace(other, regions=tuple(shuffled(other, random)))
    mine, theirs = propagate(graph, TARGET), propagate(other, TARGET)
    back = dict(zip(kernels, (region.name for region in graph.regions), strict=True))
    assert (mine.cost, mine.bound) == (theirs.cost, theirs.bound)
    assert port_types(mine) == {back[name]: types for name, types in port_types(theirs).items()}


def test_hash_seeds_change_nothing_in_large_components():
    """A component of 300 classes, labelled by linear program, search and branch and bound."""
    code = (
        "import hashlib\n"
        "from planner.propagation.propagate import propagate\n"
        "from planner.plans.write_json import plan_to_json\n"
        "from tests.propagation.graphs import TARGET, random_graph\n"
        "text = plan_to_json(propagate(random_graph(0, 400), TARGET))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernels", "facts"), [(400, 0.15), (1500, 0.0), pytest.param(3700, 0.15, marks=pytest.mark.soak)]
)
def test_large_random_components_have_a_proven_gap(kernels, facts):
    """The last has about 10k ports, most of them in one component."""
    plan = propagate(random_graph(1, kernels, facts=facts), TARGET)
    assert plan.cost <= GAP * plan.bound


def test_a_program_that_grows_with_the_square_of_its_classes_is_left(monkeypatch):
    """Each class may take the label of any other: 104,000 rows for 500 regions, and HiGHS takes 12 s."""
    graph = graph_of_genome(
        read_genome("0 sum 4: conv half2, conv half2, Concat back1 back7, MaxPool back4"), 400
    )
    asked = []

    def counted(cost, at_least, *rest, **limits):
        asked.append(len(at_least.right))
        return least(cost, at_least, *rest, **limits)

    least = milp.least
    monkeypatch.setattr(milp, "least", counted)
    check(propagate(graph, LITERT, model=model_digest(graph)), graph, LITERT)
    assert all(rows <= milp.RELAXED_ROWS for rows in asked)


@pytest.mark.parametrize(("shape", "most"), [("skips-over-views", 2), ("hub", 6), ("ladder", 4)])
def test_neighbourhoods_agree_on_a_label(shape, most):
    """Where each was offered the candidates around it alone, 10 to 200 times as much was paid."""
    plan = propagate(SHAPES[shape](1000), LITERT)
    assert plan.cost <= most * plan.bound
