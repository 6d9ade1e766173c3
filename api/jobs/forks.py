"""Forks: children of this process's fork server, as `subprocess.Popen` has them.

The server starts with the first child, or before, and again where it ended; it ends with this process,
which holds the other end of its socket. Source: design 06, "Jobs".
"""

import os
import selectors
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from api.server.paths import import_path

LOST: Final = 1
"""Exit code of a child of which nobody could tell how it ended: its fork server was gone."""


class Child:
    """A child: `pid`, standard input and output, and how it ended, as `subprocess.Popen` has them."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], told: IO[bytes]) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._told = told
        line = told.readline()
        if not line:
            self.close()
            raise ConnectionError("the fork server is gone")
        self.pid = int(line)

    def poll(self) -> int | None:
        """The exit code, the signal negative; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
          TimeoutExpired: it has not, within `timeout` seconds.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("api.child", timeout or 0.0)
        return code

    def close(self) -> None:
        """Let go of the pipes."""
        for pipe in (self.stdin, self.stdout, self._told):
            with suppress(BrokenPipeError):
                pipe.close()

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and not self._told.closed:
            with selectors.DefaultSelector() as selector:
                selector.register(self._told, selectors.EVENT_READ)
                if not selector.select(timeout):
                    return None
            self.returncode = int(self._told.readline() or LOST)
        return self.returncode


class Forks:
    """The fork server of one process, and the socket that asks it."""

    def __init__(self) -> None:
        self.server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self.lock = threading.Lock()

    def start(self) -> bool:
        """Start the server, unless one runs; whether one did."""
        with self.lock:
            runs = self._runs()
            self._control()
            return runs

    def fork(self, folder: Path) -> Child:
        """Start a child in a folder; it ends when its standard input does.

        Raises:
          OSError: no process can be made.
        """
        try:
            return self._fork(folder)
        except ConnectionError:  # the server ended since it was looked at
            return self._fork(folder)

    def _runs(self) -> bool:
        return self.server is not None and self.server[0].poll() is None

    def _control(self) -> socket.socket:
        """The socket of the server, which is started where none runs."""
        if self.server is not None and self._runs():
            return self.server[1]
        if self.server is not None:
            self.server[1].close()
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            process = subprocess.Popen(
                (sys.executable, "-P", "-m", "api.jobs.fork_server"),
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )
        self.server = process, control
        return control

    def _fork(self, folder: Path) -> Child:
        read, stdin = os.pipe()
        stdout, write = os.pipe()
        told, tell = os.pipe()
        # What is selected is read without a buffer.
        pipes = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb", 0), os.fdopen(told, "rb", 0)
        try:
            with self.lock:
                socket.send_fds(self._control(), [os.fsencode(folder)], [read, write, tell])
        except BaseException:
            for pipe in pipes:
                pipe.close()
            raise
        finally:
            for file in (read, write, tell):
                os.close(file)
        return Child(*pipes)


def child_environment() -> dict[str, str]:
    """Only the variables that children need: no tokens, one thread for linear algebra, none for telemetry."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": import_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "ORT_DISABLE_TELEMETRY": "1",
    }


FORKS: Final = Forks()
"""Of this process."""
