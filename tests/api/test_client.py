"""The Python client: every route, and failures as the planner's own errors."""

import asyncio
import inspect
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import planner
from planner.calibration.statsjson import read_statistics
from planner.client import AsyncClient, Client, ServiceError, calls
from planner.client import client as client_module
from planner.client.steps import Ask
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
from planner.interpreter.models import ModelRunner
from planner.version import VERSION
from tests.api.conftest import free_port
from tests.api.documents import PINS, chain, contradicted, relu
from tests.api.test_openapi import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


class Awaiting:
    """An `AsyncClient` whose methods are awaited here, one after another."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient(url)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **named: self.loop.run_until_complete(getattr(self.client, name)(*args, **named))

    def events(self, *args: Any) -> list[dict[str, Any]]:
        """All events of a job."""

        async def gather() -> list[dict[str, Any]]:
            return [event async for event in self.client.events(*args)]

        return self.loop.run_until_complete(gather())

    def end(self) -> None:
        """Close everything."""
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


@pytest.fixture(params=["Client", "AsyncClient"])
def client(server, request):
    if request.param == "Client":
        with Client(server.url) as made:
            yield made
        return
    made = Awaiting(server.url)
    yield made
    made.end()


def test_the_whole_job(client, tmp_path):
    assert client.server()["version"] == VERSION
    assert [entry["id"] for entry in client.targets()] == list(planner.target_ids())
    assert client.target("litert-int8")["mode"] == "fixed"
    stats = planner.calibrate(planner.load_model(DIGITS), ROOT / "examples" / "digits" / "calibration.npz")
    path = tmp_path / "stats.json"
    stats.save(path)
    model, kept = client.model(DIGITS), client.stats(path)
    plan = client.plan(model["digest"], "onnxruntime-cpu", stats=kept["digest"], bit_price=2.0)
    assert client.get_plan(plan["key"]) == plan
    assert client.plan_part(plan["key"], "/kernels/0/name") == plan["kernels"][0]["name"]
    assert client.get_stats(kept["digest"]) == json.loads(stats.to_json())
    text = client.explain(plan["key"], plan["kernels"][0]["name"])
    assert text == planner.explain(planner.plan_from_json(json.dumps(plan)), plan["kernels"][0]["name"])
    data = client.export(model["digest"], plan["key"], "onnx-qoperator")
    assert planner.load_model(data).outputs == planner.load_model(DIGITS).outputs


def test_a_quantization_is_one_call(client, tmp_path):
    samples = DIGITS.with_name("calibration.npz")
    done = client.quantize(DIGITS, samples, target="litert-int8", effort="quick", out=tmp_path / "q.onnx")
    assert done["verdict"]["level"] == "good"
    assert (tmp_path / "q.onnx").read_bytes() == client.download(done["file"])
    again = client.quantize(done["model"], samples, target="litert-int8", effort="quick")
    assert again == done
    held = client.quantize(done["model"], samples, eval_samples=samples, target="litert-int8", effort="quick")
    assert held["file"] == done["file"]
    with pytest.raises(UnknownName, match="model or blob"):
        client.quantize(f"sha256:{'0' * 64}", samples)


def test_an_export_has_the_level_that_is_asked_for(client):
    model = client.model(DIGITS)
    plan = client.plan(model["digest"], "llm-w4")
    kept = planner.plan_from_json(json.dumps(plan))
    for level in (0, 4):
        data = client.export(model["digest"], plan["key"], "onnx-matmulnbits", accuracy_level=level)
        wanted = planner.export(planner.load_model(DIGITS), kept, "onnx-matmulnbits", accuracy_level=level)
        assert data == wanted


@pytest.mark.parametrize("external", [False, True])
def test_an_export_into_a_file_comes_in_parts(client, tmp_path, monkeypatch, external):
    """The same numbers as at home, weights beside the model, nothing else stays."""
    monkeypatch.setattr(calls.files, "PART", 10_000)
    model = client.model(DIGITS)
    plan = client.plan(model["digest"], "llm-w4")
    kept = planner.plan_from_json(json.dumps(plan))
    goal = tmp_path / "new.onnx"
    written = client.export_to(model["digest"], plan["key"], "onnx-qdq", goal, external_data=external)
    assert [path.name for path in written] == (["weights.data"] if external else []) + ["new.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    graph = planner.load_model(DIGITS)
    wanted = tmp_path / "home" / "weights.onnx"
    planner.export_to(graph, kept, "onnx-qdq", wanted, external=external)
    sample = {name: np.zeros(graph.values[name].shape[1:], np.float32)[None] for name in graph.inputs}
    results = [ModelRunner(planner.load_model(path)).run(sample) for path in (goal, wanted)]
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[1])
    if external:
        assert goal.stat().st_size < written[0].stat().st_size
    else:
        assert goal.read_bytes() == wanted.read_bytes()


def test_an_export_that_cannot_be_written_leaves_nothing(client, tmp_path):
    model = client.model(DIGITS)
    plan = client.plan(model["digest"], "llm-w4")
    with pytest.raises(InputError, match="cannot write to"):
        client.export_to(model["digest"], plan["key"], "onnx-qdq", tmp_path / "no" / "new.onnx")
    with pytest.raises(UnsupportedExport, match="tosa has all its weights in one file"):
        client.export_to(model["digest"], plan["key"], "tosa", tmp_path / "new.mlir", external_data=True)
    assert list(tmp_path.iterdir()) == []


def test_annotated_models_and_lint(client):
    note = {"format": "qplan.annotations/1", "values": {"v0": "!quant.none"}}
    plan = client.plan(chain(2), "litert-int8", annotations=note, strategy="rfc")
    assert {rescale["value"] for rescale in plan["rescales"]} >= {"v0"}
    assert client.lint((ROOT / "targets" / "litert-int8.yaml").read_text()) == []


def test_what_if(client):
    before = client.plan(chain(9), "litert-int8")
    after = client.replan(before["key"], values={"v3": "!quant.uniform<i8:f32, 5.0e-02>"}, restore=["k7"])
    plan = planner.plan(planner.load_model(json.dumps(chain(9)).encode(), format="json"), "litert-int8")
    edited = planner.replan(plan, {"values": {"v3": "!quant.uniform<i8:f32, 5.0e-02>"}})
    assert after["key"] == planner.restore(edited, "k7").key
    assert client.diff(before["key"], after["key"])["same"] is False
    assert client.suggest(before["key"], plan.rescales[0].id)["rescale"] == plan.rescales[0].id
    assert client.pareto(before["key"], "v3")["lines"]
    assert client.report(before["key"]).startswith("<!doctype html>")
    assert '"changes":{' in client.report(after["key"], before=before["key"])
    assert "Trade-offs" in client.report(before["key"], pareto=[before["rescales"][0]["id"]])
    long = client.plan(chain(900), "litert-int8", as_job=True)
    ports = sum(bool(name) for kernel in long["kernels"] for name in (*kernel["inputs"], *kernel["outputs"]))
    assert len(client.ports(long["key"])) == ports > 1000


def test_jobs(client, tmp_path):
    model = client.model(DIGITS)["digest"]
    with np.load(ROOT / "examples" / "digits" / "calibration.npz") as whole:
        np.savez(tmp_path / "few.npz", **{name: whole[name][:3] for name in whole.files})
    stats = client.calibrate(model, tmp_path / "few.npz")
    made = read_statistics(json.dumps(client.get_stats(stats["digest"])))
    assert (made.method, made.samples) == ("minmax", 3)
    key = client.plan(model, "qnn-htp", stats=stats["digest"])["key"]
    data = client.export(model, key, "onnx-qdq", as_job=True)
    assert stats["warnings"] == []
    digest = stats["digest"]
    found = client.compare(model, data, (tmp_path / "few.npz").read_bytes(), values=True, stats=digest)
    assert found["samples"] == 3
    assert json.loads(client.download(found["blob"]))["values"]
    measured = client.measure(model, key, tmp_path / "few.npz", stats=digest, held_out=False)
    assert measured["outputs"] == found["outputs"]
    assert client.summary(key)["quality"] == measured["quality"]
    lost = client.losses(model, key, tmp_path / "few.npz", limit=1)
    assert json.loads(client.download(lost["blob"]))["values"]
    assert sum(kernel["parts"] is not None for kernel in lost["kernels"]) == 1
    assert client.losses(model, client.get_plan(key), tmp_path / "few.npz", limit=1) == lost
    ids = [job["id"] for job in client.jobs(state="done", kind="comparison")]
    job = client.job(ids[0])
    assert (job["state"], job["result"]) == ("done", measured)
    events = list(client.events(ids[0]))
    assert (events[0]["event"], events[-1]["event"]) == ("queued", "done")
    assert list(client.events(ids[0], events[-2]["id"])) == events[-1:]
    assert client.cancel(ids[0]) == job
    with pytest.raises(InputError, match="npz"):
        client.calibrate(model, b"none")


def test_searches(client, tmp_path):
    with np.load(ROOT / "examples" / "digits" / "calibration.npz") as whole:
        np.savez(tmp_path / "few.npz", **{name: whole[name][:2] for name in whole.files})
    model, given = client.model(DIGITS)["digest"], {"kernels": {"head/*": "float"}}
    stats = client.calibrate(model, tmp_path / "few.npz")["digest"]
    note = {"format": "qplan.annotations/1", **given}
    asked = {"goal": {"weight_bits": 0.5}, "stats": stats, "annotations": note, "trials": 2}
    found = client.search(model, "litert-int8", tmp_path / "few.npz", **asked)
    assert (found["met"], len(found["trials"])) == (False, 2)
    assert found["annotations"]["kernels"]["head/*"] == "float"
    assert client.get_plan(found["plan"])["key"] == found["plan"]
    assert json.loads(client.download(found["blob"]))["format"] == "qplan.search-result/1"
    with pytest.raises(UnknownName, match="goal"):
        client.search(model, "litert-int8", tmp_path / "few.npz", goal="speed=1")


def test_models_and_targets(client):
    record = client.model(json.dumps({**chain(3), "name": "short-lived"}).encode())
    assert client.get_model(record["digest"]) == record
    assert record in client.models()
    client.delete_model(record["digest"])
    assert record not in client.models()
    text = (ROOT / "targets" / "teaching-npu.yaml").read_text().replace("id: teaching", "id: client", 1)
    assert client.put_target("client-npu@1.0.0", text)["findings"] == []
    assert client.target("client-npu")["id"] == "client-npu"
    with pytest.raises(ServiceError) as caught:
        client.put_target("client-npu@1.0.0", text.replace("title:", "title: New", 1))
    assert caught.value.name == "exists"
    client.delete_target("client-npu@1.0.0")
    assert "client-npu" not in [entry["id"] for entry in client.targets()]
    assert client.schema("plan")["title"] == "PlanDoc"


def test_long_files_go_in_parts(client, monkeypatch, tmp_path):
    monkeypatch.setattr(calls.files, "PART", 1_000_000)
    data = os.urandom(2_500_000)
    (tmp_path / "long").write_bytes(data)
    digest = client.upload(tmp_path / "long")
    assert client.download(digest) == data


def test_parts_go_on_after_a_break(client, monkeypatch):
    """A first answer that is lost: the part has arrived all the same, and is not sent again."""
    monkeypatch.setattr(calls.files, "PART", 1_000_000)
    data = os.urandom(2_500_000)
    offsets = []

    def losing(steps):
        step = next(steps)
        while True:
            taken = yield step
            is_part = isinstance(step, Ask) and step.method == "PATCH"
            is_lost = is_part and not offsets
            offsets.extend([step.headers["Upload-Offset"]] if is_part else [])
            try:
                step = steps.throw(ServiceError("no answer")) if is_lost else steps.send(taken)
            except StopIteration as ended:
                return ended.value

    assert client.download(client.take(losing(calls.upload(data)))) == data
    assert offsets == ["0", "1000000", "2000000"]


def test_both_clients_have_every_call():
    made = {
        name for name, item in vars(calls).items() if inspect.isgeneratorfunction(item) and name[0] != "_"
    }
    for kind in (Client, AsyncClient):
        methods = {name for name in vars(kind) if name[0] != "_"} - {"close", "events", "take"}
        assert methods == made
        assert list(inspect.signature(kind.explain).parameters) == ["self", "key", "address"]
        assert kind.plan.__doc__ == calls.plan.__doc__


def test_calls_know_every_operation():
    """By path: a call names each one but those for machines that watch the server."""
    parts = Path(calls.__file__).parent.glob("*.py")
    text = "".join(part.read_text() for part in parts) + inspect.getsource(client_module)
    for name, (_, path) in OPERATIONS.items():
        if name in ("live", "ready") or ("{id}" in path and "upload" in name):  # an upload has its link
            continue
        fixed = re.split(r"\{\w+\}", path)
        assert all(part in text for part in fixed if part), name


def test_uploads_twice_are_one(client):
    assert client.upload(relu()) == client.upload(relu())
    assert client.download(client.upload(relu())) == relu()


def test_uploads_and_jobs_are_listed_and_taken_away(client, server):
    asked = {"digest": f"sha256:{'1' * 64}", "bytes": 5}
    begun = httpx.post(f"{server.url}/v1/uploads", json=asked, trust_env=False).json()
    assert begun in client.uploads()
    client.delete_upload(begun["id"])
    assert begun not in client.uploads()
    with np.load(ROOT / "examples" / "digits" / "calibration.npz") as whole:
        few = io.BytesIO()
        np.savez(few, **{name: whole[name][:2] for name in whole.files})
    client.calibrate(client.model(DIGITS)["digest"], few.getvalue())
    jobs = [job["id"] for job in client.jobs()]
    client.delete_job(jobs[0])
    assert [job["id"] for job in client.jobs()] == jobs[1:]


def test_what_the_page_asks(client):
    """A target's text and tests, a plan's totals and its drawing, beside another's."""
    text = client.target_source("litert-int8")
    assert client.lint(text) == []
    report = client.test_target(text)
    assert report["tests"]
    assert report["ok"]
    first, second = (client.plan(chain(1), target)["key"] for target in ("litert-int8", "tensorrt-int8"))
    assert client.summary(first)["kernels"] == 1
    assert client.view(first)["format"] == "qplan.view/1"
    assert client.view(second, first) != client.view(second)


FAILURES = {
    "annotation": (
        AnnotationError,
        lambda c: c.plan(chain(1), "litert-int8", annotations={"format": "?"}),
        "'\\?'",
    ),
    "conflict": (Conflict, lambda c: c.plan(contradicted(), "litert-int8"), "cannot be both"),
    "model": (ModelError, lambda c: c.model(relu()[:-1]), "truncated"),
    "nothing there": (UnknownName, lambda c: c.plan(chain(1), "litert-int9"), "did you mean 'litert-int8'"),
    "stats": (StatsError, lambda c: c.stats({}), "format"),
    "target": (TargetError, lambda c: c.lint("id: x\n"), "T011"),
    "no file": (InputError, lambda c: c.model("/nowhere.onnx"), "cannot read '/nowhere.onnx'"),
    "no kind of file": (
        InputError,
        lambda c: c.model({"format": "qplan.annotated/1"}),
        "of a file are uploaded, not a dict",
    ),
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
        client.plan(contradicted(), "litert-int8")
    assert conflict.value.facts == tuple(f"value 'x': {pin}" for pin in PINS)
    with pytest.raises(TargetError) as target:
        client.lint("id: x\n")
    assert {error.code for error in target.value.errors} == {"T011"}


def test_no_server():
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(ServiceError, match="no answer"):
        client.targets()
