"""What rounding a value leaves at its readers: against numpy, op by op; and what does not change it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.accuracy.consumers import LEAST, decibels, measure_readers
from planner.calibration.statistics import merge, without_readers
from planner.calibration.statsjson import read_statistics
from planner.errors import InputError, SampleError
from planner.ir.expand import expand
from planner.ir.graph import Op
from planner.ir.types.qtypes import AtReaders, Calibrated
from tests.accuracy.nets import digits
from tests.calibration.graphs import graph_of

RNG = np.random.default_rng(1)
ANGLES = (RNG.random((4, 1, 64)) * 100).astype(np.float32)


def feeds(arrays, name="x"):
    return [{name: array} for array in arrays]


def measured(graph, samples, **options):
    return measure_readers(graph, planner.calibrate(graph, samples), samples, **options)


def db_of(stats, name):
    return {at.bits: at.db for at in stats.values[name].readers}


def rounded(array, bits, lo, hi):
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    scale = np.float32((hi - lo) / ((1 << bits) - 1))
    zero = round(-lo / float(scale))
    steps = np.clip(np.rint(array / scale), -zero, (1 << bits) - 1 - zero)
    return (steps * scale).astype(np.float32)


def sqnr(wanted, got):
    wanted, got = wanted.astype(np.float64), got.astype(np.float64)
    return 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())


def one(kind, *more, constants=None, attributes=None, shape=(1, 64)):
    op = Op("op", kind, ("x", *more), ("y",), attributes or {})
    return graph_of((op,), {"x": shape}, constants=constants, shapes={"y": shape})


WEIGHT = RNG.standard_normal((64, 64)).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 8, 12, 16])
@pytest.mark.parametrize(
    ("kind", "function", "constants"),
    [
        ("Sin", np.sin, {}),
        ("Exp", np.exp, {}),
        ("Sqrt", np.sqrt, {}),
        ("MatMul", lambda x: x @ WEIGHT, {"w": WEIGHT}),
        ("Mul", lambda x: x * WEIGHT[:1], {"w": WEIGHT[:1]}),
    ],
)
def test_it_is_the_sqnr_of_the_reader_on_the_rounded_value(kind, function, constants, bits):
    arrays = ANGLES / 10
    graph = one(kind, *constants, constants=constants)
    found = db_of(measured(graph, feeds(arrays), widths=[bits]), "x")
    # A model that has x as its input alone: nothing else reads it.
    expected = sqnr(function(arrays), function(rounded(arrays, bits, arrays.min(), arrays.max())))
    assert found == {bits: pytest.approx(expected, abs=0.15)}


def test_an_angle_says_nothing_of_itself_and_all_at_its_sine():
    stats = measured(one("Sin"), feeds(ANGLES))
    own = sqnr(ANGLES, rounded(ANGLES, 8, ANGLES.min(), ANGLES.max()))
    assert own > 50
    assert db_of(stats, "x")[8] < 20


def test_the_first_samples_are_run_in_order_within_the_range_of_all():
    graph = one("Sin")
    few = measured(graph, feeds(ANGLES), count=2)
    expected = sqnr(np.sin(ANGLES[:2]), np.sin(rounded(ANGLES[:2], 8, ANGLES.min(), ANGLES.max())))
    assert db_of(few, "x")[8] == pytest.approx(expected, abs=0.1)
    assert measured(graph, feeds(ANGLES), count=2) == measured(graph, feeds(ANGLES), count=2)
    assert measured(graph, feeds(ANGLES), count=9) == measured(graph, feeds(ANGLES), count=4)


def test_the_worst_reader_and_an_output_count():
    ops = (Op("s", "Sin", ("x",), ("y",)), Op("n", "Neg", ("x",), ("z",)))
    sine = db_of(measured(one("Sin"), feeds(ANGLES)), "x")
    both = graph_of(ops, {"x": (1, 64)}, outputs=("y", "z"), shapes={"y": (1, 64), "z": (1, 64)})
    assert db_of(measured(both, feeds(ANGLES)), "x") == sine
    result = db_of(measured(one("Sin"), feeds(ANGLES)), "y")
    waves = np.sin(ANGLES)
    assert result[8] == pytest.approx(sqnr(waves, rounded(waves, 8, waves.min(), waves.max())), abs=0.1)


def test_what_moves_data_is_looked_through():
    """A concat twice over, a reshape and a slice: the sine at their end is the reader."""
    ops = (
        Op("cat", "Concat", ("x", "x"), ("c",), {"axis": 1}),
        Op("flat", "Reshape", ("c", "shape"), ("f",)),
        Op("s", "Sin", ("f",), ("y",)),
    )
    graph = graph_of(
        ops,
        {"x": (1, 64)},
        constants={"shape": np.array([128], np.int64)},
        shapes={"c": (1, 128), "f": (128,), "y": (128,)},
    )
    stats = measured(graph, feeds(ANGLES))
    alone = db_of(measured(one("Sin"), feeds(ANGLES)), "x")
    assert [db_of(stats, name) for name in "xcf"] == [alone] * 3


@pytest.mark.parametrize("masked", [-3.4e38, -30.0])
def test_what_a_softmax_does_not_need_counts_nowhere(masked):
    """A mask of -3.4e38 decides neither the step of the sum, nor what is left of it, nor of the scores."""
    scores = RNG.standard_normal((4, 1, 64)).astype(np.float32)
    mask = np.where(np.arange(64) < 40, 0, masked).astype(np.float32)[None]
    ops = (Op("add", "Add", ("x", "mask"), ("s",)), Op("soft", "Softmax", ("s",), ("y",), {"axis": 1}))
    shapes = {"s": (1, 64), "y": (1, 64)}
    graph = graph_of(ops, {"x": (1, 64)}, constants={"mask": mask}, shapes=shapes)
    stats = measured(graph, feeds(scores))
    assert db_of(stats, "s")[8] > 30
    assert db_of(stats, "s")[16] > 75
    assert 30 < db_of(stats, "x")[8] < 70


def test_a_result_that_is_no_number_any_more_is_the_least():
    arrays = np.array([[[1e-6, 1.0, 2.0, 3.0]]], np.float32)
    graph = one("Log", shape=(1, 4))
    assert db_of(measured(graph, feeds(arrays)), "x") == {8: LEAST, 16: LEAST}


def test_what_was_no_number_before_is_left_out():
    arrays = np.array([[[-np.inf, np.nan, 0.3, 7.3]]], np.float32)
    found = db_of(measured(one("Neg", shape=(1, 4)), feeds(arrays)), "x")
    kept = np.float32([0.3, 7.3])
    assert found[8] == pytest.approx(sqnr(kept, rounded(kept, 8, 0, 7.3)), abs=0.1)


def test_a_value_that_any_width_holds_has_no_fact():
    arrays = np.zeros((2, 1, 4), np.float32)
    arrays[:, :, 0] = 1.0
    stats = measured(one("Neg", shape=(1, 4)), feeds(arrays))
    assert stats.values["x"].readers == ()


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [
        (100.0, 1.0, 20.0),
        (1.0, 1.0, 0.0),
        (1.0, 0.0, None),
        (0.0, 1.0, None),
        (float("inf"), 1.0, None),
        (float("nan"), 1.0, None),
        (1.0, float("inf"), LEAST),
        (1.0, float("nan"), LEAST),
        (1e-30, 1.0, LEAST),
    ],
)
def test_decibels(signal, noise, expected):
    assert decibels(signal, noise) == expected


def test_half_floats_and_doubles():
    for dtype, kind in (("f16", np.float16), ("f64", np.float64)):
        op = Op("op", "Sin", ("x",), ("y",))
        graph = graph_of((op,), {"x": ((1, 64), dtype)}, shapes={"y": (1, 64)})
        graph = replace(graph, values={**graph.values, "y": replace(graph.values["y"], dtype=dtype)})
        found = db_of(measured(graph, feeds(ANGLES.astype(kind))), "x")
        assert found[8] == pytest.approx(db_of(measured(one("Sin"), feeds(ANGLES)), "x")[8], abs=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "consumers on 0 samples at 8, 16 bits; accepted: 1 sample or more, 2 to 16 bits"),
        ({"widths": [1, 8]}, "consumers on 4 samples at 1, 8 bits; accepted: 1 sample or more, 2 to 16 bits"),
        ({"widths": [17]}, "consumers on 4 samples at 17 bits; accepted: 1 sample or more, 2 to 16 bits"),
        ({"widths": []}, "consumers on 4 samples at no bits; accepted: 1 sample or more, 2 to 16 bits"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InputError) as caught:
        measured(one("Sin"), feeds(ANGLES), **options)
    assert caught.value.message == message


def test_without_samples_nothing_is_measured():
    stats = planner.calibrate(one("Sin"), feeds(ANGLES))
    with pytest.raises(SampleError, match="no samples to run the consumers on"):
        measure_readers(one("Sin"), stats, [])


@pytest.mark.parametrize("readers", [-1, True, 1.5, "4"])
def test_calibrate_refuses_what_is_no_number_of_samples(readers):
    with pytest.raises(InputError) as caught:
        planner.calibrate(one("Sin"), feeds(ANGLES), readers=readers)
    assert caught.value.message == f"readers is a number of samples, 0 or more, not {readers!r}"


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_it_is_the_same_however_the_samples_are_cut_and_whatever_they_come_in(method):
    model, samples = digits(9)
    whole = planner.calibrate(model, samples, method=method, readers=3)
    assert any(seen.readers for seen in whole.values.values())
    assert planner.calibrate(model, iter(samples), method=method, readers=3) == whole
    with ThreadPoolExecutor(2) as pool:
        for parts in (2, 5, 9):
            cut = planner.calibrate(model, samples, method=method, executor=pool, parts=parts, readers=3)
            assert cut == whole
    assert read_statistics(whole.to_json()) == whole
    assert without_readers(whole) == planner.calibrate(model, samples, method=method)


def test_other_ranges_make_it_void():
    """Merged, or under another method, nothing is known until it is measured again."""
    model, samples = digits(6)
    a, b = (planner.calibrate(model, part, method="mse", readers=2) for part in (samples[:3], samples[3:]))
    plain = planner.calibrate(model, samples, method="mse")
    assert merge(a, b).values.keys() == plain.values.keys()
    for joined in (merge(a, b), merge(b, a), a.by("minmax")):
        assert not any(seen.readers for seen in joined.values.values())
    assert a.by("mse") == a
    flat = expand(model)
    again = measure_readers(flat, plain, samples, count=2)
    assert again == planner.calibrate(model, samples, method="mse", readers=2)


def test_annotating_writes_it_as_a_fact():
    model, samples = digits(4)
    stats = planner.calibrate(model, samples, readers=2)
    ready = planner.annotate(model, stats=stats)
    for name, seen in stats.values.items():
        (fact,) = (fact for fact in ready.values[name].facts if isinstance(fact, Calibrated))
        assert fact.readers == seen.readers
        assert planner.parse_type(str(fact)) == fact
        for at in seen.readers:
            assert isinstance(at, AtReaders)
            assert fact.at_readers(at.bits) == at.db == round(at.db, 1)


def test_loops_are_run_and_what_is_inside_them_is_left_out(models):
    """A model with a body: its own values are measured around it."""
    model = planner.load_model(models / "sequence" / "silero_vad_16k_op15.onnx")
    sound = RNG.standard_normal((1, 576)).astype(np.float32)
    sample = {}
    for name in model.inputs:
        value = model.values[name]
        shape = [size if isinstance(size, int) else 1 for size in value.shape]
        sample[name] = np.int64(16000) if value.dtype == "i64" else np.zeros(shape, np.float32)
        if name == "input":
            sample[name] = sound
    stats = planner.calibrate(model, [sample], readers=1)
    assert any(seen.readers for seen in stats.values.values())
