"""Verdicts: accuracy and coverage, the worse decides; what counts as covered."""

import pytest

import planner
from planner.accuracy.coverage import Coverage, coverage_of
from planner.accuracy.quality import Quality
from planner.accuracy.verdict import LEVELS, coverage_part, fallback_lines, sqnr_level, verdict_of
from planner.report.summary import mark
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
        "poor: nothing is quantized, all 9 kernels fall back to float"
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


def test_main_reasons_come_first():
    model = read_model_text(CHAIN, "chain")
    plan = planner.plan(planner.annotate(model, kernels={"a": "float"}), "litert-int8")
    (first, *_), covered = fallback_lines(coverage_of(plan)), coverage_of(plan)
    assert first == "1 fully_connected, 100 % of multiply-adds: annotated: float"
    assert (covered.fallbacks[0].kernel, covered.fallbacks[0].macs) == ("a", 8192)
