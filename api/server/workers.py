"""Workers: several server processes on one port, started again when they end; `--processes`.

Each has a socket of its own, between which the system spreads connections: on a shared one, whoever wakes
first takes them all. This process keeps the sockets, so what waits at one outlives its worker.
They end when this process does, however it does: each watches a pipe that only this process holds open.
Nothing here knows the application.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from ..paths import PACKAGE, import_path
from .metrics import SHARED

PAUSE: Final = 1.0
TICK: Final = 0.1


def supervise(listening: Sequence[socket.socket], environment: Mapping[str, str]) -> None:
    """Keep a server running on each socket until this process gets a signal to end, then let them drain."""
    ending = threading.Event()
    before = {sign: signal.signal(sign, _setter(ending)) for sign in (signal.SIGINT, signal.SIGTERM)}
    metrics = tempfile.mkdtemp(prefix="qplan-metrics.")
    lifeline, held = os.pipe()
    variables = {**environment, SHARED: metrics, "PYTHONPATH": import_path()}

    def started(place: int) -> subprocess.Popen[bytes]:
        own = listening[place].fileno()
        line = [sys.executable, "-P", "-m", f"{PACKAGE}.server.run", str(own), str(lifeline)]
        return subprocess.Popen(line, env=variables, pass_fds=(own, lifeline))  # noqa: S603

    try:
        running = [started(place) for place in range(len(listening))]
        while not ending.wait(TICK):
            for place, process in enumerate(running):
                if process.poll() is None:
                    continue
                mark_process_dead(process.pid, metrics)  # type: ignore[no-untyped-call]
                ending.wait(PAUSE)
                running[place] = started(place)
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    finally:
        os.close(held)
        os.close(lifeline)
        shutil.rmtree(metrics, ignore_errors=True)
        for sign, handler in before.items():
            signal.signal(sign, handler)


def watch_lifeline(line: int) -> None:
    """End this process gently once the one that started it is gone."""
    threading.Thread(target=_watch, args=(line,), daemon=True).start()


def _watch(line: int) -> None:
    while os.read(line, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _setter(ending: threading.Event):  # type: ignore[no-untyped-def]  # noqa: ANN202 - signal's own type
    def set_(_number: int, _frame: FrameType | None) -> None:
        ending.set()

    return set_
