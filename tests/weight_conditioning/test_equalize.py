"""Equalization: ranges on both sides become alike, outputs stay; what passes no factor stays as it is."""

from dataclasses import replace

import numpy as np
import pytest

from planner.calibration.run import calibrate
from planner.ir.graph import Constant, Op
from planner.ir.types.typetext import parse_type
from planner.weight_conditioning.condition import condition
from planner.weight_conditioning.seams import find_seams
from tests.calibration.graphs import graph_of
from tests.weight_conditioning.nets import depthwise, images, normal, outputs


def array(graph, name):
    return graph.constants[name].array


def row_ranges(graph, name):
    return np.abs(array(graph, name)).reshape(array(graph, name).shape[0], -1).max(axis=1)


def same(old, new, sample):
    for was, now in zip(outputs(old, sample), outputs(new, sample), strict=True):
        np.testing.assert_allclose(now, was, rtol=2e-5, atol=2e-5 * np.abs(was).max())


@pytest.mark.parametrize(
    ("between", "extra"),
    [
        ("Relu", ()),
        ("LeakyRelu", ()),
        ("PRelu", ("slope",)),
        ("Identity", ()),
        ("Clip", ("zero",)),
        ("Clip", ("", "zero")),
        ("Clip", ()),
    ],
)
def test_ranges_meet_and_outputs_stay(between, extra):
    graph = depthwise(between, extra=extra)
    done = condition(graph, "equalize")
    same(graph, done.model, images(1)[0])
    first = np.maximum(row_ranges(done.model, "w1"), np.abs(array(done.model, "b1")))
    deep = np.maximum(row_ranges(done.model, "w2"), np.abs(array(done.model, "b2")))
    last = np.abs(array(done.model, "w3"))[:, :, 0, 0].max(axis=0)
    np.testing.assert_allclose(first, row_ranges(done.model, "w2"), rtol=1e-2)
    np.testing.assert_allclose(deep, last, rtol=1e-2)
    (change,) = done.changes
    assert change.method == "equalize"
    assert set(change.values) == {"w1", "b1", "w2", "b2", "w3"}
    assert change.rescaled == ("a", "ar", "d", "dr")
    assert change.factors[0] < 1 < change.factors[1]
    assert change.outputs is None


def test_the_change_of_the_outputs_is_measured():
    graph = depthwise()
    (change,) = condition(graph, ["equalize"], samples=images()).changes
    assert 0 < change.outputs < 1e-5


@pytest.mark.parametrize(
    ("between", "extra", "why"),
    [
        ("Sigmoid", (), "Sigmoid 'act1' does not hand factors on"),
        ("Clip", ("zero", "six"), "Clip 'act1' cuts at another number than 0"),
    ],
)
def test_what_passes_no_factor_stays_and_says_why(between, extra, why):
    graph = depthwise(between, extra=extra)
    done = condition(graph, "equalize")
    assert done.model.constants == graph.constants
    assert f"'ar': {why}" in done.changes[0].left
    assert done.changes[0].values == ()


@pytest.mark.parametrize(("scale", "op"), [(0.01, "Relu"), (1.0, "Clip")])
def test_a_clip_that_never_cuts_is_a_relu(scale, op):
    graph = depthwise("Clip", extra=("zero", "six"))
    samples = [{"x": sample["x"] * np.float32(scale)} for sample in images()]
    small = {
        name: Constant(c.array * np.float32(scale) if name[0] == "b" else c.array)
        for name, c in graph.constants.items()
    }
    graph = replace(graph, constants=small)
    done = condition(graph, "equalize", stats=calibrate(graph, samples), samples=samples)
    assert done.model.ops[1].type == op
    assert bool(done.changes[0].values) is (op == "Relu")
    same(graph, done.model, samples[0])


def test_an_output_of_the_model_in_between_stays():
    graph = depthwise(outputs_too=("ar",))
    done = condition(graph, "equalize")
    assert "'ar': 'ar' is an output of the model" in done.changes[0].left
    assert done.changes[0].rescaled == ("d", "dr")
    same(graph, done.model, images(1)[0])


def test_another_reader_in_between_keeps_it():
    graph = depthwise()
    twice = replace(graph, ops=(*graph.ops, Op("other", "Sigmoid", ("a",), ("z",))), outputs=("y", "z"))
    twice = replace(twice, values={**graph.values, "z": replace(graph.values["a"], name="z")})
    assert "'ar': Sigmoid 'other' reads 'a' too" in condition(twice, "equalize").changes[0].left


@pytest.mark.parametrize("name", ["w1", "b1", "ar", "w2"])
@pytest.mark.parametrize("fact", ["!quant.uniform<i8:f32, 0.5>", "!quant.any<i8>"])
def test_what_has_a_type_of_its_own_stays(name, fact):
    graph = depthwise()
    pinned = replace(graph.values[name], facts=(parse_type(fact),))
    done = condition(replace(graph, values={**graph.values, name: pinned}), "equalize")
    held = {"w1", "b1"} if name != "w2" else set(graph.constants)
    assert held.isdisjoint(done.changes[0].values)
    assert any(name in why or "first" in why or "deep" in why for why in done.changes[0].left)


def test_shared_weights_become_two():
    """One constant, the weight of both layers: each gets its own, and no other reader sees another number."""
    ops = (
        Op("one", "MatMul", ("x", "w"), ("a",)),
        Op("act", "Relu", ("a",), ("r",)),
        Op("two", "MatMul", ("r", "w"), ("y",)),
        Op("other", "Mul", ("x", "w"), ("z",)),
    )
    square = normal(4, 4, spread=5)
    shapes = dict.fromkeys(("a", "r", "y", "z"), (4, 4))
    graph = graph_of(ops, {"x": (4, 4)}, constants={"w": square}, shapes=shapes, outputs=("y", "z"))
    done = condition(graph, "equalize")
    assert done.changes[0].values == ("w@one", "w@two")
    assert np.array_equal(array(done.model, "w"), square)
    same(graph, done.model, {"x": normal(4, 4)})


def test_a_channel_without_weights_keeps_its_numbers():
    graph = depthwise()
    w1, w3 = array(graph, "w1").copy(), array(graph, "w3").copy()
    b1 = array(graph, "b1").copy()
    w1[2] = b1[2] = 0
    w3[:, 4] = 0
    numbers = {**graph.constants, "w1": Constant(w1), "w3": Constant(w3), "b1": Constant(b1)}
    graph = replace(graph, constants=numbers)
    done = condition(graph, "equalize")
    assert not array(done.model, "w1")[2].any()
    assert all(np.isfinite(constant.array).all() for constant in done.model.constants.values())
    same(graph, done.model, images(1)[0])


def test_a_silent_channel_does_not_get_a_huge_bias():
    """Batch normalization leaves weights near 0 and a bias: the bias counts as a weight of a constant 1."""
    graph = depthwise()
    w1 = array(graph, "w1").copy()
    w1[3] = 1e-12
    graph = replace(graph, constants={**graph.constants, "w1": Constant(w1)})
    done = condition(graph, "equalize")
    assert np.abs(array(done.model, "b1")).max() < 100


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_stay(bad):
    graph = depthwise()
    w1 = array(graph, "w1").copy()
    w1[0, 0] = bad
    graph = replace(graph, constants={**graph.constants, "w1": Constant(w1)})
    done = condition(graph, "equalize")
    assert np.array_equal(array(done.model, "w1"), w1, equal_nan=True)
    assert any("'first' is no constant of finite numbers" in why for why in done.changes[0].left)


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_read_their_own_channels(kind, groups):
    n_in, n_mid, n_out = 4, 6, 8
    first = (n_mid, n_in // groups, 3) if kind == "Conv" else (n_in, n_mid // groups, 3)
    second = (n_out, n_mid // groups, 3) if kind == "Conv" else (n_mid, n_out // groups, 3)
    ops = (
        Op("one", kind, ("x", "w1", "b1"), ("a",), {"group": groups}),
        Op("act", "Relu", ("a",), ("r",)),
        Op("two", kind, ("r", "w2"), ("y",), {"group": groups}),
    )
    constants = {"w1": normal(*first, spread=3), "b1": normal(n_mid), "w2": normal(*second, spread=4)}
    shapes = {"a": (1, n_mid, None), "r": (1, n_mid, None), "y": (1, n_out, None)}
    graph = graph_of(ops, {"x": (1, n_in, 9)}, constants=constants, shapes=shapes)
    done = condition(graph, "equalize")
    assert set(done.changes[0].values) == {"w1", "b1", "w2"}
    same(graph, done.model, {"x": normal(1, n_in, 9)})


def test_a_concat_has_two_sources_and_a_view_spreads_channels():
    ops = (
        Op("left", "Conv", ("x", "wl", "bl"), ("l",)),
        Op("right", "Conv", ("x", "wr"), ("r",)),
        Op("cat", "Concat", ("l", "r"), ("c",), {"axis": -3}),
        Op("act", "Relu", ("c",), ("k",)),
        Op("pool", "MaxPool", ("k",), ("p",), {"kernel_shape": (2, 2), "strides": (2, 2)}),
        Op("flat", "Flatten", ("p",), ("f",)),
        Op("dense", "Gemm", ("f", "wd", "bd"), ("y",), {"transB": 1}),
    )
    constants = {
        "wl": normal(2, 4, 1, 1, spread=3),
        "bl": normal(2),
        "wr": normal(3, 4, 1, 1, spread=3),
        "wd": normal(7, 20),
        "bd": normal(7),
    }
    shapes = {"l": (1, 2, 4, 4), "r": (1, 3, 4, 4), "p": (1, 5, 2, 2), "f": (1, 20), "y": (1, 7)}
    shapes |= dict.fromkeys(("c", "k"), (1, 5, 4, 4))
    graph = graph_of(ops, {"x": (1, 4, 4, 4)}, constants=constants, shapes=shapes)
    (seam,) = find_seams(graph).seams
    assert seam.owner.tolist() == [4 * (k // 4) for k in range(20)]
    done = condition(graph, "equalize")
    assert set(done.changes[0].values) == {"wl", "bl", "wr", "wd"}
    same(graph, done.model, {"x": normal(1, 4, 4, 4)})


def test_a_sum_of_two_branches_has_one_factor():
    ops = (
        Op("left", "MatMul", ("x", "wl"), ("l",)),
        Op("right", "MatMul", ("x", "wr"), ("r",)),
        Op("shift", "Sub", ("r", "b"), ("s",)),
        Op("sum", "Add", ("l", "s"), ("a",)),
        Op("last", "MatMul", ("a", "w"), ("y",)),
    )
    constants = {name: normal(4, 4, spread=3) for name in ("wl", "wr", "w")} | {"b": normal(1)}
    shapes = dict.fromkeys(("l", "r", "s", "a", "y"), (3, 4))
    graph = graph_of(ops, {"x": (3, 4)}, constants=constants, shapes=shapes)
    done = condition(graph, "equalize")
    assert array(done.model, "b").shape == (4,)
    assert done.model.values["b"].shape == (4,)
    same(graph, done.model, {"x": normal(3, 4)})


def test_equalizing_again_changes_little():
    once = condition(depthwise(), "equalize").model
    (change,) = condition(once, "equalize").changes
    assert change.factors == pytest.approx((1, 1), abs=0.05)
