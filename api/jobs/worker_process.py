"""A Dask worker whose exit code says whether it was told to end: `python -m api.jobs.worker_process ADDRESS`.

Dask's own command ends with 0 when it has lost its scheduler, as if it were done. It runs here as a child;
signals go on to it, options too. Source: distributed.cli.dask_worker.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

LOST = 1


def main(arguments: Sequence[str]) -> int:
    """Run a worker; 0 if it ended because it was told to, else its own code or `LOST`."""
    told: list[int] = []
    workers: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        for started in workers:
            started.send_signal(number)

    # Before the child is there: no signal may leave it behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", *arguments]
    worker = subprocess.Popen(command)  # noqa: S603
    workers.append(worker)
    if told:
        worker.send_signal(told[-1])
    code = worker.wait()
    return 0 if told else code or LOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
