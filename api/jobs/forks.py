"""Forks: children of this process's fork server, as `subprocess.Popen` has them.

The server starts with the first child, or before, and again where it ended; it ends with this process,
which holds the other end of its socket. Source: docs/service.md.
"""

import errno
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

from ..paths import PACKAGE, import_path

LOST: Final = 1 << 16
"""In place of the exit code of a child of which nobody can tell how it ended: its fork server was gone."""
ANSWERS: Final = 3.0
"""Seconds in which a fork server answers, and tells how a child ended; a fork takes a hundredth of one."""
GONE: Final = 10.0
"""Seconds in which a process that was killed is gone."""
STARTS: Final = 60.0
"""Seconds in which a fork server that was just started answers: it imports first."""
ATTEMPTS: Final = 2

log: Final = logging.getLogger("qplan.child")


class WorkerLost(Exception):
    """The process that ran a work is gone, by a signal from outside say; not the work's doing."""


class Unavailable(Exception):
    """Nothing can be run now; not the work's doing."""


class Child:
    """A child: `pid`, standard input and output, and how it ended, as `subprocess.Popen` has them.

    `seconds` of the processor that it had, once it has ended.

    Raises:
      ConnectionError: the fork server is gone.
      TimeoutError: it does not answer within `limit` seconds.
      OSError: it cannot fork.
    """

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], told: IO[bytes], limit: float) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self.seconds = 0.0
        self._told = told
        if not _readable(told.fileno(), limit):
            raise TimeoutError(errno.ETIMEDOUT, "the fork server does not answer")
        line = told.readline()
        if not line:
            raise ConnectionError("the fork server is gone")
        self.pid = int(line)
        if self.pid < 0:
            raise OSError(-self.pid, os.strerror(-self.pid))
        self._process: int | None = None
        # It ended already, the system has none, or Python was built where there was none.
        with suppress(OSError, AttributeError):
            self._process = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit code, the signal negative; None while it runs; `LOST`: nobody can tell."""
        return self._look(0)

    def runs(self) -> bool:
        """Whether the system says that it has not ended, whatever its fork server tells."""
        return self._process is not None and not _readable(self._process, 0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and then, for a while, until that is reported.

        Raises:
          TimeoutExpired: it has not, within `timeout` seconds.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("api.child", timeout or 0.0)
        return code

    def kill(self) -> None:
        """End it and all it started, and wait until it has."""
        with suppress(ProcessLookupError):
            if self._process is not None:  # its number may be another's once it was waited for
                signal.pidfd_send_signal(self._process, 0)
            with suppress(ProcessLookupError):  # it left its group
                os.killpg(self.pid, signal.SIGKILL)
            if self._process is not None:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
                _readable(self._process, GONE)

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self.stdin, self.stdout, self._told):
            with suppress(BrokenPipeError):
                pipe.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and not self._told.closed:
            told, process = self._told.fileno(), self._process
            ready = _ready([told] if process is None else [told, process], timeout)
            if told not in ready and (process not in ready or timeout == 0):
                return None
            is_told = told in ready or _readable(told, ANSWERS)
            code, _, seconds = (self._told.readline() if is_told else b"").partition(b" ")
            self.returncode, self.seconds = int(code or LOST), float(seconds or 0)
        return self.returncode


class Forks:
    """The fork server of one process, and the socket that asks it."""

    def __init__(self) -> None:
        self.server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self.answered = False
        self.lock = threading.Lock()

    def start(self) -> bool:
        """Start the server, unless one runs; whether one did."""
        with self.lock:
            runs = self.server is not None and self.server[0].poll() is None
            self._running()
            return runs

    def fork(self, folder: Path) -> Child:
        """Start a child in a folder; it ends when its standard input does.

        Raises:
          Unavailable: no process can be made.
        """
        for attempt in range(ATTEMPTS):
            try:
                return self._fork(folder)
            except OSError as error:
                is_servers = isinstance(error, (ConnectionError, TimeoutError))
                if not is_servers or attempt + 1 == ATTEMPTS:
                    raise Unavailable(f"no process can be made: {error.strerror or error}") from error
        raise AssertionError

    def _fork(self, folder: Path) -> Child:
        server = None
        with ExitStack() as ours, ExitStack() as theirs:
            read, stdin = _pipe(theirs, ours)
            stdout, write = _pipe(ours, theirs)
            told, tell = _pipe(ours, theirs)
            given = [file.fileno() for file in (read, write, tell)]
            try:
                with self.lock:
                    server = self._running()
                    limit = ANSWERS if self.answered else STARTS
                    socket.send_fds(server[1], [os.fsencode(folder)], given)
                theirs.close()
                child = Child(stdin, stdout, told, limit)
            except (ConnectionError, TimeoutError):
                with self.lock:
                    if self.server is server:
                        self._end()
                raise
            self.answered = True
            ours.pop_all()
            return child

    def _running(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """The server, which is started where none runs."""
        if self.server is not None and self.server[0].poll() is not None:
            self._end()
        if self.server is None:
            control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            control.settimeout(ANSWERS)
            with other, ExitStack() as unless_started:
                unless_started.callback(control.close)
                process = subprocess.Popen(  # noqa: S603
                    (sys.executable, "-P", "-m", f"{PACKAGE}.jobs.fork_server"),
                    stdin=other.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=child_environment(),
                    start_new_session=True,
                )
                unless_started.pop_all()
            self.server, self.answered = (process, control), False
        return self.server

    def _end(self) -> None:
        """End the server, which is gone or does not answer, and forget it."""
        if self.server is None:
            return
        process, control = self.server
        self.server = None
        process.kill()  # before it hears that nobody asks any more, and ends its children
        control.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GONE)
        log.warning("the fork server ended with %s; the next child starts another", process.returncode)


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """A pipe; each end is closed with its stack."""
    read, write = os.pipe()
    # What is selected is read without a buffer.
    return reading.enter_context(os.fdopen(read, "rb", 0)), writing.enter_context(os.fdopen(write, "wb"))


def _readable(file: int, timeout: float | None) -> bool:
    """Wait until a file can be read, a process has ended; whether it does so in time."""
    return bool(_ready([file], timeout))


def _ready(files: Sequence[int], timeout: float | None) -> set[int]:
    """Wait until one of these can be read, or has ended; which."""
    with selectors.PollSelector() as selector:  # needs no file of its own
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(timeout)}


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
