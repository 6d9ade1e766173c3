"""Verdicts: accuracy and coverage, the worse decides; what counts as covered."""

import pytest

import planner
from planner.accuracy.coverage import Coverage, coverage_of
from planner.accuracy.quality import Quality
from planner.accuracy.verdict import LEVELS, coverage_part, sqnr_level, verdict_of
from planner.report.causes import fallback_lines
from planner.report.summary import cards_data, mark
from planner.target.modeltext import read_model_text

CHAIN = """
w = constant : f32[64,64] {-0.5, 0.5}
a = MatMul(x, w) : f32[2,64] {-2, 2}
b = Erf(a) : f32[2,64] {-1, 1}
c = Reshape(b) : f32[128] {-1, 1}
y = Erf(c) : f32[128] {-1, 1}
"""


def quality(sqnr):
    return {"y": Quality(sqnr, 0.0, 1)}


@pytest.mark.parametrize(
    ("covered", "level"),
    [
        (Coverage(9, 9, 100, 100), "good"),
        (Coverage(9, 5, 100, 90), "good"),
        (Coverage(9, 4, 100, 100), "fair"),  # most kernels are float, with casts between
        (Coverage(9, 9, 100, 89), "fair"),
        (Coverage(17, 3, 100, 100), "poor"),
        (Coverage(9, 8, 100, 49), "poor"),
        (Coverage(9, 0, 100, 0), "poor"),
        (Coverage(0, 0, 0, 0), "good"),  # nothing to quantize
        (Coverage(4, 4, 0, 0), "good"),
    ],
)
def test_coverage_goes_by_multiply_adds_and_kernels(covered, level):
    assert coverage_part(covered).level == level


@pytest.mark.parametrize("sqnr", [45.0, 25.0, 5.0])
@pytest.mark.parametrize("served", [9, 4, 0])
def test_the_worse_part_decides(sqnr, served):
    covered = Coverage(9, served, 0, 0)
    found = verdict_of(quality(sqnr), {}, covered)
    levels = (found.accuracy.level, found.coverage.level)
    assert found.level == min(levels, key=LEVELS.index)
    assert found.reason in (found.accuracy.reason, found.coverage.reason)
    data = found.to_dict()
    assert (data["level"], data["accuracy"]["level"], data["coverage"]["level"]) == (found.level, *levels)


def test_words():
    assert str(verdict_of(quality(40.0), {}, Coverage(9, 0, 0, 0))) == (
        "keep the float model: nothing is quantized, all 9 kernels fall back to float"
    )
    assert coverage_part(Coverage(9, 7, 1000, 999)).reason == (
        "7 of 9 kernels and over 99 % of multiply-adds are quantized; the rest falls back to float"
    )
    assert (
        str(verdict_of(quality(40.0), {}, of="of the onnx-qdq file"))
        == "good: y has 40.00 dB (of the onnx-qdq file)"
    )
    assert verdict_of({}, {}) is None


@pytest.mark.parametrize("sqnr", [50.0, 30.0, 29.0, 20.0, 19.0, 9.0])
def test_the_report_has_the_same_scale(sqnr):
    assert mark(sqnr) == sqnr_level(sqnr) == verdict_of(quality(sqnr), {}).level


def test_what_moves_floats_does_not_count():
    """A Reshape between float kernels costs nothing to speak of."""
    plan = planner.plan(read_model_text(CHAIN, "chain"), "tosa-int8")
    covered = coverage_of(plan)
    floats = {one.kernel for one in covered.fallbacks}
    assert "c" not in floats or plan.kernels["c"].row is not None
    assert covered.macs == 2 * 64 * 64


@pytest.mark.parametrize("target", ["llm-w4", "onnxruntime-dynamic"])
def test_where_activations_are_float_only_weights_count(target):
    plan = planner.plan(read_model_text(CHAIN, "chain"), target)
    covered = coverage_of(plan)
    assert (covered.kernels, covered.on_device, covered.mac_share) == (1, 1, 1.0)


@pytest.mark.parametrize(
    ("target", "note"),
    [
        ("llm-w4", "3 float kernels without weights not counted"),  # two of them compute
        ("litert-int8", "1 float kernel without arithmetic not counted"),
    ],
)
def test_the_report_says_which_kernels_do_not_count(target, note):
    plan = planner.plan(read_model_text(CHAIN, "chain"), target)
    (card,) = (one for one in cards_data(plan) if one["title"] == "Kernels quantized")
    assert card["notes"][-1] == note


def test_main_reasons_come_first():
    model = read_model_text(CHAIN, "chain")
    plan = planner.plan(planner.annotate(model, kernels={"a": "float"}), "litert-int8")
    (first, *_), covered = fallback_lines(coverage_of(plan)), coverage_of(plan)
    assert first == "1 kernel (100 % of multiply-adds) is in float on request: fully_connected (1)"
    assert (covered.fallbacks[0].kernel, covered.fallbacks[0].macs) == ("a", 8192)


NOTHING = Coverage(9, 0, 100, 0)


@pytest.mark.parametrize(
    ("covered", "pays"),
    [
        (NOTHING, False),
        (Coverage(9, 8, 100, 0), False),  # whatever else is quantized
        (Coverage(9, 1, 100, 1), True),
        (Coverage(9, 9, 0, 0), True),  # nothing multiplies
        (Coverage(0, 0, 0, 0), True),
        (Coverage(9, 9, 100, 100, work=11.0, float_work=10.0, size=101, float_size=100), False),
        (Coverage(9, 9, 100, 100, work=10.0, float_work=10.0, size=101, float_size=100), True),
        (Coverage(9, 9, 100, 100, work=11.0, float_work=10.0, size=100, float_size=100), True),
        (Coverage(9, 9, 100, 100, work=11.0, float_work=10.0), True),  # a text, or a plan alone
    ],
)
def test_a_file_with_nothing_to_offer_is_not_worth_taking(covered, pays):
    found = verdict_of(quality(45.0), {}, covered)
    assert (covered.pays, found.keeps_float, found.to_dict()["keep_float"]) == (pays, not pays, not pays)
    assert str(found).startswith("keep the float model: ") is not pays
    assert coverage_part(covered).reason.startswith("keep the float model: ") is not pays
    if not pays:
        assert (found.level, found.reason) == ("poor", found.coverage.reason)


def test_why_the_float_model_is_kept():
    slow = Coverage(9, 9, 100, 100, work=13.0, float_work=10.0, size=1101, float_size=1100)
    assert str(verdict_of(quality(15.0), {}, slow)) == (
        "keep the float model: the file is bigger, 1,101 bytes, not 1,100, and predicted to take 1.3 times "
        "the work of the given model"
    )
    smaller = coverage_part(Coverage(9, 9, 100, 100, work=13.0, float_work=10.0, size=500, float_size=1100))
    assert smaller.level == "good"
    assert smaller.reason == (
        "9 of 9 kernels and 100 % of multiply-adds are quantized; it is predicted to take 1.3 times the work "
        "of the given model"
    )
    part = coverage_part(Coverage(9, 8, 100, 0)).reason
    assert part.startswith("keep the float model: 8 of 9 kernels and 0 % of multiply-adds are quantized")


def test_work_in_float_is_that_of_the_plan_with_every_kernel_in_float():
    """Also where the kernels are fused as the device wants, and whatever their rows cost."""
    model = read_model_text(CHAIN, "chain")
    for target in ("litert-int8", "tosa-int8", "onnxruntime-cpu", "llm-w4"):
        plan = planner.plan(model, target)
        floats = planner.plan(planner.annotate(model, kernels={"*": "float"}), target)
        assert coverage_of(floats).on_device == 0
        assert coverage_of(plan).float_work == pytest.approx(floats.work.total)
        assert coverage_of(plan).work == plan.work.total
