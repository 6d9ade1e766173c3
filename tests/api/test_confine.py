"""What a child gave up is gone: sockets, processes, other files, memory that outlives it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from api.intake.own_files import own_files, without
from api.jobs.child_process import MADE, Bounds, job_of
from api.jobs.records import carried, made, stored, work, written
from api.storage.digests import digest_of
from api.storage.store import Store

ROOT = Path(__file__).resolve().parents[2]

# One try each, of what code that has taken over a child could do; what may still be done says so.
TRIES = """
import ctypes, fcntl, json, os, resource, signal, socket, subprocess, sys, threading
from pathlib import Path
from api.intake.confine import confine
data = Path(sys.argv[1])
parent = os.getppid()
handle = os.pidfd_open(parent)
read, write = os.pipe()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def call(number, *arguments):
    if libc.syscall(CALLS[number], *arguments) < 0:
        raise OSError(ctypes.get_errno(), number)
def thread():
    done = []
    one = threading.Thread(target=lambda: done.append(1)); one.start(); one.join()
    assert done
other = data / "secret"
took = confine([data / "open", Path(sys.prefix), Path(sys.base_prefix)], [data / "drafts"])
tries = {
    "socket": lambda: socket.socket(),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "pair of sockets": socket.socketpair,
    "pipe": os.pipe,
    "size of a pipe": lambda: fcntl.fcntl(write, 1031, 1 << 20),
    "signals of a pipe to the parent": lambda: fcntl.fcntl(read, 8, parent),
    "fork": lambda: os._exit(0) if os.fork() == 0 else None,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "program": lambda: subprocess.run(["/bin/true"]),
    "kill": lambda: os.kill(parent, 0),
    "tkill": lambda: call("tkill", parent, 0),
    "tgkill": lambda: call("tgkill", parent, parent, 0),
    "rt_sigqueueinfo": lambda: call("rt_sigqueueinfo", parent, 0, bytes(128)),
    "rt_tgsigqueueinfo": lambda: call("rt_tgsigqueueinfo", parent, parent, 0, bytes(128)),
    "pidfd": lambda: signal.pidfd_send_signal(handle, 0),
    "pidfd of the parent": lambda: os.pidfd_open(parent),
    "leave the group": lambda: os.setpgid(0, os.getpgid(parent)),
    "leave the session": os.setsid,
    "priority of the parent": lambda: os.setpriority(os.PRIO_PROCESS, parent, 1),
    "scheduler of the parent": lambda: os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0)),
    "processors of the parent": lambda: os.sched_setaffinity(parent, {0}),
    "disk of the parent": lambda: call("ioprio_set", 1, parent, 3 << 13),
    "limits of the parent": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
    "own limits": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "environment of the parent": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
    "trace the parent": lambda: call("ptrace", 16, parent, 0, 0),
    "be read again": lambda: call("prctl", 4, 1, 0, 0, 0),
    "keys": lambda: call("keyctl", 0, -3, 1),
    "mount": lambda: call("mount", 0, bytes(data / "drafts"), b"tmpfs", 0, 0),
    "namespace": lambda: call("unshare", 0x10000000),
    "rings": lambda: call("io_uring_setup", 1, bytes(256)),
    "shared memory": lambda: call("shmget", 0, 1 << 20, 0o1600),
    "memory as a file": lambda: os.memfd_create("x"),
    "secret memory": lambda: call("memfd_secret", 0),
    "queue of messages": lambda: call("mq_open", b"/x", 0x42, 0o600, 0),
    "shared memory by name": lambda: open("/dev/shm/planted", "w"),
    "mode elsewhere": lambda: os.chmod(other, 0),
    "owner elsewhere": lambda: os.chown(other, 0, 0),
    "times elsewhere": lambda: os.utime(other, (0, 0)),
    "attribute elsewhere": lambda: os.setxattr(other, "user.x", b"1"),
    "size elsewhere": lambda: os.truncate(other, 0),
    "read elsewhere": lambda: other.read_text(),
    "list elsewhere": lambda: os.listdir(data),
    "remove elsewhere": lambda: os.unlink(other),
    "write elsewhere": lambda: (data / "open" / "new").write_text("x"),
    "link elsewhere": lambda: os.link(data / "open" / "file", data / "drafts" / "link"),
    "point elsewhere": lambda: os.symlink(other, data / "drafts" / "link"),
    "pipe with a name": lambda: os.mkfifo(data / "drafts" / "pipe"),
    "device": lambda: os.mknod(data / "drafts" / "null", 0o020666, os.makedev(1, 3)),
    "read": lambda: (data / "open" / "file").read_text(),
    "write": lambda: (data / "drafts" / "new").write_text("x"),
    "folder": lambda: (data / "drafts" / "folder").mkdir(),
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
CALLS = {
    "x86_64": {
        "ioprio_set": 251, "io_uring_setup": 425, "keyctl": 250, "memfd_secret": 447, "mount": 165,
        "mq_open": 240, "prctl": 157, "ptrace": 101, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
        "shmget": 29, "tgkill": 234, "tkill": 200, "unshare": 272,
    },
    "aarch64": {
        "ioprio_set": 30, "io_uring_setup": 425, "keyctl": 219, "memfd_secret": 447, "mount": 40,
        "mq_open": 180, "prctl": 167, "ptrace": 117, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
        "shmget": 194, "tgkill": 131, "tkill": 130, "unshare": 97,
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "drafts").mkdir()
    (tmp_path / "open" / "file").write_text("x")
    (tmp_path / "secret").write_text("x")
    return tmp_path


def test_what_is_left(folder):
    line = [sys.executable, "-c", f"CALLS = {CALLS.get(os.uname().machine)}\n{TRIES}", str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not all(found["took"].values()):
        pytest.skip(f"this kernel does not confine: {found['took']}")
    assert found["may"] == ["own limits", "read", "write", "folder", "thread"]
    assert (folder / "secret").stat().st_mode & 0o777 == 0o644 & ~os.umask(os.umask(0o022))


def test_a_child_that_aborts_ends():
    """The C library's `abort` sends itself a signal, which is refused, and then ends all the same."""
    code = "import os; from api.intake.confine import confine; confine([], []); os.abort()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert done.returncode in (-signal.SIGABRT, -signal.SIGSEGV)


def test_a_job_is_given_its_own_files_alone(tmp_path):
    """Whatever else an argument says: a model may be called like a folder of the server's."""
    root = tmp_path / "data"
    store = Store(root)
    store.open()
    model, weights, target = (digest_of(text) for text in (b"model", b"weights", b"target"))
    store.put_all(
        [("blobs", model, b"model"), ("blobs", weights, b"weights"), ("targets", target, b"target")]
    )
    place, draft = f"{root}/qplan.sqlite", f"{root}/drafts/another/{MADE}/file0"
    arguments = {
        "model": stored("blobs", model),
        "external": [["w.bin", stored("blobs", weights)]],
        "target": {"name": place, "text": stored("targets", target)},
        "out": made("answers"),
        "state": carried(model),
        "written": written("x"),
        "stats": None,
        "annotations": {"values": {"x": place}},
        "called": str(root),
        "format": draft,
        **dict.fromkeys(("address", "goal", "output"), place),
    }
    with store.draft() as folder:
        limits = job_of(store, work("plan", arguments), Bounds(1, 1), folder)["limits"]
        stand = [store.path("blobs", model), store.path("blobs", weights), store.path("targets", target)]
        assert sorted(limits["readable"]) == sorted(map(str, [*stand, folder / "file5"]))
        assert set(limits["writable"]) == {str(folder / MADE)}


def test_a_child_loads_nothing_of_the_server():
    heavy = ("asyncio", "fastapi", "fsspec", "sqlalchemy")
    code = f"import sys, api.child; print(*(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


LOOKING = """
import json, os, sys
from pathlib import Path
from api.intake.confine import confine
from api.intake.own_files import own_files
root = Path(sys.argv[1])
took = confine([*own_files(root / "out" / "service")], [])
def may(path):
    try:
        os.listdir(path) if path.is_dir() else path.read_bytes()
    except PermissionError:
        return False
    return True
import planner.cli.app  # what was not imported yet
print(json.dumps({"took": took, "may": [name for name in sys.argv[2:] if may(root / name)]}))
"""


def test_in_a_checkout_code_is_readable_and_nothing_else(tmp_path):
    """The data of `make serve` lie in the checkout, secrets and settings too."""
    for name in ("api", "planner", "targets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("static", "__pycache__"))
    names = ("out/service/blobs/x", "out/service/qplan.sqlite", "secrets/database_url", ".env", ".git/config")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    asked = (*names, "out", ".git", "planner/cli/app.py", "targets/litert-int8.yaml")
    line = [sys.executable, "-c", LOOKING, str(tmp_path), *asked]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not found["took"]["files"]:
        pytest.skip("this kernel has no Landlock")
    assert found["may"] == ["planner/cli/app.py", "targets/litert-int8.yaml"]


def test_data_among_libraries_are_left_out(tmp_path):
    for name in ("lib/a", "lib/data/blobs", "lib/b/c", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lib" / "link").symlink_to(tmp_path / "lib" / "data")
    data = tmp_path / "lib" / "data"
    left = {str(path.relative_to(tmp_path)) for path in without([tmp_path / "lib", tmp_path / "other"], data)}
    assert left == {"lib/a", "lib/b", "other"}
    inside = (
        data / "site-packages"
    )  # code that lies in the data folder was put there by whoever runs the server
    assert list(without([inside, data], data)) == [inside]
    libraries = next(path for path in own_files(tmp_path) if path.name == "lib")
    assert libraries not in own_files(libraries / "data")


LOCKED = """
import os, sys
from api.intake.own_files import code
if os.getuid() == 0:
    os.setuid(65534)
sys.path[:] = sys.argv[1:]
print(*code())
"""


def test_a_folder_that_may_not_be_looked_into_is_no_code():
    """Beside packages there may be secrets or the database of another user: children start all the same."""
    with TemporaryDirectory() as name:
        root = Path(name)
        for folder in ("on_path/package", "on_path/secrets", "locked/below"):
            (root / folder).mkdir(parents=True)
        (root / "on_path" / "package" / "__init__.py").touch()
        closed = (root / "on_path" / "secrets", root / "locked")
        for folder in closed:
            folder.chmod(0o000)
        root.chmod(0o755)
        asked = [str(root / path) for path in ("on_path", "locked", "locked/below", "none")]
        line = [sys.executable, "-c", LOCKED, *asked]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
        for folder in closed:
            folder.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert str(root / "on_path" / "package") in done.stdout
    assert "secrets" not in done.stdout
