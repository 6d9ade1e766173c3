"""What a company has, on loopback: PostgreSQL, an object store, a Dask cluster; for tests and figures.

Each is a context manager over processes of its own in a folder of its own. PostgreSQL is Debian's package;
it does not run as root, so root runs it as the package's user.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
USER: Final = "postgres"
START_SECONDS: Final = 60
KEYS: Final = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgres_folder() -> Path | None:
    """Where Debian's package has the newest server's programs; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@dataclass(slots=True)
class Postgres:
    """A server that can be stopped as by a power cut, and started again."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Address of its database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{USER}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder}"
        log = str(self.folder / "log")
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it; `immediate` is without a word to anybody."""
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-m", how, "-w", "stop")

    def call(self, program: str, *arguments: str) -> None:
        """Run one of its programs, as its user where we are root."""
        user = USER if os.geteuid() == 0 else None
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            user=user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL server on loopback, with its data in a temporary folder."""
    programs = postgres_folder()
    if programs is None:
        raise RuntimeError("Debian's package postgresql is not installed")
    with tempfile.TemporaryDirectory(prefix="qpg.") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            entry = pwd.getpwnam(USER)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        server = Postgres(programs, folder, free_port())
        data = str(folder / "data")
        server.call("initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8")
        server.start()
        try:
            yield server
        finally:
            with suppress(RuntimeError):
                server.stop()


@dataclass(slots=True)
class Dask:
    """A scheduler and its workers; `died` counts those that were replaced, `errors` is where they log."""

    port: int
    environment: dict[str, str]
    errors: int | None = subprocess.DEVNULL
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    died: int = 0

    @property
    def executor(self) -> str:
        """What `QPLAN_EXECUTOR` is to be."""
        return f"dask://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        """Start the scheduler."""
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port))

    def start_worker(self) -> None:
        """Start a worker of one thread."""
        place = f"tcp://127.0.0.1:{self.port}"
        self.workers.append(self._start("dask_worker", place, "--no-nanny", "--nthreads", "1"))

    def kill_worker(self, place: int) -> None:
        """Kill a worker with whatever it does, and start another."""
        worker = self.workers.pop(place)
        worker.kill()
        worker.wait()
        self.died += 1
        self.start_worker()

    def kill_scheduler(self) -> None:
        """Kill the scheduler, and start another with workers of its own: without it, they end."""
        for process in (*self.workers, self.scheduler):
            if process is not None:
                process.kill()
                process.wait()
        count, self.workers = len(self.workers), []
        self.start_scheduler()
        wait_for(self.port)
        for _ in range(count):
            self.start_worker()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
        return subprocess.Popen(
            line, env=self.environment, stdout=subprocess.DEVNULL, stderr=self.errors, cwd=ROOT
        )


@contextmanager
def dask(workers: int, *, errors: int | None = subprocess.DEVNULL, **environment: str) -> Iterator[Dask]:
    """Run a Dask cluster on loopback.

    Args:
      errors: where its processes log; None is where we do.
      environment: of the workers, beside ours: `QPLAN_DATA`, keys of an object store.
    """
    cluster = Dask(free_port(), {**os.environ, "PYTHONPATH": str(ROOT), **environment}, errors)
    cluster.start_scheduler()
    try:
        wait_for(cluster.port)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        for process in (*cluster.workers, cluster.scheduler):
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait()


@contextmanager
def object_store() -> Iterator[tuple[str, dict[str, str]]]:
    """Run an S3-compatible server (moto): what `QPLAN_BLOBS` is to be, and variables of its clients."""
    port = free_port()
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        place = f"http://127.0.0.1:{port}"
        subprocess.run(
            [shutil.which("curl") or "curl", "-sf", "-X", "PUT", f"{place}/qplan"], check=True, timeout=60
        )
        yield "s3://qplan/store", {**KEYS, "AWS_ENDPOINT_URL": place, "AWS_DEFAULT_REGION": "us-east-1"}
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Wait until something listens on a port of loopback.

    Raises:
      TimeoutError: nothing did.
    """
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")
