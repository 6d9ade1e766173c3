"""Own noise: a run from one kernel on is the whole run with only that one quantized, and noises add up."""

import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto

import planner
from planner.accuracy.choices import choices_of, in_float, with_choice
from planner.accuracy.own_noise import decibels, error_of, own_noise, power
from planner.accuracy.steps import Steps
from planner.errors import InputError, SampleError
from planner.factors.form import form_of_plan
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.store import Store
from planner.ir.expand import expand
from tests.accuracy.nets import digits, net, node, normal, of_folder, planned
from tests.awkward import control
from tests.awkward.job import samples_of


def whole_runs(model, plan, samples):
    """Mean noise power of each choice at all outputs, by runs of the interpreter from the inputs on."""
    names = [name for name in plan.graph.outputs if plan.graph.values[name].is_float]
    wanted = [Interpreter(model, in_float(plan)).run(sample).outputs for sample in samples]
    found = []
    for choice in choices_of(plan):
        alone = Interpreter(model, with_choice(in_float(plan), choice), arithmetic="float32_qdq")
        got = [alone.run(sample).outputs for sample in samples]
        found.append(
            [
                sum(power(error_of(ref[name], out[name])) for ref, out in zip(wanted, got, strict=True))
                / sum(ref[name].size for ref in wanted)
                for name in names
            ]
        )
    return found


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8"])
def test_a_run_from_a_kernel_on_is_the_whole_run(target):
    model, samples = digits(3)
    plan = planned(model, samples, target)
    # Types alone: what the device's arithmetic does besides is in no run of float ops between roundings.
    flat, choices = form_of_plan(model, plan.graph), [replace(choice, read={}) for choice in choices_of(plan)]
    found = own_noise(flat, plan, choices, samples)
    wanted = whole_runs(flat, plan, samples)
    for choice, powers, (noise,) in zip(choices, found.power, wanted, strict=True):
        # Weights that are fed to a session are multiplied in another order than those inside of one.
        assert powers["probabilities", 0] == pytest.approx(noise, rel=2e-2), choice.name


@pytest.mark.parametrize("name", ["if_computed", "if_nested", "loop_body", "scan_body", "local_functions"])
def test_bodies_run_as_one_step(name):
    model = planner.load_model(getattr(control, name)())
    samples = [dict(sample) for sample in samples_of(model)]
    plan = planned(model, samples, "onnxruntime-cpu")
    flat, choices = form_of_plan(model, plan.graph), [replace(choice, read={}) for choice in choices_of(plan)]
    found = own_noise(flat, plan, choices, samples)
    wanted = whole_runs(flat, plan, samples)
    assert choices
    for choice, powers, noises in zip(choices, found.power, wanted, strict=True):
        assert [*powers.values()] == pytest.approx(noises, rel=2e-2), choice.name


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8", "qnn-htp"])
def test_noises_add_up_to_that_of_the_whole_program(target):
    model, samples = digits(16)
    plan = planned(model, samples, target)
    found = planner.losses(model, plan, samples, limit=0)
    assert found.sqnr == pytest.approx(found.outputs[0].predicted, abs=1.0)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("mlperf-tiny/ad01_fp32", "litert-int8"),
        ("mlperf-tiny/vww_96_float", "litert-int8"),
        ("vision/mnist", "litert-int8"),
        ("vision/squeezenet_real_fp32", "litert-int8"),
        ("language/stories260k", "onnxruntime-cpu"),
    ],
)
def test_noises_of_trained_models_add_up(models, name, target):
    model, samples = of_folder(models, name, 4 if name.startswith("language") else 8)
    found = planner.losses(model, planned(model, samples, target), samples, limit=0)
    assert found.sqnr == pytest.approx(found.outputs[0].predicted, abs=1.0)


def test_each_stored_value_counts_once():
    """Rounding with the writer, weights with the kernel, an input with the input, movers not at all."""
    model, samples = digits(4)
    plan = planned(model, samples, "litert-int8")
    choices = {choice.name: choice for choice in choices_of(plan)}
    assert choices["image"].is_input
    assert set(choices["image"].types) == {"stem/conv.in[0]"}
    assert set(choices["stem/conv"].types) >= {"stem/conv.in[1]", "stem/conv.out[0]"}
    assert "stem/conv.in[0]" not in choices["stem/conv"].types
    assert {"head/flatten", "res/pool"}.isdisjoint(choices)


def test_any_executor_gives_the_same():
    model, samples = digits(5)
    plan = planned(model, samples)
    flat, choices = expand(model), choices_of(plan)
    alone = own_noise(flat, plan, choices, samples)
    with ThreadPoolExecutor(2) as threads:
        assert own_noise(flat, plan, choices, samples, executor=threads, parts=3).power == alone.power
    with ProcessPoolExecutor(1) as processes:
        assert own_noise(flat, plan, choices, samples, executor=processes, parts=2).power == alone.power


def test_progress_counts_runs():
    model, samples = digits(2)
    plan = planned(model, samples)
    choices = choices_of(plan)
    seen = []
    own_noise(expand(model), plan, choices, samples, progress=lambda *now: seen.append(now))
    assert seen == [(k + 1, 2 * len(choices)) for k in range(2 * len(choices))]


def test_activations_beyond_the_limit_lie_in_a_file():
    store = Store(limit=100)
    small, large = np.arange(10, dtype=np.float32), np.arange(40, dtype=np.float32)
    assert store.kept(small) is small
    kept = store.kept(large)
    assert isinstance(kept, np.memmap)
    np.testing.assert_array_equal(kept, large)
    assert store.kept(small) is small


def test_a_small_store_changes_nothing(monkeypatch):
    model, samples = digits(2)
    plan = planned(model, samples)
    flat, choices = expand(model), choices_of(plan)
    wanted = own_noise(flat, plan, choices, samples).power
    monkeypatch.setattr("planner.interpreter.store.LIMIT", 1000)
    run = Steps(flat, plan).run(samples[0])
    assert isinstance(run.memory.real("stem/relu_out"), np.memmap)
    assert own_noise(flat, plan, choices, samples).power == wanted


def test_only_numbers_can_be_noisy():
    model = net([node("ArgMax", "x", out="y", axis=1)], ["y"], {}, types={"y": TensorProto.INT64})
    samples = normal((1, 8))
    plan = planned(model, samples)
    with pytest.raises(InputError, match="has no float output"):
        own_noise(expand(model), plan, choices_of(plan), samples)


def test_no_samples_are_refused():
    model, samples = digits(1)
    plan = planned(model, samples)
    with pytest.raises(SampleError, match="no samples"):
        own_noise(expand(model), plan, choices_of(plan), [])
    with ThreadPoolExecutor(1) as pool, pytest.raises(SampleError, match="cannot be cut"):
        own_noise(expand(model), plan, choices_of(plan), iter(samples), executor=pool)


def test_errors_of_what_is_no_number():
    nan, inf = math.nan, math.inf
    wanted = np.float32([nan, inf, -inf, 1.0, nan, 2.0])
    got = np.float32([nan, inf, -inf, 1.5, 1.0, nan])
    assert error_of(wanted, got).tolist() == [0.0, 0.0, 0.0, 0.5, inf, inf]
    assert decibels(1.0, 0.0) == inf
    assert decibels(0.0, 1.0) == -inf
    assert decibels(1.0, inf) == -inf
    assert decibels(100.0, 1.0) == 20.0


def test_what_integer_arithmetic_does_besides_rounding_is_the_kernel_s():
    """An operand in steps of 1e36 beside one in steps of 0.01: the ratio of the two is no float32."""
    nodes = [
        node("Mul", "x", "zero", out="mask"),
        node("Add", "x", "mask", out="scores"),
        node("Mul", "scores", "gain", out="y"),
    ]
    model = net(nodes, ["y"], {"zero": [0.0], "gain": [0.5]})
    samples = normal((1, 8), 4)
    wide = {"mask": "!quant.uniform<u8:f32, 1.3e36:255>"}
    found = planner.losses(model, planned(model, samples, "qnn-htp", values=wide), samples)
    assert found.sqnr < 6
    assert found.kernels[0].name == "scores"
    assert found.sqnr == pytest.approx(found.outputs[0].predicted, abs=1.0)
