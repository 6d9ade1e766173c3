"""The door of conditioning: order, what each method needs, statistics that follow, models left alone."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.calibration.run import calibrate
from planner.calibration.statistics import Mean, Statistics, ValueStats, calibration_digest
from planner.errors import InputError, ModelError, SampleError, UnknownName
from planner.fusion.fuse import fuse
from planner.ir.types.qtypes import Calibrated
from planner.weight_conditioning.condition import condition
from tests.weight_conditioning.nets import depthwise, images, normed, rows

CPU = "onnxruntime-cpu"
GRIDS = (
    "accepted is round:BITS or round:BITSxBLOCK, bits 2 to 8 "
    "(round alone takes the grids that the target's plan gives to weights)"
)
TYPES = "it works on the types that a plan for the target gives to weights"
CHANNELS = "it works on the channels of activations, and statistics have tensors"


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ("", "no method to condition with (there are equalize, absorb, migrate, clip, round, correct)"),
        ((), "no method to condition with (there are equalize, absorb, migrate, clip, round, correct)"),
        (
            "smooth",
            (
                "unknown method of conditioning 'smooth' "
                "(there are equalize, absorb, migrate, clip, round, correct)"
            ),
        ),
        ("equalize,equalize", "method 'equalize' is given twice (once is accepted)"),
        ("migrate:1.5", "method 'migrate:1.5': accepted is migrate:ALPHA, a number of 0 to 1"),
        ("migrate:nan", "method 'migrate:nan': accepted is migrate:ALPHA, a number of 0 to 1"),
        ("migrate:x", "method 'migrate:x': accepted is migrate:ALPHA, a number of 0 to 1"),
        ("equalize:1", "method 'equalize:1': 'equalize' takes no parameter"),
        *(
            (
                f"round:{bad}",
                f"method 'round:{bad}': {GRIDS}",
            )
            for bad in ("", "1", "9", "4x", "4x0", "x32", "-4", "4.5")
        ),
        ("clip", f"method 'clip' needs a target ({TYPES})"),
        ("clip:9", f"method 'clip:9': {GRIDS.replace('round', 'clip')}"),
        (
            "clip:4,round:4",
            (
                "methods 'clip' and 'round' are both given: each chooses the scales of weights "
                "(round tries narrower ranges by itself)"
            ),
        ),
        (
            "round",
            f"method 'round' needs a target ({TYPES})",
        ),
        ("round:4", f"method 'round' needs samples ({CHANNELS})"),
        (3, "methods are texts such as 'equalize,migrate:0.8', not a int"),
        ([3], "a method is a text such as 'migrate:0.8', not a int"),
        (
            "migrate",
            f"method 'migrate' needs samples ({CHANNELS})",
        ),
        (
            "absorb",
            f"method 'absorb' needs samples ({CHANNELS})",
        ),
        (
            "correct",
            (f"method 'correct' needs a target ({TYPES})"),
        ),
    ],
)
def test_bad_input(methods, told):
    with pytest.raises((InputError, UnknownName)) as caught:
        condition(depthwise(), methods)
    assert str(caught.value) == told


def test_correct_needs_means():
    with pytest.raises(InputError, match="needs samples or stats"):
        condition(depthwise(), "correct", target=CPU)


def test_no_samples_and_a_model_of_kernels_are_refused():
    with pytest.raises(SampleError, match="no samples to condition with"):
        condition(normed(), "migrate", samples=[])
    with pytest.raises(ModelError, match="is made of kernels"):
        condition(fuse(depthwise(), planner.load_target(CPU)), "equalize")


def test_methods_run_in_their_order():
    graph, samples = depthwise(), images()
    one = condition(graph, "correct,migrate:0.8,absorb, equalize", target=CPU, samples=samples)
    two = condition(
        graph, ["equalize", "absorb", "migrate:0.8", "correct"], target=CPU, samples=iter(samples)
    )
    assert [change.method for change in one.changes] == ["equalize", "absorb", "migrate:0.8", "correct"]
    for name, constant in one.model.constants.items():
        assert np.array_equal(constant.array, two.model.constants[name].array)


def test_statistics_are_those_of_the_new_model():
    graph, samples = depthwise(), images()
    stats = calibrate(graph, samples, method="percentile:99")
    done = condition(graph, "equalize,migrate:0.8", stats=stats, samples=samples)
    assert done.unobserved == ()
    again = calibrate(done.model, samples, method="percentile:99")
    assert (done.stats.model, done.stats.samples) == (again.model, again.samples)
    assert list(done.stats.values) == list(stats.values)
    for name in ("x", *done.changes[0].rescaled):
        assert done.stats.values[name] == again.values[name]
    assert done.stats.values["y"] == stats.values["y"]


def test_values_to_observe_again_are_named():
    graph = depthwise()
    done = condition(graph, "equalize", stats=calibrate(graph, images()))
    assert done.unobserved == ("a", "ar", "d", "dr")
    assert set(done.stats.values) == {"x", "y"}
    assert done.stats.model == calibration_digest(done.model)


def test_ranges_of_channels_are_rescaled_exactly():
    graph = depthwise()
    los, his = tuple(range(-6, 0)), tuple(range(1, 7))
    seen = ValueStats(los, his, axis=1, mean=Mean(1, his))
    stats = Statistics(calibration_digest(graph), "minmax", 1, {"ar": seen})
    done = condition(graph, "equalize", stats=stats)
    factors = graph.constants["b1"].array / done.model.constants["b1"].array
    new = done.stats.values["ar"]
    assert done.unobserved == ()
    assert (np.array(new.los) * factors).tolist() == pytest.approx(los)
    assert (np.array(new.his) * factors).tolist() == pytest.approx(his)
    assert (np.array(new.mean.values) * factors).tolist() == pytest.approx(his)


@pytest.mark.parametrize("gives_samples", [True, False])
def test_calibrated_ranges_follow_or_go(gives_samples):
    graph, samples = depthwise(), images()
    ready = planner.annotate(graph, stats=calibrate(graph, samples))
    done = condition(ready, "equalize", samples=samples if gives_samples else None)
    kept = {name for name, v in done.model.values.items() if any(isinstance(f, Calibrated) for f in v.facts)}
    assert kept == {"x", "y", *(("a", "ar", "d", "dr") if gives_samples else ())}
    assert done.unobserved == (() if gives_samples else ("a", "ar", "d", "dr"))
    if gives_samples:
        (fact,) = done.model.values["dr"].facts
        assert (fact.lo, fact.hi) == (0, calibrate(done.model, samples).values["dr"].hi)


def test_absorbing_moves_what_channels_always_have():
    """Channels of about 100 behind the depthwise layer: most of that goes into the last bias."""
    graph, samples = depthwise(), images(8)
    graph.constants["b2"].array[:] = 100
    graph.constants["w2"].array[:] /= 100 * np.abs(graph.constants["w2"].array).max()
    done = condition(graph, "absorb", samples=samples)
    (change,) = done.changes
    assert set(change.values) == {"b2", "b3"}
    assert change.factors[0] > 50
    assert change.outputs < 1e-2
    assert "'ar': Conv 'deep' pads it with zeros" in change.left
    assert np.all(done.model.constants["b2"].array < 50)


def test_biases_are_corrected_through_the_same_door():
    graph, samples = depthwise(), images()
    stats = calibrate(graph, samples)
    direct = planner.correct_biases(planner.annotate(graph, stats=stats), CPU, stats)
    done = condition(graph, "correct", target=CPU, stats=stats)
    assert set(done.changes[0].values) == set(direct.constants) - set(graph.constants)
    for name in done.changes[0].values:
        assert np.array_equal(done.model.constants[name].array, direct.constants[name].array)
    assert not any(value.facts for value in done.model.values.values())


def test_a_norm_that_is_read_elsewhere_stays():
    graph = normed()
    both = replace(graph, outputs=("y", "n"))
    done = condition(both, "migrate", samples=rows())
    assert "'n': 'n' is an output of the model" in done.changes[0].left


def test_the_model_given_is_not_changed():
    graph = depthwise()
    before = {name: constant.array.copy() for name, constant in graph.constants.items()}
    condition(graph, "equalize,absorb,migrate", samples=images())
    assert all(np.array_equal(graph.constants[name].array, array) for name, array in before.items())


FOLDER = Path(os.environ.get("QPLAN_MODELS", "../shared/models"))
needs_models = pytest.mark.skipif(not FOLDER.exists(), reason="no model folder; set QPLAN_MODELS")


@needs_models
@pytest.mark.parametrize("name", ["kwsmlp_w3a3", "unsw_nb15-mlp-w2a2"])
def test_a_model_with_quantizers_of_its_own_stays(name):
    """What training put on a grid is pinned there."""
    model = planner.load_model(FOLDER / "qonnx" / f"{name}.onnx")
    done = condition(model, "equalize,round:4", samples=_noise(model))
    assert done.changes[0].values == done.changes[1].values == ()
    assert done.changes[0].left
    assert done.model.constants == model.constants


@needs_models
@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("vision/mnist.onnx", "equalize,absorb,migrate:0.7,round:4"),
        ("mlperf-tiny/ad01_fp32.onnx", "equalize,absorb,migrate:0.7"),
        ("sequence/silero_vad_16k_op15.onnx", "equalize,migrate:0.7"),
        ("sequence/bilstm_ctc.onnx", "equalize,migrate,round:8"),
    ],
)
def test_trained_models_keep_their_function(path, methods):
    model = planner.load_model(FOLDER / path)
    done = condition(model, methods, samples=_noise(model))
    assert len(done.changes) == methods.count(",") + 1
    for change in done.changes:
        bound = {"equalize": 1e-4, "migrate": 1e-4, "absorb": 0.3, "round": 0.3}[change.method.split(":")[0]]
        assert change.outputs < bound


def _noise(model):
    """Three samples of noise; dimensions left open are 1, the last one 576."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(3):
        sample = {}
        for name in model.inputs:
            value = model.values[name]
            *front, last = value.shape or (1,)
            shape = [d if isinstance(d, int) else 1 for d in front]
            shape += [last if isinstance(last, int) else 576][: len(value.shape)]
            noise = rng.normal(size=shape).astype(np.float32)
            sample[name] = noise if value.is_float else np.full(shape, 16000, np.int64)
        found.append(sample)
    return found
