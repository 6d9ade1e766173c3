"""Migration: s = max|X|^alpha / max|W|^(1 - alpha) by hand, where it comes from, and the same outputs."""

import numpy as np
import pytest

from planner.ir.graph import Op
from planner.weight_conditioning.condition import condition
from tests.calibration.graphs import graph_of
from tests.weight_conditioning.nets import depthwise, images, normal, normed, outputs, rows
from tests.weight_conditioning.test_equalize import same


@pytest.mark.parametrize("kind", ["LayerNormalization", "decomposed", "RMS"])
@pytest.mark.parametrize("alpha", ["", ":0", ":0.8", ":1"])
def test_a_norm_takes_the_factors(kind, alpha):
    graph, samples = normed(kind), rows()
    done = condition(graph, f"migrate{alpha}", samples=samples)
    (change,) = done.changes
    assert change.method == f"migrate{alpha or ':0.5'}"
    own = {"g", "b"} & set(graph.constants)
    assert set(change.values) == own | {"wg", "wu", "wd"}
    assert change.rescaled[-1] == "p"
    assert change.outputs < 1e-5
    for sample in samples:
        same(graph, done.model, sample)


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_factors_are_those_of_the_paper(alpha):
    graph, samples = normed(), rows()
    seen = np.max([np.abs(outputs(graph, sample, "n")[0]).max(axis=(0, 1)) for sample in samples], axis=0)
    weight = np.abs(np.hstack([graph.constants[name].array for name in ("wg", "wu")])).max(axis=1)
    factors = seen**alpha / weight ** (1 - alpha)
    done = condition(graph, f"migrate:{alpha}", samples=samples).model
    np.testing.assert_allclose(done.constants["g"].array, graph.constants["g"].array / factors, rtol=1e-5)
    np.testing.assert_allclose(done.constants["b"].array, graph.constants["b"].array / factors, rtol=1e-5)


def test_a_gate_is_passed_on_the_side_that_can():
    """A sigmoid hands nothing on, so the columns of `up` take the factors of sigmoid(gate) * up."""
    graph = normed()
    done = condition(graph, "migrate:1", samples=rows())
    assert {"p", "ua"} <= set(done.changes[0].rescaled)
    assert not {"ga", "gs"} & set(done.changes[0].rescaled)


def test_a_channel_that_is_always_0_keeps_its_numbers():
    graph = normed()
    graph.constants["g"].array[2] = graph.constants["b"].array[2] = 0
    row = graph.constants["wg"].array[2].copy()
    done = condition(graph, "migrate", samples=rows())
    assert np.array_equal(done.model.constants["wg"].array[2], row)
    assert np.isfinite(done.model.constants["g"].array).all()


def test_one_number_for_all_channels_becomes_one_each():
    ops = (Op("scale", "Mul", ("x", "half"), ("h",)), Op("layer", "MatMul", ("h", "w"), ("y",)))
    constants = {"half": np.asarray(np.float32(0.5)), "w": normal(4, 3)}
    graph = graph_of(ops, {"x": (2, 4)}, constants=constants, shapes={"h": (2, 4), "y": (2, 3)})
    sample = {"x": normal(2, 4)}
    done = condition(graph, "migrate", samples=[sample]).model
    assert done.values["half"].shape == done.constants["half"].array.shape == (4,)
    same(graph, done, sample)


def test_values_that_were_nan_stay():
    graph = normed()
    sample = rows(1)[0]
    sample["x"][0, 0, 0] = np.nan
    done = condition(graph, "migrate", samples=[sample])
    assert done.changes[0].values == ()


def test_convolutions_take_it_too():
    graph, samples = depthwise(), images()
    done = condition(graph, "migrate:0.7", samples=samples)
    assert done.changes[0].rescaled == ("a", "ar", "d", "dr")
    same(graph, done.model, samples[0])
