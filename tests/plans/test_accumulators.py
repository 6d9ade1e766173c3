"""Accumulators that saturate or wrap, partial sums, multipliers of a device's own: from YAML to integers."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import PlanInvalid, UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.interpreter.models import ModelRunner
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir

HEAD = """
apiVersion: planner/v1
kind: Target
id: own
version: 1.0.0
types:
  a8: {storage: u8}
  w8: {storage: i8, range: [-127, 127], symmetric: true}
  w7: {storage: i8, range: [-63, 63], symmetric: true}
  b32: {storage: i32, symmetric: true}
defaults: {port: a8, requantize: tosa_single}
fusions: [{kernel: fc, pattern: "Gemm(x, w, b)", where: {w: constant}}]
kernels:
"""
ROW = """
  - kernel: fc
    in: {x: a8, w: WEIGHT, b: b32}
    out: {y: a8}
    rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]
    MORE
"""
RNG = np.random.default_rng(7)
WEIGHT = RNG.normal(size=(96, 8)).astype(np.float32)
BIAS = RNG.normal(size=8).astype(np.float32)
SAMPLES = [{"x": np.abs(RNG.normal(size=(16, 96))).astype(np.float32)} for _ in range(4)]


def row(more, weight="w8"):
    return ROW.replace("MORE", more).replace("WEIGHT", weight)


def model_of(weight=WEIGHT):
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc")
    sides = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [16, 96]), ("y", [16, 8]))
    ]
    numbers = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(BIAS, "b")]
    graph = helper.make_graph([node], "own", sides[:1], sides[1:], numbers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    loaded = planner.load_model(made.SerializeToString())
    return planner.annotate(loaded, stats=planner.calibrate(loaded, SAMPLES))


def planned(*rows, weight=WEIGHT, storage="u8"):
    """The model and a plan that the checker takes, as it is and read back from its texts."""
    head = HEAD.replace("{storage: u8}", f"{{storage: {storage}}}")
    model, target = model_of(weight), planner.load_target(head + "".join(rows))
    plan = planner.plan(model, target)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        planner.check(one, model, target)
    return model, target, plan


def sums_of(plan, sample):
    """Exact sums of stored integers less zero points, and the factor to the result."""
    x, w, b = (port.type for port in plan.kernels["fc"].inputs)
    y = plan.kernels["fc"].outputs[0].type
    stored = np.clip(np.rint(sample["x"] / np.float32(x.scale)) + x.zero_point, 0, 255) - x.zero_point
    weight = np.clip(np.rint(WEIGHT / np.float32(w.scale)), -127, 127)
    steps = np.rint(BIAS.astype(float) / b.scale)
    return (stored @ weight + steps).astype(np.int64), x.scale * w.scale / y.scale, y


@pytest.mark.parametrize(("overflow", "does"), [("saturate", "are saturated"), ("wrap", "wrap around")])
def test_sums_beyond_the_accumulator(overflow, does):
    model, _, plan = planned(row(f"accumulator: {{storage: i17, overflow: {overflow}}}"))
    kernel = plan.kernels["fc"]
    assert kernel.row is not None
    assert kernel.accumulator_bits > 17
    assert any(
        f"may need {kernel.accumulator_bits} bits, and {does} at i17" in text for text in plan.warnings
    )
    for sample in SAMPLES:
        sums, ratio, y = sums_of(plan, sample)
        assert np.abs(sums).max() > 1 << 16, "some sums have to leave it"
        low, size = -(1 << 16), 1 << 17
        kept = np.clip(sums, low, -low - 1) if overflow == "saturate" else (sums - low) % size + low
        wanted = np.clip(np.floor(kept * ratio + 0.5) + y.zero_point, 0, 255)
        found = planner.evaluate(model, plan, sample).stored["y"]
        assert np.abs(found - wanted).max() <= 1  # the multiplier has 31 bits, `ratio` more
        assert (found == wanted).mean() > 0.99


@pytest.mark.parametrize(
    "form", ["onnx-qdq", "onnx-integer", "onnx-qoperator", "qonnx", "stablehlo-int", "tosa"]
)
def test_no_format_says_such_an_accumulator(form):
    model, _, plan = planned(row("accumulator: {storage: i17, overflow: wrap}"))
    with pytest.raises(UnsupportedExport, match=r"'fc' .* may need .* wraps at i17, which no format"):
        planner.export(model, plan, form)


def test_sums_that_fit_are_exported():
    model, _, plan = planned(row("accumulator: {storage: i24, overflow: saturate}"))
    assert not any("saturated" in text for text in plan.warnings)
    assert planner.export(model, plan, "onnx-integer")


def test_refusing_is_the_default():
    for text in ("accumulator: i17", "accumulator: {storage: i17}"):
        _, _, plan = planned(row(text))
        assert "the accumulator has i17" in plan.kernels["fc"].reason


def test_pairs_of_bytes_in_16_bits_take_weights_of_7():
    """u8 x i8 pairs may need 17 bits: 2 x 255 x 127; the next row has weights of 7 bits, which do not."""
    partial = "accumulator: {storage: i32, partial: {storage: i16, products: 2}}"
    _, target, plan = planned(row(partial), row(partial, "w7"))
    kernel = plan.kernels["fc"]
    assert plan.row_of("fc") == target.rows["fc"][1]
    left = [step for step in plan.steps if step.rule == "left"]
    assert "sums of 2 products need 17 bits, a partial sum has i16" in left[0].source
    assert kernel.inputs[1].type.storage.qmax == 63


def test_small_weights_of_8_bits_may_fit_in_pairs():
    """One weight of 127 and others of at most 1: their sum is what counts, in any order."""
    weight = np.full((96, 8), 0.001, np.float32)
    weight[3] = 0.127
    partial = "accumulator: {storage: i32, partial: {storage: i16, products: PRODUCTS}}"
    assert planned(row(partial.replace("PRODUCTS", "2")), weight=weight)[2].kernels["fc"].row is not None
    assert planned(row(partial.replace("PRODUCTS", "3")), weight=weight)[2].kernels["fc"].row is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("accumulator: i17", "its sums need .* accepts 17"),
        (
            "accumulator: {storage: i32, partial: {storage: i16, products: 2}}",
            "sums of 2 of its products need 17 bits",
        ),
    ],
)
def test_a_plan_that_keeps_what_does_not_fit_is_refused(more, words):
    """The checker counts for itself: the same plan, under a row that has other registers."""
    model, _, plan = planned(row("accumulator: i32"))
    other, key = planner.load_target(HEAD + row(more)).rows["fc"][0], plan.kernels["fc"].row
    told = plan_from_json(plan.to_json())
    narrow = replace(told.target.rows[key], accumulator=other.accumulator, partial=other.partial)
    rows = {**told.target.rows, key: narrow}
    with pytest.raises(PlanInvalid, match=words):
        planner.check(replace(told, target=replace(told.target, rows=rows)), model)


OWN = "requantize: {multiplier: 8, rounding: half_away, shift: [SHIFT]}"


def test_multipliers_of_a_device_are_written_exactly():
    """Eight bits: many results are not those of 32."""
    model, _, plan = planned(row(OWN.replace("SHIFT", "0, 30")))
    plain = planned(row(""))[2]
    outputs = [
        np.concatenate([planner.evaluate(model, one, sample).stored["y"] for sample in SAMPLES])
        for one in (plan, plain)
    ]
    assert (outputs[0] != outputs[1]).sum() > 20
    runner = ModelRunner(read_written(planner.export(model, plan, "onnx-integer")))
    for sample in SAMPLES:
        wanted = planner.evaluate(model, plan, sample).outputs["y"]
        np.testing.assert_array_equal(runner.run(sample)["y"], wanted)


@pytest.mark.parametrize("form", ["tosa", "litert"])
def test_formats_without_such_multipliers_name_them(form):
    model, _, plan = planned(row(OWN.replace("SHIFT", "0, 30")), storage="i8")
    with pytest.raises(UnsupportedExport, match=r"8-bit multiplier, half_away, shift 0\.\.30"):
        planner.export(model, plan, form)


@pytest.mark.parametrize("shift", ["0, 3", "16, 30"])
def test_factors_out_of_reach_leave_the_row(shift):
    """Shifted out to nothing, or larger than the least shift allows."""
    _, _, plan = planned(row(OWN.replace("SHIFT", shift)))
    assert "no integer multiplier" in plan.kernels["fc"].reason


def test_what_is_single_round_is_called_so():
    model, target, plan = planned(row("requantize: {multiplier: 32}"))
    assert target.rows["fc"][0].requantize == "tosa_single"
    assert planner.export(model, plan, "tosa")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("requantize: {multiplier: 16, shift: [9, 3]}", "T028 shifts of 9 to 3"),
        ("requantize: {multiplier: 16, cut_from: 8}", "T028 16 bits cut from 8"),
        ("requantize: {multiplier: 99}", "less than or equal to 32"),
        ("requantize: {multiplier: 16, shift: 3}", "shift"),
        ("requantize: {rounding: half_up}", "T011"),
        ("accumulator: {storage: i99x}", "T022"),
        ("accumulator: {storage: i24, overflow: explode}", "is none of refuse, saturate, wrap"),
        ("accumulator: {storage: i24, partial: {storage: i16}}", "products"),
        ("accumulator: {storage: i24, partial: {storage: i16, products: 0}}", "T014"),
    ],
)
def test_wrong_fields_have_a_place(text, words):
    with pytest.raises(planner.PlannerError) as caught:
        planner.load_target(HEAD + row(text))
    assert words in str(caught.value)
