"""One machine: two servers on one data folder with SQLite, one of them of two processes, while things die.

Beside what is killed, an operator does what is done while a server runs: `qplan doctor`, `qplan backup`, a
server on the copy. Each opens and closes the database that the servers write to. What is kept is damaged
and repaired, and older backups are put in place (`benchmarks.damage`). With a C compiler the clock is set, as
root the data lie on a file system of its own, which is full now and then. `benchmarks.chaos` sends jobs.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, func, select

from api.storage.database import default_url, jobs, open_database, reading
from benchmarks.chaos_tenants import Tenant
from benchmarks.clusters import wait_for
from benchmarks.damage import (
    await_ready,
    back_up,
    commanded,
    damage_blob,
    damage_model,
    damage_pages,
    restore_older,
)
from benchmarks.faults import LEASE, Servers, children_of, strike_forks
from benchmarks.shifted_clock import JUMPS, Clocks

FAULTS: Final = (
    "server",
    "process",
    "process",
    "child",
    "fork server",
    "doctor",
    "backup",
    "restore",
    "damaged blob",
    "damaged model",
    "damaged pages",
    "older backup",
)
CLOCK: Final = "clock"
FULL: Final = "full disk"
FULL_SECONDS: Final = 3.0
MOST_BYTES: Final = 4 << 30
SPARE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a campaign plays.

    Attributes:
      strike: does one of `kinds`; given the tenants whose jobs it strikes.
    """

    ports: list[int]
    engine: Engine
    kinds: tuple[str, ...]
    strike: Callable[[str, random.Random, Sequence[Tenant]], object]


@contextmanager
def on_sqlite(folder: Path, tokens: str) -> Iterator[Stage]:
    """Two servers on one data folder.

    Raises:
      RuntimeError: the database is damaged in the end, or what `strike_one` says.
    """
    disk = folder / "disk"
    disk.mkdir()
    is_root = os.geteuid() == 0
    if is_root:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MOST_BYTES}", "tmpfs", str(disk)], check=True)
    data = disk / "data"
    data.mkdir()
    clocks = Clocks.make(folder, 1)
    more = [kind for kind, can in ((FULL, is_root), (CLOCK, clocks is not None)) if can]
    variables = {
        "QPLAN_TOKENS": tokens,
        "QPLAN_LEASE_SECONDS": str(LEASE),
        "QPLAN_RATE": "0",
        "QPLAN_ACCESS_LOG": "off",
    }
    engine = open_database(default_url(data))
    servers = Servers(2, data, variables, words=[("--processes", "2"), ()], clocks=clocks)
    try:
        for port in servers.ports:
            wait_for(port)
        yield Stage(
            servers.ports,
            engine,
            (*FAULTS, *more),
            lambda kind, chance, tenants: strike_one(kind, chance, tenants, servers, engine),
        )
        with reading(engine) as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check(3)").scalars().all()
        if list(found) != ["ok"]:
            raise RuntimeError(f"the database is damaged: {found}")
    finally:
        servers.stop()
        engine.dispose()
        if is_root:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def strike_one(
    kind: str, chance: random.Random, tenants: Sequence[Tenant], servers: Servers, engine: Engine
) -> None:
    """Kill something of the servers, damage something, or do what an operator does beside them.

    Raises:
      RuntimeError: the command says that something is wrong, its copy lacks jobs, or what `damage` says.
    """
    owners = [one.pid for one in servers.processes]
    workers = [pid for owner in owners for pid in children_of(owner, "api.server.run")]
    forks = [pid for owner in (*owners, *workers) for pid in children_of(owner, "api.jobs.fork_server")]
    spare = servers.data.with_name("spare")
    strikes: dict[str, Callable[[], object]] = {
        "server": lambda: servers.kill(chance.randrange(len(servers.ports))),
        "process": lambda: _kill(workers, chance),
        "child": lambda: _kill([pid for fork in forks for pid in children_of(fork, "")], chance),
        "fork server": lambda: strike_forks(chance, [*owners, *workers], kind),
        "doctor": lambda: consult(servers),
        "backup": lambda: back_up_again(servers),
        "restore": lambda: restore(servers, sum(len(tenant.taken) for tenant in tenants)),
        "damaged blob": lambda: damage_blob(servers, chance.choice(tenants), chance),
        "damaged model": lambda: damage_model(servers, chance.choice(tenants), chance),
        "damaged pages": lambda: damage_pages(servers, engine, tenants, chance, spare),
        "older backup": lambda: restore_older(servers, engine, tenants, spare),
        FULL: lambda: fill(servers.data.parent),
        CLOCK: lambda: set_clock(servers, chance),
    }
    strikes[kind]()


def set_clock(servers: Servers, chance: random.Random) -> None:
    """Set the clock of one of the machines forward or back; it stays so."""
    if servers.clocks is not None:
        servers.clocks.set(chance.randrange(len(servers.clocks.files)), chance.choice(JUMPS))


def consult(servers: Servers) -> None:
    """Run `qplan doctor`.

    Raises:
      RuntimeError: it finds something wrong with the database.
    """
    found = {check["name"]: check for check in json.loads(commanded(servers, "doctor", "--json"))}
    if found["database"]["state"] != "good":
        raise RuntimeError(f"doctor: {found['database']}")


def back_up_again(servers: Servers) -> None:
    """Check the copy, and bring it up to date."""
    copy = servers.data.with_name("copy")
    if copy.exists():  # by now it is an older one
        commanded(servers, "doctor", "--deep", data=copy)
    back_up(servers, copy)


def fill(disk: Path) -> None:
    """Take all room of a file system away for some seconds."""
    try:
        # What grew meanwhile has to fit, or the system refuses; the servers use up what is over.
        while _resize(disk, shutil.disk_usage(disk).used + SPARE):
            continue
        time.sleep(FULL_SECONDS)
    finally:
        _resize(disk, MOST_BYTES)


def _resize(disk: Path, size: int) -> int:
    line = ["mount", "-o", f"remount,size={size}", str(disk)]
    return subprocess.run(line, stderr=subprocess.DEVNULL, check=False).returncode


def restore(servers: Servers, taken: int) -> None:
    """Copy everything, and serve from the copy.

    Raises:
      RuntimeError: the copy lacks jobs that were taken before, or is not ready.
    """
    with tempfile.TemporaryDirectory(prefix="restored.") as name:
        copy = Path(name) / "data"
        back_up(servers, copy)
        engine = open_database(default_url(copy))
        with reading(engine) as connection:
            there = int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())
        engine.dispose()
        if there < taken:
            raise RuntimeError(f"{there} jobs are in the copy, {taken} were taken before")
        restored = Servers(1, copy, {"QPLAN_ACCESS_LOG": "off"})
        try:
            await_ready(restored.ports[0])
        finally:
            restored.stop()


def _kill(found: list[int], chance: random.Random) -> None:
    if found:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(chance.choice(found), signal.SIGKILL)
