"""What is killed comes back, and nothing that was accepted is lost or done twice."""

import os
import random
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from api.jobs import queue
from api.store import Store
from benchmarks import faults
from benchmarks.clusters import postgres_folder
from tests.api.conftest import serving
from tests.api.documents import chain, digest, put, relu
from tests.api.jobs.conftest import DIGITS

without_postgres = pytest.mark.skipif(
    postgres_folder() is None and os.environ.get("CI") != "true",
    reason="Debian's package postgresql is not installed",
)


def judge(outcome: faults.Outcome) -> None:
    assert outcome.lost == 0, outcome
    assert outcome.doubled == 0, outcome
    assert outcome.results == outcome.sent, outcome


@without_postgres
@pytest.mark.slow
def test_a_few_jobs_while_each_part_is_killed():
    judge(faults.campaign(8, 5.0, seed=1, least=6))


@without_postgres
@pytest.mark.soak
def test_five_hundred_jobs_while_everything_is_killed():
    outcome = faults.campaign(500, 8.0, seed=0)
    judge(outcome)
    assert max(outcome.recoveries) <= faults.ALLOWED


def test_a_server_killed_again_and_again_loses_nothing(tmp_path):
    """Every answer that arrived is true after each kill: blobs, models, jobs."""
    chance = random.Random(7)  # noqa: S311 - when it is killed is no secret
    kept, jobs = {}, {}
    for turn in range(4):
        with (
            serving(tmp_path, QPLAN_LEASE_SECONDS="2") as server,
            httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
        ):
            for name, data in kept.items():
                assert client.get(f"/v1/blobs/{name}").content == data
            model = client.post("/v1/models", json={"blob": put(client, relu())}).json()["digest"]
            for k in range(3):
                data = f"{turn} {k}".encode()
                kept[put(client, data)] = data
                cost = {"bit_price": 1 + len(jobs) / 100}
                body = {"model": model, "target": "onnxruntime-cpu", "options": {"costs": cost}}
                headers = {"Prefer": "respond-async", "Idempotency-Key": f"{turn} {k}"}
                job = client.post("/v1/plans", json=body, headers=headers).json()
                jobs[job["id"]] = job
            time.sleep(chance.random())
            server.process.kill()
    with serving(tmp_path, QPLAN_LEASE_SECONDS="2") as server:
        ended = [end_of(server.url, job) for job in jobs]
        assert {job["state"] for job in ended} == {"done"}
        assert len({job["result"]["plan"] for job in ended}) == len(jobs) == 12
        assert httpx.get(f"{server.url}/v1/jobs?limit=100", trust_env=False).json()["next"] is None


def end_of(url: str, job: str) -> dict:
    for _ in range(600):
        found = httpx.get(f"{url}/v1/jobs/{job}", trust_env=False, timeout=60).json()
        if found["state"] not in ("queued", "running"):
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def test_a_database_that_goes_and_comes_back(postgres_server, tmp_path):
    with (
        serving(tmp_path, QPLAN_DATABASE_URL=postgres_server.url, QPLAN_LEASE_SECONDS="2") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        model = client.post("/v1/models", json={"blob": put(client, relu())}).json()["digest"]
        body = {"model": model, "target": "onnxruntime-cpu"}
        headers = {"Prefer": "respond-async"}
        job = client.post("/v1/plans", json=body, headers=headers).json()["id"]
        postgres_server.stop()
        try:
            for answer in (client.get("/v1/jobs"), client.get(f"/v1/jobs/{job}")):
                assert answer.status_code == 503
                assert answer.json()["type"] == "urn:qplan:problem:not-ready"
            small = {"model": chain(2), "target": "litert-int8"}
            assert client.post("/v1/plans", json=small).status_code == 200
        finally:
            postgres_server.start()
        assert end_of(server.url, job)["state"] == "done"


@contextmanager
def small_disk(folder: Path, size: str):
    """A file system of its own, of a few megabytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file system")
def test_a_full_disk_is_said_and_passes(tmp_path):
    with (
        small_disk(tmp_path / "small", "4m") as data,
        serving(data) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        model = put(client, relu())
        fill = data / "fill"
        fill.write_bytes(b"\0" * (shutil.disk_usage(data).free - 4096))
        big = bytes(range(256)) * 1000
        octets = {"Content-Type": "application/octet-stream"}
        answer = client.put(f"/v1/blobs/{digest(big)}", content=big, headers=octets)
        assert (answer.status_code, answer.json()["type"]) == (507, "urn:qplan:problem:storage-full")
        assert client.get(f"/v1/blobs/{model}").content == relu()
        fill.unlink()
        assert put(client, big) == digest(big)
        assert client.post("/v1/models", json={"blob": model}).status_code == 201


def test_a_blob_damaged_on_disk_is_said_and_can_be_sent_again(make_service, tmp_path):
    client = make_service()
    data = (DIGITS / "digits.onnx").read_bytes()
    name = put(client, data)
    path = Store(tmp_path).path("blobs", name)
    path.write_bytes(data[:-1] + b"?")
    answer = client.get(f"/v1/blobs/{name}")
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:qplan:problem:corrupted")
    assert client.get(f"/v1/blobs/{name}").status_code == 404
    put(client, data)
    assert client.get(f"/v1/blobs/{name}").content == data


def test_jobs_of_a_killed_server_are_in_its_database(engine):
    """The campaign's own judge: a job that is not done counts as lost."""
    queue.submit(engine, "plan", {})
    outcome = faults.judged(engine, 1, [], 0.0)
    assert (outcome.lost, outcome.doubled) == (1, 0)
    assert faults.judged(engine, 2, [], 0.0).lost == 2
