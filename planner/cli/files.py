"""Files of the command: `-` is standard input, and an output is whole or not there.

Outputs are written beside their place and renamed once everything succeeded.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planner.cli.console import say, warn, write_text
from planner.errors import InputError
from planner.formats.litert.identifier import is_litert

if TYPE_CHECKING:
    from planner.ir.graph import Graph

STDIN: Final = "-"
_MLIR_WORDS: Final = (b"func.func", b"builtin.module", b"module {", b"module @")


def read_bytes(name: str, what: str) -> bytes:
    """Read a file or standard input.

    Raises:
      InputError: a file that cannot be read.
    """
    if name == STDIN:
        return _stdin(what)
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {what} {name!r}: {error.strerror}") from error


def only_one_stdin(*names: str | None) -> None:
    """Refuse a command line with more than one `-`.

    Raises:
      InputError: standard input cannot be read twice.
    """
    if names.count(STDIN) > 1:
        raise InputError("more than one file is -", hint="standard input is one file")


def _stdin(what: str) -> bytes:
    data: bytes = sys.stdin.buffer.read()
    if not data:
        raise InputError(f"standard input, the {what} here, is empty")
    return data


def read_text(name: str, what: str) -> str:
    """Read a text file or standard input.

    Raises:
      InputError: a file that cannot be read, or is no UTF-8.
    """
    return as_text(name, what, read_bytes(name, what))


def as_text(name: str, what: str, data: bytes) -> str:
    """Decode the bytes of a text file.

    Raises:
      InputError: bytes that are no UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if name.endswith((".onnx", ".tflite")):
            raise InputError(
                f"the {what} {name!r} is a model",
                hint=f"give a {what}; `qplan plan MODEL --target T` writes plan.json",
            ) from error
        raise InputError(f"the {what} {name!r} is no text: byte {error.start} is no UTF-8") from error


def model_format(data: bytes) -> str:
    """Tell what kind of model came in on standard input: `json`, `litert`, `mlir` or `onnx`."""
    if is_litert(data):
        return "litert"
    head = data[:4096].lstrip()
    if head[:1] == b"{":
        return "json"
    return "mlir" if any(word in head for word in _MLIR_WORDS) else "onnx"


@contextmanager
def as_path(name: str, suffix: str) -> Iterator[str]:
    """Give a path to read: the name itself, or a temporary copy of standard input."""
    if name != STDIN:
        yield name
        return
    with tempfile.TemporaryDirectory(prefix="qplan-") as folder:
        path = Path(folder) / f"stdin{suffix}"
        path.write_bytes(_stdin("samples"))
        yield str(path)


@contextmanager
def as_samples(name: str, graph: "Graph") -> Iterator[str]:
    """Give the path of a model's samples, as `as_path`, with a warning of arrays that are left out."""
    from planner.calibration.samples import extra_names

    with as_path(name, ".npz") as path:
        extra = extra_names(path, graph)
        if extra:
            names = ", ".join(map(repr, extra))
            warn(f"left out of the samples, as the model has no such input: {names}")
        yield path


def readable(name: str, what: str) -> Path:
    """The path of a file that can be read.

    Raises:
      InputError: a file that cannot be read.
    """
    try:
        with Path(name).open("rb"):
            return Path(name)
    except OSError as error:
        raise InputError(f"cannot read the {what} {name!r}: {error.strerror}") from error


@contextmanager
def staging(folder: str) -> Iterator[Path]:
    """A hidden folder beside one, for large files that are moved into it at the end; gone afterwards.

    Raises:
      InputError: a place that cannot be written.
    """
    goal = Path(folder)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{goal.name or 'out'}-", dir=goal.parent))
    except OSError as error:
        raise InputError(f"cannot write to {folder!r}: {error.strerror}") from error
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def size_of(data: bytes | Path) -> int:
    """Bytes of a file to be written."""
    return len(data) if isinstance(data, bytes) else data.stat().st_size


def write_folder(folder: str, files: Mapping[str, bytes | Path]) -> tuple[str, ...]:
    """Write files into a folder, which is made; either all of them or none.

    Args:
      files: their contents, or the place of one written before (`staging`), which is moved.

    Returns:
      The paths written, in order.

    Raises:
      InputError: a place that cannot be written.
    """
    goal = Path(folder)
    for part in (goal, *goal.parents):
        if part.exists() and not part.is_dir():
            raise InputError(f"cannot write to {folder!r}: {str(part)!r} is a file, not a folder")
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{goal.name or 'out'}-", dir=goal.parent))
        try:
            for name, data in files.items():
                if isinstance(data, bytes):
                    (draft / name).write_bytes(data)
            goal.mkdir(exist_ok=True)
            for name, data in files.items():
                (draft / name if isinstance(data, bytes) else data).replace(goal / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder!r}: {error.strerror}") from error
    return tuple(str(goal / name) for name in files)


def keep_inputs(folder: str, files: Iterable[str], inputs: Iterable[str | None]) -> None:
    """Refuse to write over an input.

    Raises:
      InputError: a file that is an input of the same command.
    """
    goals = [goal for goal in (Path(folder) / name for name in files) if goal.is_file()]
    for source in inputs:
        if source is not None and Path(source).is_file():
            for goal in goals:
                if goal.samefile(source):
                    raise InputError(
                        f"{str(goal)!r} would be written over the input", hint="give another --out"
                    )


def keep_from(out: str | None, *inputs: str | None) -> None:
    """Refuse an output file that is an input of the same command; see `keep_inputs`."""
    if out is not None:
        keep_inputs(str(Path(out).parent), [Path(out).name], inputs)


def write_file(path: str, data: bytes) -> None:
    """Write one file, whole or not at all.

    Raises:
      InputError: a place that cannot be written.
    """
    goal = Path(path)
    if goal.is_dir():
        raise InputError(f"cannot write to {path!r}: it is a folder")
    write_folder(str(goal.parent), {goal.name: data})


def put_text(text: str, out: str | None, source: str | None) -> None:
    """Write a document to a file, or to standard output where none is named; `source` is the input."""
    if out is None:
        write_text(text)
        return
    keep_from(out, source)
    write_file(out, text.encode())
    say(f"wrote {out}")
