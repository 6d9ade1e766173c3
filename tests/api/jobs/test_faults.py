"""What is killed comes back, and nothing that was accepted is lost or done twice."""

import os
import random
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from api.jobs import queue
from api.storage.store import Store
from benchmarks import faults
from benchmarks.clusters import postgres_folder
from benchmarks.shifted_clock import COMPILER, Clocks
from tests.api.conftest import serving
from tests.api.documents import OCTETS, RANGE, chain, digest, put, relu
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
@pytest.mark.soak
def test_a_few_jobs_while_each_part_is_killed():
    judge(faults.campaign(8, 3.0, seed=1, least=len(faults.FAULTS)))


@without_postgres
@pytest.mark.soak
def test_five_hundred_jobs_while_everything_is_killed():
    outcome = faults.campaign(500, 8.0, seed=0)
    judge(outcome)
    assert max(outcome.recoveries) <= faults.ALLOWED


@dataclass(slots=True)
class Kept:
    """What answers said that it is kept: bytes by address, parts of uploads, jobs."""

    files: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)


def busy(client: httpx.Client, kept: Kept, model: str, seed: int) -> None:
    """Send one thing after another until there is no answer."""
    chance = random.Random(seed)  # noqa: S311 - what is sent is no secret
    with suppress(httpx.TransportError):
        while True:
            data = chance.randbytes(chance.randrange(1, 500_000))
            kept.files[f"/v1/blobs/{put(client, data)}"] = data
            costs = {"costs": {"bit_price": 1 + chance.random()}}
            plan = client.post(
                "/v1/plans", json={"model": chain(4), "target": "litert-int8", "options": costs}
            )
            kept.files[f"/v1/plans/{plan.json()['key']}"] = plan.content
            part(client, kept, chance.randbytes(300_000))
            body = {"model": model, "target": "onnxruntime-cpu", "options": costs, "annotations": RANGE}
            headers = {"Prefer": "respond-async", "Idempotency-Key": f"{seed} {len(kept.jobs)}"}
            kept.jobs.append(client.post("/v1/plans", json=body, headers=headers).json()["id"])


def part(client: httpx.Client, kept: Kept, data: bytes) -> None:
    """Send the first part of a file."""
    begun = client.post("/v1/uploads", json={"digest": digest(data), "bytes": len(data)}).json()["link"]
    kept.uploads[begun] = data, 0
    headers = OCTETS | {"Upload-Offset": "0"}
    answer = client.patch(begun, content=data[:200_000], headers=headers)
    kept.uploads[begun] = data, int(answer.headers["upload-offset"])


def look(client: httpx.Client, kept: Kept) -> None:
    """Hold what is there against what was said, and send the rest of what came in part."""
    for address, data in kept.files.items():
        assert client.get(address).content == data, address
    for link, (data, offset) in kept.uploads.items():
        stands = client.get(link).json()["offset"]
        assert stands >= offset
        headers = OCTETS | {"Upload-Offset": str(stands)}
        assert client.patch(link, content=data[stands:], headers=headers).status_code == 204
        kept.files[f"/v1/blobs/{digest(data)}"] = data
    kept.uploads.clear()


@pytest.mark.parametrize(("turns", "longest"), [(3, 1.0), pytest.param(20, 3.0, marks=pytest.mark.soak)])
def test_a_server_killed_again_and_again_loses_nothing(tmp_path, turns, longest):
    """Killed while it works: every answer that arrived is true after it, and every job ends."""
    chance, kept = random.Random(7), Kept()  # noqa: S311 - when it is killed is no secret
    for turn in range(turns):
        with serving(tmp_path, QPLAN_LEASE_SECONDS="2", QPLAN_RATE="0") as server, ExitStack() as stack:
            client = stack.enter_context(httpx.Client(base_url=server.url, trust_env=False, timeout=60))
            look(client, kept)
            model = client.post("/v1/models", json={"blob": put(client, relu())}).json()["digest"]
            pool = stack.enter_context(ThreadPoolExecutor(2))
            before = len(kept.jobs)
            running = [pool.submit(busy, client, kept, model, 2 * turn + k) for k in range(2)]
            # A slow machine takes longer than any moment of chance to answer for a first job.
            while len(kept.jobs) == before and not any(thread.done() for thread in running):
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, longest))
            server.process.kill()
            for thread in running:
                thread.result()
    with serving(tmp_path, QPLAN_LEASE_SECONDS="2") as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            look(client, kept)
        ended = [end_of(server.url, job) for job in kept.jobs]
        assert {job["state"] for job in ended} == {"done"}
        assert len(set(kept.jobs)) == len(kept.jobs) >= turns


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
        body = {"model": model, "target": "onnxruntime-cpu", "annotations": RANGE}
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


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_server_whose_clock_is_set_goes_on(tmp_path):
    """Jobs end in turn, an upload goes on, and one that ran out by a wrong clock says so meanwhile."""
    data = tmp_path / "data"
    data.mkdir()
    clocks = Clocks.make(tmp_path, 1)
    settings = {"QPLAN_JOB_WORKERS": "1", "QPLAN_LEASE_SECONDS": "4", **clocks.variables(0)}
    part = relu()
    with (
        serving(data, **settings) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        begun = client.post("/v1/uploads", json={"digest": digest(part), "bytes": len(part)}).json()
        found = []
        for number, jump in enumerate((0, 7, -7, 3600, -3600, 2 * 86_400, -2 * 86_400)):
            clocks.set(0, jump)
            asked = {"model": chain(70 + number), "target": "litert-int8"}
            answer = client.post("/v1/plans", json=asked, headers={"Prefer": "respond-async"})
            found.append(answer.json()["link"])
            upload = client.get(begun["link"])
            assert upload.status_code == (410 if jump > 86_400 else 200)
        until = time.monotonic() + 120
        jobs = [client.get(link).json() for link in found]
        while any(job["state"] in ("queued", "running") for job in jobs):
            assert time.monotonic() < until, jobs
            time.sleep(0.2)
            jobs = [client.get(link).json() for link in found]
        assert [job["state"] for job in jobs] == ["done"] * len(jobs)
        headers = {"Upload-Offset": "0", "Content-Type": "application/octet-stream"}
        assert client.patch(begun["link"], content=part, headers=headers).status_code == 204
        assert client.get(f"/v1/blobs/{digest(part)}").content == part


def test_jobs_of_a_killed_server_are_in_its_database(engine):
    """The campaign's own judge: a job that is not done counts as lost."""
    queue.submit(engine, "plan", {})
    outcome = faults.judged(engine, 1, [], 0.0)
    assert (outcome.lost, outcome.doubled) == (1, 0)
    assert faults.judged(engine, 2, [], 0.0).lost == 2
