"""Output: tables for people, one JSON document for programs, progress for terminals, errors on stderr.

Names from models are printed as they are, less control characters; nothing in them is markup.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

WIDE: Final = 200
"""Columns of a table that goes into a file or a pipe."""


def complain(message: str) -> None:
    """Print an error, one line for each line of the message, on standard error."""
    for line in message.splitlines() or [""]:
        sys.stderr.write(f"qplan: error: {clean(line)}\n")


def warn(message: str) -> None:
    """Print a warning on standard error."""
    sys.stderr.write(f"qplan: warning: {clean(message)}\n")


def say(text: str) -> None:
    """Print lines on standard output."""
    for line in text.splitlines():
        sys.stdout.write(clean(line) + "\n")


def say_missed(text: str) -> None:
    """Print a line on what was not reached: red on a terminal, unless `NO_COLOR` is set."""
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
    """Print a table; nothing at all where there are no rows."""
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
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on a terminal, nothing elsewhere; call its result with (done, in all)."""
    with progress_of_phases(what) as (tell,):
        yield tell


@contextmanager
def progress_of_phases(*phases: str) -> Iterator[tuple[Callable[[int, int | None], None], ...]]:
    """The same of work with phases one after the other, on one bar: a function for each."""
    if not sys.stderr.isatty():
        yield tuple(lambda _done, _total: None for _ in phases)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(phases[0], total=None)

        def tell(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield tuple(partial(tell, what) for what in phases)


def _plain(item: Any) -> Any:
    if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return None
    if isinstance(item, dict):
        return {key: _plain(value) for key, value in item.items()}
    return [_plain(value) for value in item] if isinstance(item, (list, tuple)) else item
