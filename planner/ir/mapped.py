"""Mapped arrays: weights that lie in a file and are read where they are used.

The system counts pages read from a mapping as memory of the process, until it needs room. Code that is done
with a big array releases it, so that about one tensor is held, however big the model is.
"""

import mmap
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

LEAST: Final = 1 << 20
"""Bytes from which on it is worth a call."""
_DROP: Final = getattr(mmap, "MADV_DONTNEED", None)
_MAPS: Final[MutableMapping[tuple[Any, ...], mmap.mmap]] = WeakValueDictionary()
"""Files that arrays show, as they were when they were opened."""


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of a file that an array shows."""

    path: Path
    offset: int


def map_bytes(path: Path, offset: int, size: int) -> npt.NDArray[np.uint8]:
    """Bytes of a file, read where they are used; read-only.

    All arrays of a file share one mapping: each holds a file descriptor and models
    have thousands of tensors.
    """
    now = path.stat()
    key = (path, now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    whole = _MAPS.get(key)
    if whole is None:
        with path.open("rb") as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _MAPS[key] = whole
    # As numpy.memmap makes itself of a mapping of its own.
    found: Any = np.ndarray.__new__(np.memmap, (size,), np.uint8, buffer=whole, offset=offset)
    vars(found).update(_mmap=whole, offset=offset, mode="r", filename=path)
    return cast("npt.NDArray[np.uint8]", found)


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
        first = np.frombuffer(found, np.uint8, 1).ctypes.data
        low, high = (end - first for end in np.lib.array_utils.byte_bounds(array))
        start = low // mmap.PAGESIZE * mmap.PAGESIZE
        found.madvise(_DROP, start, high - start)
