"""Children are forked from a process of their own: ends are told, and nothing is left of one that died."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

import pytest

from api.intake.sandbox import Sandbox
from api.jobs.child_process import Bounds, _answer, ended, run_child
from api.jobs.forks import FORKS, LOST, Forks, Unavailable, WorkerLost, child_environment
from api.jobs.records import work, written
from api.jobs.residents import Resident
from api.problems import Refused
from api.settings import Settings
from api.storage.store import Store
from tests.api.conftest import ROOT
from tests.api.jobs.conftest import is_gone

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


def test_a_python_without_handles_of_processes_has_children(store, monkeypatch):
    """One that was built on an older system, as some distributions build theirs."""
    monkeypatch.delattr(os, "pidfd_open")
    assert lint(store) == "target-invalid"
    with ended(FORKS.fork(store.root)) as child:
        assert child.poll() is None
    assert is_gone(child.pid)


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


FAILING = """
import errno, os
from api.jobs import fork_server
fork, turns = os.fork, iter([False, True])
def fails_once():
    if next(turns, False):
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    return fork()
os.fork = fails_once
fork_server.main()
"""
"""A fork server whose second fork fails."""


def test_a_fork_that_fails_ends_nobody_else(forks, tmp_path, monkeypatch):
    start = subprocess.Popen
    line = (sys.executable, "-P", "-c", FAILING)
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
    with ended(forks.fork(tmp_path)) as first:
        server = forks.server[0]
        with pytest.raises(Unavailable, match=os.strerror(errno.EAGAIN)):
            forks.fork(tmp_path)
        # Nor does a message without files.
        forks.server[1].send(b"/")
        with ended(forks.fork(tmp_path)) as third:
            assert (first.poll(), third.poll(), forks.server[0]) == (None, None, server)


def test_ready_asks_for_a_fork(forks, store, monkeypatch):
    start = subprocess.Popen
    line = (sys.executable, "-P", "-c", FAILING)
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
    monkeypatch.setattr("api.intake.sandbox.FORKS", forks)
    sandbox = Sandbox(Settings(store.root), store)
    # No server; one; one that cannot fork; one that can again.
    assert [sandbox.has_child() for _ in range(4)] == [False, True, False, True]


def test_a_resident_that_ends_slowly_stops_nobody_else(store):
    resident = Resident("key", Sandbox(Settings(store.root), store))
    resident.stack.callback(time.sleep, 0.3)

    async def main() -> int:
        ending = asyncio.ensure_future(resident.end())
        looks = 0
        while not ending.done():
            await asyncio.sleep(0.01)
            looks += 1
        return looks

    assert asyncio.run(main()) > 3


def test_a_server_that_does_not_answer_is_ended(forks, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("api.jobs.forks.ANSWERS", 0.3)
    with ended(forks.fork(tmp_path)) as first:
        stopped = forks.server[0]
        stopped.send_signal(signal.SIGSTOP)
        with ended(forks.fork(tmp_path)) as second:
            assert (stopped.returncode, second.poll()) == (-signal.SIGKILL, None)
            assert forks.server[0] is not stopped
        assert second.returncode == -signal.SIGKILL
    assert is_gone(first.pid)
    assert "the fork server ended with -9" in caplog.text


def test_a_child_of_a_server_that_stopped_is_ended(forks, tmp_path, monkeypatch):
    monkeypatch.setattr("api.jobs.forks.ANSWERS", 0.2)
    with ended(forks.fork(tmp_path)) as child:
        settle(child.pid, tmp_path)
        forks.server[0].send_signal(signal.SIGSTOP)
    assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert child.returncode == LOST


def test_an_answer_whose_server_stopped_counts(forks, store, monkeypatch):
    """Nobody tells how the child ended; that it has, the system does."""
    monkeypatch.setattr("api.jobs.forks.ANSWERS", 0.2)
    found = []

    def start(folder: Path):
        found.append(forks.fork(folder))
        forks.server[0].send_signal(signal.SIGSTOP)
        return found[-1]

    with pytest.raises(Refused, match="format"):
        run_child(store, LINT, Bounds(1 << 30, 10), start=start)
    assert found[0].returncode == LOST


CLOSING = """
import os, time
from api import child
from api.jobs import fork_server
def close():
    os.write(1, b"REPLY")
    os.close(1)
    time.sleep(600)
child.main = close
fork_server.main()
"""
"""A fork server whose children close their answer and go on."""


def test_a_whole_answer_of_a_child_that_goes_on_is_taken(forks, store, monkeypatch):
    """It may have gigabytes to give back."""
    start, reply = subprocess.Popen, '{\\"problem\\": {\\"name\\": \\"timeout\\", \\"detail\\": \\"told\\"}}'
    line = (sys.executable, "-P", "-c", CLOSING.replace("REPLY", reply))
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
    monkeypatch.setattr("api.jobs.child_process.CLOSED", 0.2)
    with pytest.raises(Refused, match="told"):
        run_child(store, LINT, Bounds(1 << 30, 10), start=forks.fork)


def test_a_child_that_closes_its_answer_and_goes_on_is_not_lost(forks, store, monkeypatch):
    start = subprocess.Popen
    line = (sys.executable, "-P", "-c", CLOSING.replace("REPLY", ""))
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
    monkeypatch.setattr("api.jobs.child_process.CLOSED", 0.2)
    found = []

    def note(folder: Path):
        found.append(forks.fork(folder))
        return found[-1]

    with pytest.raises(Refused, match="closed its answer") as caught:
        run_child(store, LINT, Bounds(1 << 30, 10), start=note)
    assert caught.value.problem.name == "worker-crashed"
    assert found[0].returncode == -signal.SIGKILL


def test_a_child_whose_server_died_is_ended(forks, tmp_path):
    """It does not look at its standard input, as one at work does not."""
    child = forks.fork(tmp_path)
    settle(child.pid, tmp_path)
    with ended(child):
        os.kill(child.pid, signal.SIGSTOP)
        forks.server[0].kill()
        assert child.wait(10) == LOST
    assert is_gone(child.pid)


def test_a_server_that_seems_to_run_is_not_met_again(forks, tmp_path, monkeypatch):
    forks.fork(tmp_path).close()
    dead = forks.server[0]
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(dead, "poll", lambda: None)  # as before it can be waited for
    with ended(forks.fork(tmp_path)) as child:
        assert child.poll() is None
        assert forks.server[0] is not dead


def test_no_server_at_all_is_no_end_of_the_works_own(tmp_path, monkeypatch):
    monkeypatch.setattr("api.jobs.forks.sys.executable", "/bin/false")
    with pytest.raises(Unavailable):
        Forks().fork(tmp_path)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (b'{"result": {"x": 1}}', {"result": {"x": 1}}),
        (b'{"problem": {"name": "timeout"}}', {"problem": {"name": "timeout"}}),
        (b'{"result": {"x": 1}', None),
        (b'{"progress": {"done": 1}}', None),
        (b"", None),
    ],
)
def test_an_answer_counts_whoever_is_gone(reply, found):
    if found is not None:
        assert _answer(LOST, reply) == found
        return
    with pytest.raises(WorkerLost):
        _answer(LOST, reply)


def lost_with_its_server(forks, fork):
    """Start children that die, and their server first, so that nobody tells how."""

    def start(folder: Path):
        child = fork(folder)
        forks.server[0].kill()
        forks.server[0].wait()
        os.kill(child.pid, signal.SIGKILL)
        return child

    return start


def test_a_work_that_was_lost_is_none_of_the_inputs_doing(forks, store):
    with pytest.raises(WorkerLost):
        run_child(store, LINT, Bounds(1 << 30, 10), start=lost_with_its_server(forks, forks.fork))


OUTSIDE = [
    sign
    for sign in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGALRM", 40)
    # Behind `nohup` or `&` some are ignored, and children inherit that.
    if signal.getsignal(getattr(signal, str(sign), sign)) is not signal.SIG_IGN
]
OWN = ["SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"]


def struck_by(fork, sign):
    """Start children that get a signal, each once it listens."""

    def start(folder: Path):
        child = fork(folder)
        settle(child.pid, folder)
        os.kill(child.pid, sign if isinstance(sign, int) else signal.Signals[sign])
        return child

    return start


@pytest.mark.parametrize("sign", OUTSIDE)
def test_what_is_killed_from_outside_is_none_of_the_inputs_doing(store, sign):
    """By the system that is short of memory, or by whoever runs the machine: it was `out-of-memory`, 422."""
    name = sign if isinstance(sign, str) else f"signal {sign}"
    with pytest.raises(WorkerLost, match=f"{name} from outside"):
        run_child(store, LINT, Bounds(1 << 30, 10), start=struck_by(FORKS.fork, sign))


@pytest.mark.parametrize("sign", OWN)
def test_what_crashes_is_the_inputs_doing(store, sign):
    with pytest.raises(Refused, match=f"worker-crashed.*{sign}"):
        run_child(store, LINT, Bounds(1 << 30, 10), start=struck_by(FORKS.fork, sign))


@pytest.mark.parametrize("sign", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_request_whose_child_was_killed_runs_once_more(store, monkeypatch, times, sign):
    turns = chain([struck_by(FORKS.fork, sign)] * times, repeat(FORKS.fork))

    def take_turns(folder):
        return next(turns)(folder)

    monkeypatch.setattr(FORKS, "fork", take_turns)
    with pytest.raises(Refused) as caught:
        asyncio.run(Sandbox(Settings(store.root), store).run(LINT))
    found = caught.value.problem
    assert (found.name, found.status) == [("target-invalid", 422), ("worker-lost", 503)][times - 1]
    assert times == 1 or (sign in found.detail and found.retry_after)


ENDLESS = """
import resource, signal
from api import child
from api.jobs import fork_server
def work():
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    while True:
        pass
child.main = work
fork_server.main()
"""
"""A fork server whose children do not end at the first word, so that the system kills them."""


def test_what_is_killed_for_its_processor_time_is_too_much(forks, store, monkeypatch):
    start, line = subprocess.Popen, (sys.executable, "-P", "-c", ENDLESS)
    monkeypatch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
    found = []

    def note(folder: Path):
        found.append(forks.fork(folder))
        return found[-1]

    with pytest.raises(Refused, match="timeout"):
        run_child(store, LINT, Bounds(1 << 30, 1, patience=100), start=note)
    assert found[0].returncode == -signal.SIGKILL
    assert found[0].seconds > 1


def test_a_whole_answer_counts_however_its_child_ended():
    assert _answer(-signal.SIGKILL, b'{"result": {"x": 1}}') == {"result": {"x": 1}}
    with pytest.raises(WorkerLost):
        _answer(-signal.SIGKILL, b'{"result": {"x": 1}')


@pytest.mark.parametrize("times", [1, 2])
def test_a_request_whose_child_was_lost_runs_once_more(store, monkeypatch, times):
    lose = lost_with_its_server(FORKS, FORKS.fork)
    turns = chain([lose] * times, repeat(FORKS.fork))

    def take_turns(folder):
        return next(turns)(folder)

    monkeypatch.setattr(FORKS, "fork", take_turns)
    with pytest.raises(Refused) as caught:
        asyncio.run(Sandbox(Settings(store.root), store).run(LINT))
    assert caught.value.problem.name == ("target-invalid" if times == 1 else "worker-lost")
    assert caught.value.problem.status == (422 if times == 1 else 503)


def own_files() -> list[int]:
    return [int(file.name) for file in Path("/proc/self/fd").iterdir()]


def test_files_that_cannot_be_opened_are_busy_and_none_is_left(tmp_path):
    FORKS.fork(tmp_path).close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = own_files()
    refused = 0
    try:
        for most in range(len(before), max(before) + 8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            try:
                FORKS.fork(tmp_path).close()
            except Unavailable:
                refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert refused
    assert len(own_files()) == len(before)
