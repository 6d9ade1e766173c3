"""Mapped arrays: weights that lie in a file and are read where they are used.

The system counts what was read of a mapping as memory of the process, until it needs room. Who is done with a
big array lets it go, so that what is held stays about one tensor, however big the model is.
"""

import mmap
from typing import Any, Final

import numpy as np

LEAST: Final = 1 << 20
"""Bytes from which on it is worth a call."""
_DROP: Final = getattr(mmap, "MADV_DONTNEED", None)


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
