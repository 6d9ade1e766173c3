"""Whole models in both forms: jaxlib verifies them, and its interpreter computes every value of the plan."""

import os
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.formats.mlir.passes.tool import transform
from tests.formats.stablehlo.writer.running import job, steps_off, with_all_results
from tests.formats.test_every_model import planned, sized
from tests.oracles import hlo

ROOT = Path(__file__).resolve().parents[4]
MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
DIGITS = ROOT / "examples" / "digits"
INPUTS = 16


def _digits(count):
    images = np.load(DIGITS / "test.npz")
    array = images[images.files[0]]
    return [{"image": image.reshape(1, 1, 8, 8)} for image in array[:count]]


def _photos(side, scale, count):
    photos = np.load(MODELS / "vision" / "photos_224_u8_nhwc.npz")
    array = photos[photos.files[0]][:count]
    step = 224 // side
    rows = array[:, : side * step : step, : side * step : step].transpose(0, 3, 1, 2)
    return [{"input_1": row[None].astype(np.float32) / np.float32(scale)} for row in rows]


def _windows(count):
    return [
        {"input_1": row[None].astype(np.float32)}
        for row in np.load(MODELS / "mlperf-tiny" / "ad_windows.npy")[::12][:count]
    ]


# File, its real inputs, and how many of them are enough for `make check`.
REAL = {
    "digits": (DIGITS / "digits.onnx", _digits, 2),
    "ad01": (MODELS / "mlperf-tiny" / "ad01_fp32.onnx", _windows, 2),
    "resnet": (MODELS / "mlperf-tiny" / "pretrainedResnet.onnx", lambda n: _photos(32, 1, n), 0),
    "wake-words": (MODELS / "mlperf-tiny" / "vww_96_float.onnx", lambda n: _photos(96, 255, n), 0),
}
SHORT = [pytest.param(name, REAL[name][2], id=name) for name in REAL if REAL[name][2]]
LONG = [pytest.param(name, INPUTS, marks=pytest.mark.soak, id=f"{name}-{INPUTS}") for name in REAL]


def _planned(name, count):
    path, inputs, _ = REAL[name]
    if not path.is_file():
        pytest.skip(f"no {path.name}: set QPLAN_MODELS")
    samples = inputs(count)
    model = planner.load_model(path)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    return *with_all_results(ready, planner.plan(ready, "stablehlo")), samples


def _off(form, arithmetic, name, count, *, lowered=False):
    """Elements that differ from the interpreter's, elements in all, the largest difference, float errors."""
    graph, plan, samples = _planned(name, count)
    jobs = [job(graph, plan, form, sample) for sample in samples]
    if lowered:
        text, _ = transform(jobs[0][0], ["stablehlo-legalize-quant-to-math"])
        jobs = [(text, arrays) for _, arrays, *_ in jobs]
    differing = total = largest = 0
    error = 0.0
    for sample, results in zip(samples, hlo.evaluated(jobs), strict=True):
        stored, floats = steps_off(graph, plan, arithmetic, sample, results)
        for off in stored.values():
            differing, total = differing + np.count_nonzero(off), total + off.size
            largest = max(largest, int(off.max(initial=0)))
        error = max([error, *(float(np.abs(got - wanted).max()) for got, wanted in floats.values())])
    assert total > 0
    return differing, total, largest, error


@pytest.mark.parametrize(("name", "count"), [*SHORT, *LONG])
def test_integers_compute_every_value(name, count):
    """No stored integer of any kernel differs from `exact_even`; what the plan leaves float is close."""
    differing, _, _, error = _off("stablehlo-int", "exact_even", name, count)
    assert differing == 0
    assert error < 1e-5


@pytest.mark.parametrize(("name", "count"), [*SHORT, *LONG])
def test_quantized_types_compute_every_value(name, count):
    """No stored integer of any kernel differs from `float32_spec`, behind our quant-to-math pass."""
    differing, _, _, error = _off("stablehlo", "float32_spec", name, count, lowered=True)
    assert differing == 0
    assert error < 1e-5


@pytest.mark.parametrize(("name", "count"), [*SHORT, *LONG])
def test_reals_in_place_of_integers_come_close(name, count):
    """Behind QDQ legalization sums of products are float32: a rounding in thousands falls the other way."""
    differing, total, largest, _ = _off("stablehlo", "float32_spec", name, count)
    assert differing * 1000 <= total
    assert largest <= 3


@pytest.mark.parametrize("name", ["stories260k", "stories260k_decode"])
def test_a_decoder_computes_every_value(name):
    """Its GatherND picks by constants, and moves data by the definition of the operator."""
    path = MODELS / "language" / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"no {path.name}: set QPLAN_MODELS")
    model, samples = sized(path)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    graph, plan = with_all_results(ready, planner.plan(ready, "stablehlo"))
    results = hlo.evaluated([job(graph, plan, "stablehlo-int", samples[0])])
    stored, floats = steps_off(graph, plan, "exact_even", samples[0], results[0])
    assert sum(off.size for off in stored.values()) > 10_000
    assert not any(off.any() for off in stored.values())
    assert all(np.array_equal(got, wanted) for got, wanted in floats.values())


@pytest.mark.soak
@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_the_verifier_takes_every_model(form):
    """Planned on one random sample; the one with branches has a test of its own, `test_voice_programs`."""
    paths = [path for path in sorted(MODELS.glob("*/*.onnx")) if "silero" not in path.name]
    if not paths:
        pytest.skip(f"no test models at {MODELS}: set QPLAN_MODELS")
    for path in paths:
        ready, plan = planned(path, "stablehlo")
        text = planner.export(ready, plan, form).decode()
        assert not hlo.printed([text])[0].startswith("ERROR"), path.name
