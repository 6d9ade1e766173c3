"""The OpenAPI document: names of operations, and every example sent as it stands."""

import json
from typing import Any

import pytest

from api.app import create_app
from api.examples import ANNOTATED_TEXT, BLOB, NO_DIGEST
from api.settings import Settings
from tests.api.documents import digest, put

OPERATIONS = {
    "explain_plan": ("get", "/v1/plans/{key}/explain"),
    "export_plan": ("post", "/v1/exports"),
    "get_blob": ("get", "/v1/blobs/{digest}"),
    "get_plan": ("get", "/v1/plans/{key}"),
    "get_target": ("get", "/v1/targets/{id}"),
    "head_blob": ("head", "/v1/blobs/{digest}"),
    "lint_target": ("post", "/v1/targets:lint"),
    "list_targets": ("get", "/v1/targets"),
    "live": ("get", "/v1/health/live"),
    "make_plan": ("post", "/v1/plans"),
    "put_blob": ("put", "/v1/blobs/{digest}"),
    "put_stats": ("post", "/v1/stats"),
    "read_model": ("post", "/v1/models"),
    "ready": ("get", "/v1/health/ready"),
    "server": ("get", "/v1/server"),
}


def document() -> dict[str, Any]:
    return create_app(Settings(data="unused")).openapi()


def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    paths = document()["paths"]
    return {
        entry["operationId"]: (method, path, entry)
        for path, entries in paths.items()
        for method, entry in entries.items()
    }


@pytest.fixture(scope="module")
def known(service) -> dict[str, str]:
    """Real digests for the places where an example has none."""
    put(service, ANNOTATED_TEXT.encode())
    model = service.post("/v1/models", json={"blob": BLOB}).json()["digest"]
    stats = {"format": "qplan.stats/1", "model": model, "method": "minmax", "samples": 1}
    stats["values"] = {"y": {"min": -1.0, "max": 1.0}}
    kept = service.post("/v1/stats", json=stats).json()["digest"]
    plan = service.post("/v1/plans", json={"model": model, "target": "litert-int8"}).json()["key"]
    return {"model": model, "stats": kept, "plan": plan, "key": plan}


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


@pytest.mark.parametrize("name", OPERATIONS)
def test_examples_work(service, known, name):
    method, path, entry = operations()[name]
    query = {}
    for parameter in entry.get("parameters", ()):
        example = (parameter["schema"].get("examples") or parameter["examples"])[0]
        text = known[parameter["name"]] if example == NO_DIGEST else example
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", text)
        else:
            query[parameter["name"]] = text
    expected = int(next(code for code in entry["responses"] if code.startswith("2")))
    for media, example in bodies(entry) or [("", None)]:
        content = example
        if isinstance(example, dict):
            content = json.dumps(
                {k: known[k] if v == NO_DIGEST and k in known else v for k, v in example.items()}
            )
        headers = {"content-type": media} if media else {}
        answer = service.request(method, path, params=query, content=content, headers=headers)
        assert answer.status_code == expected, answer.text


def test_the_document_is_served(service):
    assert service.get("/openapi.json").json() == document()


def test_the_example_of_a_blob_is_its_digest():
    assert digest(ANNOTATED_TEXT.encode()) == BLOB


def test_every_answer_can_be_a_problem():
    for name, (_, _, entry) in operations().items():
        assert "default" in entry["responses"], name
