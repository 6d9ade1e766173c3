"""Quantizations over HTTP: one request for a file, its plan and a verdict, as JSON and as a form."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.accuracy.verdict import FAIR_SQNR, GOOD_SQNR
from planner.cli.app import run
from planner.client import Client
from tests.api.documents import OCTETS, RANGE, digest, put, relu
from tests.api.test_jobs_http import WAIT, end_of, events_of
from tests.api.test_problems import check
from tests.plan_search.outliers import written

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL, SAMPLES = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
PATH = "/v1/quantizations"


@pytest.fixture(scope="module")
def named(service) -> dict[str, str]:
    """The digits example, sent before."""
    blobs = {"model": put(service, MODEL.read_bytes()), "samples": put(service, SAMPLES.read_bytes())}
    return {**blobs, "target": "litert-int8"}


@pytest.fixture(scope="module")
def done(service, named):
    answer = service.post(PATH, json=named, headers=WAIT)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_file_is_that_of_its_plan(service, done):
    """As if each step had been asked for alone."""
    model = service.get(f"/v1/models/{done['model']}").json()
    assert model["blob"] == digest(MODEL.read_bytes())
    body = {"model": done["model"], "samples": digest(SAMPLES.read_bytes())}
    assert service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"] == done["stats"]
    asked = {"model": done["model"], "target": "litert-int8", "stats": done["stats"]}
    options = {"formats": ["onnx-qdq"], "correct_biases": True}
    plan = service.post("/v1/plans", json={**asked, "options": options}).json()
    assert plan["key"] == done["plan"]
    export = {"model": done["model"], "plan": done["plan"], "format": "onnx-qdq"}
    assert service.post("/v1/exports", json=export).json()["blob"] == done["file"]
    file = service.get(done["link"]).content
    assert len(file) == done["bytes"]
    found = planner.compare(planner.load_model(MODEL), file, SAMPLES)
    assert found.worst_sqnr == pytest.approx(done["quality"]["sqnr"])


def test_the_verdict_is_that_of_the_plan(service, done):
    assert done["verdict"]["level"] == "good"
    assert done["verdict"]["coverage"]["kernels"] == done["verdict"]["coverage"]["on_device"] == 15
    assert (done["trials"], done["given_up"]) == (0, "")
    assert service.get(f"/v1/plans/{done['plan']}/summary").json()["quality"] == done["quality"]
    assert service.get(done["report"]).text.startswith("<!doctype html>")


def test_it_is_what_the_command_makes(done, tmp_path, capsys):
    """To the byte, and with the same verdict."""
    line = ["quantize", str(MODEL), "--data", str(SAMPLES), "--target", "litert-int8", "--out", str(tmp_path)]
    assert run([*line, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "plan.json").read_text())["key"] == done["plan"]
    assert digest((tmp_path / "onnx-qdq.onnx").read_bytes()) == done["file"]
    assert told["verdict"] == done["verdict"]


def test_its_plan_can_be_edited(service, done):
    """The plan after that is of the model with corrected biases, too."""
    edits = {"restore": ["stem/conv"]}
    answer = service.post(f"/v1/plans/{done['plan']}:replan", json=edits)
    assert answer.status_code == 200, answer.text
    again = {"model": done["model"], "plan": answer.json()["key"]}
    export = service.post("/v1/exports", json={**again, "format": "onnx-qdq"})
    assert export.status_code == 201, export.text
    compared = {**again, "samples": digest(SAMPLES.read_bytes())}
    for body in (compared, {**compared, "format": "interpreter"}):
        found = service.post("/v1/comparisons", json=body, headers=WAIT)
        assert found.status_code == 201, found.text
        assert found.json()["quality"]["sqnr"] > GOOD_SQNR
    lost = service.post("/v1/losses", json={**compared, "limit": 2}, headers=WAIT)
    assert lost.status_code == 201, lost.text
    preview = service.post(f"/v1/plans/{done['plan']}:preview", json=edits)
    assert (preview.status_code, preview.json()["same"]) == (200, False)


def test_a_form_is_its_json(service, named, done):
    with MODEL.open("rb") as model, SAMPLES.open("rb") as samples:
        files = {"model": model, "samples": samples}
        answer = service.post(PATH, files=files, data={"target": "litert-int8"}, headers=WAIT)
    assert (answer.status_code, answer.json()) == (201, done)
    # A digest may stand for each file.
    fields = {name: (None, text) for name, text in named.items()}
    assert service.post(PATH, files=fields, headers=WAIT).json() == done


@pytest.fixture
def other_name(tmp_path) -> Path:
    """A file of another name than the model in it."""
    path = tmp_path / "renamed.corrected-float.onnx"
    path.write_bytes(relu())
    return path


def test_a_model_is_called_by_its_file_as_in_the_library(service, other_name, tmp_path):
    """Else its plans had other keys over HTTP."""
    np.savez(tmp_path / "samples.npz", x=np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8))
    graph = planner.load_model(other_name)
    assert graph.name == "renamed"
    named = planner.plan(planner.annotate(graph, annotations=RANGE), "onnxruntime-cpu")
    with Client(str(service.base_url)) as client:
        record = client.model(other_name)
        assert client.plan(record["digest"], "onnxruntime-cpu", annotations=RANGE)["key"] == named.key
        assert client.model(other_name, name="g")["digest"] == client.model(relu())["digest"]
        done = client.quantize(other_name, tmp_path / "samples.npz", effort="quick")
    assert done["model"] == record["digest"]
    with other_name.open("rb") as model, (tmp_path / "samples.npz").open("rb") as samples:
        form = service.post(PATH, files={"model": model, "samples": samples}, headers=WAIT).json()
    assert form["model"] == record["digest"]
    sent = service.post("/v1/models", params={"name": "renamed"}, content=relu(), headers=OCTETS).json()
    assert sent["digest"] == record["digest"]
    check(
        service.post(PATH, json={"model": record["digest"], "samples": digest(b""), "name": "x"}),
        "input-invalid",
        "name belongs to a model that is read from a blob",
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_one_command_of_curl(service, done):
    fields = [f"model=@{MODEL}", f"samples=@{SAMPLES}", "target=litert-int8"]
    line = ["curl", "-sSf", "-H", "Prefer: wait=60", f"{service.base_url}{PATH}"]
    line += [word for field in fields for word in ("-F", field)]
    assert json.loads(subprocess.run(line, capture_output=True, check=True).stdout) == done


def test_it_is_a_job(service, named):
    answer = service.post(PATH, json={**named, "effort": "quick", "format": "onnx-qoperator"})
    assert answer.status_code == 202
    job = end_of(service, answer.headers["location"])
    assert (job["state"], job["kind"]) == ("done", "quantization")
    assert job["result"]["format"] == job["result"]["quality"]["format"] == "onnx-qoperator"
    assert service.get("/v1/jobs", params={"kind": "quantization"}).json()["items"][0]["id"] == job["id"]
    with service.stream("GET", f"{job['link']}/events") as stream:
        kinds = [kind for _, kind, _ in events_of(stream.iter_lines()) if kind != "progress"]
    assert kinds == ["queued", "running", "done"]


def test_a_poor_plan_is_searched_on(make_service, tmp_path):
    service = make_service()
    model, data = written(tmp_path)
    named = {"model": put(service, model.read_bytes()), "samples": put(service, data.read_bytes())}
    asked = {**named, "target": "litert-int8"}
    quick = service.post(PATH, json={**asked, "effort": "quick"}, headers=WAIT).json()
    assert quick["quality"]["sqnr"] < FAIR_SQNR
    better = service.post(PATH, json=asked, headers=WAIT).json()
    assert better["quality"]["sqnr"] >= GOOD_SQNR
    assert 0 < better["trials"] <= 16
    assert better["given_up"].startswith("2 kernels (mul) in i16: ")
    # Of all that was measured the files alone are left.
    blobs = {item["digest"] for item in service.get("/v1/blobs").json()["items"]}
    assert blobs == {*named.values(), quick["file"], better["file"]}
    # The library finds the same.
    found = planner.quantize(planner.load_model(model.read_bytes()), data, target="litert-int8")
    assert (found.plan.key, found.given_up) == (better["plan"], better["given_up"])
    assert found.comparison.worst_sqnr == pytest.approx(better["quality"]["sqnr"])


def test_held_out_samples_judge(service, named):
    asked = {**named, "effort": "quick", "eval_samples": named["samples"]}
    found = service.post(PATH, json=asked, headers=WAIT).json()
    assert "held-out" in found["quality"]["measured_on"]


@pytest.mark.parametrize("form", ["litert", "stablehlo"])
def test_formats_that_onnxruntime_does_not_run(service, named, form):
    """They are computed by the reference interpreter."""
    found = service.post(PATH, json={**named, "format": form, "effort": "quick"}, headers=WAIT).json()
    assert (found["format"], found["quality"]["format"]) == (form, form)


def test_a_key_is_for_one_request(service, named):
    """A form that is sent again is the same request, whatever its boundary."""
    key = {"Idempotency-Key": "quantize-once", "Prefer": "respond-async"}
    fields = {name: (None, text) for name, text in named.items()}
    first = service.post(PATH, files=fields, headers=key).json()["id"]
    assert service.post(PATH, files=fields, headers=key).json()["id"] == first
    other = fields | {"effort": (None, "quick")}
    check(service.post(PATH, files=other, headers=key), "key-reused")


def test_what_is_wrong_is_said_at_once(service, named, done):
    none = "sha256:" + "0" * 64
    check(service.post(PATH, json={**named, "model": none}), "unknown-name", "model or blob")
    check(service.post(PATH, json={**named, "samples": none}), "unknown-name", "blob")
    check(service.post(PATH, json={**named, "target": "litert-int9"}), "unknown-name", "litert-int8")
    check(service.post(PATH, json={**named, "model": named["samples"]}), "model-invalid")
    check(service.post(PATH, json={**named, "effort": "low"}), "request-invalid", "/effort")
    check(service.post(PATH, content=relu()), "unsupported-media", "multipart/form-data")
    sized = {**named, "model": done["model"], "dims": {"n": 1}}
    check(service.post(PATH, json=sized), "input-invalid")
