"""Held-out samples beyond what calibration saw are told by value and sample, and only those."""

import math

import numpy as np
import pytest

import planner
from planner.accuracy.unseen_values import Beyond, beyond_calibration, unlike_calibration
from planner.calibration.run import calibrate
from planner.errors import InputError
from planner.ir.graph import Op
from tests.calibration.graphs import graph_of

DOUBLE = np.array(2.0, np.float32)


def net(length: int = 1):
    """`x` doubled, `length` times."""
    names = ["x", *(f"v{k}" for k in range(length))]
    ops = tuple(Op(f"op{k}", "Mul", (names[k], "two"), (names[k + 1],)) for k in range(length))
    return graph_of(ops, {"x": (2,)}, constants={"two": DOUBLE})


def samples(*pairs):
    return [{"x": np.asarray(pair, np.float32)} for pair in pairs]


KNOWN = samples((-1, 2), (0, 1))


def test_the_value_and_the_sample_that_goes_furthest():
    stats = calibrate(net(), KNOWN)
    found = beyond_calibration(net(), stats, samples((0, 1), (-2, 2), (-1.6, 4), (0, 0)))
    assert found == (
        Beyond("x", "sample 2", -1.6000000238418579, 4.0, (-1.0, 2.0), pytest.approx(2 / 3)),
        Beyond("v0", "sample 2", -3.2000000476837158, 8.0, (-2.0, 4.0), pytest.approx(2 / 3)),
    )
    told = unlike_calibration(net(), stats, samples((-1.6, 4)))
    assert told[0] == (
        "held-out data take 'x' beyond what calibration saw by 67 %: -1.6 to 4 in sample 0, not -1 to 2"
    )
    assert told[-1].endswith("; calibrate with samples like these, or give these values ranges of your own")


def test_a_tenth_more_is_not_told():
    stats = calibrate(net(), KNOWN)
    assert unlike_calibration(net(), stats, samples((-1.29, 2.29))) == ()
    assert len(unlike_calibration(net(), stats, samples((-1.31, 2)))) == 2
    stats = calibrate(net(), samples((0, 10)))
    assert beyond_calibration(net(), stats, samples((0, 11))) == ()
    told = beyond_calibration(net(), stats, samples((0, np.nextafter(np.float32(11), 12))))
    assert [one.value for one in told] == ["x", "v0"]


def test_of_two_samples_that_go_as_far_the_first_is_told():
    stats = calibrate(net(), KNOWN)
    found = beyond_calibration(net(), stats, samples((0, 1), (0, 4), (0, 4)))
    assert [one.sample for one in found] == ["sample 1", "sample 1"]


def test_what_calibration_saw_counts_and_not_what_a_percentile_kept():
    stats = calibrate(net(), KNOWN, method="percentile:60")
    assert unlike_calibration(net(), stats, KNOWN) == ()


def test_a_value_that_was_always_zero():
    stats = calibrate(net(), samples((0, 0)))
    assert beyond_calibration(net(), stats, samples((0, 1)))[0].share == math.inf
    assert unlike_calibration(net(), stats, samples((0, 1)))[0] == (
        "held-out data take 'x' beyond what calibration saw: 0 to 1 in sample 0, not 0 to 0"
    )


def test_many_values_are_counted():
    stats = calibrate(net(6), KNOWN)
    told = unlike_calibration(net(6), stats, samples((9, 9)))
    assert len(told) == 4
    assert told[3].startswith("so do 4 more values; ")


def test_what_only_moves_data_is_told_once():
    ops = (Op("turn", "Transpose", ("x",), ("t",)), Op("twice", "Mul", ("t", "two"), ("y",)))
    graph = graph_of(ops, {"x": (2,)}, constants={"two": DOUBLE})
    stats = calibrate(graph, KNOWN)
    assert len(beyond_calibration(graph, stats, samples((9, 9)))) == 3
    told = unlike_calibration(graph, stats, samples((9, 9)))
    assert [text.split("'")[1] for text in told] == ["x", "y"]


def test_the_face_has_it_and_wants_statistics():
    with pytest.raises(InputError):
        planner.unlike_calibration(net(), {}, KNOWN)
