"""The spec as a document: its schema, its way out and in, and what it says of a small plan."""

import json

import jsonschema
import pytest

import planner
from planner.cli.app import run
from planner.errors import PlanFormatError
from planner.training.document import schema_text, spec_from_json
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
SCHEMA = ROOT / "planner" / "training" / "training.schema.json"


@pytest.fixture(scope="module")
def plans():
    model = planner.load_model(DIGITS / "digits.onnx")
    ready = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    return {name: planner.plan(ready, name) for name in ("litert-int8", "hls4ml-fpga", "finn-fpga")}


def test_the_shipped_schema_is_that_of_the_document():
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()


def test_a_spec_is_read_back_and_fits_the_schema(plans):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for plan in plans.values():
        spec = planner.training_spec(plan)
        jsonschema.Draft202012Validator(schema).validate(json.loads(spec.to_json()))
        assert spec_from_json(spec.to_json()) == spec


def test_a_plan_of_a_file_gives_the_same_spec(plans):
    for plan in plans.values():
        assert planner.training_spec(planner.plan_from_json(plan.to_json())) == planner.training_spec(plan)


def test_the_parts_of_a_spec(plans):
    spec = planner.training_spec(plans["litert-int8"])
    tied = [edge.value for edge in spec.edges if edge.group == "separable/pointwise_out"]
    assert tied == ["separable/pointwise_out", "plain/relu_out", "skip/pool_out", "join/concat_out"]
    weight = next(item for item in spec.constants if item.edge.value == "stem/conv_weight")
    assert (weight.edge.axis, weight.narrow, len(spec.groups["stem/conv_weight"].scales)) == (0, True, 24)
    bias = next(item for item in spec.biases if item.edge.value == "stem/conv_out/bias")
    assert (bias.of, bias.accumulator, bias.edge.consumers) == (
        ("image", "stem/conv_weight"),
        "i32",
        ("stem/conv.in[2]",),
    )
    assert spec.groups["image"].anchors == ("image",)
    assert {group.moves for group in spec.groups.values()} == {"free", "fixed", "derived"}


def break_it(document, *path, to):
    *places, last = path
    for place in places:
        document = document[place]
    document[last] = to


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (("format",), "qplan.training/2", "format 'qplan.training/2' is unknown"),
        (("groups", 0, "moves"), "often", r"groups\[0\].moves"),
        (("groups", 0, "scales"), [0.0], r"groups\[0\].scales: one or more numbers above 0"),
        (("groups", 0, "name"), "res/relu1_out", "two groups are named"),
        (("edges", 0, "group"), "none", r"edges\[0\].group: there is no group 'none'"),
        (("edges", 0, "storage"), "int8", r"edges\[0\].storage"),
        (("edges", 0, "zero_points"), [300], "zero point 300 lies outside"),
        (("edges", 0, "colour"), "red", r"edges\[0\].colour: unknown field"),
    ],
)
def test_a_broken_document_is_refused_with_its_place(plans, path, to, message):
    document = json.loads(planner.training_spec(plans["litert-int8"]).to_json())
    break_it(document, *path, to=to)
    with pytest.raises(PlanFormatError, match=message):
        spec_from_json(json.dumps(document))


def test_the_command_writes_a_spec(plans, tmp_path, capsys):
    (tmp_path / "plan.json").write_text(plans["finn-fpga"].to_json(), encoding="utf-8")
    out = tmp_path / "spec.json"
    assert run(["training-spec", str(tmp_path), "--keep", "image", "-o", str(out)]) == 0
    assert "wrote" in capsys.readouterr().out
    spec = spec_from_json(out.read_text(encoding="utf-8"))
    assert spec == planner.training_spec(plans["finn-fpga"], keep=["image"])


def test_kernels_that_quantize_while_they_run_have_no_scale_to_learn():
    model = planner.load_model(DIGITS / "digits.onnx")
    ready = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    plan = planner.plan(ready, "onnxruntime-dynamic")
    with pytest.raises(planner.PlannerError, match=r"quantizes while it runs .*static activations"):
        planner.training_spec(plan)
