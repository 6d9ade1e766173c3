"""A Dask worker whose exit code tells a stop from a loss: `python -m api.jobs.worker_process ADDRESS`.

Dask's own command ends with 0 when it has lost its scheduler, as if it were done. It runs here as a child;
signals go on to it, options too. The child ends when this process does, however it does: it watches a pipe
that only this process holds open. Source: distributed.cli.dask_worker.
"""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from ..paths import PACKAGE
from ..server.workers import watch_lifeline

LOST: Final = 1
WATCHING: Final = "--watching"
"""First of the child's arguments, before the pipe it watches."""


def main(arguments: Sequence[str]) -> int:
    """Run a worker; 0 if it was stopped on request, else its own code or `LOST`."""
    told: list[int] = []
    workers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        for started in workers:
            started.send_signal(number)

    # Before the child is there: no signal may leave it behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    lifeline, _held = os.pipe()
    command = [sys.executable, "-m", f"{PACKAGE}.jobs.worker_process", WATCHING, str(lifeline), *arguments]
    worker = subprocess.Popen(command, pass_fds=(lifeline,))  # noqa: S603
    workers.append(worker)
    if told:
        worker.send_signal(told[-1])
    code = worker.wait()
    return 0 if told else code or LOST


def work(lifeline: int, arguments: Sequence[str]) -> None:
    """Be the worker, until the process that holds the pipe is gone."""
    watch_lifeline(lifeline)
    sys.argv = ["dask-worker", *arguments]
    runpy.run_module("distributed.cli.dask_worker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [WATCHING]:
        work(int(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
