"""Every route does what it says, and a plan over HTTP is the plan of the library."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import planner
from api.planning.planning import SMALL
from planner.version import VERSION
from tests.api.documents import AS_IT_IS, OCTETS, YAML, chain, digest, onnx_file, put, relu
from tests.api.test_problems import check

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
GOOD_TARGET = (ROOT / "targets" / "teaching-npu.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def digits(service):
    """The digits example, uploaded, read, with statistics, planned: digests and the library's objects."""
    data = (DIGITS / "digits.onnx").read_bytes()
    graph = planner.load_model(data)
    with np.load(DIGITS / "calibration.npz") as samples:
        few = {name: samples[name][:4] for name in samples.files}
    stats = planner.calibrate(graph, [{n: few[n][i : i + 1] for n in few} for i in range(4)])
    record = service.post("/v1/models", json={"blob": put(service, data)}).json()
    kept = service.post("/v1/stats", json=json.loads(stats.to_json())).json()
    body = {"model": record["digest"], "target": "onnxruntime-cpu", "stats": kept["digest"]}
    answer = service.post("/v1/plans", json=body)
    assert answer.status_code == 200, answer.text
    return {
        "graph": graph,
        "stats": stats,
        "record": record,
        "kept": kept,
        "body": body,
        "plan": answer.json(),
    }


def test_health(service):
    for path in ("/v1/health/live", "/v1/health/ready"):
        assert service.get(path).json() == {"status": "ok"}
    server = service.get("/v1/server").json()
    assert server["version"] == VERSION
    assert server["limits"]["blob_bytes"] == 256 << 20


def test_targets_are_listed_and_shown(service):
    # Other tests put targets of their own there.
    listed = [e for e in service.get("/v1/targets").json() if e["id"] in planner.target_ids()]
    assert tuple(entry["id"] for entry in listed) == planner.target_ids()
    for entry in listed:
        for name in (entry["id"], f"{entry['id']}@{entry['version']}"):
            answer = service.get(f"/v1/targets/{name}", headers=AS_IT_IS)
            assert answer.json()["digest"] == entry["digest"]
            assert answer.headers["etag"] == f'"{entry["digest"]}"'


def test_lint_of_a_good_target(service):
    report = service.post("/v1/targets:lint", content=GOOD_TARGET, headers=YAML).json()
    assert (report["id"], report["findings"]) == ("teaching-npu", [])


def test_lint_says_where(service):
    broken = GOOD_TARGET.replace("mode: fixed", "mode: fixd")
    answer = service.post("/v1/targets:lint", content=broken, headers=YAML)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert sorted(error) == ["code", "column", "line", "message", "path"]
    assert broken.splitlines()[error["line"] - 1].startswith("mode: fixd")


def test_blobs_come_back(service):
    data = bytes(range(256)) * 9000
    path = f"/v1/blobs/{digest(data)}"
    assert service.head(path).status_code == 404
    for _ in range(2):
        assert service.put(path, content=data, headers=OCTETS).json() == {
            "digest": digest(data),
            "bytes": len(data),
        }
    head = service.head(path)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(data)), b"")
    assert service.get(path).content == data


def test_a_model_is_described(digits):
    record = digits["record"]
    assert (record["format"], record["ops"], record["kernels"]) == ("onnx", len(digits["graph"].ops), 0)
    assert [entry["name"] for entry in record["inputs"]] == list(digits["graph"].inputs)
    assert record["parameters"] > 1000


@pytest.mark.parametrize("suffix", ["json", "mlir"])
def test_annotated_models_are_read_from_blobs(service, suffix):
    data = (ROOT / "tests" / "formats" / "annotated" / "golden" / f"demo.{suffix}").read_bytes()
    record = service.post("/v1/models", json={"blob": put(service, data)}).json()
    assert (record["format"], record["kernels"]) == (suffix, 1)
    plan = service.post("/v1/plans", json={"model": record["digest"], "target": "litert-int8"}).json()
    assert plan == json.loads(planner.plan(planner.load_model(data, format=suffix), "litert-int8").to_json())


TEXT = """// SAYS
func.func @main(%x: tensor<4x!quant.uniform<i8:f32, SCALE>>) -> tensor<4xf32> {
  %y = "onnx.Relu"(%x) : (tensor<4x!quant.uniform<i8:f32, SCALE>>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def test_a_module_that_is_written_back_is_the_one_that_was_sent(service):
    """Texts that differ in a comment or in digits of one float32 are models and plans of their own."""
    sent = [
        TEXT.replace("SAYS", says).replace("SCALE", scale)
        for says, scale in (("mine", "0.05"), ("yours", "0.05"), ("mine", "0.05000000074505806"))
    ]
    plans = []
    for text in sent:
        record = service.post("/v1/models", json={"blob": put(service, text.encode())}).json()
        plan = service.post("/v1/plans", json={"model": record["digest"], "target": "litert-int8"}).json()
        plans.append((record["digest"], plan["key"]))
        again = service.post("/v1/models", json={"blob": put(service, text.encode())}).json()
        assert again["digest"] == record["digest"]
    assert len({model for model, _ in plans}) == len({key for _, key in plans}) == len(sent)
    for text, (model, key) in zip(sent, plans, strict=True):
        body = {"model": model, "plan": key, "format": "mlir-casts"}
        back = service.get(service.post("/v1/exports", json=body).json()["link"]).text
        assert back.splitlines()[:2] == text.splitlines()[:2]


def test_statistics_are_kept(digits):
    assert digits["kept"]["samples"] == 4
    assert digits["kept"]["values"] == len(digits["stats"].values)


def test_an_onnx_model_is_planned_as_the_library_does(digits):
    ranged = planner.annotate(digits["graph"], stats=digits["stats"])
    assert digits["plan"] == json.loads(planner.plan(ranged, "onnxruntime-cpu").to_json())


@pytest.mark.parametrize("target", planner.target_ids())
def test_an_annotated_model_is_planned_as_the_library_does(service, target):
    model = chain(7)
    body = {"model": model, "target": target, "options": {"strategy": "rfc", "costs": {"bit_price": 4.0}}}
    answer = service.post("/v1/plans", json=body)
    graph = planner.load_model(json.dumps(model).encode(), format="json")
    assert answer.text == planner.plan(graph, target, strategy="rfc", bit_price=4.0).to_json()


def test_facts_in_the_request(service):
    model = chain(2)
    types = {"v0": "!quant.uniform<i8:f32, 5.0e-02>"}
    body = {
        "model": model,
        "target": "litert-int8",
        "annotations": {"format": "qplan.annotations/1", "values": types},
    }
    plan = service.post("/v1/plans", json=body).json()
    assert plan["values"]["v0"]["type"].startswith("!quant.uniform<i8:f32, 0.05")


def test_a_model_that_is_not_small_is_planned_the_same_in_a_child(service, make_service):
    body = {"model": chain(9), "target": "litert-int8"}
    elsewhere = make_service(inline_kernels=1)
    assert elsewhere.post("/v1/plans", json=body).text == service.post("/v1/plans", json=body).text


def test_the_same_request_is_the_same_plan(service, digits):
    again = service.post("/v1/plans", json=digits["body"])
    assert again.json() == digits["plan"]
    path = f"/v1/plans/{digits['plan']['key']}"
    assert service.get(path).json() == digits["plan"]
    assert service.get(path, headers=AS_IT_IS).headers["etag"] == f'"{digits["plan"]["key"]}"'


def test_explanations_are_those_of_the_library(service, digits):
    key = digits["plan"]["key"]
    kernel = digits["plan"]["kernels"][0]["name"]
    found = service.get(f"/v1/plans/{key}/explain", params={"port": f"{kernel}.out[0]"}).json()
    plan = planner.plan_from_json(json.dumps(digits["plan"]))
    assert found["lines"] == planner.explain(plan, f"{kernel}.out[0]").splitlines()


def test_big_plans_are_explained_in_a_child(service):
    model = chain(1200)
    plan = service.post("/v1/plans", json={"model": model, "target": "litert-int8"})
    assert len(plan.content) > SMALL
    found = service.get(f"/v1/plans/{plan.json()['key']}/explain", params={"port": "k7"}).json()
    assert found["lines"] == planner.explain(planner.plan_from_json(plan.text), "k7").splitlines()


def test_an_export_is_the_file_of_the_library(service, digits):
    body = {"model": digits["record"]["digest"], "plan": digits["plan"]["key"], "format": "onnx-qdq"}
    record = service.post("/v1/exports", json=body).json()
    data = service.get(record["link"]).content
    plan = planner.plan_from_json(json.dumps(digits["plan"]))
    assert data == planner.export(digits["graph"], plan, "onnx-qdq")
    assert (record["blob"], record["bytes"]) == (digest(data), len(data))


def test_every_answer_has_its_headers(service):
    for answer in (service.get("/v1/targets"), service.get("/nothing")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert len(answer.headers["x-request-id"]) == 16
        assert "access-control-allow-origin" not in answer.headers


def test_a_wrong_method_is_told_the_right_ones(service):
    for method, path, allowed in (
        ("DELETE", "/v1/plans", "GET, HEAD, POST"),
        ("PATCH", "/v1/targets/litert-int8", "DELETE, GET, HEAD, PUT"),
        ("POST", f"/v1/blobs/{digest(b'')}", "DELETE, GET, HEAD, PUT"),
        ("POST", "/v1/jobs/1/events", "GET"),
        ("HEAD", "/v1/jobs/1/events", "GET"),
        ("GET", "/v1/exports", "POST"),
        ("HEAD", "/v1/exports", "POST"),
        ("POST", "/", "GET, HEAD"),
    ):
        answer = service.request(method, path)
        assert (answer.status_code, answer.headers.get("allow")) == (405, allowed), (method, path)


def test_the_process_that_answers_holds_no_model_reader(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "pydantic_core" in maps
    assert [name for name in ("onnx_cpp2py", "onnxruntime", "protobuf", "_upb") if name in maps] == []


def test_a_good_model_after_all_that(service):
    assert service.post("/v1/models", json={"blob": put(service, relu())}).status_code == 201


def test_posted_bytes_are_answered_with_their_digest(service):
    answer = service.post("/v1/blobs", content=b"some bytes", headers=OCTETS)
    told = {"digest": digest(b"some bytes"), "bytes": 10}
    assert (answer.status_code, answer.json()) == (201, told)
    assert service.get(answer.headers["location"]).content == b"some bytes"
    again = service.post("/v1/blobs", content=iter([b"some ", b"bytes"]), headers=OCTETS)
    assert (again.status_code, again.json()) == (201, told)
    check(service.post("/v1/blobs", content=b"x"), "unsupported-media")


def test_posted_bytes_are_as_many_as_a_blob_may_have(make_service):
    service = make_service(max_blob=1000, max_body=100, quota=100_000)
    for path in ("/v1/blobs", "/v1/models"):
        check(service.post(path, content=b"x" * 1001, headers=OCTETS), "too-large")
        check(service.post(path, content=iter([b"x" * 600] * 2), headers=OCTETS), "too-large")
    assert service.post("/v1/blobs", content=b"x" * 1000, headers=OCTETS).status_code == 201
    check(service.post("/v1/models", json={"blob": "x" * 200}), "too-large")


@pytest.mark.parametrize("content", [relu(), json.dumps(chain(2)).encode()], ids=["onnx", "json"])
def test_a_model_is_read_from_its_bytes(service, content):
    """As if they had been kept first."""
    answer = service.post("/v1/models", content=content, headers=OCTETS)
    assert answer.status_code == 201, answer.text
    named = service.post("/v1/models", json={"blob": digest(content)})
    assert named.json() == answer.json()
    assert answer.headers["location"] == named.headers["location"]
    check(service.post("/v1/models", content=b"\x08\x07rest", headers=OCTETS), "model-invalid")
    check(service.post("/v1/models", content=content), "unsupported-media", "octet-stream")


def test_open_sizes_are_given_with_the_bytes(service):
    content = onnx_file([helper.make_node("Relu", ["x"], ["y"])], shape=("batch", 8))
    sized = service.post("/v1/models", params={"dim": ["batch=3"]}, content=content, headers=OCTETS).json()
    body = {"blob": digest(content), "dims": {"batch": 3}}
    assert sized == service.post("/v1/models", json=body).json()
    assert sized["inputs"][0]["shape"] == [3, 8]
    for text in ("batch", "batch=0", "=1", "batch=-1"):
        answer = service.post("/v1/models", params={"dim": [text]}, content=content, headers=OCTETS)
        check(answer, "request-invalid", "/dim/0")


def test_descriptions_come_as_json_too(service):
    """For clients that know no YAML; a description is the same however it is sent."""
    own = GOOD_TARGET.replace("id: teaching-npu", "id: json-npu", 1)
    body = {"source": own}
    report = service.post("/v1/targets:lint", content=own, headers=YAML)
    assert service.post("/v1/targets:lint", json=body).json() == report.json()
    tests = service.post("/v1/targets:test", content=own, headers=YAML)
    assert service.post("/v1/targets:test", json=body).json() == tests.json()
    name = f"json-npu@{report.json()['version']}"
    assert service.put(f"/v1/targets/{name}", json=body).status_code == 201
    assert service.put(f"/v1/targets/{name}", content=own, headers=YAML).status_code == 200
    assert service.get(f"/v1/targets/{name}/source").text == own
    told = check(service.post("/v1/targets:lint", json={"source": "id: x\n"}), "target-invalid")
    assert told["errors"][0]["line"] == 1
    check(service.post("/v1/targets:lint?file=/etc/passwd", json=body), "request-invalid", "/file")
    found = service.post("/v1/targets:test", params={"file": "own.yaml"}, json=body).json()["tests"]
    assert {test["source"].partition(":")[0] for test in found} == {"own.yaml"}
    check(service.post("/v1/targets:lint", json={}), "request-invalid", "/source")
    check(service.post("/v1/targets:lint", json={"source": 1}), "request-invalid", "/source")
    check(service.post("/v1/targets:lint", json={**body, "more": 1}), "request-invalid", "/more")
    headers = {"content-type": "application/json"}
    check(service.post("/v1/targets:lint", content="{", headers=headers), "json-invalid")
    check(service.post("/v1/targets:lint", content="[" * 100, headers=headers), "json-invalid")


def test_what_is_deprecated_works_and_is_named(service):
    """A deprecated format is accepted, and what replaces it is there."""
    deprecated = service.get("/v1/server").json()["deprecated"]
    old = {**EMPTY_STATS, "format": "qplan.stats/1"}
    kept = service.post("/v1/stats", json=old).json()["digest"]
    assert service.get(f"/v1/stats/{kept}").json()["format"] == deprecated["qplan.stats/1"]
    metrics = service.get("/metrics").text
    for name in ("qplan_blob_bytes", deprecated["qplan_blob_bytes"]):
        assert f"\n{name} " in metrics
    page = (ROOT / "docs" / "upgrades.md").read_text("utf-8")
    assert [name for name in deprecated if name not in page] == []


EMPTY_STATS = {"model": f"sha256:{'0' * 64}", "method": "minmax", "samples": 1, "values": {}}
