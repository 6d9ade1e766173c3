"""The OpenAPI document: names of operations, and every example sent as it stands."""

import io
import json
import re
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator, ValidationError

from api.app import create_app
from api.schemas.examples import ANNOTATED, ANNOTATED_TEXT, BLOB, NO_DIGEST, NO_JOB, NO_STATS, STATS, UPLOAD
from api.settings import Settings
from planner.calibration.observe import OBSERVERS
from planner.calibration.statistics import percentile_of
from planner.errors import StatsError
from planner.formats.table import EXPORTERS
from tests.api.documents import digest, put, relu
from tests.api.test_problems import check

OPERATIONS = {
    "append_upload": ("patch", "/v1/uploads/{id}"),
    "begin_upload": ("post", "/v1/uploads"),
    "calibrate": ("post", "/v1/calibrations"),
    "cancel_job": ("post", "/v1/jobs/{id}:cancel"),
    "compare": ("post", "/v1/comparisons"),
    "delete_blob": ("delete", "/v1/blobs/{digest}"),
    "delete_job": ("delete", "/v1/jobs/{id}"),
    "delete_model": ("delete", "/v1/models/{digest}"),
    "delete_plan": ("delete", "/v1/plans/{key}"),
    "delete_stats": ("delete", "/v1/stats/{digest}"),
    "delete_target": ("delete", "/v1/targets/{name}"),
    "delete_upload": ("delete", "/v1/uploads/{id}"),
    "diff_plans": ("get", "/v1/plans/{key}/diff"),
    "get_plan_part": ("get", "/v1/plans/{key}/part"),
    "explain_plan": ("get", "/v1/plans/{key}/explain"),
    "export_plan": ("post", "/v1/exports"),
    "get_blob": ("get", "/v1/blobs/{digest}"),
    "get_job": ("get", "/v1/jobs/{id}"),
    "get_model": ("get", "/v1/models/{digest}"),
    "get_plan": ("get", "/v1/plans/{key}"),
    "get_schema": ("get", "/v1/schemas/{name}"),
    "get_stats": ("get", "/v1/stats/{digest}"),
    "get_target": ("get", "/v1/targets/{name}"),
    "get_target_source": ("get", "/v1/targets/{name}/source"),
    "get_upload": ("get", "/v1/uploads/{id}"),
    "head_blob": ("head", "/v1/blobs/{digest}"),
    "head_upload": ("head", "/v1/uploads/{id}"),
    "job_events": ("get", "/v1/jobs/{id}/events"),
    "lint_target": ("post", "/v1/targets:lint"),
    "test_target": ("post", "/v1/targets:test"),
    "list_blobs": ("get", "/v1/blobs"),
    "list_jobs": ("get", "/v1/jobs"),
    "list_models": ("get", "/v1/models"),
    "list_plans": ("get", "/v1/plans"),
    "list_ports": ("get", "/v1/plans/{key}/ports"),
    "list_stats": ("get", "/v1/stats"),
    "list_targets": ("get", "/v1/targets"),
    "list_uploads": ("get", "/v1/uploads"),
    "losses": ("post", "/v1/losses"),
    "live": ("get", "/v1/health/live"),
    "make_plan": ("post", "/v1/plans"),
    "pareto": ("get", "/v1/plans/{key}/pareto"),
    "post_blob": ("post", "/v1/blobs"),
    "preview": ("post", "/v1/plans/{key}:preview"),
    "put_blob": ("put", "/v1/blobs/{digest}"),
    "put_stats": ("post", "/v1/stats"),
    "put_target": ("put", "/v1/targets/{name}"),
    "quantize": ("post", "/v1/quantizations"),
    "read_model": ("post", "/v1/models"),
    "ready": ("get", "/v1/health/ready"),
    "replan": ("post", "/v1/plans/{key}:replan"),
    "report": ("get", "/v1/plans/{key}/report"),
    "summarize_plan": ("get", "/v1/plans/{key}/summary"),
    "view_plan": ("get", "/v1/plans/{key}/view"),
    "search": ("post", "/v1/searches"),
    "server": ("get", "/v1/server"),
    "suggest": ("get", "/v1/plans/{key}/suggest"),
}
"""Every one stands in `planner.client.calls`, but those for machines that watch the server."""


@cache
def document() -> dict[str, Any]:
    return create_app(Settings(data="unused")).openapi()


@cache
def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    paths = document()["paths"]
    return {
        entry["operationId"]: (method, path, entry)
        for path, entries in paths.items()
        for method, entry in entries.items()
    }


TRIAL = {"origin": "planned", "kernels": {}, "work": 1, "weight_bits": 8, "predicted": 40, "sqnr": 41}
SEARCH = {
    "format": "qplan.search-result/1",
    "goal": {"kind": "sqnr", "bound": 30, "is_relative": False},
    "met": True,
    "unit": "",
    "dearest": 1,
    "bound": None,
    "gap": None,
    "best": 0,
    "front": [0],
    "trials": [TRIAL | {"exact": False, "metric": None, "reference": None, "error": ""}],
}


@pytest.fixture(scope="module")
def kept(service) -> dict[str, str]:
    """A model, statistics, a plan and samples, by the fields that name them."""
    blob = put(service, ANNOTATED_TEXT.encode())
    model = service.post("/v1/models", json={"blob": blob}).json()["digest"]
    stats = {"format": "qplan.stats/1", "model": model, "method": "minmax", "samples": 1}
    stats["values"] = {"y": {"min": -1.0, "max": 1.0}}
    file = io.BytesIO()
    np.savez(file, x=np.ones((1, 2), np.float32))
    plan = service.post("/v1/plans", json={"model": model, "target": "litert-int8"}).json()["key"]
    return {
        "model": model,
        "stats": service.post("/v1/stats", json=stats).json()["digest"],
        "plan": plan,
        "key": plan,
        "against": plan,
        "before": plan,
        "digest": model,
        "samples": put(service, file.getvalue()),
    }


@pytest.fixture
def known(service, kept) -> dict[str, Callable[[], str]]:
    """Real names for the places where an example has none, by field or by what stands for them.

    What an operation may use up is made anew for each, if it asks.
    """

    def posted(what: str, name: str, **body: Any) -> Callable[[], str]:
        return cache(lambda: service.post(f"/v1/{what}", json=body).json()[name])

    model, plan, content = kept["model"], kept["plan"], ANNOTATED_TEXT.encode()
    return {name: partial(str, own) for name, own in kept.items()} | {
        "file": posted("exports", "blob", model=model, plan=plan, format="onnx-qdq"),
        NO_STATS: partial(str, kept["stats"]),
        "search": cache(lambda: put(service, json.dumps(SEARCH).encode())),
        NO_JOB: posted("calibrations", "id", model=model, samples=kept["samples"]),
        UPLOAD: posted("uploads", "id", digest=digest(content), bytes=len(content)),
    }


def ended(service, job: str) -> str:
    """A job once it has ended."""
    while service.get(f"/v1/jobs/{job}").json()["state"] in ("queued", "running"):
        time.sleep(0.05)
    return job


def test_operations_are_these():
    assert {name: found[:2] for name, found in sorted(operations().items())} == OPERATIONS


def test_the_document_is_the_one_reviewed(golden):
    golden("openapi.json", json.dumps(document(), indent=1) + "\n")


def test_every_parameter_and_body_has_an_example():
    for name, (_, _, entry) in operations().items():
        for parameter in entry.get("parameters", ()):
            assert parameter["schema"].get("examples") or parameter.get("examples"), (name, parameter["name"])
        if "requestBody" in entry:
            assert bodies(entry), name


def bodies(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """Examples of a body with their media types."""
    found: list[tuple[str, Any]] = []
    for media, content in entry.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        if "$ref" in schema:
            schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        examples = [*schema.get("examples", ()), *([content["example"]] if "example" in content else ())]
        found += [(media, example) for example in examples]
    return found


def turn(name: str) -> tuple[bool, bool]:
    """The place of an operation: what is taken away is not there for others, and a job needs its samples."""
    return name.startswith("delete_"), name != "delete_job"


@pytest.mark.parametrize("name", sorted(OPERATIONS, key=turn))
def test_examples_work(service, known, name):
    if name == "delete_target":  # what another test put there may be on another worker
        test_examples_work(service, known, "put_target")
    if name == "quantize":  # an annotated model with ranges of its own takes none of samples
        file = io.BytesIO()
        np.savez(file, x=np.ones((1, 8), np.float32))
        blobs = {"model": relu(), "samples": file.getvalue()}
        known = known | {field: partial(put, service, content) for field, content in blobs.items()}
    if name == "delete_job":
        known = known | {NO_JOB: partial(ended, service, known[NO_JOB]())}
    method, path, entry = operations()[name]
    query: dict[str, str | list[str]] = {}
    headers: dict[str, str] = {}
    for parameter in entry.get("parameters", ()):
        example = (parameter["schema"].get("examples") or parameter["examples"])[0]
        if isinstance(example, list):
            query[parameter["name"]] = example
            continue
        stand_in = {NO_DIGEST: parameter["name"], NO_JOB: NO_JOB, NO_STATS: NO_STATS, UPLOAD: UPLOAD}.get(
            example
        )
        text = str(example if stand_in is None else known[stand_in]())
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", text)
        else:
            (query if parameter["in"] == "query" else headers)[parameter["name"]] = text
    expected = {int(code) for code in entry["responses"] if code.startswith("2")}
    for number, (media, example) in enumerate(bodies(entry) or [("", None)]):
        content = example
        if isinstance(example, dict):
            content = json.dumps(
                {k: known[k]() if v == NO_DIGEST and k in known else v for k, v in example.items()}
            )
        if "idempotency-key" in headers:
            headers["idempotency-key"] = f"{name}-{number}-{known['key']()}"
        more = {"content-type": media} if media else {}
        answer = service.request(method, path, params=query, content=content, headers=headers | more)
        assert answer.status_code in expected, answer.text


def test_the_document_is_served(service):
    assert service.get("/openapi.json").json() == document()


def test_the_example_of_a_blob_is_its_digest():
    assert digest(ANNOTATED_TEXT.encode()) == BLOB


VERBS = (
    *("Attribute", "Begin", "Calibrate", "Cancel", "Check", "Compare", "Delete", "Download", "Explain"),
    *("Export", "Find", "Get", "List", "Plan", "Preview", "Quantize", "Read", "Run", "Search", "Send"),
    *("Store", "Stream", "Upload"),
)


def test_summaries_are_sentences():
    """In the imperative, and no two alike."""
    summaries = {name: entry["summary"] for name, (_, _, entry) in operations().items()}
    odd = {
        name: text
        for name, text in summaries.items()
        if text.split()[0] not in VERBS or not text.endswith(".") or not 12 <= len(text) <= 100
    }
    assert odd == {}
    assert len({text for name, text in summaries.items() if name[:5] != "head_"}) == len(summaries) - 2


def test_every_answer_can_be_a_problem():
    for name, (_, _, entry) in operations().items():
        assert "default" in entry["responses"], name


def test_the_document_knows_tokens_servers_and_problems():
    found = document()
    assert found["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert found["security"] == [{"bearer": []}, {}]
    assert [server["url"] for server in found["servers"]] == ["/"]
    for name, (_, path, entry) in operations().items():
        problem = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
        assert entry["responses"]["default"]["content"] == {"application/problem+json": problem}, name
        assert ("security" in entry) == path.startswith("/v1/health/"), name


def references(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        own = {tree["$ref"]} if isinstance(tree.get("$ref"), str) else set()
        return own.union(*map(references, tree.values()))
    return set().union(*map(references, tree)) if isinstance(tree, list) else set()


def test_every_reference_leads_somewhere():
    prefix = "#/components/schemas/"
    assert {name.removeprefix(prefix) for name in references(document())} <= set(
        document()["components"]["schemas"]
    )


def test_plans_are_typed_as_they_are(service):
    schema = {"$ref": "#/components/schemas/Plan", "components": document()["components"]}
    plan = service.post("/v1/plans", json={"model": ANNOTATED, "target": "litert-int8"}).json()
    Draft202012Validator(schema).validate(plan)
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate({**plan, "kernels": 5})


def answers_of(name: str) -> dict[str, Any]:
    """The schema of the JSON that an operation answers with."""
    return operations()[name][2]["responses"]["200"]["content"]["application/json"]["schema"]


@pytest.mark.parametrize("name", ["get_stats", "get_target", "view_plan"])
def test_answers_are_typed_as_they_are(service, name):
    plan = service.post("/v1/plans", json={"model": ANNOTATED, "target": "litert-int8"}).json()["key"]
    stats = service.post("/v1/stats", json=STATS).json()["digest"]
    path = {
        "get_stats": f"/v1/stats/{stats}",
        "get_target": "/v1/targets/litert-int8",
        "view_plan": f"/v1/plans/{plan}/view?before={plan}",
    }
    answer = service.get(path[name]).json()
    validator = Draft202012Validator({**answers_of(name), "components": document()["components"]})
    validator.validate(answer)
    for field in document()["components"]["schemas"][answers_of(name)["$ref"].rpartition("/")[2]]["required"]:
        with pytest.raises(ValidationError):
            validator.validate({**answer, field: b""})


def test_a_union_is_refused_in_one_sentence(service):
    told = check(service.post("/v1/plans", json={"model": "abc", "target": "litert-int8"}), "request-invalid")
    accepted = "neither a digest, sha256: and 64 hexadecimal digits, nor an annotated model"
    assert told["errors"] == [{"pointer": "/model", "message": f"'abc' is {accepted}"}]


def test_a_whole_number_is_a_price(service):
    options = {"costs": {"bit_price": 1}}
    body = {"model": ANNOTATED, "target": "litert-int8", "options": options}
    assert service.post("/v1/plans", json=body).status_code == 200


def test_methods_are_named_in_the_document():
    schema = document()["components"]["schemas"]["CalibrationRequest"]["properties"]["method"]
    words, pattern = schema["anyOf"]
    assert sorted(words["enum"]) == sorted(OBSERVERS)
    for method in ("percentile:99.9", "percentile:100", "percentile:999/10"):
        assert re.search(pattern["pattern"], method)


def test_a_method_is_refused_in_the_words_of_the_library(service, kept):
    asked = {"model": kept["model"], "samples": kept["samples"]}
    for method in ("kl", "percentile:1e-999999999", "percentile:---"):
        with pytest.raises(StatsError) as error:
            percentile_of(method)
        told = check(service.post("/v1/calibrations", json={**asked, "method": method}), "request-invalid")
        assert told["errors"] == [{"pointer": "/method", "message": str(error.value)}]


def test_every_answer_has_a_type():
    """But for a part of a plan, which may be anything, and heads, which have no body."""
    for name, (method, _, entry) in operations().items():
        for content in [
            answer.get("content") for code, answer in entry["responses"].items() if code == "200"
        ]:
            assert bool(content) == (method != "head"), name
            schema = (content or {}).get("application/json", {}).get("schema")
            assert schema not in ({"type": "object"}, {}) or name == "get_plan_part", name


def test_formats_and_methods_are_checked_at_the_door(service, kept):
    request = document()["components"]["schemas"]["ExportRequest"]["properties"]["format"]
    assert request["enum"] == sorted(EXPORTERS)
    body = {"model": kept["model"], "plan": kept["plan"], "format": "onnx-qdc"}
    check(service.post("/v1/exports", json=body), "request-invalid", "onnx-qdq")
    texts = ("percentile:", "percentile:x", "percentile:1e-999999999", "percentile:101", "percentile:1/0")
    for method in ("minmx", "minmax:3", *texts):
        asked = {"model": kept["model"], "samples": kept["samples"], "method": method}
        check(service.post("/v1/calibrations", json=asked), "request-invalid", "/method")


@pytest.mark.parametrize(
    ("path", "body", "pointers"),
    [
        ("/v1/plans", {"model": "abc", "target": "litert-int8"}, ["/model"]),
        ("/v1/plans", {"model": ANNOTATED, "target": "litert-int8", "stats": 3}, ["/stats"]),
        ("/v1/plans", {"model": ANNOTATED}, ["/target"]),
        ("/v1/plans", {"model": ANNOTATED, "target": 1, "wrong": 1}, ["/target", "/wrong"]),
        (
            "/v1/plans",
            {"model": ANNOTATED, "target": "a", "options": {"costs": {"bit_price": "1e-999999999"}}},
            ["/options/costs/bit_price"],
        ),
        ("/v1/uploads", {"digest": "sha256:" + "0" * 64, "bytes": True}, ["/bytes"]),
        ("/v1/uploads", {"digest": "sha256:" + "0" * 64, "bytes": "5"}, ["/bytes"]),
        ("/v1/calibrations", {"model": BLOB, "samples": BLOB, "readers": "1"}, ["/readers"]),
        ("/v1/losses", {"model": BLOB, "plan": "abc", "samples": BLOB, "limit": True}, ["/plan", "/limit"]),
        (
            "/v1/exports",
            {"model": BLOB, "plan": BLOB, "format": "qonnx", "external_data": 1},
            ["/external_data"],
        ),
        (
            "/v1/searches",
            {"model": BLOB, "target": "a", "samples": BLOB, "goal": {"sqnr": True}, "trials": 1.0},
            ["/goal", "/goal/sqnr", "/trials"],
        ),
        (
            "/v1/plans",
            {"model": ANNOTATED, "target": "a", "options": {"best_effort": "true", "costs": {"a/~": True}}},
            ["/options/best_effort", "/options/costs/a~1~0"],
        ),
    ],
)
def test_errors_point_at_places_of_the_body(service, path, body, pointers):
    """A union has one error for each type that it may be of; all are of one place."""
    told = check(service.post(path, json=body), "request-invalid")
    assert [error["pointer"] for error in told["errors"]] == pointers
