"""Samples that no device will see are told, each with the input, the sample and what to do."""

from dataclasses import replace

import numpy as np
import pytest

from planner.calibration.means import Probe, Sums
from planner.calibration.odd_samples import odd_samples
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Calibrated, storage, uniform
from tests.calibration.graphs import graph_of, two_inputs

RNG = np.random.default_rng(4)
GOOD = [RNG.random((2, 3)) for _ in range(4)]


def net(*facts) -> Graph:
    graph = graph_of((Op("relu", "Relu", ("x",), ("y",)),), {"x": (2, 3)})
    value = replace(graph.values["x"], facts=facts)
    return replace(graph, values={**graph.values, "x": value})


def told(arrays, *facts) -> list[str]:
    return list(odd_samples(net(*facts), [{"x": array} for array in arrays]))


HOLE = np.where(np.eye(2, 3) > 0, np.nan, 1.0)
CLEAN = "no range counts that; clean them"
SEEN = "give samples like the data of the device"


@pytest.mark.parametrize(
    ("arrays", "warning"),
    [
        ([*GOOD, HOLE], f"input 'x' has NaN or infinity in sample 4: {CLEAN}"),
        ([HOLE, *GOOD, HOLE], f"input 'x' has NaN or infinity in sample 0 and 1 more: {CLEAN}"),
        ([GOOD[0], np.zeros((2, 3)), GOOD[1]], f"input 'x' is all zero in sample 1: {SEEN}"),
        ([np.zeros((2, 3))] * 3, f"input 'x' is all zero in all 3 samples: {SEEN}"),
        ([*GOOD, np.full((2, 3), 0.5)], f"input 'x' is one number throughout sample 4: {SEEN}"),
        ([GOOD[0]] * 3, "input 'x' is the same in all 3 samples: is the loader at fault?"),
    ],
)
def test_odd_data_are_told(arrays, warning):
    assert told(arrays) == [warning]


@pytest.mark.parametrize("arrays", [GOOD, GOOD[:1], [GOOD[0], GOOD[0], GOOD[1]], []])
def test_good_data_are_not(arrays):
    assert told(arrays) == []


PREPARED = "is the preprocessing that of the model (scale, mean, order of channels)?"


@pytest.mark.parametrize(
    ("fact", "factor", "warning"),
    [
        (
            Calibrated((0.0,), (1.0,)),
            255,
            "input 'x' is 0 to {:.4g} in the samples, beyond the model's range for it, 0 to 1",
        ),
        (
            uniform(storage("u8"), 1.0, 0),
            1,
            "input 'x' is 0 to {:.4g} in the samples, {:.1f} % of the model's range for it, 0 to 255",
        ),
        (Calibrated((0.0,), (1.0,)), 1, ""),
        (Calibrated((-1.0,), (1.0,)), 1, ""),
        (uniform(storage("u8"), 1.0, 0), 255, ""),
    ],
)
def test_data_unlike_the_range_at_the_input(fact, factor, warning):
    """Numbers of 0 to 255 for a model of 0 to 1, and the other way round."""
    arrays = [array * factor for array in GOOD]
    top = np.max(arrays)
    expected = [f"{warning.format(top, 100 * top / 255)}: {PREPARED}"] if warning else []
    assert told(arrays, fact) == expected


def test_masks_and_numbers_may_be_constant():
    samples = [{"image": RNG.random((1, 3, 2, 2)), "ids": np.ones((1, 4), np.int64)} for _ in range(2)]
    assert odd_samples(two_inputs(), samples) == ()
    graph = graph_of((Op("add", "Add", ("x", "rate"), ("y",)),), {"x": (2, 3), "rate": ()})
    assert odd_samples(graph, [{"x": array, "rate": np.float32(0)} for array in GOOD]) == ()


def test_infinities_of_both_signs_have_no_mean():
    """Sums of means that overflow one way and then the other are no numbers, and no warning."""
    probe, sums = Probe("v", 1, 2, "v:mean"), Sums()
    sums.add(probe, np.float32([np.inf, 1.0]))
    sums.add(probe, np.float32([-np.inf, 3.0]))
    assert sums.means([probe], 2) == {}
