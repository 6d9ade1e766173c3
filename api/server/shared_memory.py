"""Shared memory: a few bytes that all processes of one server see, each change of them alone.

`workers` gives its processes a folder (as for metrics), and a file there is mapped; without one, a server is
one process, and the bytes are its own. What a killed process held is free again: the system's locks end with
it. Nothing here knows what the bytes mean.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.server.metrics import SHARED


class Shared:
    """Bytes by a name, zero at first; `view` is read and written inside `alone`."""

    def __init__(self, name: str, size: int) -> None:
        folder = os.environ.get(SHARED)
        self.file: int | None = None
        if folder:
            self.file = os.open(Path(folder) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self.file, size)
        self.view = mmap.mmap(-1 if self.file is None else self.file, size)

    @contextmanager
    def alone(self) -> Iterator[mmap.mmap]:
        """Give the bytes while no other process has them; within a process, one thread at a time asks."""
        if self.file is not None:
            fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            yield self.view
        finally:
            if self.file is not None:
                fcntl.lockf(self.file, fcntl.LOCK_UN)
