"""Child process: one piece of work (`records.work`) in a process of its own that reads untrusted input.

Requests (`sandbox`) and jobs (`executors`) run it alike. Files named by digest are opened from the store
here, files that the child wrote are kept in the store here, so only small JSON travels. The child ends with
this process, however that ends: it watches the pipe between them. Source: docs/service.md.
"""

import asyncio
import contextlib
import copy
import errno
import json
import os
import selectors
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Executor as Threads
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final, TypeVar

from ..problems import DISK_FULL, Refused, as_arguments, disk_full
from ..server.logs import log_failure
from ..storage.digests import digest_of_file
from ..storage.store import Store
from ..tracing import span
from .endings import refuse_ending
from .forks import FORKS, GONE, LOST, Child, Unavailable, WorkerLost

TICK: Final = 0.1
PATIENCE: Final = 5
"""Times its processor time that a work has on the clock: what takes longer was kept waiting by others."""
CLOSED: Final = 10.0
"""Seconds in which a child that closed its answer has ended: it may have gigabytes to give back."""
MAX_REPLY: Final = 8 << 20
MAX_FILE: Final = 2 << 30
MAX_STATE: Final = 256 << 20
MAPPED: Final = 1 << 30
"""Address space that the child's libraries map beside the memory they use."""
PER_BYTE: Final = 10
COPIES: Final = 2
BLOCK: Final = 512
"""Bytes of a block of `stat`."""
MOST_FILES: Final = 1000
"""Files and folders that a child may make: it makes a few."""
MADE: Final = "made"
"""Folder in a draft: all that a child may write. The input of the child lies beside it."""
MODEL: Final = "model"
"""Folder in a draft for a model beside its external data."""
CHUNK: Final = 1 << 16
STANDING: Final = frozenset({
    "corrupted", "out-of-memory", "overloaded", "quota", "storage-full", "timeout",
})  # fmt: skip
"""Problems that say what they mean, whether or not the files of a work are still there."""

T = TypeVar("T")

Stopped = Callable[[], bool]
Tell = Callable[[Mapping[str, Any]], None]


BEHIND: Final = 5
"""Nice of every job: requests, in the server's process and in children of their own, are answered first."""
WAY: Final = 10
"""Added where the principal has more waiting: a tenth of what others have, where they want it."""


class Cancelled(Exception):
    """The work was stopped on request."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one child.

    Attributes:
      memory: bytes beside ten times the size of the files it reads, and once that of weights it maps.
      seconds: of the processor; `patience` times that on the clock.
      functions: QuantFns that targets may name, each with its `module:function`.
      nice: by how much it lets others have the processor first.
    """

    memory: int
    seconds: int
    functions: tuple[tuple[str, str], ...] = ()
    patience: int = PATIENCE
    nice: int = 0


def start_child(folder: Path) -> Child:
    """Start a child in a folder, as `Forks.fork`."""
    return FORKS.fork(folder)


def accept(_: object) -> None:
    """Take what comes as it is."""


def never() -> bool:
    """Nobody stops the work."""
    return False


async def run_in_thread(threads: Threads, run: Callable[[Stopped], T]) -> T:
    """Run a child from a thread; whoever cancels this waits until the child is gone."""
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(threads, run, stop.is_set)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        with suppress(Cancelled, Refused, Unavailable, WorkerLost):
            await running
        raise


def run_child(
    store: Store,
    work: Mapping[str, Any],
    bounds: Bounds,
    *,
    stopped: Stopped = never,
    tell: Tell = accept,
    start: Callable[[Path], Child] = start_child,
    check: Callable[[Path], None] = accept,
    note_peak: Callable[[int], object] = accept,
) -> dict[str, Any]:
    """Have a child do a piece of work, and keep the files it made.

    Args:
      work: of `records.work`.
      stopped: asked ten times a second; true ends the child and everything it started.
      tell: given the progress the child reports.
      start: makes a child.
      check: refuses a file that was made, before it is kept.
      note_peak: given the most memory the child had, in bytes.

    Returns:
      The result of the task, and in `kept` the digest of each file it made, by argument.

    Raises:
      Cancelled: `stopped` said so.
      Refused: what the child refused, or how it ended.
      Unavailable, WorkerLost: no end of the work's own.
    """
    try:
        with naming_gone(store, work), store.draft() as folder:
            tell = _carrying(store, work, folder, tell)
            job = job_of(store, work, bounds, folder)
            stopped = stopped_beyond(job["limits"]["file"], folder / MADE, stopped)
            with ended(start(store.root)) as child:
                answer = _traced(work, lambda: _converse(child, line_of(job), bounds, stopped, tell))
            note_peak(answer.get("peak", 0))
            if "problem" in answer:
                raise Refused(**answer["problem"])
            return {**answer["result"], "kept": _keep(store, work, answer["result"], folder, check)}
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise Unavailable(f"too many files are open: {error.strerror}") from error
        if error.errno not in DISK_FULL:
            raise
        raise Refused(**as_arguments(disk_full())) from error


@contextmanager
def naming_gone(store: Store, work: Mapping[str, Any]) -> Iterator[None]:
    """Name a file of the work that was taken away while a child read it: what else failed follows from that.

    Raises:
      Refused: the file is not there, as if it had gone before.
    """
    try:
        yield
    except (Refused, OSError) as error:
        if not (isinstance(error, Refused) and error.problem.name in STANDING):
            for file in work["files"]:
                if file["how"] == "stored":
                    store.find(*file["what"])
        raise


def line_of(job: Mapping[str, Any]) -> bytes:
    """The line that tells a child its work."""
    return json.dumps(job).encode() + b"\n"


def job_of(store: Store, work: Mapping[str, Any], bounds: Bounds, folder: Path) -> dict[str, Any]:
    """Lay a work out in a draft: its arguments, in which files are paths, and limits."""
    arguments = copy.deepcopy(work["arguments"])
    reads = mapped = 0
    # Only what was laid out: an argument may be text of a client's, a path of somebody else's file say.
    places: dict[str, list[str]] = {"readable": [], "writable": []}
    (folder / MADE).mkdir(exist_ok=True)
    for k, file in enumerate(work["files"]):
        path = _lay_out(store, file, arguments, _path_of(folder, k, file))
        size = path.stat().st_size if path.exists() else 0
        if _is_made(file):
            places["writable"].append(str(path.parent))
        else:
            places["readable"].append(str(path))
        # Weights beside a model are mapped, never read whole.
        is_mapped = file["at"][0] == "external"
        reads, mapped = (reads, mapped + size) if is_mapped else (reads + size, mapped)
    limits = {
        "memory": bounds.memory + PER_BYTE * reads + mapped,
        "mapped": MAPPED + mapped,
        "seconds": bounds.seconds,
        "nice": work.get("nice", bounds.nice),
        "file": MAX_FILE + mapped,  # weights that are written apart are no more than those that were read
        "functions": bounds.functions,
        "data": str(store.home),
        "model": str(folder / MODEL),
        **places,
    }
    return {**arguments, "task": work["task"], "limits": limits}


def stopped_beyond(largest: int, folder: Path, stopped: Stopped) -> Stopped:
    """Also refuse a child whose files together are too big: a limit of the system's is about each alone.

    Args:
      largest: bytes that one file may have; a work may write a model and hold a copy of it meanwhile.
    """
    due = [0.0]

    def look() -> bool:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + TICK
            size = _made_bytes(folder)
            if size > COPIES * largest:
                most = f"{COPIES * largest >> 20} MiB or {MOST_FILES} files"
                raise Refused("out-of-memory", f"the output of this work exceeds {most}")
        return stopped()

    return look


def _made_bytes(folder: Path) -> int:
    """Bytes on the disk of a child's files; too many where there are too many files to look at."""
    size, waiting, seen = 0, [folder], 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # the child may take it away meanwhile
            for entry in entries:
                seen += 1
                if seen > MOST_FILES:
                    return sys.maxsize
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
    return size


def _path_of(folder: Path, k: int, file: Mapping[str, Any]) -> Path:
    """The path of the file of a number in a draft: a separate folder, if the child writes it."""
    return (folder / MADE if _is_made(file) else folder) / f"file{k}"


def _is_made(file: Mapping[str, Any]) -> bool:
    """Whether the child writes a file."""
    return file["how"] in ("made", "carried")


def _lay_out(store: Store, file: Mapping[str, Any], arguments: Any, path: Path) -> Path:
    """Put the path of a file where it stands in the arguments; the path."""
    if file["how"] == "stored":
        path = store.find_verified(*file["what"])
    elif file["how"] == "drafted":
        path = Path(*file["what"])
    elif file["how"] == "written":
        path.write_bytes(file["what"][0].encode())
    elif file["how"] == "carried":
        left = store.read(*file["what"])
        if left is not None:
            path.write_bytes(left)
    *parents, last = file["at"]
    holder = reduce(getitem, parents, arguments)
    holder[last] = str(path)
    return path


def _carrying(store: Store, work: Mapping[str, Any], folder: Path, tell: Tell) -> Tell:
    """Tell progress, and keep the files that the task goes on with as they are then."""
    states = [(k, file["what"]) for k, file in enumerate(work["files"]) if file["how"] == "carried"]

    def carry(progress: Mapping[str, Any]) -> None:
        for k, (kind, digest) in states:
            data = _regular(_path_of(folder, k, work["files"][k]))
            if data is not None:
                # A state that finds no room is not kept; the job goes on.
                with contextlib.suppress(Refused):
                    store.replace(kind, digest, data)
        tell(progress)

    return carry


def _regular(path: Path) -> bytes | None:
    """Bytes of a file that a child writes; None for what is no file: it may have put anything there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_STATE:
        os.close(file)
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read()


def _keep(
    store: Store,
    work: Mapping[str, Any],
    result: Mapping[str, Any],
    folder: Path,
    check: Callable[[Path], None],
) -> dict[str, str]:
    """Keep the files a task made; their digests by where they stand in the arguments."""
    kept = {}
    for k, file in enumerate(work["files"]):
        if file["how"] != "made":
            continue
        (kind, *digests), path = file["what"], _path_of(folder, k, file)
        check(path)
        digest = digests[0] if digests else result.get("key") or digest_of_file(path)
        kept[".".join(map(str, file["at"]))] = digest
        if kind == "plans" and work["origin"] is not None:
            store.keep_plan(work["link"], digest, path, work["origin"].encode())
        else:
            store.keep(kind, digest, path)
    return kept


def _traced(work: Mapping[str, Any], converse: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Talk to a child within a span of its own."""
    with span(f"child {work['task']}", work.get("asked", {})) as part:
        part.set(ending="lost")
        answer = converse()
        log_failure(answer, part.asked)
        ending = answer["problem"]["name"] if "problem" in answer else "ok"
        part.set(ending=ending, peak=answer.get("peak", 0))
        return answer


def _converse(child: Child, line: bytes, bounds: Bounds, stopped: Stopped, tell: Tell) -> dict[str, Any]:
    with suppress(BrokenPipeError):
        child.stdin.write(line)
        child.stdin.flush()
    last = b""
    for last in lines_of(child.stdout.fileno(), bounds, stopped):
        said = json.loads(last) if last.startswith(b'{"progress"') else {}
        if "progress" in said:
            tell(said["progress"])
    try:
        code = child.wait(CLOSED)
        return _answer(code, last, is_used_up=child.seconds > bounds.seconds)
    except subprocess.TimeoutExpired as error:
        if not child.runs() or _is_whole(last):
            return _answer(LOST, last)
        raise Refused(
            "worker-crashed", "the process that reads this input closed its answer and did not end"
        ) from error


def _answer(code: int, reply: bytes, *, is_used_up: bool = False) -> dict[str, Any]:
    """The last line of a child that ended: `result` or `problem`, and `peak`."""
    if (code == LOST or code < 0) and _is_whole(reply):
        code = 0  # it had said all
    if code != 0 or not reply:
        refuse_ending(code, is_used_up=is_used_up)
    answer: dict[str, Any] = json.loads(reply)
    return answer


def _is_whole(reply: bytes) -> bool:
    """Whether a line is an answer to its end."""
    try:
        return bool(json.loads(reply).keys() & {"result", "problem"})
    except ValueError:  # it ends in the middle
        return False


def lines_of(answer: int, bounds: Bounds, stopped: Stopped) -> Generator[bytes, None, None]:
    """Lines of a child's answer as they come, the last one ended by the end of the answer."""
    clock = bounds.patience * bounds.seconds
    until = time.monotonic() + clock
    waiting = b""
    with selectors.PollSelector() as selector:
        selector.register(answer, selectors.EVENT_READ)
        while True:
            if stopped():
                raise Cancelled
            if time.monotonic() > until:
                # The system ends what uses its processor time up, so this one never had it.
                raise Refused(
                    "overloaded", f"within {clock} s it did not get the {bounds.seconds} s it may use"
                )
            if not selector.select(TICK):
                continue
            part = os.read(answer, CHUNK)
            if not part:
                break
            *whole, waiting = (waiting + part).split(b"\n")
            yield from whole
            if len(waiting) > MAX_REPLY:
                raise Refused("worker-crashed", "the process that reads this input answered too much")
    if waiting:
        yield waiting


@contextmanager
def ended(child: Child) -> Iterator[Child]:
    """Give a child; whatever happens, it and all it started are gone afterwards."""
    try:
        yield child
    finally:
        if child.poll() in (None, LOST):
            child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(GONE)
        child.close()
