"""What a child gave up is gone: sockets, processes, other files."""

import json
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from api.intake.confine import _REFUSED, _filter
from api.jobs.child_process import files_of

ROOT = Path(__file__).resolve().parents[2]
# One try each; what may still be done says so.
TRIES = """
import ctypes, json, os, resource, signal, socket, subprocess, sys, threading
from pathlib import Path
from api.intake.confine import confine
data = Path(sys.argv[1])
parent = os.getppid()
handle = os.pidfd_open(parent)
call = ctypes.CDLL(None, use_errno=True).syscall
def refused(name, *arguments):
    if call(CALLS[name], *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
took = confine([data / "open", Path(sys.prefix), Path(sys.base_prefix)], [data / "drafts"])
def thread():
    done = []
    one = threading.Thread(target=lambda: done.append(1)); one.start(); one.join()
    assert done
tries = {
    "socket": lambda: socket.socket(),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "fork": lambda: os._exit(0) if os.fork() == 0 else None,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "program": lambda: subprocess.run(["/bin/true"]),
    "kill": lambda: os.kill(os.getppid(), 0),
    "tkill": lambda: refused("tkill", parent, 0),
    "tgkill": lambda: refused("tgkill", parent, parent, 0),
    "rt_sigqueueinfo": lambda: refused("rt_sigqueueinfo", parent, 0, bytes(128)),
    "rt_tgsigqueueinfo": lambda: refused("rt_tgsigqueueinfo", parent, parent, 0, bytes(128)),
    "pidfd": lambda: signal.pidfd_send_signal(handle, 0),
    "priority of the parent": lambda: os.setpriority(os.PRIO_PROCESS, parent, 1),
    "limits of the parent": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
    "own limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "environment of the parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "read elsewhere": lambda: (data / "secret").read_text(),
    "write elsewhere": lambda: (data / "open" / "new").write_text("x"),
    "link elsewhere": lambda: os.link(data / "open" / "file", data / "drafts" / "link"),
    "read": lambda: (data / "open" / "file").read_text(),
    "write": lambda: (data / "drafts" / "new").write_text("x"),
    "thread": thread,
}
found = []
for name, one in tries.items():
    try:
        one()
    except OSError:
        continue
    found.append(name)
print(json.dumps({"took": took, "may": found}))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "drafts").mkdir()
    (tmp_path / "open" / "file").write_text("x")
    (tmp_path / "secret").write_text("x")
    return tmp_path


def test_what_is_left(folder):
    calls = _REFUSED[platform.machine()][1] if platform.machine() in _REFUSED else {}
    line = [sys.executable, "-c", f"CALLS = {calls}\n{TRIES}", str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not all(found["took"].values()):
        pytest.skip(f"this kernel does not confine: {found['took']}")
    assert found["may"] == ["own limits", "read", "write", "thread"]


def test_a_child_that_aborts_ends():
    """The C library's `abort` sends itself a signal, which is refused, and then ends all the same."""
    code = "import os; from api.intake.confine import confine; confine([], []); os.abort()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert done.returncode in (-signal.SIGABRT, -signal.SIGSEGV)


def test_a_job_is_given_its_own_files_alone(tmp_path):
    root = tmp_path / "data"
    arguments = {
        "model": f"{root}/blobs/ab/cd",
        "external": [["w.bin", f"{root}/blobs/ef/gh"]],
        "target": {"name": "x", "text": f"{root}/targets/ij"},
        "out": f"{root}/drafts/tmp1/out",
        "stats": None,
        "annotations": {"values": {"x": f"{root}/qplan.sqlite"}},
        "address": f"{root}/qplan.sqlite",
        "format": "/etc/passwd",
    }
    found = files_of(root, arguments)
    assert sorted(found["readable"]) == [
        f"{root}/{name}" for name in ("blobs/ab/cd", "blobs/ef/gh", "targets/ij")
    ]
    assert found["writable"] == [f"{root}/drafts/tmp1"]


def test_a_child_loads_nothing_of_the_server():
    heavy = ("asyncio", "fastapi", "fsspec", "sqlalchemy")
    code = f"import sys, api.child; print(*(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("machine", _REFUSED)
def test_jumps_of_the_filter_stay_inside(machine):
    text = _filter(machine)
    lines = [text[at : at + 8] for at in range(0, len(text), 8)]
    jumps = [(at, line) for at, line in enumerate(lines) if line[0] & 0x07 == 0x05]
    assert all(at + 1 + max(line[2], line[3]) < len(lines) for at, line in jumps)
    assert lines[-1][0] == 0x06


def test_a_machine_without_a_table_has_no_filter():
    assert _filter("riscv64") is None
