"""What is kept by name or digest: targets that are put, models with their external data, schemas, parts."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from api.schemas.examples import TARGET
from api.schemas.schema_files import SCHEMAS
from api.storage.store import Store
from planner.calibration.rows_seen import RowsSeen
from planner.calibration.statistics import Bins, Mean, Statistics, ValueStats
from planner.ir.types.qtypes import AtReaders
from planner.plans.plan import plan_key
from tests.api.conftest import serving
from tests.api.documents import OCTETS, YAML, chain, digest, put, relu
from tests.api.test_problems import check
from tests.formats.onnx.reader.test_soundness import REFUSED

ROOT = Path(__file__).resolve().parents[2]
LITERT = (ROOT / "targets" / "litert-int8.yaml").read_text("utf-8")
OWN = re.sub(r"id: litert-int8\nversion: \S+", "id: own-npu\nversion: 1.0.0", LITERT, count=1)
NEXT = OWN.replace("version: 1.0.0", "version: 1.10.0", 1)
STRICT = f"{TARGET}defaults: {{on_no_kernel: error}}\n"


def put_target(client: httpx.Client, name: str, text: str) -> httpx.Response:
    return client.put(f"/v1/targets/{name}", content=text, headers=YAML)


def test_a_target_is_put_once(service):
    first = put_target(service, "own-npu@1.0.0", OWN)
    again = put_target(service, "own-npu@1.0.0", OWN)
    assert (first.status_code, again.status_code) == (201, 200)
    loaded = planner.load_target(OWN)
    assert first.headers["etag"] == again.headers["etag"] == f'"{loaded.digest}"'
    assert put_target(service, "own-npu@1.0.0", f"# the same\n{OWN}").status_code == 200
    other = OWN.replace("title: ", "title: Another ", 1)
    found = check(put_target(service, "own-npu@1.0.0", other), "exists", "a version never changes")
    assert found["found"] == loaded.digest


def test_a_target_that_was_put_is_shown_and_listed(service):
    put_target(service, "own-npu@1.0.0", OWN)
    assert put_target(service, "own-npu@1.10.0", NEXT).status_code == 201
    shown = service.get("/v1/targets/own-npu@1.0.0")
    assert shown.json()["version"] == "1.0.0"
    tag = {"If-None-Match": shown.headers["etag"]}
    assert service.get("/v1/targets/own-npu@1.0.0", headers=tag).status_code == 304
    assert service.get("/v1/targets/own-npu").json()["version"] == "1.10.0"
    listed = [f"{entry['id']}@{entry['version']}" for entry in service.get("/v1/targets").json()]
    assert {"own-npu@1.0.0", "own-npu@1.10.0"} <= set(listed)
    assert listed == sorted(listed)
    answer = service.get("/v1/targets", params={"limit": 5})
    paged = answer.json()
    while "next" in answer.links:
        answer = service.get(answer.links["next"]["url"])
        paged += answer.json()
    assert [f"{entry['id']}@{entry['version']}" for entry in paged] == listed
    check(service.get("/v1/targets/own-npu@1.0.1"), "unknown-name", "own-npu@1.0.0")


def test_a_body_that_came_before_meets_what_changed_since(make_service, tmp_path):
    client = make_service()
    body = {"model": chain(6), "target": "own-npu"}
    check(client.post("/v1/plans", json=body), "unknown-name")
    put_target(client, "own-npu@1.0.0", OWN)
    first = client.post("/v1/plans", json=body)
    assert client.post("/v1/plans", json=body).text == first.text
    shutil.rmtree(tmp_path / "requests")
    (tmp_path / "requests").mkdir()
    assert client.post("/v1/plans", json=body).text == first.text
    put_target(client, "own-npu@1.10.0", NEXT)
    plans = [client.post("/v1/plans", json=body).json() for _ in range(2)]
    assert [plan["target"]["version"] for plan in (first.json(), *plans)] == ["1.0.0", "1.10.0", "1.10.0"]


@pytest.mark.parametrize("inline", [64, 1])
def test_plans_for_a_target_that_was_put(make_service, inline):
    client = make_service(inline_kernels=inline)
    put_target(client, "own-npu@1.0.0", OWN)
    loaded = planner.load_target(OWN, name="own-npu.yaml")
    model = chain(6)
    graph = planner.load_model(json.dumps(model).encode(), format="json")
    plan = planner.plan(graph, loaded)
    for name in ("own-npu", "own-npu@1.0.0"):
        assert client.post("/v1/plans", json={"model": model, "target": name}).text == plan.to_json()
    edits = {"restore": ["k2"]}
    answer = client.post(f"/v1/plans/{plan.key}:replan", json=edits)
    assert answer.status_code == 200, answer.text
    after = answer.json()
    assert after["key"] == planner.restore(plan, "k2").key
    lines = client.get(f"/v1/plans/{plan.key}/explain", params={"port": "k0.out[0]"}).text
    assert "own-npu.yaml:" in lines


def test_a_target_that_was_put_can_go(make_service):
    client, other = make_service(), make_service()  # two servers on one folder
    name, text = "gone-npu@1.0.0", OWN.replace("own-npu", "gone-npu", 1)
    assert put_target(client, name, text).status_code == 201
    seen = [one.get(f"/v1/targets/{name}").headers["etag"] for one in (client, other)]
    listed = {f"{one['id']}@{one['version']}": one["shipped"] for one in client.get("/v1/targets").json()}
    assert (listed[name], all(shipped for at, shipped in listed.items() if at != name)) == (False, True)
    asked = {"model": chain(2), "target": name}
    key = client.post("/v1/plans", json=asked).json()["key"]
    wrong = {"If-Match": '"sha256:0"'}
    check(client.delete(f"/v1/targets/{name}", headers=wrong), "precondition-failed")
    assert client.delete(f"/v1/targets/{name}", headers={"If-Match": seen[0]}).status_code == 204
    for one in (client, other):
        check(one.get(f"/v1/targets/{name}"), "unknown-name")
        check(one.post("/v1/plans", json=asked | {"model": chain(3)}), "unknown-name")
        check(one.delete(f"/v1/targets/{name}"), "unknown-name")
    assert client.get(f"/v1/plans/{key}").status_code == 200
    check(client.post(f"/v1/plans/{key}:replan", json={"restore": ["k0"]}), "unknown-name")
    # Another one may have the name now.
    again = text.replace("title:", "title: Another", 1)
    assert put_target(client, name, again).status_code == 201
    assert other.get(f"/v1/targets/{name}").headers["etag"] != seen[1]
    shipped = next(
        f"{one['id']}@{one['version']}" for one in client.get("/v1/targets").json() if one["shipped"]
    )
    check(client.delete(f"/v1/targets/{shipped}"), "input-invalid", "shipped")


def test_a_target_survives_a_restart(tmp_path):
    with (
        serving(tmp_path) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        assert put_target(client, "own-npu@1.0.0", OWN).status_code == 201
    with (
        serving(tmp_path) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        assert put_target(client, "own-npu@1.0.0", OWN).status_code == 200
        body = {"model": chain(2), "target": "own-npu"}
        assert client.post("/v1/plans", json=body).status_code == 200


def test_targets_put_wrongly(service):
    check(put_target(service, "other-npu@1.0.0", OWN), "input-invalid", "put it under own-npu@1.0.0")
    check(put_target(service, "own-npu@1.0.0", OWN.replace("mode: fixed", "mode: x")), "target-invalid", "T0")
    check(put_target(service, "own-npu", OWN), "request-invalid", "/name")
    shipped = OWN.replace("id: own-npu", "id: litert-int8", 1)
    check(put_target(service, "litert-int8@1.0.0", shipped), "exists", "a shipped target")
    check(service.put("/v1/targets/own-npu@1.0.0", json={}), "request-invalid", "/source")
    page = {"content-type": "text/html"}
    check(service.put("/v1/targets/own-npu@1.0.0", content=b"", headers=page), "unsupported-media")


def test_a_kernel_without_a_row(service):
    put_target(service, "example-npu@1.0.0", TARGET)
    text = STRICT.replace("id: example-npu", "id: strict-npu")
    assert put_target(service, "strict-npu@1.0.0", text).status_code == 201
    body = {"model": chain(5), "target": "strict-npu"}
    found = check(service.post("/v1/plans", json=body), "no-kernel", "k0")
    assert any("on_no_kernel: error" in fact for fact in found["facts"])


def with_external(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """A model whose weights lie in two files, one in a folder."""
    rng = np.random.default_rng(7)
    arrays = {name: rng.normal(size=(64, 64)).astype(np.float32) for name in ("w", "v")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    files = {}
    for tensor in model.graph.initializer:
        location = f"data/{tensor.name}.bin" if tensor.name == "v" else "w.bin"
        files[location] = tensor.raw_data
        onnx.external_data_helper.set_external_data(tensor, location)
        tensor.ClearField("raw_data")
        (folder / location).parent.mkdir(exist_ok=True)
        (folder / location).write_bytes(files[location])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return model.SerializeToString(), files


def test_external_data(service, tmp_path):
    data, files = with_external(tmp_path)
    graph = planner.load_model(tmp_path / "model.onnx")
    body = {
        "blob": put(service, data),
        "external_data": [{"location": name, "blob": put(service, part)} for name, part in files.items()],
    }
    answer = service.post("/v1/models", json=body)
    assert answer.status_code == 201, answer.text
    record = answer.json()
    assert record["external_data"] == body["external_data"]
    assert (record["parameters"], record["bytes"]) == (8192, len(data) + 32_768)
    request = {"model": record["digest"], "target": "onnxruntime-cpu", "stats": stats_of(record)}
    plan = service.post("/v1/plans", json=request).json()
    ranged = planner.annotate(graph, stats=write(tmp_path, stats_of(record)))
    assert plan == json.loads(planner.plan(ranged, "onnxruntime-cpu").to_json())
    export = {"model": record["digest"], "plan": plan["key"], "format": "onnx-qdq"}
    assert service.post("/v1/exports", json=export).status_code == 201
    check(service.post("/v1/models", json={"blob": body["blob"]}), "model-invalid", "external file")


def stats_of(record: dict) -> dict:
    values = {name: {"min": -4.0, "max": 4.0} for name in ("x", "h", "y")}
    head = {"format": "qplan.stats/1", "model": record["digest"], "method": "minmax", "samples": 1}
    return {**head, "values": values}


def write(folder: Path, document: dict) -> Path:
    (folder / "stats.json").write_text(json.dumps(document))
    return folder / "stats.json"


@pytest.mark.parametrize(
    "locations",
    [
        ["../w.bin"],
        ["/etc/passwd"],
        ["a/../../w"],
        [".hidden"],
        ["w", "w"],
        ["a", "a/b"],
        ["model.onnx"],
        [""],
    ],
)
def test_external_data_elsewhere(service, locations):
    blob = put(service, relu())
    external = [{"location": location, "blob": blob} for location in locations]
    body = {"blob": blob, "external_data": external}
    check(service.post("/v1/models", json=body), "request-invalid", "/external_data")


def test_models_are_listed_in_pages_and_taken_away(make_service):
    client = make_service()
    blobs = [put(client, json.dumps(chain(n)).encode()) for n in range(1, 6)]
    made = [client.post("/v1/models", json={"blob": blob}).json()["digest"] for blob in blobs]
    found, query = [], {"limit": 2}
    while True:
        answer = client.get("/v1/models", params=query)
        found += [record["digest"] for record in answer.json()["items"]]
        if answer.json()["next"] is None:
            break
        assert len(answer.json()["items"]) == 2
        query["cursor"] = answer.json()["next"]
    assert found == sorted(made)
    path = f"/v1/models/{found[0]}"
    shown = client.get(path)
    assert shown.json()["digest"] == found[0]
    assert client.get(path, headers={"If-None-Match": shown.headers["etag"]}).status_code == 304
    refused = client.delete(path, headers={"If-Match": f'"{found[1]}"'})
    assert check(refused, "precondition-failed")["found"] == found[0]
    assert client.delete(path, headers={"If-Match": shown.headers["etag"]}).status_code == 204
    check(client.get(path), "unknown-name")
    check(client.delete(path), "unknown-name")
    assert [record["digest"] for record in client.get("/v1/models").json()["items"]] == found[1:]


def test_statistics_of_values_that_are_not_there(service):
    record = service.post("/v1/models", json={"blob": put(service, relu())}).json()
    stats = {"format": "qplan.stats/1", "model": record["digest"], "method": "minmax", "samples": 1}
    name = record["inputs"][0]["name"]
    values = {f"{name}{name}": {"min": 0.0, "max": 1.0}}
    found = check(service.post("/v1/stats", json={**stats, "values": values}), "unknown-value")
    assert name in found["nearest"]
    assert service.post("/v1/stats", json={**stats, "values": {}}).status_code == 201


def test_parts_of_a_blob(service):
    data = bytes(range(256)) * 300
    path = f"/v1/blobs/{put(service, data)}"
    part = service.get(path, headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, data[1000:2000])
    assert service.get(path, headers={"Range": "bytes=-10"}).content == data[-10:]
    for odd in ("bytes=9-1", "lines=1-2", "bytes=", "bytes=1-2,5-6", "x"):
        whole = service.get(path, headers={"Range": odd})
        assert (whole.status_code, len(whole.content)) == (200, len(data))
    assert service.get(path, headers={"Range": "BYTES=0-9"}).content == data[:10]
    for beyond in (f"bytes={len(data)}-", "bytes=-0", "bytes=-00"):
        refused = service.get(path, headers={"Range": beyond})
        assert check(refused, "range-invalid")["bytes"] == len(data)
        assert refused.headers["content-range"] == f"bytes */{len(data)}"
    # 14.1.2: what is no range is none, however near it comes; space beside one is not its.
    for text in ("bytes=1 2-1 3", "bytes=1 0-", "by tes=0-9", "bytes=- 5"):
        assert service.get(path, headers={"Range": text}).content == data
    assert service.get(path, headers={"Range": "bytes= 0-9"}).content == data[:10]
    # RFC 9110, 13.1.5: a part of another file than the client has is no part of this one, wherever it lies.
    for text, status in ((f'"{digest(data)}"', 206), ('"other"', 200), (f'W/"{digest(data)}"', 200)):
        asked = {"If-Range": text, "Range": "bytes=10-19"}
        assert service.get(path, headers=asked).status_code == status
    beyond = {"If-Range": '"other"', "Range": f"bytes={len(data)}-"}
    assert service.get(path, headers=beyond).content == data
    # 14.2: only GET has parts. 13.1.1: If-Match is for every method.
    head = service.head(path, headers={"Range": "bytes=0-9"})
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(data)))
    assert head.headers.get("content-range") is None
    check(service.get(path, headers={"If-Match": '"other"'}), "precondition-failed")
    for same in (f'"{digest(data)}"', "*"):
        assert service.get(path, headers={"If-Match": same}).status_code == 200
    assert service.get(path, headers={"If-None-Match": f'"{digest(data)}"'}).status_code == 304
    assert service.head(path, headers={"If-None-Match": f'"{digest(data)}"'}).status_code == 304


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_given(service, name):
    answer = service.get(f"/v1/schemas/{name}")
    assert answer.headers["content-type"] == "application/schema+json"
    jsonschema.validators.validator_for(answer.json()).check_schema(answer.json())
    assert (
        service.get(f"/v1/schemas/{name}", headers={"If-None-Match": answer.headers["etag"]}).status_code
        == 304
    )
    assert name in service.get("/v1/server").json()["schemas"]


def test_documents_fit_their_schemas(service):
    plan = service.post("/v1/plans", json={"model": chain(3), "target": "litert-int8"}).json()
    fitting = {
        "annotated": chain(3),
        "annotations": {"format": "qplan.annotations/1", "values": {"v*": ["!quant.none"]}, "remove": ["x"]},
        "plan": plan,
        "stats": stats_of({"digest": "sha256:"}),
    }
    for name, document in fitting.items():
        schema = service.get(f"/v1/schemas/{name}").json()
        jsonschema.validate(document, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "format": "qplan.none/1"}, schema)


def test_statistics_fit_their_schema_with_all_they_may_have(service):
    """Means, rows of a softmax, values of two numbers, and what readers lose stand beside the range."""
    bins, mean, rows = Bins(-3, 0, (1, 2)), Mean(1, (0.5,)), RowsSeen(1, -1.0, 4, 1, "s")
    seen = ValueStats(
        (0.0,), (1.0,), 1, 2, bins, None, mean, (rows,), two_values=True, readers=(AtReaders(8, 3.0),)
    )
    text = Statistics("sha256:0", "mse", 1, {"a": seen, "b": ValueStats((0.0,), (1.0,), axis=0)}).to_json()
    jsonschema.validate(json.loads(text), service.get("/v1/schemas/stats").json())


def test_a_schema_that_is_none(service):
    check(service.get("/v1/schemas/plans"), "unknown-name", "plan")


def test_the_same_target_at_once(service):
    text = OWN.replace("id: own-npu", "id: raced-npu", 1)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: put_target(service, "raced-npu@1.0.0", text), range(6)))
    assert {answer.status_code for answer in answers} <= {200, 201}


def test_a_blob_that_was_damaged_on_disk(make_service, tmp_path):
    client = make_service()
    name = put(client, b"intact")
    path = Store(tmp_path).path("blobs", name)
    path.write_bytes(b"broken")
    check(client.get(f"/v1/blobs/{name}"), "corrupted", name)
    check(client.get(f"/v1/blobs/{name}"), "unknown-name")
    assert put(client, b"intact") == name
    assert client.get(f"/v1/blobs/{name}").content == b"intact"


@pytest.mark.parametrize("name", ["no groups, turned", "index", "two open sizes"])
def test_a_model_that_no_engine_runs_is_refused(service, name):
    data, why = REFUSED[name]
    found = check(
        service.post("/v1/models", json={"blob": put(service, data)}), "model-invalid", why.split(" (")[0]
    )
    assert found["names"][0] == "it"


def test_a_refusal_of_a_plan_names_its_key(service):
    """A plan of a planner that this one does not know, as after a rollback: it said `sha256:plan`."""
    model = service.post("/v1/models", content=json.dumps(chain(2)), headers=OCTETS).json()["digest"]
    plan = planner.plan(planner.load_model(json.dumps(chain(2)).encode(), format="json"), "litert-int8")
    key = plan_key(plan.graph, plan.model, plan.target.digest, plan.options, "99.0.0, planning 1")
    service.app.state.service.store.put("plans", key, plan.to_json().replace(plan.key, key).encode())
    answer = service.post("/v1/exports", json={"model": model, "plan": key, "format": "mlir"})
    check(answer, "plan-invalid", f"has the key {key}, which is not that of its content")
