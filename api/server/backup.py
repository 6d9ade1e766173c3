"""Backup: a whole copy of everything kept, taken while servers run; coming back is moving it in place.

First the rows of SQLite, then the files they may name: files are only ever added. A file that the copy has
already is left as it is, so the second backup is short; a damaged one is not copied. PostgreSQL and object
stores have tools of their own.
The database is read by SQLite alone (`api.storage.sqlite_files`), wherever it lies.
Source: SQLite, "Online Backup API", "How To Corrupt An SQLite Database File", 1.4; docs/service.md.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import InputError, quantity

from ..storage.database import DATABASE
from ..storage.sqlite_files import ENDS
from ..storage.store import TENANTS

PART: Final = ".part"
CHANGING: Final = frozenset({"keys", "models", "qualities", "states", "targets"})
NAMED_BY_CONTENT: Final = ("blobs", "descriptions", "stats")
_NOT_KEPT: Final = frozenset({"drafts"})


@dataclass(frozen=True, slots=True)
class BackupResult:
    """Counts of the files that a backup copied, of those it had, and of bytes copied."""

    copied: int
    there: int
    bytes: int


def back_up(data: Path, goal: Path, database: Path | None = None) -> BackupResult:
    """Copy a data folder into a folder, which is made.

    Args:
      database: SQLite's file; that in the data folder by default. The copy has it as `qplan.sqlite`.

    Raises:
      InputError: no data folder, or a goal inside of it or in use; a copy that cannot be written, rows that
        cannot be read; damaged files, once all others are copied.
    """
    if not data.is_dir():
        raise InputError(f"there is no data folder {str(data)!r}", hint="give --data or QPLAN_DATA")
    if goal.resolve().is_relative_to(data.resolve()):
        raise InputError(f"{str(goal)!r} lies inside the data folder")
    rows = database or data / DATABASE
    if database is not None and not database.exists():
        raise InputError(f"there is no database {str(database)!r}", hint="see QPLAN_DATABASE_URL")
    try:
        goal.mkdir(parents=True, exist_ok=True)
        if rows.exists():
            _copy_rows(rows, goal / DATABASE)
        return _copy_files(data, goal, rows)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise InputError(f"cannot copy to {str(goal)!r}: {error.strerror}{where}") from error


def _copy_files(data: Path, goal: Path, rows: Path) -> BackupResult:
    live = {Path(f"{rows.resolve()}{end}") for end in (*ENDS, "-journal")}
    copied = there = size = 0
    broken = []
    for name in _names(data):
        if (data / name).resolve() in live:
            continue
        if (goal / name).exists() and _own(name).parts[0] not in CHANGING:
            there += 1
            continue
        try:
            found = _copy(data / name, goal / name, by_content=_own(name).parts[0] in NAMED_BY_CONTENT)
        except FileNotFoundError:  # swept away meanwhile
            continue
        if found is None:
            broken.append(f"{name.parent.parent}/{name.name}")
            continue
        copied, size = copied + 1, size + found
    if broken:
        raise InputError(
            f"{quantity(len(broken), 'file')} damaged and not copied: {', '.join(broken[:10])}",
            hint="everything else is; send them again, and back up again",
        )
    return BackupResult(copied, there, size)


def damaged(data: Path) -> list[str]:
    """Files whose bytes are not what their name says, as `kind/sha256`."""
    found = []
    for kind in NAMED_BY_CONTENT:
        for path in (*data.glob(f"{kind}/*/*"), *data.glob(f"{TENANTS}/*/{kind}/*/*")):
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != path.name:
                    found.append(f"{path.parents[1].relative_to(data)}/{path.name}")
    return sorted(found)


def _copy_rows(source: Path, goal: Path) -> None:
    part = goal.with_name(goal.name + PART)
    part.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(part)) as copy:
            origin.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            found = [" ".join(text.split()) for (text,) in copy.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        raise InputError(f"cannot copy the rows of {str(source)!r}: {error}") from error
    if found != ["ok"]:
        raise InputError(
            f"the database {str(source)!r} is damaged: {'; '.join(found)}",
            hint=f"the earlier copy stays; {str(part)!r} has the readable part",
        )
    _clear(goal)
    part.replace(goal)


def _clear(goal: Path) -> None:
    """Make room for new rows: a log that a server of this copy left would be put into them.

    Raises:
      InputError: a server runs on the copy.
    """
    if goal.exists():
        try:
            with closing(sqlite3.connect(goal, timeout=0)) as before:
                before.execute("PRAGMA journal_mode=DELETE").fetchall()  # waits for nobody to have it open
        except sqlite3.OperationalError as error:
            raise InputError(
                f"{str(goal)!r} is in use: {error}", hint="end the server of this copy, or copy elsewhere"
            ) from error
        except sqlite3.DatabaseError:  # it is none, so nobody uses it
            pass
    for end in (*ENDS, "-journal"):
        if end:
            goal.with_name(goal.name + end).unlink(missing_ok=True)


def _names(data: Path) -> Iterator[Path]:
    for folder in sorted(data.iterdir()):
        if folder.is_dir() and folder.name not in _NOT_KEPT:
            names = (path.relative_to(data) for path in sorted(folder.rglob("*")) if path.is_file())
            yield from (name for name in names if _own(name).parts[0] not in _NOT_KEPT)


def _own(name: Path) -> Path:
    """The name of a file in the store of its tenant."""
    return Path(*name.parts[2:]) if name.parts[0] == TENANTS else name


def _copy(source: Path, goal: Path, *, by_content: bool) -> int | None:
    """Copy a file; its bytes, or None where these are not what its name says."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = goal.with_name(goal.name + PART)
    shutil.copyfile(source, part)
    with part.open("rb+") as file:
        if by_content and hashlib.file_digest(file, "sha256").hexdigest() != goal.name:
            part.unlink()
            return None
        os.fsync(file.fileno())
    part.replace(goal)
    return goal.stat().st_size
