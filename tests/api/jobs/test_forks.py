"""Children are forked from a process of their own: ends are told, and nothing is left of one that died."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from api.jobs.child_process import Bounds, ended, run_child
from api.jobs.forks import FORKS, LOST, Forks, child_environment
from api.jobs.records import work, written
from api.problems import Refused
from api.storage.store import Store
from tests.api.conftest import ROOT

LINT = work("lint", {"text": written("format: none"), "name": "x"})


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path)
    made.open()
    return made


def lint(store: Store) -> str:
    with pytest.raises(Refused) as caught:
        run_child(store, LINT, Bounds(1 << 30, 10))
    return caught.value.problem.name


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_each_end_is_told(tmp_path):
    children = [FORKS.fork(tmp_path) for _ in range(3)]
    assert [child.poll() for child in children] == [None] * 3
    assert len({os.getpgid(child.pid) for child in children}) == 3
    with pytest.raises(subprocess.TimeoutExpired):
        children[0].wait(0.05)
    os.kill(children[2].pid, signal.SIGSEGV)
    assert (children[2].wait(10), children[1].poll()) == (-signal.SIGSEGV, None)
    children[0].stdin.close()  # its parent has nothing more to say
    assert (children[0].wait(10), children[0].poll()) == (0, 0)
    with ended(children[1]):
        pass
    assert (children[1].returncode, is_gone(children[1].pid)) == (-signal.SIGKILL, True)
    for child in children:
        child.close()


def settle(pid: int, folder: Path) -> None:
    """Wait for the last thing that a child does before its work."""
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}/cwd").readlink() != folder:
        assert time.monotonic() < until
        time.sleep(0.02)


def files(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(file.readlink()))
    return found


def test_no_pipe_of_another_child_is_held_open(tmp_path):
    first, second = FORKS.fork(tmp_path), FORKS.fork(tmp_path)
    with ended(second), ended(first):
        settle(second.pid, tmp_path)
        held = files(second.pid)
        own = {str(Path(f"/proc/self/fd/{pipe.fileno()}").readlink()) for pipe in (first.stdin, first.stdout)}
        assert len(held) == 3  # in, out, errors
        assert not held & own


def test_a_server_that_died_is_started_again(store):
    assert lint(store) == "target-invalid"
    forks = FORKS.server[0]
    child = FORKS.fork(store.root)
    forks.kill()
    forks.wait()
    assert child.wait(10) == LOST  # nobody can tell how it ended
    child.close()
    assert is_gone(child.pid)
    assert FORKS.start() is False
    assert lint(store) == "target-invalid"


def test_many_at_once(store):
    found = []
    threads = [threading.Thread(target=lambda: found.append(lint(store))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["target-invalid"] * 12


def test_it_has_one_thread_and_nothing_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("QPLAN_TOKENS", "secret")
    forks = Forks()
    with ended(forks.fork(tmp_path)) as child:
        process, control = forks.server
        assert [*Path(f"/proc/{process.pid}/task").iterdir()] == [
            Path(f"/proc/{process.pid}/task/{process.pid}")
        ]
        for pid in (process.pid, child.pid):
            assert b"QPLAN" not in Path(f"/proc/{pid}/environ").read_bytes()
        settle(child.pid, tmp_path)
    control.close()
    assert process.wait(10) == 0


def test_it_ends_with_its_parent(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from api.jobs.forks import FORKS\n"
        "child = FORKS.fork(Path(sys.argv[1])); print(FORKS.server[0].pid, child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    line = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(
        line, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
    )
    assert [is_gone(int(pid)) for pid in done.stdout.split()] == [True, True]
