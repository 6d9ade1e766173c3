"""Scale-out: what a second Dask worker brings, and a matrix of models and targets planned on the cluster.

A calibration of a real model on one worker and on two, one onnxruntime thread each, in turns: seconds, their
ratio (median), and whether the statistics are the same to the last bit, also as the library's own. Then every
model with every target, all at once. Usage, from the repository root:
`python -m benchmarks.scale_out [--model mobilenetv2_100] [--samples 256] [--rounds 5] [--matrix 20]`; no
rounds leave the processor time of each part, no model leaves the matrix.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from api.jobs.child_process import Bounds, run_child
from api.jobs.executors import Cluster
from api.jobs.fan_out import run_work
from api.jobs.forks import FORKS
from api.jobs.records import follow_up, made, stored, work, written
from api.problems import Refused
from api.schemas.examples import TARGET
from api.storage.digests import digest_of
from api.storage.store import Store
from benchmarks.clusters import dask
from benchmarks.samples import model_folder, samples
from planner.calibration.run import calibrate

BOUNDS: Final = Bounds(4 << 30, 3000)
OPTIONS: Final = {"strategy": "minimal", "best_effort": False, "bias_pins": "error", "costs": {}}


def keep(store: Store, data: bytes) -> str:
    """Keep bytes as a blob."""
    store.put("blobs", digest_of(data), data)
    return digest_of(data)


async def calibrations(store: Store, asked: dict[str, Any], rounds: int) -> list[str]:
    """Time a calibration on one worker and on two, in turns; the digests of all statistics."""
    kept, ratios = [], []
    with ExitStack() as stack:
        clusters = [stack.enter_context(dask(workers)) for workers in (1, 2)]
        ports = [cluster.port for cluster in clusters]
        executors = [Cluster(f"tcp://127.0.0.1:{port}", store.root, "", BOUNDS, fan_from=0) for port in ports]
        executors[0].fan_from = None  # one worker has nothing to share
        for executor in executors:
            await warm(executor, asked)
        for turn in range(rounds):
            took = []
            for executor in executors:
                start = time.perf_counter()
                result = await run_work(executor, asked, lambda _: None)
                took.append(time.perf_counter() - start)
                kept.append(str(result["kept"]["out"]))
            ratios.append(took[0] / took[1])
            print(f"round {turn + 1}: one worker {took[0]:6.2f} s, two {took[1]:6.2f} s: {ratios[-1]:.2f}")
        for executor in executors:
            await executor.stop()
    print(f"median {statistics.median(ratios):.2f} times as fast; load {os.getloadavg()[0]:.1f}")
    return kept


def in_parts(store: Store, asked: dict[str, Any]) -> None:
    """Processor time of a calibration whole and in two, which a busy machine changes little.

    What a child takes that does nothing is told apart, and what its imports take once, in the process that it
    is forked from. Two workers have the longest way through counting, half of the samples, and joining.
    """
    empty = work("lint", {"text": written(TARGET), "name": "nothing"})
    imports, _ = cost(store, empty)
    idle = min(cost(store, empty)[0] for _ in range(5))
    whole, _ = cost(store, asked)
    counting, counted = cost(store, follow_up(asked, "count", {"out": made("answers")}))
    half, part = cost(
        store, {**asked, "arguments": {**asked["arguments"], "shard": [0, counted["samples"] // 2]}}
    )
    parts = [stored("stats", part["kept"]["out"])] * 2
    joining, _ = cost(store, work("merge", {"parts": parts, "out": made("stats")}))
    print(
        f"processor time: imports {imports - idle:.2f} s once, a child {idle:.2f} s; whole {whole:.2f} s, ",
        end="",
    )
    print(f"counting {counting:.2f}, half {half:.2f}, joining {joining:.2f} s: ", end="")
    print(f"{whole / (counting + half + joining):.2f} times")


def cost(store: Store, asked: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Processor time of one work, seconds, and its result."""
    before = 0.0 if FORKS.server is None else cpu_seconds(FORKS.server[0].pid)
    result = run_child(store, asked, BOUNDS)
    if FORKS.server is None:
        raise RuntimeError("a child is forked from a server")
    return cpu_seconds(FORKS.server[0].pid) - before, result


async def warm(executor: Cluster, asked: dict[str, Any]) -> None:
    """Wait for all workers, and have each import what it needs."""
    while True:
        try:
            slots = await executor.slots()
            break
        except Exception:  # noqa: BLE001 - not there yet, whatever the reason
            await asyncio.sleep(0.2)
    counted = {
        **asked,
        "task": "count",
        "files": [*asked["files"][:-1], {**asked["files"][-1], "what": ["answers"]}],
    }
    await asyncio.gather(*(executor.run(counted, lambda _: None) for _ in range(slots)))


async def matrix(store: Store, models: list[Path]) -> None:
    """Plan every model for every target on a cluster of two workers, and count how they end."""
    ends: Counter[str] = Counter()
    with dask(2) as cluster:
        executor = Cluster(f"tcp://127.0.0.1:{cluster.port}", store.root, "", BOUNDS)
        gate = asyncio.Semaphore(4)

        async def plan(model: str, target: str) -> None:
            files = {"model": stored("blobs", model), "external": [], "out": made("plans")}
            facts = {"stats": None, "annotations": None, "steps": [], "options": OPTIONS}
            asked = work("plan", {**files, **facts, "target": {"name": target}})
            async with gate:
                try:
                    await executor.run(asked, lambda _: None)
                    ends["planned"] += 1
                except Refused as refused:
                    ends[refused.problem.name] += 1

        start = time.perf_counter()
        blobs = [keep(store, path.read_bytes()) for path in models]
        await asyncio.gather(*(plan(blob, target) for blob in blobs for target in planner.target_ids()))
        took = time.perf_counter() - start
        used = sum(cpu_seconds(worker.pid) for worker in cluster.workers)
        await executor.stop()
    n = ends.total()
    print(f"{len(models)} models x {len(planner.target_ids())} targets: {dict(ends)}")
    print(f"{took:.1f} s, {n / took:.2f} plans a second, {n / took * 86400:.0f} a day; ", end="")
    print(f"{used / n:.2f} s of processor a plan, {n / used * 86400:.0f} a core and day; ", end="")
    print(f"load {os.getloadavg()[0]:.1f}")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, of the children it waited for, and of those that it has."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return own + sum(cpu_seconds(int(child)) for thread in threads for child in thread.read_text().split())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mobilenetv2_100")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--matrix", type=int, default=20)
    options = parser.parse_args()
    files = sorted(model_folder().rglob("*.onnx"), key=lambda path: (path.stat().st_size, path.name))
    with tempfile.TemporaryDirectory(prefix="scale.") as folder:
        store = Store(Path(folder))
        store.open()
        if options.model:
            one_model(store, next(path for path in files if path.stem == options.model), options)
        if options.matrix:
            asyncio.run(matrix(store, files[: options.matrix]))


def one_model(store: Store, path: Path, options: argparse.Namespace) -> None:
    """Calibrate one model everywhere, and compare the statistics."""
    drawn = samples(path.stem, path, options.samples)
    stacked = store.root / "samples.npz"
    np.savez(stacked, **{name: np.stack([sample[name] for sample in drawn]) for name in drawn[0]})
    blobs = [keep(store, path.read_bytes()), keep(store, stacked.read_bytes())]
    files = {"model": stored("blobs", blobs[0]), "samples": stored("blobs", blobs[1]), "external": []}
    asked = work("calibrate", {**files, "method": "minmax", "shard": None, "out": made("stats")})
    print(f"{path.stem}, {options.samples} samples")
    in_parts(store, asked)
    kept = asyncio.run(calibrations(store, asked, options.rounds)) if options.rounds else []
    graph = planner.load_model(path.read_bytes())
    here = calibrate(graph, stacked, threads=1).to_json()
    print(f"different statistics: {len({*kept, digest_of(here.encode())})}")


if __name__ == "__main__":
    main()
