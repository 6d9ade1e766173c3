"""What a child may write has a limit, files it reads stay as they are, and it ends whatever it does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from api.jobs.child_process import MOST_FILES, Bounds, run_child, stopped_beyond
from api.jobs.forks import Child, Forks
from api.jobs.records import made, stored, work
from api.problems import Refused
from tests.api.jobs.conftest import is_gone, keep


def test_a_job_cannot_change_the_files_that_it_reads(store, forks, monkeypatch):
    """A model beside its external data is links to what is stored: only what the child makes is writable."""
    code = CHANGING.format(place="Path(job['limits']['model']) / 'w.bin'")
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", started(code))
    weights = keep(store, b"weights")
    files = {
        "model": stored("blobs", keep(store, b"model")),
        "external": [["w.bin", stored("blobs", weights)]],
    }
    with pytest.raises(Refused, match="the sandbox refuses") as caught:
        run_child(store, work("model", {**files, "out": made("answers")}), BOUNDS, start=forks.fork)
    assert caught.value.problem.name == "worker-crashed"
    assert store.read("blobs", weights) == b"weights"


BOUNDS = Bounds(1 << 30, 10)
CHANGING = """
from pathlib import Path
from api import child
from api.jobs import fork_server
def change(job):
    ({place}).write_bytes(b"other")
    return {{}}
child.TASKS = {{"model": change}}
fork_server.main()
"""
"""A fork server whose children write where they may not."""


def started(code: str) -> Callable[..., subprocess.Popen]:
    """Start a fork server of this code, in place of our own."""
    start, line = subprocess.Popen, (sys.executable, "-P", "-c", code)
    return lambda _, **given: start(line, **given)


def test_files_together_have_a_limit(tmp_path):
    calls = []
    stopped = stopped_beyond(1 << 20, tmp_path, lambda: bool(calls.append(1)))
    for k in range(3):
        assert not stopped()
        (tmp_path / str(k)).write_bytes(bytes(900_000))
    time.sleep(0.15)
    with pytest.raises(Refused, match="exceeds 2 MiB or 1000 files") as caught:
        stopped()
    assert (caught.value.problem.name, len(calls)) == ("out-of-memory", 3)


def test_so_has_their_number(tmp_path):
    (tmp_path / "folder").mkdir()
    for k in range(MOST_FILES):
        (tmp_path / "folder" / str(k)).touch()
    with pytest.raises(Refused, match="1000 files"):
        stopped_beyond(1 << 20, tmp_path, bool)()


FILLING = """
from pathlib import Path
from api import child
from api.jobs import fork_server
def fill(job):
    for k in range(10_000):
        (Path(job["out"]).parent / str(k)).write_bytes(bytes(1 << 20))
child.TASKS = {"model": fill}
fork_server.main()
"""


def test_a_child_that_fills_the_disk_is_ended(store, forks, monkeypatch):
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", started(FILLING))
    monkeypatch.setattr("api.jobs.child_process.MAX_FILE", 8 << 20)
    asked = work("model", {"model": stored("blobs", keep(store, b"x")), "out": made("answers")})
    with pytest.raises(Refused, match="exceeds 16 MiB"):
        run_child(store, asked, BOUNDS, start=forks.fork)
    assert list(store.drafts.iterdir()) == []


LEAVING = """
import os, time
from api import child
from api.jobs import fork_server
def leave():
    os.setpgid(0, os.getpgid(os.getppid()))
    os.write(1, b"left")
    while True:
        time.sleep(600)
child.main = leave
fork_server.main()
"""
"""A fork server whose children leave their group, as one on a machine without seccomp may, and go on."""


@pytest.fixture
def leaver(tmp_path, forks, monkeypatch) -> Iterator[Child]:
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", started(LEAVING))
    child = forks.fork(tmp_path)
    assert os.read(child.stdout.fileno(), 4) == b"left"
    yield child
    child.kill()
    child.close()


def test_a_child_that_left_its_group_is_ended(leaver):
    leaver.kill()
    assert leaver.wait(10) == -signal.SIGKILL


def test_children_end_with_their_server_whatever_they_do(leaver, forks: Forks):
    """Its parent is gone, and with it the other end of the socket."""
    process, control = forks.server
    control.close()
    assert process.wait(10) == 0
    assert is_gone(leaver.pid)
