"""A plan law of docs/specification.md, section 5: planning a planned module again changes nothing.

The plan goes out as text, is read as a model and planned: types, rows, rescales and their prices stay, and
so do the files written. Bits that were paid for are excused now: with every port pinned, no bit lost could be
kept (`docs/mlir.md`).
"""

import io
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from benchmarks.samples import model_folder
from benchmarks.target_matrix import model_names
from benchmarks.target_matrix_side import load
from planner.errors import Conflict, PlannerError, UnsupportedExport
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir
from planner.formats.qonnx.hls4ml import MODEL_FILE
from planner.formats.table import EXPORTERS
from planner.plans.rescales import price_of
from planner.propagation.propagate import propagate
from planner.target.load import target_ids
from tests.awkward.job import samples_of
from tests.awkward.models import AWKWARD
from tests.cases.test_structure import CASES, NPU, read
from tests.conftest import ROOT
from tests.plans.randommodels import images, random_model
from tests.propagation.graphs import EVERY_RULE
from tests.propagation.test_laws import graphs_of_every_rule, port_types

DIGITS = ROOT / "examples" / "digits"
OTHER_FLOATS = ("half_graph", "double_graph")
STRATEGIES = ("minimal", "rfc")
FOUND = [
    (3, "tosa-int8"),  # bits of sums, where a port pins weights per channel
    (8, "stablehlo"),  # a weight's pin in another storage, without the weight's numbers
    (11, "finn-fpga"),  # storage of a wildcard port, and so its price
    (14, "litert-int8"),  # slices through a split
    (16, "finn-fpga"),  # the row with as many pins of the value, not of the port
    (17, "hls4ml-fpga"),  # slices that are no powers of two
    (76, "teaching-npu"),  # an Any that a wildcard port cannot hold, as it shares its storage
    (32, "onnxruntime-cpu"),  # slices through a slice whose ends the text does not have
]


def assert_kept(plan, again):
    """Types and rescales: with every port fixed, bits that were paid for are excused."""
    assert port_types(again) == port_types(plan)
    assert again.rescales == plan.rescales
    trips = {kernel.name: kernel.trip_count for kernel in plan.kernels_in_order}
    paid = 0
    for one in plan.rescales:
        times = max(trips.get(kernel, 1) for kernel, _ in one.consumers)
        paid += one.elements * round(price_of(one.kind, plan.target.costs) * 1024) * times
    assert again.cost == paid / 1024
    assert again.price >= again.cost


def with_numbers(text, model):
    """The model of a planned text, which has no numbers, with those of the model that was planned."""
    return replace(text, constants=dict(model.constants))


@st.composite
def random_models(draw, most=14):
    return random_model(
        draw(st.integers(0, 1 << 20)),
        draw(st.integers(1, most)),
        facts=draw(st.sampled_from((0.0, 0.1, 0.3))),
    )


def keeps_its_plan(graph, strategy):
    plan = propagate(graph, EVERY_RULE, strategy=strategy)
    text = read_mlir(plan.to_mlir())
    assert_kept(plan, propagate(text, EVERY_RULE))
    assert_kept(plan, propagate(with_numbers(text, graph), EVERY_RULE))
    assert_kept(plan, propagate(read_annotated(write_annotated(text)), EVERY_RULE))


@given(graphs_of_every_rule(), st.sampled_from(STRATEGIES))
def test_every_kind_of_rule(graph, strategy):
    """As MLIR, with and without numbers, and as the annotated model in JSON that it converts to."""
    keeps_its_plan(graph, strategy)


@pytest.mark.soak
@settings(max_examples=1500)
@given(graphs_of_every_rule(), st.sampled_from(STRATEGIES))
def test_every_kind_of_rule_at_length(graph, strategy):
    keeps_its_plan(graph, strategy)


def keeps_its_files(model, target, strategy):
    """On a shipped target: the plan, what the interpreter computes, and the bytes of every format."""
    try:
        plan = planner.plan(model, target, strategy=strategy)
    except Conflict:
        return
    text = planner.load_model(plan.to_mlir().encode(), format="mlir")
    assert_kept(plan, planner.plan(text, target))
    text = with_numbers(text, model)
    again = planner.plan(text, target)
    assert_kept(plan, again)
    planner.check(again, text, target)
    for form in EXPORTERS:
        assert written(text, again, form) == written(model, plan, form)
    sample = {name: images(np.random.default_rng(1)) for name in model.inputs}
    first, second = (results(one, by, sample) for one, by in ((model, plan), (text, again)))
    assert first == second


def written(model, plan, form):
    """A file, less what an ONNX one says of the model that it comes from."""
    try:
        data = planner.export(model, plan, form)
    except UnsupportedExport:
        return None
    if form == "hls4ml":
        with zipfile.ZipFile(io.BytesIO(data)) as folder:
            parts = {name: folder.read(name) for name in folder.namelist()}
        return parts | {MODEL_FILE: without_origin(parts[MODEL_FILE])}
    return without_origin(data) if form.startswith("onnx") or form in ("finn", "qonnx") else data


def without_origin(data):
    file = onnx.load_from_string(data)
    del file.metadata_props[:]
    return file.SerializeToString()


def results(model, plan, sample):
    try:
        found = planner.evaluate(model, plan, sample)
    except PlannerError as error:
        return type(error)
    return [found.reals[name].tobytes() for name in model.outputs]


@given(random_models(), st.sampled_from(target_ids()), st.sampled_from(STRATEGIES))
def test_shipped_targets(model, target, strategy):
    keeps_its_files(model, target, strategy)


@pytest.mark.soak
@settings(max_examples=400)
@given(random_models(), st.sampled_from(target_ids()), st.sampled_from(STRATEGIES))
def test_shipped_targets_at_length(model, target, strategy):
    keeps_its_files(model, target, strategy)


@pytest.mark.parametrize(("seed", "target"), FOUND)
def test_models_whose_types_changed_once(seed, target):
    """Each had a reason of its own, see `FOUND`."""
    model = random_model(seed, 3 + seed % 12, facts=(0.0, 0.1, 0.3)[seed % 3])
    for strategy in STRATEGIES:
        keeps_its_files(model, target, strategy)


@pytest.mark.parametrize("name", CASES)
def test_bodies_of_loops_and_calls(name):
    plan = planner.plan(read(name), NPU)
    assert_kept(plan, planner.plan(read_mlir(plan.to_mlir()), NPU))


def keeps_on_every_target(model):
    for target in target_ids():
        plan = planner.plan(model, target)
        text = with_numbers(read_mlir(plan.to_mlir()), model)
        again = planner.plan(text, target)
        assert_kept(plan, again)
        planner.check(again, text, target)


def test_the_example():
    model = planner.load_model(DIGITS / "digits.onnx")
    keeps_on_every_target(planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz")))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in OTHER_FLOATS else pytest.mark.soak) for n in AWKWARD]
)
def test_awkward_models(name):
    """Loops, recurrent kernels, floats of other widths."""
    try:
        model = planner.load_model(AWKWARD[name]())
        model = planner.annotate(model, stats=planner.calibrate(model, list(samples_of(model))))
    except PlannerError:
        return  # tests.awkward.test_job knows which ones, and the words
    keeps_on_every_target(model)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.soak) for name in model_names()])
def test_real_models(models, name, tmp_path):
    assert models == model_folder()
    keeps_on_every_target(load(name, tmp_path)[0])
