"""SQLite's files: are they still those that a connection opened? They are looked at (stat), never opened.

Only SQLite may open the database, its `-wal` and its `-shm`: POSIX locks belong to a process, and closing
any descriptor of a file drops all locks that the process has on it. The next process that closes the database
then takes itself for the last one and deletes the log that this one writes to.
Source: SQLite, "How To Corrupt An SQLite Database File", 2.2 and 4; "Write-Ahead Logging".
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_FILES: Final = {"": "file", "-wal": "write-ahead log", "-shm": "index of its write-ahead log"}
"""The suffix of each file's name, and its purpose."""
ENDS: Final = tuple(_FILES)

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The files of one connection, in its engine.

    Attributes:
      identities: of each file that was there, by the end of its name.
      largest: the most bytes that each database had; of all connections of the engine together.
    """

    database: str
    identities: Mapping[str, Identity]
    largest: dict[Identity, int]


def opened_files(database: str, largest: dict[Identity, int]) -> OpenedFiles:
    """Note the files of a connection, once it has read: they cannot change while it is open."""
    identities = {}
    for end in _FILES:
        try:
            found = os.stat(_name(database, end))  # noqa: PTH116 - a name that is not a path of ours
        except FileNotFoundError:
            continue  # a file system without shared memory has no log
        identities[end] = (found.st_dev, found.st_ino)
        if not end:
            largest[identities[end]] = max(found.st_size, largest.get(identities[end], 0))
    return OpenedFiles(database, identities, largest)


def missing_files(files: OpenedFiles, pages: Callable[[], int]) -> str:
    """Why rows that are written to these files would be lost; "" where they would not.

    Args:
      pages: gives the bytes of all pages that SQLite knows of, 0 where it sees that some lack; asked where
        the database became smaller, since VACUUM does that too.
    """
    for end, identity in files.identities.items():
        before = files.largest.get(identity, 0)  # looked up first: other threads note what grew meanwhile
        try:
            found = os.stat(_name(files.database, end))  # noqa: PTH116
        except OSError as error:
            return f"the database's {_FILES[end]} is gone: {error.strerror}"
        if (found.st_dev, found.st_ino) != identity:
            return f"the database's {_FILES[end]} is another one than was opened"
        if found.st_size < before and not 0 < pages() <= found.st_size:
            return f"the database's file has {found.st_size} bytes of {before}"
        if not end:
            files.largest[identity] = found.st_size
    return ""


def _name(database: str, end: str) -> str:
    """The path of a file; SQLite follows links before it names the others."""
    return os.path.realpath(database) + end if end else database
