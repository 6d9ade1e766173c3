"""One machine: two servers on one data folder with SQLite, one of them of two processes, while things die.

Beside what is killed, an operator does what is done while a server runs: `qplan doctor`, `qplan backup`, a
server on the copy. Each opens and closes the database that the servers write to. As root the data folder is
a file system of its own, which is full now and then. `benchmarks.chaos` sends jobs.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from sqlalchemy import Engine, func, select

from api.storage.database import default_url, jobs, open_database, reading
from benchmarks.clusters import wait_for
from benchmarks.faults import COMMAND, LEASE, Servers, children_of, strike_forks

FAULTS: Final = ("server", "process", "process", "child", "fork server", "doctor", "backup", "restore")
FULL: Final = "full disk"
FULL_SECONDS: Final = 3.0
MOST_BYTES: Final = 4 << 30
SPARE: Final = 1 << 16
READY_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a campaign plays.

    Attributes:
      strike: does one of `kinds`; given the count of jobs that servers took before.
    """

    ports: list[int]
    engine: Engine
    kinds: tuple[str, ...]
    strike: Callable[[str, random.Random, int], object]


@contextmanager
def on_sqlite(folder: Path, tokens: str) -> Iterator[Stage]:
    """Two servers on one data folder.

    Raises:
      RuntimeError: the database is damaged in the end, or what `strike_one` says.
    """
    data = folder / "data"
    data.mkdir()
    is_root = os.geteuid() == 0
    if is_root:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MOST_BYTES}", "tmpfs", str(data)], check=True)
    variables = {
        "QPLAN_TOKENS": tokens,
        "QPLAN_LEASE_SECONDS": str(LEASE),
        "QPLAN_RATE": "0",
        "QPLAN_ACCESS_LOG": "off",
    }
    engine = open_database(default_url(data))
    servers = Servers(2, data, variables, words=[("--processes", "2"), ()])
    try:
        for port in servers.ports:
            wait_for(port)
        yield Stage(
            servers.ports,
            engine,
            (*FAULTS, FULL) if is_root else FAULTS,
            lambda kind, chance, taken: strike_one(kind, chance, taken, servers),
        )
        with reading(engine) as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check(3)").scalars().all()
        if list(found) != ["ok"]:
            raise RuntimeError(f"the database is damaged: {found}")
    finally:
        servers.stop()
        engine.dispose()
        if is_root:
            subprocess.run(["umount", "--lazy", str(data)], check=True)


def strike_one(kind: str, chance: random.Random, taken: int, servers: Servers) -> None:
    """Kill something of the servers, or do what an operator does beside them.

    Raises:
      RuntimeError: the command says that something is wrong, or its copy lacks jobs.
    """
    owners = [one.pid for one in servers.processes]
    workers = [pid for owner in owners for pid in children_of(owner, "api.server.run")]
    forks = [pid for owner in (*owners, *workers) for pid in children_of(owner, "api.jobs.fork_server")]
    if kind == "server":
        servers.kill(chance.randrange(len(servers.ports)))
    elif kind == "process":
        _kill(workers, chance)
    elif kind == "child":
        _kill([pid for fork in forks for pid in children_of(fork, "")], chance)
    elif kind == "fork server":
        strike_forks(chance, [*owners, *workers], kind)
    elif kind == "doctor":
        found = {check["name"]: check for check in json.loads(_commanded(servers, "doctor", "--json"))}
        if found["database"]["state"] != "good":
            raise RuntimeError(f"doctor: {found['database']}")
    elif kind == "backup":
        copy = servers.data.with_name("copy")
        if copy.exists():  # by now it is an older one
            _commanded(servers, "doctor", "--deep", data=copy)
        _commanded(servers, "backup", str(copy))
    elif kind == FULL:
        fill(servers.data)
    else:
        restore(servers, taken)


def fill(data: Path) -> None:
    """Take all room of a file system away for some seconds."""
    try:
        # What grew meanwhile has to fit, or the system refuses; the servers use up what is over.
        while _resize(data, shutil.disk_usage(data).used + SPARE):
            continue
        time.sleep(FULL_SECONDS)
    finally:
        _resize(data, MOST_BYTES)


def _resize(data: Path, size: int) -> int:
    line = ["mount", "-o", f"remount,size={size}", str(data)]
    return subprocess.run(line, stderr=subprocess.DEVNULL, check=False).returncode


def restore(servers: Servers, taken: int) -> None:
    """Copy everything, and serve from the copy.

    Raises:
      RuntimeError: the copy lacks jobs that were taken before, or is not ready.
    """
    with tempfile.TemporaryDirectory(prefix="restored.") as name:
        copy = Path(name) / "data"
        _commanded(servers, "backup", str(copy))
        engine = open_database(default_url(copy))
        with reading(engine) as connection:
            there = int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())
        engine.dispose()
        if there < taken:
            raise RuntimeError(f"{there} jobs are in the copy, {taken} were taken before")
        restored = Servers(1, copy, {"QPLAN_ACCESS_LOG": "off"})
        try:
            _await_ready(restored.ports[0])
        finally:
            restored.stop()


def _await_ready(port: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/health/ready", timeout=10, trust_env=False)
            if answer.status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError("a server on the copy is not ready")


def _commanded(servers: Servers, *words: str, data: Path | None = None) -> str:
    """Run a verb on the data folder of servers, or another; what it said."""
    line = [sys.executable, "-c", COMMAND, *words, "--data", str(data or servers.data)]
    done = subprocess.run(line, env=servers.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _kill(found: list[int], chance: random.Random) -> None:
    if found:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(chance.choice(found), signal.SIGKILL)
