"""Chaos: jobs of three tenants while servers, workers, their fork servers, scheduler and database are killed.

One tenant asks for as much as it may, two ask now and then; every few seconds something is killed and started
again (`faults`); on SQLite, doctors, backups and restores run beside the servers and the disk is full at
times (`one_machine`). What is asked: every job that a server took is done once, or failed for lack of room,
one row a key, and the two are not kept waiting by the one.
Usage, from the repository root:
`python -m benchmarks.chaos [--minutes 30] [--every 6] [--seed 0] [--database postgresql|sqlite]`.
"""

import argparse
import hashlib
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DatabaseError

from api.storage.database import events, jobs, reading
from api.storage.digests import digest_of
from benchmarks.faults import DIGITS, FAULTS, company, strike
from benchmarks.one_machine import Stage, on_sqlite

ASKS: Final = {"greedy": 24, "one": 2, "two": 2}
"""Jobs of each tenant that wait or run at once."""
KNOWN: Final = {"format": "qplan.annotations/1", "values": {"image": "!quant.calibrated<f32<0.0:1.0>>"}}
NO_ROOM: Final = "storage-full"
"""The failure of a job whose result found no room: it is told, not lost."""
PATIENCE: Final = 300.0
"""Seconds after the last fault until all jobs have ended."""


@dataclass(slots=True)
class Tenant:
    """A tenant, its model, and the keys of the jobs that a server took."""

    name: str
    model: str = ""
    taken: set[str] = field(default_factory=set)

    @property
    def headers(self) -> dict[str, str]:
        """Headers with its token."""
        return {"Authorization": f"Bearer secret-{self.name}"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it; waits are seconds from the request to the end, by tenant."""

    seconds: float
    taken: dict[str, int]
    lost: int
    doubled: int
    waits: dict[str, list[float]]
    faults: Counter[str]
    states: Counter[str]


def tokens() -> str:
    """The setting with a token of each tenant."""
    digests = {name: hashlib.sha256(f"secret-{name}".encode()).hexdigest() for name in ASKS}
    return ",".join(f"{name}/ci:write:{digest}" for name, digest in digests.items())


@contextmanager
def on_postgresql(folder: Path, tokens: str) -> Iterator[Stage]:
    """Two servers on PostgreSQL and Dask."""
    with company(folder, QPLAN_TOKENS=tokens) as parts:
        _, _, servers, engine = parts
        yield Stage(servers.ports, engine, FAULTS, lambda kind, chance, _: strike(kind, chance, parts))


STAGES: Final = {"postgresql": on_postgresql, "sqlite": on_sqlite}


def campaign(minutes: float, every: float, seed: int, database: str = "postgresql") -> Outcome:
    """Send and kill for so long, wait for what was taken, and count.

    Args:
      every: seconds between faults, on average.
      database: one of `STAGES`.
    """
    chance = random.Random(seed)  # noqa: S311 - which process is killed is no secret
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="chaos.") as folder,
        STAGES[database](Path(folder), tokens()) as stage,
    ):
        engine = stage.engine
        tenants = [Tenant(name) for name in ASKS]
        for tenant in tenants:
            prepare(tenant, stage.ports[0])
        over = threading.Event()
        senders = [
            threading.Thread(target=ask, args=(one, stage.ports, engine, over), daemon=True)
            for one in tenants
        ]
        for sender in senders:
            sender.start()
        faults: Counter[str] = Counter()
        kinds: list[str] = []
        while time.monotonic() - start < 60 * minutes:
            time.sleep(chance.uniform(0.5, 1.5) * every)
            kinds = kinds or chance.sample(stage.kinds, len(stage.kinds))
            stage.strike(kinds[-1], chance, sum(len(tenant.taken) for tenant in tenants))
            faults[kinds.pop()] += 1
        over.set()
        for sender in senders:
            sender.join()
        latest = time.monotonic() + PATIENCE
        while under_way(engine) and time.monotonic() < latest:
            time.sleep(1)
        return judged(engine, tenants, faults, time.monotonic() - start)


def prepare(tenant: Tenant, port: int) -> None:
    """Upload the digits and have them read."""
    data = (DIGITS / "digits.onnx").read_bytes()
    place, kind = f"http://127.0.0.1:{port}", {"Content-Type": "application/octet-stream"}
    with httpx.Client(base_url=place, trust_env=False, timeout=120, headers=tenant.headers) as client:
        client.put(f"/v1/blobs/{digest_of(data)}", content=data, headers=kind).raise_for_status()
        read = client.post("/v1/models", json={"blob": digest_of(data)}).raise_for_status()
    tenant.model = str(read.json()["digest"])


def ask(tenant: Tenant, ports: list[int], engine: Engine, over: threading.Event) -> None:
    """Send jobs, each until a server says that it has it, as many at once as the tenant asks for."""
    number = 0
    while not over.is_set():
        if under_way(engine, tenant.name) >= ASKS[tenant.name]:
            time.sleep(0.2)
            continue
        key = f"{tenant.name}-{number}"
        costs = {"bit_price": 1 + number / 10_000}
        body = {"model": tenant.model, "target": "onnxruntime-cpu", "options": {"costs": costs}}
        body["annotations"] = KNOWN  # without any range a plan is refused
        while not was_taken(tenant, ports[number % len(ports)], key, body):
            time.sleep(0.3)
        tenant.taken.add(key)
        number += 1


def was_taken(tenant: Tenant, port: int, key: str, body: dict[str, Any]) -> bool:
    """Send one job; whether a server says that it has it."""
    headers = {**tenant.headers, "Idempotency-Key": key, "Prefer": "respond-async"}
    place = f"http://127.0.0.1:{port}/v1/plans"
    try:
        answer = httpx.post(place, json=body, headers=headers, timeout=20, trust_env=False)
    except httpx.TransportError:
        return False
    if answer.status_code not in (200, 202, 429, 503, 507):
        raise RuntimeError(f"{place}: {answer.status_code} {answer.text[:300]}")
    return answer.status_code in (200, 202)


def under_way(engine: Engine, tenant: str | None = None) -> int:
    """Jobs that wait or run; many while the database does not answer."""
    asked = select(func.count()).where(jobs.c.state.in_(("queued", "running")))
    try:
        with reading(engine) as connection:
            found = connection.execute(asked.where(jobs.c.tenant == tenant) if tenant else asked)
            return int(found.scalar_one())
    except DatabaseError:
        return 1 << 20


def judged(engine: Engine, tenants: list[Tenant], faults: Counter[str], seconds: float) -> Outcome:
    """Count what the rows say."""
    with reading(engine) as connection:
        rows = connection.execute(select(jobs)).all()
        ends = Counter(connection.execute(select(events.c.job).where(events.c.kind == "done")).scalars())
    waits: dict[str, list[float]] = {tenant.name: [] for tenant in tenants}
    for row in rows:
        if row.state == "done":
            waits[row.tenant].append(row.finished - row.created)
    taken = {tenant.name: len(tenant.taken) for tenant in tenants}
    done = Counter(row.tenant for row in rows if row.state == "done")
    ended = [(row, row.state if row.problem is None else row.problem["name"]) for row in rows]
    full = Counter(row.tenant for row, end in ended if end == NO_ROOM and row.key is not None)
    states = Counter(end for _, end in ended)
    lost = sum(max(count - done[name] - full[name], 0) for name, count in taken.items())
    doubled = sum(count - 1 for count in ends.values())
    doubled += sum(max(done[name] - count, 0) for name, count in taken.items())
    return Outcome(seconds, taken, lost, doubled, waits, faults, states)


def starved(outcome: Outcome) -> list[str]:
    """Tenants that ask for little and wait as long as the one that asks for all."""
    greedy = median(outcome.waits["greedy"])
    return [name for name in ("one", "two") if median(outcome.waits[name] or [1e9]) > greedy]


def main() -> None:
    """Run a campaign and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=sorted(STAGES), default="postgresql")
    options = parser.parse_args()
    outcome = campaign(options.minutes, options.every, options.seed, options.database)
    print(
        f"{sum(outcome.taken.values())} jobs in {outcome.seconds:.0f} s, {outcome.faults.total()} faults: ",
        end="",
    )
    print(", ".join(f"{n} {kind}" for kind, n in sorted(outcome.faults.items())))
    print(f"states {dict(outcome.states)}, lost {outcome.lost}, doubled {outcome.doubled}")
    for name, waits in outcome.waits.items():
        print(f"{name}: {len(waits)} done, median {median(waits):.1f} s, longest {max(waits):.1f} s")
    print(f"starved {starved(outcome)}; load {os.getloadavg()[0]:.1f}")
    sys.exit(bool(outcome.lost or outcome.doubled or starved(outcome)))


if __name__ == "__main__":
    main()
