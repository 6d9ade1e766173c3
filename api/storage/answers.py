"""Answers: a cache of answers to repeated questions; no more than that.

An answer that the quota has no room for is given all the same, from a file without a name that goes when it
is closed. Source: docs/service.md.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ..problems import Refused
from .store import Store

_OPEN: Final = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class Answer:
    """The file of an answer, and its tag; one that is not kept is there until `held` is closed."""

    path: Path
    tag: str
    held: BinaryIO | None = None

    def close(self) -> None:
        """Close the file of an answer that is not kept."""
        if self.held is not None:
            self.held.close()


def passing(tag: str, held: BinaryIO) -> Answer:
    """An answer that is not kept, by its open file."""
    return Answer(Path(f"{_OPEN}/{held.fileno()}"), tag, held)


def keep_answer(store: Store, tag: str, data: bytes) -> Answer:
    """Keep an answer where the quota has room for it."""
    try:
        store.put("answers", tag, data)
    except Refused as error:
        if not lacks_room(error):
            raise
        held = tempfile.TemporaryFile(dir=store.drafts)  # noqa: SIM115 - whoever sends it closes it
        held.write(data)
        held.flush()
        return passing(tag, held)
    return Answer(store.path("answers", tag), tag)


def lacks_room(error: Refused) -> bool:
    """Whether a refusal is that of a quota."""
    return error.problem.name == "quota"


def open_made(path: Path) -> BinaryIO:
    """Open what a child wrote; never what a link of its making leads to."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
