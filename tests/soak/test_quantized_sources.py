"""Quantized sources, drawn at random: no target loses a quantizer without a word; half an hour in soak."""

import time
from itertools import islice

import numpy as np
import pytest

from benchmarks.quantized_sources import campaign, counting, model_of, samples_of, targets_shipped

MINUTES = [pytest.param(0, 2, id="few"), pytest.param(30, None, id="soak", marks=pytest.mark.soak)]


@pytest.mark.parametrize(("minutes", "count"), MINUTES)
def test_no_quantizer_of_a_source_is_lost_without_a_word(minutes, count, record_property):
    targets = targets_shipped() if count is None else ("litert-int8", "onnxruntime-cpu", "tensorrt-int8")
    seeds = counting(0) if count is None else islice(counting(0), count)
    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    counts, found = campaign(seeds, targets, until)
    record_property("count", counts.models)
    record_property("engines", str(dict(counts.runs)))
    assert not [str(one) for one in found]
    assert counts.ends["exact"]


def test_a_seed_makes_one_model():
    assert model_of(3) == model_of(3)
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(samples_of(3), samples_of(3), strict=True))


def test_dead_ops_are_all_that_differs():
    pairs = ((model_of(seed), model_of(seed, dead=False)) for seed in range(20))
    whole, plain = next(pair for pair in pairs if pair[0] != pair[1])
    names = {node.name for node in plain.graph.node}
    assert len(whole.graph.node) > len(plain.graph.node)
    assert [node for node in whole.graph.node if node.name in names] == [*plain.graph.node]
