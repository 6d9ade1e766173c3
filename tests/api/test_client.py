"""The Python client: every route, and failures as the planner's own errors."""

import json
from pathlib import Path

import pytest

import planner
from planner.calibration.statsjson import write_statistics
from planner.client import Client, ServiceError
from planner.errors import (
    AnnotationError,
    Conflict,
    InputError,
    ModelError,
    PlanInvalid,
    StatsError,
    TargetError,
    UnknownName,
    UnsupportedExport,
)
from planner.version import VERSION
from tests.api.conftest import free_port
from tests.api.documents import chain, overflowing, relu

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def client(server):
    with Client(server.url) as made:
        yield made


def test_the_whole_job(client, tmp_path):
    assert client.server()["version"] == VERSION
    assert [entry["id"] for entry in client.targets()] == list(planner.target_ids())
    assert client.target("litert-int8")["mode"] == "fixed"
    stats = planner.calibrate(planner.load_model(DIGITS), ROOT / "examples" / "digits" / "calibration.npz")
    path = tmp_path / "stats.json"
    path.write_text(write_statistics(stats))
    model, kept = client.model(DIGITS), client.stats(path)
    plan = client.plan(model["digest"], "onnxruntime-cpu", stats=kept["digest"], bit_price=2.0)
    assert client.get_plan(plan["key"]) == plan
    text = client.explain(plan["key"], plan["kernels"][0]["name"])
    assert text == planner.explain(planner.plan_from_json(json.dumps(plan)), plan["kernels"][0]["name"])
    data = client.export(model["digest"], plan["key"], "onnx-qoperator")
    assert planner.load_model(data).outputs == planner.load_model(DIGITS).outputs


def test_annotated_models_and_lint(client):
    note = {"format": "qplan.annotations/1", "values": {"v0": "!quant.none"}}
    plan = client.plan(chain(2), "litert-int8", annotations=note, strategy="rfc")
    assert {rescale["value"] for rescale in plan["rescales"]} >= {"v0"}
    assert client.lint((ROOT / "targets" / "litert-int8.yaml").read_text()) == []


def test_uploads_twice_are_one(client):
    assert client.upload(relu()) == client.upload(relu())
    assert client.download(client.upload(relu())) == relu()


FAILURES = {
    "annotation": (
        AnnotationError,
        lambda c: c.plan(chain(1), "litert-int8", annotations={"format": "?"}),
        "'\\?'",
    ),
    "conflict": (Conflict, lambda c: c.plan(overflowing(), "litert-int8"), "accumulator"),
    "model": (ModelError, lambda c: c.model(relu()[:-1]), "truncated"),
    "nothing there": (UnknownName, lambda c: c.plan(chain(1), "litert-int9"), "did you mean 'litert-int8'"),
    "stats": (StatsError, lambda c: c.stats({}), "format"),
    "target": (TargetError, lambda c: c.lint("id: x\n"), "T011"),
    "no file": (InputError, lambda c: c.model("/nowhere.onnx"), "cannot read '/nowhere.onnx'"),
    "no numbers": (
        UnsupportedExport,
        lambda c: c.export(
            c.model(json.dumps(chain(1)).encode())["digest"],
            c.plan(chain(1), "litert-int8")["key"],
            "onnx-qdq",
        ),
        "no ops inside",
    ),
    "another model": (
        PlanInvalid,
        lambda c: c.export(c.model(relu())["digest"], c.plan(chain(1), "litert-int8")["key"], "onnx-qdq"),
        "outputs",
    ),
    "not in the tree": (ServiceError, lambda c: c.plan(chain(1), ["x"]), "/target"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(client, name):
    kind, call, words = FAILURES[name]
    with pytest.raises(kind, match=words) as caught:
        call(client)
    assert type(caught.value) is kind


def test_members_of_failures(client):
    with pytest.raises(Conflict) as conflict:
        client.plan(overflowing(), "litert-int8")
    assert conflict.value.facts == ("accumulator i32 at litert-int8.yaml:144", "weights of 'k0'")
    with pytest.raises(TargetError) as target:
        client.lint("id: x\n")
    assert {error.code for error in target.value.errors} == {"T011"}


def test_no_server():
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(ServiceError, match="no answer"):
        client.targets()
