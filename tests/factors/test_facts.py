"""Facts and absorbed factors: what somebody asks for holds, what was observed is scaled, nothing twice."""

import math
from dataclasses import replace

import numpy as np
import onnx
import pytest

import planner
from planner.errors import AnnotationError
from planner.factors.absorb import absorb_factors, absorbed_like
from planner.factors.facts import scaled
from planner.factors.form import in_form_of_plan
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.formats.onnx.write import write_graph
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import AtReaders, Calibrated, RowMax, WidthRange
from planner.ir.types.typetext import parse_type
from planner.plans.read_mlir import plan_from_mlir
from tests.factors.test_absorb import CASES
from tests.formats.onnx.reader.runs import model, op_types, outputs
from tests.formats.test_scalar_factors import drawn

ATTENTION = CASES["attention"][0]
SIZES = {"x": (1, 2, 4)}
PIN = "!quant.uniform<i8:f32, 0.125>"


def fed(seed: int = 0, shape=(1, 2, 4), count: int = 3):
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def known():
    """A model, and statistics of it."""
    graph = planner.load_model(model(ATTENTION))
    return graph, planner.calibrate(graph, fed())


@pytest.mark.parametrize("name", ["s", "t"])
@pytest.mark.parametrize("fact", [PIN, "!quant.none", "!quant.any<i8>", "bf16"])
def test_what_is_asked_of_a_factor_keeps_it(known, name, fact):
    graph, stats = known
    ready = planner.annotate(
        graph, stats=stats, annotations={"format": "qplan.annotations/1", "values": {name: fact}}
    )
    assert "Mul" in op_types(ready)
    assert not ready.scaled
    assert parse_type(fact) in ready.values[name].facts
    plan = planner.plan(ready, "litert-int8")
    planner.check(plan, ready)


@pytest.mark.parametrize("fact", [PIN, "!quant.calibrated<f32<-9.0:9.0>>"])
@pytest.mark.parametrize("name", ["a", "c", "q"])
def test_what_is_asked_on_the_way_sends_the_factor_another_way(known, name, fact):
    """Of the two sides of the product the other one takes it."""
    graph, stats = known
    ready = planner.annotate(
        graph, stats=stats, annotations={"format": "qplan.annotations/1", "values": {name: fact}}
    )
    assert parse_type(fact) in ready.values[name].facts
    assert "l/scaled" in ready.values
    plan = planner.plan(ready, "litert-int8")
    planner.check(plan, planner.annotate(graph), "litert-int8")


def test_pins_on_all_ways_keep_the_factor(known):
    graph, stats = known
    asked = {"format": "qplan.annotations/1", "values": {"q": PIN, "e": PIN}}
    assert "Mul" in op_types(planner.annotate(graph, stats=stats, annotations=asked))


@pytest.mark.parametrize("key", ["Div_7", "Div*", "*"])
def test_an_op_that_is_asked_something_stays(known, key):
    graph, stats = known
    ready = planner.annotate(graph, stats=stats, kernels={key: "float"})
    assert "Mul" in op_types(ready)
    planner.plan(ready, "litert-int8")


def test_annotating_again_changes_nothing(known):
    graph, stats = known
    once = planner.annotate(graph, stats=stats)
    assert once.scaled
    for again in (planner.annotate(once), planner.annotate(once, stats=stats)):
        assert again.ops == once.ops
        assert again.values == once.values
        assert again.notes == once.notes
        assert model_digest(again) == model_digest(once)


def test_without_statistics_a_model_stays(known):
    graph, _ = known
    asked = {"format": "qplan.annotations/1", "values": {"x": "!quant.none"}}
    assert op_types(planner.annotate(graph, annotations=asked)) == op_types(graph)


@pytest.mark.parametrize("fact", ["!quant.none", "!quant.any<i8>", "bf16"])
def test_an_annotation_without_numbers_holds_of_the_scaled_value(known, fact):
    graph, stats = known
    asked = {"format": "qplan.annotations/1", "values": {"q": fact}}
    ready = planner.annotate(planner.annotate(graph, stats=stats), annotations=asked)
    assert parse_type(fact) in ready.values["q/scaled"].facts
    planner.check(planner.plan(ready, "litert-int8"), ready)


def test_an_annotation_of_numbers_that_comes_too_late_is_told_the_name(known):
    graph, stats = known
    asked = {"format": "qplan.annotations/1", "values": {"q": PIN}}
    with pytest.raises(AnnotationError, match=r"'q' is 'q/scaled', times 0.125 since") as caught:
        planner.annotate(planner.annotate(graph, stats=stats), annotations=asked)
    assert "before or together" in caught.value.hint


def test_the_bare_model_takes_the_form_of_its_plan(known):
    graph, stats = known
    ready = planner.annotate(graph, stats=stats)
    plan = planner.plan_from_json(planner.plan(ready, "litert-int8").to_json())
    assert plan.graph.scaled == ready.scaled
    assert model_digest(in_form_of_plan(graph, plan.graph)) == model_digest(ready) == plan.model
    planner.check(plan, graph, "litert-int8")
    np.testing.assert_array_equal(
        *(planner.evaluate(it, plan, fed()[0]).outputs["y"] for it in (graph, ready))
    )
    assert planner.export(graph, plan, "onnx-qdq") == planner.export(ready, plan, "onnx-qdq")


def test_texts_keep_what_was_absorbed(known):
    graph, stats = known
    ready = planner.annotate(graph, stats=stats)
    assert read_annotated(write_annotated(ready)).scaled == ready.scaled
    assert read_mlir(write_mlir(ready)).scaled == ready.scaled
    assert plan_from_mlir(planner.plan(ready, "litert-int8").to_mlir()).graph.scaled == ready.scaled


def test_a_vector_that_was_absorbed_is_kept_in_texts():
    graph = planner.load_model(model(CASES["vector in front of a product"][0]))
    ready = planner.annotate(graph, stats=planner.calibrate(graph, fed()))
    name, factor = read_annotated(write_annotated(ready)).scaled["a"]
    assert name == "t"
    assert math.isnan(factor)


def test_an_observation_is_scaled_whole():
    fact = Calibrated(
        (-2.0,), (4.0,), row_max=(RowMax(1, 3.0, 7),), widths=(WidthRange(8, -1.0, 3.0),),
        readers=(AtReaders(8, 30.0),), two_values=True,
    )  # fmt: skip
    assert scaled(fact, 0.5) == Calibrated(
        (-1.0,), (2.0,), row_max=(RowMax(1, 1.5, 7),), widths=(WidthRange(8, -0.5, 1.5),),
        readers=(AtReaders(8, 30.0),), two_values=True,
    )  # fmt: skip
    assert scaled(fact, -1.0) is None  # the least of a row was not observed
    sliced = Calibrated((-2.0, 1.0), (4.0, 8.0), axis=1)
    assert scaled(sliced, -2.0) == Calibrated((-8.0, -16.0), (4.0, -2.0), axis=1)
    assert scaled(sliced, 1e38) is None
    assert scaled(Calibrated((-1.0,), (2.0,), widths=(WidthRange(4, -1.0, 1.0),)), -1.0) == Calibrated(
        (-2.0,), (1.0,), widths=(WidthRange(4, -1.0, 1.0),)
    )


def _ranges_are_those_measured_anew(seed: int) -> int:
    graph = planner.load_model(drawn(seed))
    samples = fed(seed, (1, 4, 8))
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    bare = absorbed_like(graph, ready)
    assert {op.name: op for op in bare.ops} == {op.name: op for op in ready.ops}
    for sample in samples:
        before, after = (outputs(write_graph(it), sample) for it in (graph, bare))
        for name, wanted in before.items():
            np.testing.assert_allclose(after[name], wanted, atol=1e-5 * np.abs(wanted).max())
    anew = planner.calibrate(bare, samples)
    for name, value in ready.values.items():
        told = [fact for fact in value.facts if isinstance(fact, Calibrated)]
        if name in anew.values:
            seen = anew.values[name]
            width = max(abs(seen.lo), abs(seen.hi))
            np.testing.assert_allclose([told[0].lo, told[0].hi], [seen.lo, seen.hi], atol=2e-5 * width)
            rows = [(row.axis, row.least) for row in told[0].row_max]
            np.testing.assert_allclose(
                rows, [(row.axis, row.least) for row in seen.rows], rtol=1e-4, atol=2e-5 * width
            )
    again = planner.annotate(ready, stats=planner.calibrate(graph, samples))
    assert again.values == ready.values
    assert absorb_factors(ready).ops == ready.ops
    return len(ready.scaled)


def test_ranges_are_those_measured_anew():
    assert sum(map(_ranges_are_those_measured_anew, range(12))) > 40


@pytest.mark.soak
def test_ranges_are_those_measured_anew_of_many():
    for seed in range(12, 400):
        _ranges_are_those_measured_anew(seed)


def test_a_written_model_still_goes_by_the_first_names_in_statistics(known):
    """As that of corrected biases, which is planned again with the statistics of the model."""
    graph, stats = known
    ready = planner.annotate(graph, stats=stats)
    again = planner.load_model(write_graph(ready))
    assert again.scaled == ready.scaled
    assert {name: value.facts for name, value in planner.annotate(again, stats=stats).values.items()} == {
        name: value.facts for name, value in ready.values.items()
    }
    other = planner.load_model(write_graph(replace(ready, scaled={"t": ("gone", 2.0), "x": ("y", 1.0)})))
    assert not other.scaled


def test_metadata_of_somebody_else_is_left_alone(known):
    written = onnx.load_from_string(write_graph(known[0]))
    for text in ("nonsense", "3", '[["a"]]'):
        del written.metadata_props[:]
        written.metadata_props.add(key="qplan.scaled", value=text)
        assert not planner.load_model(written.SerializeToString()).scaled
