"""Modules whose values are pinned by casts, written back: MLIR takes them, and they say the plan."""

import random

import numpy as np
import pytest

import planner
from planner.interpreter.evaluate import evaluate
from planner.ir.types.qtypes import Uniform
from planner.plans.read_mlir import cast_module
from tests.formats.mlir.pinned_modules import pinned_module, said
from tests.formats.mlir.test_cast_module import TARGETS, port_types
from tests.oracles.opt import parsed

FORMS = ("types", "casts")
SAMPLE = np.array([0.337, -1.213, 2.0717, 0.6371], np.float32)
RUNNABLE = ("onnx.Add", "onnx.Max", "onnx.Mul", "onnx.Relu")


def planned(seed, ops):
    """A random module, its model and its plan."""
    text = pinned_module(random.Random(seed), ops)  # noqa: S311 - modules
    model = planner.load_model(text.encode(), format="mlir")
    target = TARGETS[seed % len(TARGETS)]
    return text, model, planner.plan(model, target), target


def results(model, plan, arithmetic=None):
    """The outputs of a plan as reals, in order."""
    sample = {name: SAMPLE * (i + 1) for i, name in enumerate(model.inputs)}
    found = evaluate(model, plan, sample, arithmetic=arithmetic).outputs
    return [_reals(model, name, np.asarray(found[name])) for name in model.outputs]


def _reals(model, name, array):
    pin = next((fact for fact in model.values[name].facts if isinstance(fact, Uniform)), None)
    if pin is None or array.dtype == np.float32:
        return array
    return np.asarray((array.astype(np.int64) - pin.zero_points[0]) * pin.scales[0], np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_mlir_takes_them(form):
    texts = []
    for seed in range(80):
        text, _, plan, _ = planned(seed, ("my.turn", *RUNNABLE))
        texts.append(cast_module(text, plan, form).text)
    upstream = parsed("torch-mlir-opt", "\n// -----\n".join(texts), "--split-input-file")
    assert not upstream.startswith("ERROR"), upstream


@pytest.mark.parametrize("seed", range(24))
def test_they_say_what_the_plan_computes(seed):
    """Their ops, casts and types read one by one give the plan's numbers, and so does a plan of them."""
    text, model, plan, target = planned(seed, RUNNABLE)
    wanted, even = results(model, plan), results(model, plan, "float32_even")
    for form in FORMS:
        found = cast_module(text, plan, form)
        taken = [SAMPLE * (i + 1) for i in range(len(model.inputs))]
        for ours, theirs in zip(even, said(found.text, taken)[0], strict=True):
            np.testing.assert_allclose(theirs, ours, atol=0.01)
        again = planner.load_model(found.text.encode(), format="mlir")
        second = planner.plan(again, target)
        for ours, theirs in zip(wanted, results(again, second), strict=True):
            np.testing.assert_array_equal(theirs, ours)
        if not found.left:
            # A Relu on the grid that is written in front of it is part of the kernel there.
            kernels = second.kernels.keys()
            types = {
                port: kind
                for port, kind in port_types(plan).items()
                if "#" not in port and port.rpartition(".")[0] in kernels
            }
            assert types.items() <= port_types(second).items()


def test_a_rescale_to_the_pin_of_a_result_is_written():
    """The kernel keeps the scale of what it reads; the pin has another, and `return` gives the pin."""
    a, b = "!quant.uniform<i8:f32, 0.05>", "!quant.uniform<i8:f32, 0.25>"
    text = f"""func.func @main(%x: tensor<4x{a}>) -> tensor<4xf32> {{
  %y = "onnx.Relu"(%x) : (tensor<4x{a}>) -> tensor<4xf32>
  %q = quant.qcast %y : tensor<4xf32> to tensor<4x{b}>
  %d = quant.dcast %q : tensor<4x{b}> to tensor<4xf32>
  return %d : tensor<4xf32>
}}
"""
    plan = planner.plan(planner.load_model(text.encode(), format="mlir"), "litert-int8")
    assert [(str(r.to_type), r.to_pin) for r in plan.rescales] == [(b, True)]
    for form in FORMS:
        found = cast_module(text, plan, form).text
        name = found.rpartition("return %")[2].partition(" ")[0]
        # The text has the cast already.
        assert name == "d"
        assert found.count(f"quant.qcast %y_d : tensor<4xf32> to tensor<4x{b}>") == 1
        assert f": tensor<4xf32> to tensor<4x{b}>\n  %{name} = quant.dcast" in found


def test_two_spellings_of_one_scale_stay_the_callers():
    """A value has one spelling wherever it is made and read."""
    a, b = "!quant.uniform<i8:f32, 0.05>", "!quant.uniform<i8:f32, 0.05000000074505806>"
    text = f"""func.func @main(%x: tensor<4x{a}>, %y: tensor<4x{b}>) -> tensor<8x{b}> {{
  %c = "onnx.Concat"(%x, %y) {{axis = 0 : i64}} : (tensor<4x{a}>, tensor<4x{b}>) -> tensor<8x{b}>
  return %c : tensor<8x{b}>
}}
"""
    plan = planner.plan(planner.load_model(text.encode(), format="mlir"), "litert-int8")
    for form in FORMS:
        assert cast_module(text, plan, form).text == text
