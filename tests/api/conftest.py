"""Services in threads of this process, and servers of their own, started as `qplan serve` does."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from api.app import create_app
from api.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1"
COMMAND = "from planner.cli.app import main; main()"


class Server:
    """A running `qplan serve`."""

    def __init__(self, process: subprocess.Popen, url: str) -> None:
        self.process = process
        self.url = url
        self.port = int(url.rpartition(":")[2])

    @property
    def memory(self) -> int:
        """Resident MB of the server's own process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    @property
    def peak(self) -> int:
        """The most it was since `forget_peak`, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    @property
    def cpu(self) -> float:
        """Seconds of a processor that it took, with the children of its that ended."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def forget_peak(pid: int | str = "self") -> int:
    """Have the system count the peak of a process's memory from now on; bytes it has resident now.

    Memory that this process gave back to its allocator is given back to the system: taken again it would not
    count.
    """
    if pid == "self":
        ctypes.CDLL(None).malloc_trim(0)
    folder = Path(f"/proc/{pid}")
    (folder / "clear_refs").write_text("5")
    return int((folder / "status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(
    data: Path, command: tuple[str, ...] = (), stderr: Any = None, **environment: str
) -> Iterator[Server]:
    """Start a server on a free port and wait until it is ready."""
    line = [*(command or (sys.executable, "-c", COMMAND, "serve")), "--port", "0", "--json"]
    known = {name: text for name, text in os.environ.items() if not name.startswith("QPLAN_")}
    variables = {**known, "PYTHONPATH": str(ROOT), "QPLAN_DATA": str(data), **environment}
    with subprocess.Popen(
        line, env=variables, cwd=data, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        try:
            told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            # The port is taken before the application is up: the first answer waits for it.
            # Ready is asked of a child too, whose server may still import on a busy machine.
            until = time.monotonic() + 60
            while True:
                answer = httpx.get(f"{told['url']}/v1/health/ready", trust_env=False, timeout=60)
                if answer.status_code == 200 or time.monotonic() > until:
                    break
                time.sleep(0.1)
            answer.raise_for_status()
            yield Server(process, told["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


@contextmanager
def served_here(settings: Settings) -> Iterator[httpx.Client]:
    """Serve in a thread of this process, and give a client of it."""
    app = create_app(settings)
    config = uvicorn.Config(app, port=free_port(), log_level="critical")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started:
            assert thread.is_alive()
            time.sleep(0.02)
        with httpx.Client(base_url=f"{URL}:{config.port}", trust_env=False, timeout=100) as client:
            client.app = app
            yield client
    finally:
        running.should_exit = True
        thread.join(timeout=60)


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """One server for the tests that only ask."""
    with serving(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def make_service(tmp_path) -> Iterator[Callable[..., httpx.Client]]:
    """Make a service with other settings."""
    with ExitStack() as stack:

        def make(**settings: Any) -> httpx.Client:
            return stack.enter_context(served_here(Settings(**{"data": tmp_path, **settings})))

        yield make


@pytest.fixture(scope="session")
def service(tmp_path_factory) -> Iterator[httpx.Client]:
    """One service for the tests that only ask."""
    with served_here(Settings(data=tmp_path_factory.mktemp("service"))) as client:
        yield client
