"""No graph is a cliff: where a region takes more than its budget, it takes no more in a larger graph."""

import gc
from random import Random

import pytest

import planner
from benchmarks.cliff_search import search, timed
from benchmarks.genomes import graph_of, mutated, random_genome, read_genome, text_of
from benchmarks.topologies import SHAPES
from planner.ir.graph import model_digest
from planner.ir.validity import validate
from planner.propagation.propagate import propagate

CLIMBS, TRIES = 6, 60
MOVES = "moves data between float ops"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_no_graph_that_is_searched_for_is_a_cliff(seed, record_property):
    found = sorted((timed(one.genome) for one in search(seed, CLIMBS, TRIES)), key=lambda one: -one.small)
    record_property("count", CLIMBS * TRIES)
    record_property("worst", str(found[0]))
    assert not [str(one) for one in found if one.is_cliff]


def test_a_search_repeats_itself():
    """Calls are counted, and Hypothesis has the collector call it back whenever it runs."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        _warm, first, second = (list(search(1, climbs=2, tries=2, regions=10)) for _ in range(3))
    finally:
        gc.callbacks.extend(kept)
    assert first == second


def test_genomes_make_graphs_and_are_read_from_their_lines():
    chance = Random(3)  # noqa: S311
    genome = random_genome(chance)
    for _ in range(100):
        genome = mutated(genome, chance)
        assert read_genome(text_of(genome)) == genome
        validate(graph_of(genome, 20))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_planned_as_integers(shape):
    """A generator whose kernels have no rows would measure nothing."""
    graph = SHAPES[shape](60)
    plan = propagate(graph, planner.load_target("litert-int8"), model=model_digest(graph))
    planner.check(plan, graph)
    without = [kernel for kernel in plan.kernels_in_order if kernel.row is None]
    assert 45 <= len(graph.regions) <= 110
    assert {kernel.kernel for kernel in without if kernel.reason != MOVES} <= {"LayerNormalization"}
