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
    worker = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", *arguments])  # noqa: S603

    def pass_on(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        worker.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = worker.wait()
    return 0 if told else code or LOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
