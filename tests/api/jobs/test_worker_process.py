"""A worker ends with an error when it has lost its scheduler, and with the process that watches over it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.clusters import ROOT, dask

ENDS_WITHIN = 30


@contextmanager
def worker_of(cluster) -> Iterator[subprocess.Popen]:
    """A worker that its scheduler knows."""
    line = [sys.executable, "-m", "api.jobs.worker_process", f"tcp://127.0.0.1:{cluster.port}"]
    line += ["--no-nanny", "--nthreads", "1", "--no-dashboard"]
    with subprocess.Popen(
        line, cwd=ROOT, env=cluster.environment, stderr=subprocess.PIPE, text=True
    ) as worker:
        for text in worker.stderr:
            if "Starting established connection" in text:
                break
        yield worker


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "code"), [(True, 0), (False, 1)], ids=["told to end", "without its scheduler"]
)
def test_the_exit_code_of_a_worker(told, code):
    with dask(0) as cluster, worker_of(cluster) as worker:
        if told:
            worker.send_signal(signal.SIGTERM)
        else:
            cluster.scheduler.kill()
        worker.communicate(timeout=60)
        assert worker.returncode == code


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_was_killed():
    """SIGKILL leaves nobody who could end it: it stayed at the scheduler, and took jobs."""
    with dask(0) as cluster, worker_of(cluster) as worker:
        (child,) = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        worker.kill()
        try:
            worker.communicate(
                timeout=ENDS_WITHIN
            )  # ends when the child does, which has the same standard error
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
