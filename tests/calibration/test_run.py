"""Calibrating: every float activation, derived or observed, and equal to onnxruntime's own calibrator."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator

import planner
from planner.calibration.run import calibrate, threads_for
from planner.calibration.statistics import merge
from planner.errors import ModelError, SampleError, StatsError, UnknownName
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Op
from tests.calibration.graphs import branchy, fused, graph_of

MODELS = Path(os.environ.get("QPLAN_MODELS", Path(__file__).resolve().parents[3] / "shared" / "models"))
FLOATS = ("x", "m", "r", "c", "o", "f", "t", "b", "k", "y")


def draw(count, seed=0):
    rng = np.random.default_rng(seed)
    return [{"x": (rng.standard_normal((3, 4)) * 4).astype(np.float32)} for _ in range(count)]


def expected(samples):
    """The values of `branchy`, by numpy."""
    found = {name: [] for name in FLOATS}
    for sample in samples:
        m = sample["x"] * np.float32(2)
        r, c = np.maximum(m, 0), np.clip(m, 0, 6)
        k = np.concatenate([r.reshape(-1), c.T.reshape(-1)])
        every = {
            "x": sample["x"],
            "m": m,
            "r": r,
            "c": c,
            "o": np.minimum(m, 6),
            "f": r,
            "t": c,
            "b": c,
            "k": k,
        }
        for name, array in every.items():
            found[name].append(array.reshape(-1))
    return {name: np.concatenate(arrays) for name, arrays in found.items() if arrays}


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_every_float_value_is_seen(method):
    samples = draw(5)
    stats = calibrate(branchy(), samples, method=method)
    assert tuple(stats.values) == FLOATS
    assert (stats.samples, stats.method) == (5, method)
    for name, numbers in expected(samples).items():
        seen = stats.values[name]
        assert (seen.lo, seen.hi) == (float(numbers.min()), float(numbers.max())), name
        if method == "percentile":
            assert sum(seen.bins.counts) == len(numbers), name


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_deriving_changes_nothing(method):
    """Asked for alone, a value has no source to follow from and is observed."""
    every = calibrate(branchy(), draw(4), method=method)
    alone = {name: calibrate(branchy(), draw(4), method=method, values=[name]).values for name in FLOATS}
    assert {name: found[name] for name, found in alone.items()} == every.values
    assert all(tuple(found) == (name,) for name, found in alone.items())


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_statistics_merge_to_those_of_all_samples(method):
    a, b = (calibrate(branchy(), part, method=method) for part in (draw(3, 1), draw(4, 2)))
    assert merge(a, b) == merge(b, a) == calibrate(branchy(), draw(3, 1) + draw(4, 2), method=method)


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_nan_and_infinity_are_counted_where_they_are(method):
    """An infinity that relu or clip swallows is none behind it, whichever sample brings it."""
    bad = np.array([[np.nan, np.inf, -np.inf, 1.0], [2, 3, 4, 5], [-1, -2, -3, -4]], np.float32)
    good = draw(2)
    for samples in ([{"x": bad}, *good], [*good, {"x": bad}]):
        stats = calibrate(branchy(), samples, method=method)
        assert (stats.values["m"].nan, stats.values["m"].inf) == (1, 2)
        assert stats.values["r"].inf == 1
        assert stats.values["c"].inf == 0
        assert stats.values["c"].hi == 6.0
        assert stats.values["m"].hi == max(10.0, *(float(s["x"].max()) * 2 for s in good))


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_a_model_too_big_to_fetch_at_once_is_run_in_groups(method):
    """Claims of gigabytes: each value is fetched by a session of its own."""
    graph = branchy()
    big = {name: replace(graph.values[name], shape=(1 << 28,)) for name in ("m", "k", "y")}
    claimed = replace(graph, values={**graph.values, **big})
    found = dict(calibrate(claimed, draw(3), method=method).values)
    # A claim gives the softmax's operand a rank, and so rows.
    found["k"] = replace(found["k"], rows=())
    assert found == calibrate(graph, draw(3), method=method).values


@pytest.mark.parametrize(
    ("kind", "width", "threads"), [("Relu", 4, 1), ("Relu", 1 << 20, 0), ("LSTM", 1 << 20, 1)]
)
def test_what_is_small_or_goes_step_by_step_runs_in_one_thread(kind, width, threads):
    assert threads_for(graph_of([Op("op", kind, ("x",), ("y",))], {"x": (width,)})) == threads


def test_a_value_with_nothing_finite_has_no_statistics():
    stats = calibrate(branchy(), [{"x": np.full((3, 4), np.nan, np.float32)}], values=["x", "m"])
    assert stats.values == {}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("parts", [0, 2])
def test_nothing_but_nan_is_refused(bad, parts):
    """Statistics of no number planned a model whose every range was a guess."""
    arrays = [{"x": np.full((3, 4), bad, np.float32)}] * 2
    with ThreadPoolExecutor(2) as pool:
        more = {"executor": pool, "parts": parts} if parts else {}
        with pytest.raises(SampleError, match="no finite number in any of 2 samples for 'x'"):
            planner.calibrate(branchy(), arrays, **more)
        arrays[1] = {"x": np.full((3, 4), bad, np.float32)}
        arrays[1]["x"][0, 0] = 2.0
        stats = planner.calibrate(branchy(), arrays, **more)
    assert (stats.values["x"].lo, stats.values["x"].hi) == (2.0, 2.0)


def test_regions_run_too_and_facts_do_not_matter():
    graph = branchy()
    progress = []
    stats = calibrate(graph, iter(draw(2)), progress=lambda done, total: progress.append((done, total)))
    assert progress == [(1, None), (2, None)]
    assert calibrate(graph, draw(2)) == stats


def test_integer_and_constant_values_are_not_observed():
    ops = (Op("shape", "Shape", ("x",), ("s",)), Op("cast", "Cast", ("s",), ("y",), {"to": 1}))
    graph = graph_of(ops, {"x": (3, 4)})
    graph = replace(graph, values={**graph.values, "s": replace(graph.values["s"], dtype="i64")})
    assert tuple(calibrate(graph, draw(1)).values) == ("x", "y")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: calibrate(branchy(), []),
            SampleError,
            "no samples to calibrate with (32 to 128 representative ones are usual)",
        ),
        (
            lambda: calibrate(branchy(), draw(1), method="max"),
            StatsError,
            "unknown calibration method 'max' (minmax, percentile, percentile:99.9, mse, entropy)",
        ),
        (
            lambda: calibrate(branchy(), draw(1), values=["mm"]),
            UnknownName,
            "unknown value 'mm' (did you mean 'm'?)",
        ),
        (
            lambda: calibrate(fused(), []),
            ModelError,
            (
                "kernel 'conv1' has no ops, so the model cannot be run "
                "(calibrate the ONNX model, or write calibrated ranges into the annotated one)"
            ),
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_a_model_that_onnxruntime_does_not_know_is_one_line():
    graph = graph_of((Op("odd", "NoSuchOp", ("x",), ("y",)),), {"x": (3, 4)})
    with pytest.raises(ModelError) as caught:
        calibrate(graph, draw(1))
    assert str(caught.value).startswith("NoSuchOp at 'odd': onnxruntime has no such operator (")


def test_a_sample_that_does_not_run_is_named():
    """The shapes fit the claims of the model, but not each other."""
    graph = graph_of((Op("add", "Add", ("a", "b"), ("y",)),), {"a": ("N",), "b": ("M",)})
    samples = [{"a": np.zeros(3), "b": np.zeros(3)}, {"a": np.zeros(3), "b": np.zeros(4)}]
    with pytest.raises(SampleError) as caught:
        calibrate(graph, samples)
    assert str(caught.value).startswith("sample 1: onnxruntime cannot run the model: ")
    assert "\n" not in str(caught.value)


class Reader(CalibrationDataReader):
    """Samples from a list, as onnxruntime wants them."""

    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        """The next sample, None at the end."""
        return next(self.samples, None)


def test_equals_onnxruntimes_minmax_calibrator(tmp_path):
    path = MODELS / "vision" / "mobilenetv2_100.onnx"
    if not path.is_file():
        pytest.skip("no models: QPLAN_MODELS is not there")
    with np.load(MODELS / "vision" / "photos_224_u8_nhwc.npz") as archive:
        photos = archive["photos"][:3].astype(np.float32) / 128 - 1
    samples = [{"x": photo.transpose(2, 0, 1)[None]} for photo in photos]
    graph = read_onnx(path)
    stats = calibrate(graph, samples)
    # The normalised model, so that both sides run the very same ops.
    (tmp_path / "model.onnx").write_bytes(write_graph(graph))
    calibrator = create_calibrator(
        tmp_path / "model.onnx", None, str(tmp_path / "augmented.onnx"), CalibrationMethod.MinMax
    )
    calibrator.collect_data(Reader(samples))
    theirs = {name: data.range_value for name, data in calibrator.compute_data().items()}
    common = stats.values.keys() & theirs.keys()
    assert len(common) > 90
    for name in common:
        lo, hi = theirs[name]
        assert (stats.values[name].lo, stats.values[name].hi) == (lo.item(), hi.item()), name


@pytest.mark.parametrize("method", ["minmax", "entropy"])
def test_batches_of_an_open_batch_run_whole_and_give_the_same_ranges(method):
    """Each batch is one sample, the last one shorter."""
    graph = graph_of(
        (Op("double", "Mul", ("x", "two"), ("y",)),),
        {"x": ("n", 4)},
        constants={"two": np.float32([2.0])},
        shapes={"y": ("n", 4)},
    )
    rows = (np.random.default_rng(3).standard_normal((10, 4)) * 3).astype(np.float32)
    single = calibrate(graph, [{"x": row[None]} for row in rows], method=method)
    joined = calibrate(graph, [{"x": rows[k : k + 4]} for k in (0, 4, 8)], method=method)
    assert (single.samples, joined.samples) == (10, 3)
    for name, seen in single.values.items():
        other = joined.values[name]
        assert (seen.lo, seen.hi, seen.bins) == (other.lo, other.hi, other.bins), name


ROWS, PIXELS, WINDOW = (2, 5, 3), (1, 3, 4, 4), np.ones((4, 3, 2, 2), np.float32)
READ_BY = {
    "matrix": ("MatMul", ("x", "w"), (5, 3), {"w": np.ones((3, 4), np.float32)}, {}, 1),
    "matrices": ("MatMul", ("x", "w"), ROWS, {"w": np.ones((3, 4), np.float32)}, {}, 2),
    "vector": ("MatMul", ("x", "w"), (3,), {"w": np.ones((3, 4), np.float32)}, {}, None),
    "weight first": ("MatMul", ("w", "x"), (3, 4), {"w": np.ones((5, 3), np.float32)}, {}, None),
    "no weight": ("MatMul", ("x", "x"), (3, 3), {}, {}, None),
    "gemm": ("Gemm", ("x", "w"), (5, 3), {"w": np.ones((3, 4), np.float32)}, {}, 1),
    "gemm and bias": ("Gemm", ("x", "w", "b"), (5, 3), {"w": np.ones((3, 4), np.float32)}, {}, 1),
    "gemm, turned": ("Gemm", ("x", "w"), (3, 5), {"w": np.ones((3, 4), np.float32)}, {"transA": 1}, None),
    "pixels": ("Conv", ("x", "w"), PIXELS, {"w": WINDOW}, {}, 1),
    "pixels and bias": ("Conv", ("x", "w", "b"), PIXELS, {"w": WINDOW}, {}, 1),
    "a row of pixels": ("Conv", ("x", "w"), (1, 3, 6), {"w": np.ones((4, 3, 2), np.float32)}, {}, 1),
    "spread": ("ConvTranspose", ("x", "w"), PIXELS, {"w": np.ones((3, 4, 2, 2), np.float32)}, {}, 1),
    "no product": ("Add", ("x", "w"), (5, 3), {"w": np.ones(3, np.float32)}, {}, None),
    "one operand": ("Relu", ("x",), (5, 3), {}, {}, None),
}


@pytest.mark.parametrize("name", READ_BY)
def test_means_are_those_of_channels_that_a_weight_sums_over(name):
    kind, names, shape, constants, attributes, axis = READ_BY[name]
    constants = {**constants, **({"b": np.ones(4, np.float32)} if "b" in names else {})}
    model = graph_of((Op("op", kind, names, ("y",), attributes),), {"x": shape}, constants=constants)
    drawn = [np.random.default_rng(seed).normal(size=shape).astype(np.float32) for seed in range(3)]
    mean = calibrate(model, [{"x": array} for array in drawn]).values["x"].mean
    if axis is None:
        assert mean is None
        return
    others = tuple(other for other in range(len(shape)) if other != axis)
    assert mean.axis == axis
    np.testing.assert_allclose(
        mean.values, np.mean([array.mean(axis=others) for array in drawn], axis=0), rtol=1e-5, atol=1e-6
    )
