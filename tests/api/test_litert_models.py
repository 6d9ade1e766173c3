"""LiteRT files over HTTP: read by the child, planned, exported; what is no such file gets a typed answer."""

import random

import pytest

from tests.api.documents import put
from tests.api.test_problems import check
from tests.formats.litert.reader.files import of_rows
from tests.formats.litert.reader.test_bad_files import changed

FILE = "fully_connected-1"


@pytest.fixture(scope="module")
def data():
    return of_rows()[FILE].file


def test_a_file_is_a_model(make_service, data):
    client = make_service()
    answer = client.post("/v1/models", json={"blob": put(client, data)})
    assert answer.status_code == 201, answer.text
    record = answer.json()
    assert record["format"] == "litert"
    plan = client.post("/v1/plans", json={"model": record["digest"], "target": "litert-int8"})
    assert plan.status_code == 200, plan.text
    assert plan.json()["cost"] == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:200], "no LiteRT file, or a truncated one"),
        (lambda data: b"\xff\xff\xff\x7f" + data[4:], "no LiteRT file, or a truncated one"),
        (lambda data: data[:8], "no LiteRT file, or a truncated one"),
    ],
)
def test_what_is_no_file_is_refused(make_service, data, change, words):
    client = make_service()
    answer = client.post("/v1/models", json={"blob": put(client, change(data))})
    check(answer, "model-invalid", words)


@pytest.mark.parametrize("count", [4, pytest.param(10_000, marks=pytest.mark.soak)])
def test_changed_files_are_models_or_refused(make_service, data, count, record_property):
    """In the sandbox too: whatever stands in a file, the answer has a type, and the service goes on."""
    client, chance = make_service(), random.Random(1)  # noqa: S311 - to be repeated, not to be secret
    read = 0
    for i in range(count):
        file = data[: chance.randrange(len(data))] if i % 3 == 0 else changed(chance, [data])
        answer = client.post("/v1/models", json={"blob": put(client, file)})
        if answer.status_code in {200, 201}:
            read += 1
            continue
        assert answer.status_code == 422, answer.text
        check(answer, "model-invalid", "")
    record_property("changed", f"{count} files, {read} read, {count - read} refused")
    assert 0 < read < count
    assert client.post("/v1/models", json={"blob": put(client, data)}).status_code in {200, 201}
