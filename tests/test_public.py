"""The face: convert, run and cost of a file; what it says of arguments of another kind; targets by name."""

import numpy as np
import onnx
import pytest

import planner
from planner.errors import (
    AnnotationError,
    InputError,
    ModelError,
    PlanFormatError,
    QTypeError,
    SampleError,
    StatsError,
    UnknownName,
)
from planner.formats.onnx.read import read_written
from tests.conftest import ROOT
from tests.conversion.files import file_of, quant_node


def test_convert_run_and_cost_take_a_file():
    node, arrays = quant_node("y", "x", scale=0.25, zero_point=0.0, bits=4)
    data = file_of([node], {"x": (1, [None])}, ["y"], arrays)
    x = np.linspace(-3, 3, 25, dtype=np.float32)
    done = planner.convert(data, "onnx-qcdq")
    kinds = [op.type for op in read_written(done).ops]
    assert kinds == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    wanted = planner.run(data, {"x": x})["y"]
    np.testing.assert_array_equal(planner.run(done, {"x": x})["y"], wanted)
    assert np.unique(wanted).size == 16
    assert planner.cost(data).macs == 0


DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def ready():
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    model = planner.annotate(model, stats=stats)
    return model, stats, planner.plan(model, "litert-int8")


WRONG = {
    "a protobuf": (
        lambda *_: planner.load_model(onnx.ModelProto()),
        ModelError,
        "the model is no ONNX model.*: it is empty",
    ),
    "a path for a model": (
        lambda *_: planner.plan("digits.onnx", "litert-int8"),
        InputError,
        "load_model .* a str",
    ),
    "swapped": (lambda m, _, p: planner.export(p, m, "onnx-qdq"), InputError, "not a Plan"),
    "no target": (lambda m, *_: planner.plan(m, None), InputError, "a target is a name, .* not a NoneType"),
    "no format": (lambda m, _, p: planner.export(m, p, None), UnknownName, "unknown export format None"),
    "no address": (lambda *all_: planner.explain(all_[2], None), UnknownName, "kernel or rescale None"),
    "a document": (lambda *_: planner.plan_from_json({}), PlanFormatError, "not a dict"),
    "no type": (lambda *_: planner.parse_type(None), QTypeError, "from a NoneType"),
    "a dict of ranges": (
        lambda m, *_: planner.annotate(m, stats={}),
        StatsError,
        "the result of calibrate.* a dict",
    ),
    "no method": (
        lambda m, *_: planner.calibrate(m, [], method=None),
        InputError,
        "minmax, .* not a NoneType",
    ),
    "progress as a switch": (
        lambda m, *_: planner.calibrate(m, [], progress=True),
        InputError,
        "progress is a function of .* not True",
    ),
    "workers for an executor": (
        lambda m, *_: planner.calibrate(m, [], executor=4),
        InputError,
        "executor is one of concurrent.futures, .* not 4",
    ),
    "no plan to check": (
        lambda *_: planner.check(None),
        InputError,
        "a plan is the result of plan, .* not a NoneType",
    ),
    "no plan to export": (lambda m, *_: planner.export(m, "plan.json", "onnx-qdq"), InputError, "not a str"),
    "no sample": (
        lambda m, _, p: planner.evaluate(m, p, None),
        SampleError,
        "a mapping of input names, found",
    ),
    "no plan to evaluate": (
        lambda m, *_: planner.evaluate(m, {}, {}),
        InputError,
        "a plan is the result of .* a dict",
    ),
    "arithmetics": (
        lambda m, _, p: planner.evaluate(m, p, {}, arithmetic=[]),
        UnknownName,
        "arithmetic \\[\\]",
    ),
    "half a diff": (
        lambda *all_: planner.diff(all_[2], 3),
        InputError,
        "a plan is the result of .* not a int",
    ),
    "no plan to explain": (
        lambda m, *_: planner.explain(m, "x"),
        InputError,
        "a plan is the result of .* a Graph",
    ),
    "no plan to advise": (lambda *_: planner.suggest(None, "y#0"), InputError, "a plan is the result of"),
    "no plan to trade": (lambda *_: planner.pareto(None, "y"), InputError, "a plan is the result of"),
    "no plan to change": (lambda *_: planner.replan(None, {}), InputError, "a plan is the result of"),
    "no plan to restore": (lambda *_: planner.restore(None, "conv1"), InputError, "a plan is the result of"),
    "no plan to retarget": (
        lambda *_: planner.retarget(None, "tosa-int8"),
        InputError,
        "a plan is the result of",
    ),
    "no plan to draw": (
        lambda m, *_: planner.to_networkx(m),
        InputError,
        "a plan is the result of .* not a Graph",
    ),
    "no plan to report": (lambda *_: planner.write_report(None), InputError, "a plan is the result of"),
    "kernels to restore": (
        lambda *all_: planner.restore(all_[2], ["conv1"]),
        UnknownName,
        "unknown kernel \\['conv1'\\]",
    ),
    "formats": (lambda m, _, p: planner.export(m, p, ["onnx-qdq"]), UnknownName, "did you mean 'onnx-qdq'"),
    "a comparison alone": (
        lambda *all_: planner.write_report(all_[2], {"onnx-qdq": 40.0}),
        InputError,
        "a comparison is the result of compare, not a float",
    ),
    "functions in a list": (
        lambda *_: planner.load_target("litert-int8", functions=[len]),
        InputError,
        "functions are a mapping from name to function, not a list",
    ),
    "no file to convert": (
        lambda *_: planner.convert(None, "qonnx"),
        InputError,
        "the bytes of a file, not a No",
    ),
    "no file to run": (lambda *_: planner.run(3, {}), InputError, "a model is read from a path .* not a int"),
    "no file to count": (
        lambda *_: planner.cost([]),
        InputError,
        "a model is read from a path .* not a list",
    ),
    "no file to compare": (
        lambda m, *_: planner.compare(m, None, []),
        InputError,
        "a quantized file is a path",
    ),
    "a path to condition": (
        lambda *_: planner.condition("m.onnx", "equalize"),
        InputError,
        "a model is the result of load_model",
    ),
    "no statistics to condition with": (
        lambda m, *_: planner.condition(m, "equalize", stats=3),
        InputError,
        "statistics are the result of calibrate, or a file of it, not a int",
    ),
    "no samples to condition with": (
        lambda m, *_: planner.condition(m, "migrate", samples=3),
        SampleError,
        "samples cannot be a int",
    ),
    "a path to correct": (
        lambda _, s, *__: planner.correct_biases("m.onnx", "litert-int8", s),
        InputError,
        "a model is the result of load_model",
    ),
    "a list of facts": (lambda m, *_: planner.annotate(m, annotations=[]), AnnotationError, "not a list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_another_kind(name, ready):
    """A mistake of the first hour in a notebook gets a line, as every failure does."""
    call, error, said = WRONG[name]
    with pytest.raises(error, match=said):
        call(*ready)


def test_targets_by_name(ready):
    """Whatever takes a target takes its name."""
    model, _, plan = ready
    planner.check(plan, model, "litert-int8")
    other = planner.retarget(plan, "onnxruntime-cpu")
    assert other.target.id == "onnxruntime-cpu"
    saved = planner.plan_from_json(plan.to_json())
    again = planner.replan(saved, {"values": {}}, model=model, target="litert-int8")
    assert again.cost == plan.cost


def test_what_a_notebook_shows_is_a_line(ready):
    model, stats, plan = ready
    shown = [repr(item) for item in (model, stats, plan, planner.load_target("litert-int8"))]
    counts = f"15 kernels, {len(plan.rescales)} rescales and casts"
    assert shown[2] == f"<Plan of 'digits' for litert-int8: {counts}, cost 458>"
    assert all(len(text) < 200 and "\n" not in text for text in shown)
