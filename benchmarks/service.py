"""The service's latency: an annotated model of 50 kernels planned over HTTP, beside an empty route.

One server, started as users do, and one client on the same machine; what is compared takes turns, and no
request is repeated, so that the store answers only where it says so. Usage, from the repository root:
`python -m benchmarks.service [--rounds 300] [--kernels 50] [--write]`. Milliseconds; ratios are what counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx

import planner
from benchmarks.service_page import note

ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = "from planner.cli.app import main; main()"
CLIENTS: Final = 4
WIDTH: Final = 64
READY_SECONDS: Final = 120.0
TICK: Final = 1000 / os.sysconf("SC_CLK_TCK")

_fresh: Final = count(1)


def model(kernels: int) -> dict[str, Any]:
    """An annotated model that no earlier call made: dense layers, every fifth kernel an addition."""
    nudge = 1.0 + next(_fresh) * 1e-6
    values: list[dict[str, Any]] = [_activation("x", nudge)]
    steps = []
    for i in range(kernels):
        before, out = ("x" if i == 0 else f"v{i - 1}"), f"v{i}"
        values.append(_activation(out, nudge + i % 7))
        if i % 5 == 4:
            steps.append(
                {"name": f"k{i}", "kernel": "add", "inputs": [before, f"v{i - 3}"], "outputs": [out]}
            )
            continue
        weights = {"name": f"w{i}", "shape": [WIDTH, WIDTH], "constant": {"range": [-0.5, 0.5]}}
        values.append(weights)
        step = {
            "name": f"k{i}",
            "kernel": "fully_connected",
            "inputs": [before, f"w{i}", None],
            "outputs": [out],
        }
        steps.append(step)
    ends = {"inputs": ["x"], "outputs": [f"v{kernels - 1}"]}
    return {"format": "qplan.annotated/1", "name": "chain", "values": values, "kernels": steps, **ends}


def _activation(name: str, bound: float) -> dict[str, Any]:
    fact = f"!quant.calibrated<f32<-{bound!r}:{bound!r}>>"
    return {"name": name, "shape": [1, WIDTH], "constraints": [fact]}


@contextmanager
def server(**settings: str) -> Iterator[tuple[str, int]]:
    """A server of its own, with settings as environment variables: its address and process id."""
    with tempfile.TemporaryDirectory(prefix="service.") as data:
        line = [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--json", "--data", data]
        given = {**os.environ, **settings}
        with subprocess.Popen(line, cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True) as process:
            try:
                told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
                wait_until_ready(told["url"])
                yield told["url"], process.pid
            finally:
                process.terminate()
                process.wait(timeout=60)


def wait_until_ready(url: str) -> None:
    """Wait until a server can serve; what its children are forked from imports for a while first.

    Raises:
      HTTPStatusError: it could not in two minutes.
    """
    until = time.monotonic() + READY_SECONDS
    while (
        answer := httpx.get(f"{url}/v1/health/ready", timeout=60, trust_env=False)
    ).is_error and time.monotonic() < until:
        time.sleep(0.5)
    answer.raise_for_status()


def cpu_ms(pid: int) -> float:
    """Processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of a call: on the clock, and of this process's processor."""
    clock, used = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - clock) * 1e3, (time.process_time() - used) * 1e3


def calls(client: httpx.Client, kernels: int) -> dict[str, Callable[[], object]]:
    """What is compared, by name."""
    stored = {"model": model(kernels), "target": "litert-int8"}

    def ask(target: str) -> Callable[[], object]:
        return lambda: post({"model": model(kernels), "target": target})

    def post(body: dict[str, Any]) -> None:
        client.post("/v1/plans", json=body).raise_for_status()

    def library(target: planner.Target) -> Callable[[], object]:
        def work() -> str:
            text = json.dumps(model(kernels)).encode()
            return planner.plan(planner.load_model(text, format="json"), target).to_json()

        return work

    targets = ("litert-int8", "onnxruntime-cpu")
    return {
        "empty route": lambda: client.get("/v1/health/live").raise_for_status(),
        "from the store": lambda: post(stored),
        **{f"plan, {name}": ask(name) for name in targets},
        **{f"library, {name}": library(planner.load_target(name)) for name in targets},
    }


def latencies(url: str, pid: int, kernels: int, rounds: int) -> list[tuple[str, str, str]]:
    """Print p50 and p95 of each, in turns, and the processor time of whoever worked; the rows of the page."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        compared = calls(client, kernels)
        times: dict[str, list[float]] = {name: [] for name in compared}
        used: dict[str, float] = dict.fromkeys(compared, 0.0)
        for turn in range(rounds + 5):
            for name, call in compared.items():
                before = cpu_ms(pid)
                clock, own = timed(call)
                if turn >= 5:
                    times[name].append(clock)
                    used[name] += own if name.startswith("library") else cpu_ms(pid) - before
    empty = sorted(times["empty route"])
    print(f"{'':28}{'p50':>8}{'p95':>8}{'CPU':>8}   p95 / empty route")
    rows = []
    for name, found in times.items():
        found.sort()
        p50, p95 = found[len(found) // 2], found[int(len(found) * 0.95)]
        ratio = p95 / empty[int(len(empty) * 0.95)]
        print(f"{name:28}{p50:8.2f}{p95:8.2f}{used[name] / len(found):8.2f}   {ratio:.1f}")
        figures = f"p50 {p50:.1f}, p95 {p95:.1f} ms, {used[name] / len(found):.1f} ms of processor"
        rows.append((f"{name}, {kernels} kernels, one after the other", figures, ""))
    return rows


def throughput(url: str, kernels: int, requests: int) -> list[tuple[str, str, str]]:
    """Print requests a second of several clients at once; the rows of the page."""
    rows = []

    def client(_: int) -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as made:
            call = calls(made, kernels)[name]
            for _ in range(requests // CLIENTS):
                call()

    for name in ("empty route", "from the store", "plan, litert-int8", "plan, onnxruntime-cpu"):
        with ThreadPoolExecutor(CLIENTS) as pool:
            clock = time.perf_counter()
            list(pool.map(client, range(CLIENTS)))
            rate = requests / (time.perf_counter() - clock)
            print(f"{name:28}{rate:8.1f} requests/s, {CLIENTS} clients")
            rows.append((f"{name}, {kernels} kernels, {CLIENTS} clients", f"{rate:.0f} a second", ""))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="into docs/results/service-load.md")
    options = parser.parse_args()
    with server() as (url, pid):
        rows = latencies(url, pid, options.kernels, options.rounds)
        rows += throughput(url, options.kernels, 200)
        resident = Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]
        print(f"server's largest memory: {int(resident) // 1024} MB; load {os.getloadavg()[0]:.1f}")
    if options.write:
        note("benchmarks.service", rows)


if __name__ == "__main__":
    main()
