"""What a dispatcher makes of works, here and on a real Dask cluster: ends, failures, cancels, losses."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from api.jobs import queue
from api.jobs.child_process import BEHIND, WAY, Bounds
from api.jobs.dispatcher import Dispatcher, Pace
from api.jobs.executors import Cluster, Pool
from api.jobs.records import work
from api.storage.database import default_url, open_database
from benchmarks.clusters import free_port
from planner.calibration.run import calibrate
from planner.pipeline import load_model
from tests.api.jobs.conftest import DIGITS, calibration, calibration_of, endless, keep

GIB = 1 << 30
BOUNDS = Bounds(GIB, 100)
PATIENCE = 60


@pytest.fixture(params=["pool", "dask"])
def make_executor(request, store) -> Callable:
    """An executor of each kind; the Dask workers see the same folder."""
    if request.param == "pool":
        return lambda bounds=BOUNDS: Pool(store, bounds, 2)
    running = request.getfixturevalue("cluster")
    address = f"tcp://127.0.0.1:{running.port}"
    return lambda bounds=BOUNDS: Cluster(address, store.root, "", bounds)


@pytest.fixture
def engine(tmp_path):
    opened = open_database(default_url(tmp_path))
    yield opened
    opened.dispose()


@asynccontextmanager
async def dispatching(engine, executor, seconds=10.0):
    dispatcher = Dispatcher(engine, executor, seconds=seconds)
    await dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


async def until(engine, job, wanted=lambda job: job.has_ended):
    for _ in range(PATIENCE * 50):
        found = queue.get(engine, job.id, job.tenant)
        if wanted(found):
            return found
        assert not found.has_ended, found.problem
        await asyncio.sleep(0.02)
    raise AssertionError(f"job {found.id} is {found.state}, with {found.progress}")


def run(engine, executor, asked):
    """Submit a work, run a dispatcher until it ended, and give the job."""

    async def main():
        job = queue.submit(engine, "kind", asked)
        async with dispatching(engine, executor):
            return await until(engine, job)

    return asyncio.run(main())


def kinds(engine, job):
    return [event.kind for event in queue.events_after(engine, job.id)]


def test_statistics_are_those_of_the_library_to_the_last_bit(engine, store, make_executor):
    job = run(engine, make_executor(), calibration(store))
    assert job.state == "done", job.problem
    assert job.result["samples"] == 128
    here = calibrate(load_model(DIGITS / "digits.onnx"), DIGITS / "calibration.npz")
    kept = store.find_verified("stats", job.result["kept"]["out"])
    assert kept.read_text(encoding="utf-8") == here.to_json()
    assert "progress" not in kinds(engine, job) or job.progress["done"] <= 128


def test_a_job_has_the_files_of_its_tenant(engine, store, make_executor):
    own = store.of("one")
    own.open()

    async def main():
        work = calibration(own)
        job = queue.submit(engine, "kind", work, tenant="one")
        lost = queue.submit(engine, "kind", work, tenant="two")
        async with dispatching(engine, make_executor()):
            return [await until(engine, one) for one in (job, lost)]

    done, lost = asyncio.run(main())
    assert done.state == "done", done.problem
    assert own.has("stats", done.result["kept"]["out"])
    assert list(store.digests("stats")) == []
    assert (lost.state, lost.problem["name"]) == ("failed", "unknown-name")


FAILURES = {
    "a model that is none": (
        BOUNDS,
        lambda store, _: calibration_of(store, b"\x08\x07nonsense", b""),
        "model-invalid",
    ),
    "samples that are none": (
        BOUNDS,
        lambda store, _: calibration_of(store, (DIGITS / "digits.onnx").read_bytes(), b"PK"),
        "input-invalid",
    ),
    "too long": (Bounds(GIB, 1, patience=100), endless, "timeout"),
    "too much memory": (Bounds(200 << 20, 100), endless, "out-of-memory"),
    "a bug": (BOUNDS, lambda *_: work("export", {}), "worker-crashed"),
    "gone": (
        BOUNDS,
        lambda store, _: {
            **calibration(store),
            "files": [{"at": ["model"], "how": "stored", "what": ["blobs", f"sha256:{'0' * 64}"]}],
        },
        "unknown-name",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_the_input_does_is_a_typed_failure_and_not_tried_again(
    engine, store, make_executor, name, tmp_path
):
    bounds, asked, problem = FAILURES[name]
    job = run(engine, make_executor(bounds), asked(store, tmp_path))
    assert (job.state, job.problem["name"], job.attempt) == ("failed", problem, 1)


def test_a_damaged_blob_is_a_typed_failure_and_can_be_sent_again(engine, store, make_executor):
    asked = calibration(store)
    digest = asked["files"][0]["what"][1]
    path = store.path("blobs", digest)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    job = run(engine, make_executor(), asked)
    assert (job.state, job.problem["name"]) == ("failed", "corrupted")
    assert keep(store, whole) == digest
    assert run(engine, make_executor(), asked).state == "done"


def test_cancelling_stops_the_child_within_a_second(engine, store, make_executor, tmp_path):
    async def main():
        job = queue.submit(engine, "kind", endless(store, tmp_path))
        async with dispatching(engine, make_executor()) as dispatcher:
            await until(engine, job, lambda job: job.progress is not None)
            start = time.monotonic()
            queue.cancel(engine, job.id)
            ended = await until(engine, job)
            took = time.monotonic() - start
            return ended, took, dispatcher

    ended, took, dispatcher = asyncio.run(main())
    assert ended.state == "cancelled"
    assert dispatcher.held == {}
    assert took < 5  # 1 s on a machine that does nothing else: benchmarks.faults measures it
    gone = time.monotonic() + 5
    while list((store.root / "drafts").iterdir()):
        assert time.monotonic() < gone, "the worker's child goes on"
        time.sleep(0.02)


def children_of(store) -> list[int]:
    """Processes that work on the files of a store."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == store.root:
                found.append(int(process.name))
    return found


def test_a_job_whose_child_is_killed_is_tried_again_and_then_lost(engine, store, make_executor, tmp_path):
    """As by a system that is short of memory: it was the input's doing, `out-of-memory`."""

    async def main():
        job = queue.submit(engine, "kind", endless(store, tmp_path))
        async with dispatching(engine, make_executor()):
            for attempt in range(queue.LOSSES):

                def has_child(job, attempt=attempt):
                    return (job.state, job.lost) == ("running", attempt) and children_of(store)

                await until(engine, job, has_child)
                for child in children_of(store):
                    os.kill(child, signal.SIGKILL)
            return await until(engine, job)

    job = asyncio.run(main())
    assert (job.state, job.problem["name"], job.attempt) == ("failed", "worker-lost", queue.LOSSES)
    assert job.problem["detail"].endswith("SIGKILL from outside ended the process that reads this input")
    assert kinds(engine, job).count("retried") == queue.LOSSES - 1


def test_progress_is_told(engine, store, make_executor, tmp_path):
    async def main():
        job = queue.submit(engine, "kind", endless(store, tmp_path))
        async with dispatching(engine, make_executor()):
            found = await until(engine, job, lambda job: (job.progress or {}).get("done", 0) > 1)
            queue.cancel(engine, job.id)
            await until(engine, job)
            return found

    found = asyncio.run(main())
    assert found.progress["total"] == 500_000
    assert found.progress["left_s"] is None or found.progress["left_s"] > 0


def test_time_left_is_that_of_the_pace_so_far():
    """Each phase has a pace of its own: runs of one kernel are fast, trials slow."""
    pace, told = Pace(), []
    for seconds, progress in (
        (0, {"done": 0, "total": 10, "phase": "noise"}),
        (2, {"done": 4, "total": 10, "phase": "noise"}),
        (5, {"done": 1, "total": 16}),
        (9, {"done": 3, "total": 16}),
        (10, {"done": 3}),
    ):
        told.append(pace.left(progress, 100.0 + seconds))
    assert told == [None, 3.0, None, 26.0, None]


def test_a_server_that_ends_gives_its_jobs_back(engine, store, make_executor, tmp_path):
    async def main():
        job = queue.submit(engine, "kind", endless(store, tmp_path))
        async with dispatching(engine, make_executor()):
            while queue.get(engine, job.id).state != "running":
                await asyncio.sleep(0.001)
                time.sleep(0.02)  # noqa: ASYNC251 - the lease is there before the dispatcher knows
        return queue.get(engine, job.id)

    job = asyncio.run(main())
    assert (job.state, job.attempt) == ("queued", 0)


@pytest.mark.parametrize("readers", [0, 2])
def test_a_calibration_in_shards_is_that_of_one_worker(engine, store, cluster, readers):
    address, asked = f"tcp://127.0.0.1:{cluster.port}", calibration(store, readers=readers)
    whole = run(engine, Cluster(address, store.root, "", BOUNDS), asked)
    shards = run(engine, Cluster(address, store.root, "", BOUNDS, fan_from=0), asked)
    assert shards.result == whole.result
    assert whole.result["warnings"] == []
    assert len(list(store.digests("answers"))) > 2


def test_a_killed_worker_is_replaced(engine, store, cluster, tmp_path):
    address = f"tcp://127.0.0.1:{cluster.port}"

    async def main():
        stuck = queue.submit(engine, "kind", endless(store, tmp_path))
        async with dispatching(engine, Cluster(address, store.root, "", BOUNDS)):
            await until(engine, stuck, lambda job: job.progress is not None)
            jobs = [queue.submit(engine, "kind", calibration(store)) for _ in range(4)]
            for place in (0, 0):
                cluster.kill_worker(place)
                await asyncio.sleep(0.5)
            queue.cancel(engine, stuck.id)
            return [await until(engine, job) for job in jobs]

    assert [job.state for job in asyncio.run(main())] == ["done"] * 4


def test_without_a_cluster_jobs_wait(engine, store):
    async def main():
        job = queue.submit(engine, "kind", calibration(store))
        executor = Cluster(f"tcp://127.0.0.1:{free_port()}", store.root, "", BOUNDS)
        async with dispatching(engine, executor):
            await asyncio.sleep(0.5)
        return queue.get(engine, job.id)

    job = asyncio.run(main())
    assert (job.state, job.attempt, job.lost) == ("queued", 0, 0)


def test_two_dispatchers_share_the_jobs(engine, store):
    async def main():
        jobs = [queue.submit(engine, "kind", calibration(store)) for _ in range(6)]
        async with dispatching(engine, Pool(store, BOUNDS, 1)), dispatching(engine, Pool(store, BOUNDS, 1)):
            return [await until(engine, job) for job in jobs]

    ended = asyncio.run(main())
    assert [(job.state, job.attempt) for job in ended] == [("done", 1)] * 6
    assert len({job.owner for job in ended}) == 2


class Noting(Pool):
    """Notes the nice of each work, and answers it once told to."""

    def __init__(self, store):
        super().__init__(store, BOUNDS, 1)
        self.nice = []
        self.go = asyncio.Event()

    async def run(self, asked, _):
        """As `Executor.run`."""
        self.nice.append(asked["nice"])
        await self.go.wait()
        return {}


@pytest.mark.parametrize(
    ("jobs", "asking", "nice"),
    [
        (["one", "one"], [], BEHIND),  # nobody else is there
        (["one", "one"], ["one"], BEHIND),
        (["one", "one"], ["two"], BEHIND + WAY),
        (["one", "one", "two"], [], BEHIND + WAY),
        (["one", "two", "two"], [], BEHIND),  # it has nothing more
    ],
)
def test_jobs_give_way_to_others_alone(engine, store, jobs, asking, nice):
    executor = Noting(store)

    async def main():
        made = [queue.submit(engine, "kind", {"task": "x"}, principal=name) for name in jobs]
        dispatcher = Dispatcher(engine, executor, seconds=10, asking=lambda: asking)
        await dispatcher.start()
        await until(engine, made[0], lambda job: job.state == "running")
        executor.go.set()
        for job in made:
            await until(engine, job)
        await dispatcher.stop()

    asyncio.run(main())
    assert executor.nice[0] == nice


def test_what_is_leased_runs_though_the_database_fails_behind(engine, store, monkeypatch):
    def fail(_):
        raise OperationalError("select", {}, Exception("gone"))

    monkeypatch.setattr(queue, "who_waits", fail)
    executor = Noting(store)
    executor.go.set()
    assert run(engine, executor, {"task": "x"}).state == "done"
    assert executor.nice == [BEHIND]
