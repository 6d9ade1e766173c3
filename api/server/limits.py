"""Limits between clients: requests a second, bytes of what is kept. Processes of one server count together.

`workers` gives its processes a folder (as for metrics), and a file there is mapped; a server of one process
counts in memory of its own. Locks of a killed process are free again: the system's locks end with it. Nothing
here knows HTTP. Source: the token bucket of RFC 2698, with one colour.
"""

import fcntl
import hashlib
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from ..problems import Refused
from .metrics import SHARED

SLOTS: Final = 8192
PROBES: Final = 8
"""Slots a key may have; where all are taken, the longest unused one goes."""
_BUCKET: Final = Struct("=Qdd")
_BYTES: Final = Struct("=q")


class SharedBytes:
    """Bytes by a name, zero at first; `view` is read and written inside `locked`."""

    def __init__(self, name: str, size: int) -> None:
        folder = os.environ.get(SHARED)
        self.file: int | None = None
        if folder:
            self.file = os.open(Path(folder) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self.file, size)
        self.view = mmap.mmap(-1 if self.file is None else self.file, size)

    @contextmanager
    def locked(self) -> Iterator[mmap.mmap]:
        """Give the bytes while no other process has them; within a process, one thread at a time asks."""
        if self.file is not None:
            # A lock of the open file: record locks are a process's, and of threads that wait for two files
            # the kernel sees a deadlock where there is none (EDEADLK).
            fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            yield self.view
        finally:
            if self.file is not None:
                fcntl.flock(self.file, fcntl.LOCK_UN)


class RateLimiter:
    """A bucket for each key: `burst` requests at once, then `rate` a second.

    Each is a mark of its key, a level, and when it was that; the time is the machine's, of all processes.
    """

    def __init__(self, name: str, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self.shared = SharedBytes(name, SLOTS * _BUCKET.size)

    def take(self, key: str, now: float) -> float:
        """Take one request out of a bucket.

        Args:
          now: seconds of any clock that does not go back.

        Returns:
          0 when there was one, else seconds until there will be.
        """
        if self.rate <= 0:
            return 0.0
        mark = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) | 1
        with self.shared.locked() as view:
            found = [(*_BUCKET.unpack_from(view, slot), slot) for slot in _slots(mark)]
            known = [entry for entry in found if entry[0] == mark]
            _, level, at, slot = (
                known[0] if known else (mark, self.burst, now, min(found, key=lambda entry: entry[2])[3])
            )
            level = min(self.burst, level + max(now - at, 0.0) * self.rate)
            left = level - 1 if level >= 1 else level
            _BUCKET.pack_into(view, slot, mark, left, now)
        return 0.0 if level >= 1 else (1 - level) / self.rate


def _slots(mark: int) -> list[int]:
    first = mark % (SLOTS - PROBES + 1)
    return [slot * _BUCKET.size for slot in range(first, first + PROBES)]


def retry_after(wait: float) -> str:
    """Seconds of a Retry-After header."""
    return str(max(1, math.ceil(wait)))


class Quota:
    """Bytes of everything kept: measured now and then, counted as it comes; a quota of 0 allows any number.

    Args:
      measure: counts the bytes there are.
      whole: a quota that what is kept counts for, too.
      name: whose it is; none: of the whole server, whose numbers no refusal tells.
    """

    def __init__(
        self, most: int, measure: Callable[[], int], whole: "Quota | None" = None, name: str = ""
    ) -> None:
        self.most = most
        self.measure = measure
        self.whole = whole
        self.name = name
        self.shared = SharedBytes(f"quota.{name}" if name else "quota", _BYTES.size)
        self.threads = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes of everything kept; without a quota, of what came since the server started."""
        (found,) = _BYTES.unpack_from(self.shared.view)
        return int(found)

    def count(self) -> None:
        """Measure the kept bytes, which a sweep or another server changed."""
        if self.most:
            found = self.measure()
            with self.threads, self.shared.locked() as view:
                _BYTES.pack_into(view, 0, found)

    def check(self, size: int) -> None:
        """Refuse what does not fit.

        Raises:
          Refused: `quota`.
        """
        if self.whole is not None:
            self.whole.check(size)
        self._require(self.used, size)

    def take(self, size: int) -> None:
        """Count bytes that are about to be kept, if they fit.

        Raises:
          Refused: `quota`.
        """
        if self.whole is not None:
            self.whole.take(size)
        try:
            with self.threads, self.shared.locked() as view:
                (used,) = _BYTES.unpack_from(view)
                self._require(used, size)
                _BYTES.pack_into(view, 0, used + size)
        except Refused:
            if self.whole is not None:
                self.whole.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Count bytes no more that went, or were not kept after all."""
        if self.whole is not None:
            self.whole.give_back(size)
        with self.threads, self.shared.locked() as view:
            (used,) = _BYTES.unpack_from(view)
            _BYTES.pack_into(view, 0, max(used - size, 0))

    def _require(self, used: int, size: int) -> None:
        if not self.most or not size or used + size <= self.most:
            return
        if not self.name:  # how much others have is nobody's business
            raise Refused("quota", "the server is full: all that is kept is as big as it may be")
        most = f"all that is kept of {self.name} may have {self.most} bytes"
        raise Refused("quota", f"{most}; {used} are taken")


class Quotas:
    """The quotas of one server: of everything that is kept, and of what is kept for each tenant.

    Args:
      most, each: bytes of all tenants together, and of each; 0 allows any number.
      measure: counts the bytes there are of a tenant.
      tenants: names those that something was kept of.
    """

    def __init__(
        self, most: int, each: int, measure: Callable[[str], int], tenants: Callable[[], Iterable[str]]
    ) -> None:
        self.each = each
        self.measure = measure
        self.whole = Quota(most, lambda: sum(map(measure, tenants())))
        self.own: dict[str, Quota] = {}

    def of(self, tenant: str) -> Quota:
        """The quota of a tenant; what it counts counts for the whole, too."""
        found = self.own.get(tenant)
        if found is None:
            found = Quota(self.each, lambda: self.measure(tenant), self.whole, tenant)
            found.count()
            self.own[tenant] = found
        return found

    def count(self) -> None:
        """Measure anew what is there."""
        for quota in (self.whole, *self.own.values()):
            quota.count()
