"""Output: tables for people, one JSON document for programs, progress and errors on standard error.

Names from models are printed as they are, less control characters; nothing in them is markup.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias

Bar: TypeAlias = Callable[[int, int | None], None]
"""Called with (steps done, steps in all or None)."""

WIDE: Final = 200
"""Columns of a table that goes into a file or a pipe."""
ALIKE: Final = 2
"""Warnings of one kind that are shown."""
_VARYING: Final = re.compile(r"'[^']*'|[\w./:@]*\.(?:in|out)\[\d+\]|[-+]?\d[\w.+,%-]*")
"""Names and numbers in a warning."""
PAUSE: Final = 2.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command line wants to be answered.

    Attributes:
      quiet: errors and documents alone.
      progress: whether it shows; None: on a terminal, as a bar. True elsewhere: as lines.
    """

    quiet: bool = False
    progress: bool | None = None


_MANNER: Final[ContextVar[Manner]] = ContextVar("manner", default=Manner())  # noqa: B039 - it is frozen

_HELD: Final[ContextVar[list[str] | None]] = ContextVar("held", default=None)


@contextmanager
def spoken(manner: Manner) -> Iterator[None]:
    """Answer in a manner until the end of the block."""
    token = _MANNER.set(manner)
    try:
        yield
    finally:
        _MANNER.reset(token)


@contextmanager
def held_warnings(is_on: bool) -> Iterator[list[str]]:  # noqa: FBT001 - the one thing to say
    """Keep warnings, if it is on, until it is known what they are of; the caller says those that hold."""
    held: list[str] = []
    token = _HELD.set(held if is_on else None)
    try:
        yield held
    finally:
        _HELD.reset(token)


def complain(message: str) -> None:
    """Print an error, one line for each line of the message, on standard error."""
    for line in message.splitlines() or [""]:
        sys.stderr.write(f"qplan: error: {clean(line)}\n")


def warn(message: str) -> None:
    """Print a warning on standard error, unless the command is quiet; inside `held_warnings` keep it."""
    held = _HELD.get()
    if held is not None:
        held.append(message)
        return
    if _MANNER.get().quiet:
        return
    sys.stderr.write(f"qplan: warning: {clean(message)}\n")


def warn_all(messages: Iterable[str]) -> None:
    """Print warnings; of those that differ in names and numbers alone the first few, and how many more.

    Plans and reports have all of them.
    """
    alike: dict[str, list[str]] = {}
    for message in messages:
        alike.setdefault(_VARYING.sub("", message), []).append(message)
    for some in alike.values():
        shown = some if len(some) <= ALIKE + 1 else some[:ALIKE]
        for message in shown:
            warn(message)
        if len(shown) < len(some):
            warn(f"{len(some) - len(shown)} more like the last one: plan.json and the report have them")


def say(text: str) -> None:
    """Print lines on standard output, unless the command is quiet."""
    if _MANNER.get().quiet:
        return
    for line in text.splitlines():
        sys.stdout.write(clean(line) + "\n")


def say_missed(text: str) -> None:
    """Print a line on a missed bound: red on a terminal, unless `NO_COLOR` is set."""
    is_plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    line = clean(text)
    sys.stdout.write(f"{line}\n" if is_plain else f"\x1b[31m{line}\x1b[0m\n")


def write_text(text: str) -> None:
    """Write a whole document to standard output, byte for byte."""
    sys.stdout.write(text)


def say_json(document: Any) -> None:
    """Print one JSON document; numbers JSON has no word for (infinity, NaN) become null."""
    sys.stdout.write(json.dumps(_plain(document), indent=1, ensure_ascii=False) + "\n")


def say_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, unless the command is quiet; nothing at all where there are no rows."""
    if _MANNER.get().quiet:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for heading in head:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*("\n".join(map(clean, str(cell).split("\n"))) for cell in row))
    if table.row_count:
        width = None if sys.stdout.isatty() else WIDE
        Console(markup=False, emoji=False, highlight=False, width=width).print(table)


def clean(text: str) -> str:
    """Escape control characters, which a name could use to write elsewhere on the screen."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@contextmanager
def progress(what: str) -> Iterator[Bar]:
    """Show how far it is and how long it will take; call its result with (done, in all).

    A bar on a terminal, nothing elsewhere or if quiet; lines elsewhere with `--progress`.
    """
    with progress_of_phases(what) as (tell,):
        yield tell


@contextmanager
def progress_of_phases(*phases: str) -> Iterator[tuple[Bar, ...]]:
    """The same of work with phases one after the other, on one bar: a function for each."""
    manner, is_terminal = _MANNER.get(), sys.stderr.isatty()
    if manner.quiet or manner.progress is False or not (is_terminal or manner.progress):
        yield tuple(lambda _done, _total: None for _ in phases)
    elif not is_terminal:
        yield (_lines(phases[0]), *map(_lines_once_begun, phases[1:]))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(phases[0], total=None)

            def tell(what: str, done: int, total: int | None) -> None:
                bar.update(task, description=what, completed=done, total=total)

            yield tuple(partial(tell, what) for what in phases)


def _lines_once_begun(what: str) -> Bar:
    """The lines of a later phase, which begins with its first step."""
    begun: list[Bar] = []

    def tell(done: int, total: int | None) -> None:
        if not begun:
            begun.append(_lines(what))
        begun[0](done, total)

    return tell


def _lines(what: str) -> Bar:
    """Lines of progress on standard error: the first step, one every `PAUSE` seconds, the last."""
    began = monotonic()
    sys.stderr.write(f"qplan: {what}\n")
    told = [began]

    def tell(done: int, total: int | None) -> None:
        now = monotonic()
        if done == total:
            sys.stderr.write(f"qplan: {what}: {done} of {total}, {now - began:.1f} s\n")
        elif now - told[0] >= PAUSE:
            told[0] = now
            rest = f", about {(now - began) / done * (total - done):.0f} s left" if total and done else ""
            sys.stderr.write(f"qplan: {what}: {done}{f' of {total}' if total else ''}{rest}\n")

    return tell


def _plain(item: Any) -> Any:
    if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return None
    if isinstance(item, dict):
        return {key: _plain(value) for key, value in item.items()}
    return [_plain(value) for value in item] if isinstance(item, (list, tuple)) else item
