"""Faults: jobs on PostgreSQL and Dask while everything that can be killed is killed, again and again.

Two servers as `qplan serve` starts them, a scheduler, two workers, one database, and what children are forked
from; every few seconds one of them is killed without a word and started again, or one that forks is stopped.
Each job, a plan of its own, is sent with a key of its own until some server took it. What is asked: every
job done once, one row a key, one plan a job, and how long after each fault the jobs it hit were worked on
again, or done.
Usage, from the repository root: `python -m benchmarks.faults [--jobs 500] [--every 4] [--seed 0]`.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
from sqlalchemy import Engine, select
from sqlalchemy.exc import DatabaseError

from api.storage.database import events, jobs, open_database, reading
from api.storage.digests import digest_of
from benchmarks.clusters import ROOT, START_SECONDS, Dask, Postgres, dask, free_port, postgres, wait_for
from benchmarks.shifted_clock import Clocks

COMMAND: Final = "from planner.cli.app import main; main()"
DIGITS: Final = ROOT / "examples" / "digits"
LEASE: Final = 6
DOWN_SECONDS: Final = 2.0
SENDERS: Final = 4
STOPPED_SECONDS: Final = 20.0
FAULTS: Final = (
    "worker",
    "worker",
    "server",
    "server",
    "scheduler",
    "database",
    "fork server",
    "stopped fork server",
)
ALLOWED: Final = 45.0
FORK_SERVER: Final = "api.jobs.fork_server"


@dataclass(frozen=True, slots=True)
class Fault:
    """What was killed when (monotonic and database seconds), and which jobs ran at that time."""

    kind: str
    at: float
    hit: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """What became of a campaign; recoveries are seconds from a fault until all it hit went on."""

    sent: int
    states: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    results: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    attempts: int = 0
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Jobs that were taken and are not done."""
        return self.sent - self.states["done"]


class Servers:
    """Servers on one database, each of processes that can be killed.

    Args:
      words: more of each command line.
      clocks: that of each server, or one of them all.
    """

    def __init__(
        self,
        count: int,
        data: Path,
        variables: dict[str, str],
        words: Sequence[tuple[str, ...]] = (),
        clocks: Clocks | None = None,
    ) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.words = [*words, *[()] * (count - len(words))]
        self.data = data
        known = {name: text for name, text in os.environ.items() if not name.startswith("QPLAN_")}
        self.environment = {**known, "PYTHONPATH": str(ROOT), "QPLAN_DATA": str(data), **variables}
        self.clocks = clocks
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        """Start all of them."""
        self.processes = [self._start(place) for place in range(len(self.ports))]

    def kill(self, place: int) -> None:
        """Kill one, and start it again."""
        _kill_group(self.processes[place])
        self.processes[place] = self._start(place)

    def stop(self) -> None:
        """End all of them."""
        for process in self.processes:
            _kill_group(process)

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-c", COMMAND, "serve", "--port", str(self.ports[place]), *self.words[place]]
        return subprocess.Popen(
            line,
            env={**self.environment, **({} if self.clocks is None else self.clocks.variables(place))},
            cwd=self.data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a server with all of its processes, as a power cut does."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


Company: TypeAlias = tuple[Postgres, Dask, Servers, Engine]


@contextmanager
def company(data: Path, clocks: Clocks | None = None, **settings: str) -> Iterator[Company]:
    """A database, a cluster, two servers with these settings too, and our own connection to the database."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        cluster = stack.enter_context(dask(2))
        variables = {
            "QPLAN_DATABASE_URL": database.url,
            "QPLAN_EXECUTOR": cluster.executor,
            "QPLAN_LEASE_SECONDS": str(LEASE),
            "QPLAN_START_SECONDS": str(START_SECONDS),  # one that is started while the database is down
            "QPLAN_RATE": "0",
            "QPLAN_ACCESS_LOG": "off",
            **settings,
        }
        engine = open_database(database.url)
        stack.callback(engine.dispose)
        servers = Servers(2, data, variables, clocks=clocks)
        stack.callback(servers.stop)
        for port in servers.ports:
            wait_for(port)
        yield database, cluster, servers, engine


def campaign(count: int, every: float, seed: int, *, least: int = 1) -> Outcome:
    """Send jobs, kill things until all jobs have ended, and count.

    Args:
      every: seconds between faults, on average.
      least: faults to happen in any case.
    """
    chance = random.Random(seed)  # noqa: S311 - which process is killed is no secret
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults.") as folder, company(Path(folder)) as parts:
        _, _, servers, engine = parts
        model = prepared(servers.ports[0])
        senders = [
            threading.Thread(target=send, args=(servers.ports, model, range(k, count, SENDERS)))
            for k in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        faults: list[Fault] = []
        kinds: list[str] = []
        while not finished(engine, count) or len(faults) < least:
            time.sleep(chance.uniform(0.5, 1.5) * every)
            kinds = kinds or chance.sample(FAULTS, len(FAULTS))
            faults.append(strike(kinds.pop(), chance, parts))
        for sender in senders:
            sender.join()
        return judged(engine, count, faults, time.monotonic() - start)


def prepared(port: int) -> str:
    """Upload the digits and have them read: the digest of the model."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        data = (DIGITS / "digits.onnx").read_bytes()
        kind = {"Content-Type": "application/octet-stream"}
        client.put(f"/v1/blobs/{digest_of(data)}", content=data, headers=kind).raise_for_status()
        model = client.post("/v1/models", json={"blob": digest_of(data)}).raise_for_status().json()
    return str(model["digest"])


def send(ports: list[int], model: str, numbers: range) -> None:
    """Send jobs, each until a server says that it has it."""
    for number in numbers:
        body = {
            "model": model,
            "target": "onnxruntime-cpu",
            "options": {"costs": {"bit_price": 1 + number / 1000}},
        }
        headers = {"Idempotency-Key": f"job-{number}", "Prefer": "respond-async"}
        place = f"http://127.0.0.1:{ports[number % len(ports)]}/v1/plans"
        while not taken(place, body, headers):
            time.sleep(0.3)


def taken(place: str, body: dict[str, Any], headers: dict[str, str]) -> bool:
    """Send one job; whether a server says that it has it."""
    try:
        answer = httpx.post(place, json=body, headers=headers, timeout=20, trust_env=False)
    except httpx.TransportError:
        return False
    if answer.status_code not in (200, 202, 503):
        raise RuntimeError(f"{place}: {answer.status_code} {answer.text[:300]}")
    return answer.status_code != 503


def strike(kind: str, chance: random.Random, parts: Company) -> Fault:
    """Kill one thing and start it again."""
    database, cluster, servers, engine = parts
    fault = Fault(kind, time.time(), running(engine))
    if kind == "worker":
        cluster.kill_worker(chance.randrange(len(cluster.workers)))
    elif kind == "server":
        servers.kill(chance.randrange(len(servers.ports)))
    elif kind == "scheduler":
        cluster.kill_scheduler()
    elif kind.endswith("fork server"):
        strike_forks(chance, [one.pid for one in (*servers.processes, *cluster.workers)], kind)
    else:
        database.stop()
        time.sleep(DOWN_SECONDS)
        database.start()
    return fault


def strike_forks(chance: random.Random, owners: list[int], kind: str) -> None:
    """Kill what the children of a server or worker are forked from, or stop it for so long that it hangs."""
    found = [child for pid in owners for child in children_of(pid, FORK_SERVER)]
    if not found:
        return
    struck = chance.choice(found)
    if kind == "fork server":
        os.kill(struck, signal.SIGKILL)
        return
    os.kill(struck, signal.SIGSTOP)

    def go_on() -> None:
        if _runs(str(struck), FORK_SERVER):  # its owner was killed, so nobody ended it
            os.kill(struck, signal.SIGCONT)

    timer = threading.Timer(STOPPED_SECONDS, go_on)
    timer.daemon = True
    timer.start()


def children_of(pid: int, module: str) -> list[int]:
    """Processes that a process started, of those that run a module."""
    found = []
    with suppress(OSError):  # it ended meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children = (thread / "children").read_text().split()
            found += [int(child) for child in children if _runs(child, module)]
    return found


def _runs(pid: str, module: str) -> bool:
    with suppress(OSError):
        return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def running(engine: Engine) -> tuple[str, ...]:
    """Jobs that run."""
    with reading(engine) as connection:
        return tuple(connection.execute(select(jobs.c.id).where(jobs.c.state == "running")).scalars())


def finished(engine: Engine, count: int) -> bool:
    """Whether all jobs have ended."""
    try:
        with reading(engine) as connection:
            states = Counter(connection.execute(select(jobs.c.state)).scalars())
    except DatabaseError:
        return False
    return sum(states.values()) >= count and not states["queued"] and not states["running"]


def judged(engine: Engine, count: int, faults: list[Fault], seconds: float) -> Outcome:
    """Count what the rows say."""
    with reading(engine) as connection:
        rows = {row.id: row for row in connection.execute(select(jobs))}
        told = connection.execute(select(events.c.job, events.c.kind, events.c.at)).all()
    ends = Counter(event.job for event in told if event.kind == "done")
    outcome = Outcome(count, Counter(row.state for row in rows.values()), seconds=seconds)
    outcome.doubled = len(rows) - count + sum(n - 1 for n in ends.values())
    outcome.results = len({json.dumps(row.result, sort_keys=True) for row in rows.values()})
    outcome.faults = Counter(fault.kind for fault in faults)
    outcome.attempts = sum(row.attempt + row.lost for row in rows.values())
    for fault in faults:
        next_ = {job: [event.at for event in told if event.job == job] for job in fault.hit}
        late = [min((at for at in next_[job] if at > fault.at), default=fault.at) for job in fault.hit]
        outcome.recoveries += [max(late) - fault.at] if late else []
    return outcome


def main() -> None:
    """Run a campaign and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--every", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = campaign(options.jobs, options.every, options.seed)
    recoveries = sorted(outcome.recoveries)
    print(f"{outcome.sent} jobs in {outcome.seconds:.0f} s, {outcome.faults.total()} faults: ", end="")
    print(", ".join(f"{n} {kind}" for kind, n in sorted(outcome.faults.items())))
    print(f"states {dict(outcome.states)}, lost {outcome.lost}, doubled {outcome.doubled}")
    print(f"different results {outcome.results}, leases {outcome.attempts}")
    print(
        f"fault until the last job it hit went on: median {recoveries[len(recoveries) // 2]:.1f} s, ", end=""
    )
    print(f"longest {recoveries[-1]:.1f} s; load {os.getloadavg()[0]:.1f}")
    sys.exit(
        bool(outcome.lost or outcome.doubled or outcome.results != outcome.sent or recoveries[-1] > ALLOWED)
    )


if __name__ == "__main__":
    main()
