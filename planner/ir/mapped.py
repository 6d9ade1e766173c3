"""Mapped arrays: weights that lie in a file and are read where they are used.

The system counts what was read of a mapping as memory of the process, until it needs room. Who is done with a
big array lets it go, so that what is held stays about one tensor, however big the model is.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

LEAST: Final = 1 << 20
"""Bytes from which on it is worth a call."""
_DROP: Final = getattr(mmap, "MADV_DONTNEED", None)


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of a file that an array shows."""

    path: Path
    offset: int


def mapped_file(array: np.ndarray) -> Place | None:
    """The place of an array that shows a mapped file's bytes as they are; None for any other array."""
    found: Any = array
    while isinstance(found, np.ndarray) and not isinstance(found, np.memmap):
        found = found.base
    while isinstance(found, np.memmap) and isinstance(found.base, np.memmap):
        found = found.base
    if not isinstance(found, np.memmap) or found.filename is None or not array.flags.c_contiguous:
        return None
    is_whole = found.nbytes == array.nbytes and array.flags.writeable is False
    return Place(Path(found.filename), found.offset) if is_whole else None


def let_go(array: np.ndarray | None) -> None:
    """Drop what was read of an array that lies in a mapped file; it is read again where it is used again.

    Nothing happens to an array in memory, one that can be written, and where the system has no such call.
    """
    if array is None or array.nbytes < LEAST or _DROP is None:
        return
    found: Any = array
    while isinstance(found, np.ndarray):
        found = found.base
    if isinstance(found, mmap.mmap) and not array.flags.writeable:
        found.madvise(_DROP)
