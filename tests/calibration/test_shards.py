"""Shards: cutting covers every sample once, and joining forgets nothing."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from planner import pipeline
from planner.calibration.run import calibrate
from planner.calibration.shards import cut, merge_shards
from planner.errors import SampleError, StatsError
from planner.pipeline import load_model
from tests.api.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
SAMPLES = 128


@pytest.mark.parametrize(
    ("samples", "parts", "shards"),
    [
        (1, 4, ((0, 1),)),
        (8, 1, ((0, 8),)),
        (8, 2, ((0, 4), (4, 8))),
        (8, 3, ((0, 2), (2, 4), (4, 6), (6, 8))),
        (11, 2, ((0, 4), (4, 8), (8, 10), (10, 11))),
        (5, 9, ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))),
    ],
)
def test_shards_are_powers_of_two_and_cover_every_sample_once(samples, parts, shards):
    assert cut(samples, parts) == shards


@pytest.mark.parametrize(("samples", "parts"), [(0, 1), (1, 0)])
def test_nothing_cannot_be_cut(samples, parts):
    with pytest.raises(StatsError, match="cannot be cut"):
        cut(samples, parts)


@pytest.mark.parametrize("method", ["minmax", "percentile"])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_shards_joined_are_the_whole_to_the_last_bit(method, parts):
    graph = load_model(DIGITS / "digits.onnx")

    def run(first, end):
        return calibrate(graph, images[first:end], method=method, threads=1)

    images = feeds()
    whole = run(0, SAMPLES)
    joined = merge_shards([run(*shard) for shard in cut(SAMPLES, parts)])
    assert joined.to_json() == whole.to_json()


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_calibrates_to_the_same_bits(kind):
    graph, told = load_model(DIGITS / "digits.onnx"), []
    samples = DIGITS / "calibration.npz"
    with kind(2) as executor:
        here = pipeline.calibrate(
            graph, samples, executor=executor, parts=3, progress=lambda *done: told.append(done)
        )
    assert here.to_json() == calibrate(graph, samples, threads=1).to_json()
    assert told == [(32, 128), (64, 128), (96, 128), (128, 128)]


def test_samples_that_come_one_by_one_cannot_be_cut():
    with ThreadPoolExecutor(1) as executor, pytest.raises(SampleError, match="cannot be cut"):
        pipeline.calibrate(load_model(DIGITS / "digits.onnx"), iter(feeds()), executor=executor)


def feeds() -> list[dict]:
    with np.load(DIGITS / "calibration.npz") as archive:
        images = archive["image"]
    return [{"image": images[k : k + 1]} for k in range(SAMPLES)]


def test_no_shards_cannot_be_joined():
    with pytest.raises(StatsError, match="no statistics"):
        merge_shards([])
