"""Bodies: the work of one job in a child process of its own, wherever the executor put it. Synchronous.

Files named by digest are opened from the store here, what the child wrote is kept in the store here, so only
small JSON travels. The child ends with this process, however that ends: it watches the pipe between them.
Source: design 06, "Jobs".
"""

import copy
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final, TypeAlias

from api.intake.sandbox import MAPPED, MAX_FILE, PER_BYTE, child_environment, ending_of, files_of
from api.problems import FULL, Refused, full
from api.server.logs import log_failure
from api.storage.store import Store, digest_of_file

TICK: Final = 0.1
MAX_REPLY: Final = 8 << 20
CHUNK: Final = 1 << 16

Child: TypeAlias = "subprocess.Popen[bytes]"
Stopped = Callable[[], bool]
Tell = Callable[[Mapping[str, Any]], None]


class Cancelled(Exception):
    """The work was stopped because somebody asked."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one body may use.

    Attributes:
      memory: bytes beside ten times what it reads.
      seconds: on the clock, and of the processor.
      functions: QuantFns that targets may name, each with its `module:function`.
    """

    memory: int
    seconds: int
    functions: tuple[tuple[str, str], ...] = ()


class Spares:
    """A child that waits, its imports done, for each folder: in a process that only runs bodies."""

    def __init__(self) -> None:
        self.waiting: dict[Path, Child] = {}
        self.lock = threading.Lock()

    def take(self, folder: Path) -> Child:
        """Give the child that waits, if it lives, and have another one wait."""
        with self.lock:
            child = self.waiting.pop(folder, None)
            self.waiting[folder] = start_child(folder)
        return start_child(folder) if child is None or child.poll() is not None else child


def start_child(folder: Path) -> Child:
    """Start a child in a folder; it ends when its standard input does."""
    return subprocess.Popen(
        (sys.executable, "-P", "-m", "api.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=child_environment(),
        start_new_session=True,
    )


def run_body(
    store: Store,
    work: Mapping[str, Any],
    bounds: Bounds,
    *,
    stopped: Stopped,
    tell: Tell,
    start: Callable[[Path], Child] = start_child,
) -> dict[str, Any]:
    """Have a child do a work, and keep what it made.

    Args:
      work: of `records.work`.
      stopped: asked ten times a second; true ends the child and everything it started.
      tell: given the progress the child reports.
      start: makes a child.

    Returns:
      What the task says, and in `kept` the digest of each file it made, by argument.

    Raises:
      Cancelled: `stopped` said so.
      Refused: what the child refused, or how it ended.
    """
    try:
        with store.draft() as folder:
            line = _line(store, work, bounds, folder)
            with ended(start(store.root)) as child:
                reply = _converse(child, line, bounds.seconds, stopped, tell)
            return {**reply, "kept": _keep(store, work, reply, folder)}
    except OSError as error:
        if error.errno not in FULL:
            raise
        problem = full()
        raise Refused(problem.name, problem.detail) from error


def _line(store: Store, work: Mapping[str, Any], bounds: Bounds, folder: Path) -> bytes:
    """What a child is told of a work: its arguments with paths, and its limits."""
    arguments = copy.deepcopy(work["arguments"])
    reads = sum(_lay_out(store, file, arguments, folder / f"file{k}") for k, file in enumerate(work["files"]))
    limits = {
        "memory": bounds.memory + PER_BYTE * reads,
        "mapped": MAPPED,
        "seconds": bounds.seconds,
        "file": MAX_FILE,
        "functions": bounds.functions,
        **files_of(store.root, arguments),
    }
    job = {**arguments, "task": work["task"], "limits": limits, "watched": True}
    return json.dumps(job).encode() + b"\n"


def _lay_out(store: Store, file: Mapping[str, Any], arguments: Any, path: Path) -> int:
    """Put the path of a file where it stands in the arguments; the bytes there are to read."""
    if file["how"] == "stored":
        path = store.find_whole(*file["what"])
    elif file["how"] == "written":
        path.write_bytes(file["what"][0].encode())
    *parents, last = file["at"]
    holder = reduce(getitem, parents, arguments)
    holder[last] = str(path)
    return 0 if file["how"] == "made" else path.stat().st_size


def _keep(store: Store, work: Mapping[str, Any], reply: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Keep the files a task made; their digests by where they stand in the arguments."""
    kept = {}
    for k, file in enumerate(work["files"]):
        if file["how"] != "made":
            continue
        (kind,), path = file["what"], folder / f"file{k}"
        digest = reply["key"] if kind == "plans" else digest_of_file(path)
        kept[".".join(map(str, file["at"]))] = digest
        if kind == "plans" and work["origin"] is not None:
            store.put("origins", digest, work["origin"].encode())
        store.keep(kind, digest, path)
        if kind == "plans" and work["link"] is not None:
            store.link(work["link"], digest)
    return kept


def _converse(child: Child, line: bytes, seconds: int, stopped: Stopped, tell: Tell) -> dict[str, Any]:
    until = time.monotonic() + seconds
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a child is started with pipes")
    with suppress(BrokenPipeError):
        child.stdin.write(line)
        child.stdin.flush()
    last = b""
    for last in _lines(child.stdout.fileno(), until, stopped):
        said = json.loads(last) if last.startswith(b'{"progress"') else {}
        if "progress" in said:
            tell(said["progress"])
    return _result(child.wait(timeout=TICK * 50), last)


def _result(code: int, reply: bytes) -> dict[str, Any]:
    if code != 0 or not reply:
        problem = ending_of(code)
        raise Refused(problem.name, problem.detail)
    answer: dict[str, Any] = json.loads(reply)
    log_failure(answer)
    if "problem" in answer:
        raise Refused(**answer["problem"])
    result: dict[str, Any] = answer["result"]
    return result


def _lines(answer: int, until: float, stopped: Stopped) -> Iterator[bytes]:
    """Lines of a child's answer as they come, the last one ended by the end of the answer."""
    waiting = b""
    with selectors.DefaultSelector() as selector:
        selector.register(answer, selectors.EVENT_READ)
        while True:
            if stopped():
                raise Cancelled
            if time.monotonic() > until:
                raise Refused("timeout", "no answer within the seconds allowed")
            if not selector.select(TICK):
                continue
            part = os.read(answer, CHUNK)
            if not part:
                break
            *whole, waiting = (waiting + part).split(b"\n")
            yield from whole
            if len(waiting) > MAX_REPLY:
                raise Refused("worker-crashed", "the reader of this input answered too much")
    if waiting:
        yield waiting


@contextmanager
def ended(child: Child) -> Iterator[Child]:
    """Give a child; whatever happens, it and all it started are gone afterwards."""
    try:
        yield child
    finally:
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
