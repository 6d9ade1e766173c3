"""A worker that has lost its scheduler ends with an error, one that was told to end does not."""

import signal
import subprocess
import sys

import pytest

from benchmarks.clusters import ROOT, dask


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "code"), [(True, 0), (False, 1)], ids=["told to end", "without its scheduler"]
)
def test_the_exit_code_of_a_worker(told, code):
    with dask(0) as cluster:
        line = [sys.executable, "-m", "api.jobs.worker_process", f"tcp://127.0.0.1:{cluster.port}"]
        line += ["--no-nanny", "--nthreads", "1", "--no-dashboard"]
        with subprocess.Popen(
            line, cwd=ROOT, env=cluster.environment, stderr=subprocess.PIPE, text=True
        ) as worker:
            for text in worker.stderr:
                if "Starting established connection" in text:
                    break
            if told:
                worker.send_signal(signal.SIGTERM)
            else:
                cluster.scheduler.kill()
            worker.communicate(timeout=60)
        assert worker.returncode == code
