"""Limits between clients: requests a second, bytes of all blobs. Processes of one server count together.

Nothing here knows HTTP. Source: the token bucket of RFC 2698, with one colour.
"""

import hashlib
import math
import threading
from collections.abc import Callable
from struct import Struct
from typing import Final

from api.problems import Refused
from api.server.shared_memory import Shared

PLACES: Final = 8192
LOOKS: Final = 8
"""Places a key may have; where all are taken, the longest unused one goes."""
_BUCKET: Final = Struct("=Qdd")
_BYTES: Final = Struct("=q")


class Buckets:
    """A bucket for each key: `burst` requests at once, then `rate` a second.

    Each is a mark of its key, a level, and when it was that; the time is the machine's, of all processes.
    """

    def __init__(self, name: str, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self.shared = Shared(name, PLACES * _BUCKET.size)

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
        with self.shared.alone() as view:
            found = [(*_BUCKET.unpack_from(view, place), place) for place in _places(mark)]
            known = [entry for entry in found if entry[0] == mark]
            _, level, at, place = (
                known[0] if known else (mark, self.burst, now, min(found, key=lambda entry: entry[2])[3])
            )
            level = min(self.burst, level + max(now - at, 0.0) * self.rate)
            left = level - 1 if level >= 1 else level
            _BUCKET.pack_into(view, place, mark, left, now)
        return 0.0 if level >= 1 else (1 - level) / self.rate


def _places(mark: int) -> list[int]:
    first = mark % (PLACES - LOOKS + 1)
    return [place * _BUCKET.size for place in range(first, first + LOOKS)]


def retry_after(wait: float) -> str:
    """Seconds of a Retry-After header."""
    return str(max(1, math.ceil(wait)))


class Quota:
    """Bytes of all blobs: measured now and then, counted as they come; a quota of 0 allows any number.

    Args:
      measure: how many bytes there are.
    """

    def __init__(self, most: int, measure: Callable[[], int]) -> None:
        self.most = most
        self.measure = measure
        self.shared = Shared("quota", _BYTES.size)
        self.threads = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes of all blobs; without a quota, of those that came since the server started."""
        (found,) = _BYTES.unpack_from(self.shared.view)
        return int(found)

    def count(self) -> None:
        """Measure what is there, which a sweep or another server changed."""
        if self.most:
            found = self.measure()
            with self.threads, self.shared.alone() as view:
                _BYTES.pack_into(view, 0, found)

    def check(self, size: int) -> None:
        """Refuse a blob that does not fit.

        Raises:
          Refused: `quota`.
        """
        if self.most and self.used + size > self.most:
            raise Refused("quota", f"all blobs together may have {self.most} bytes; {self.used} are taken")

    def add(self, size: int) -> None:
        """Count a blob that was kept."""
        with self.threads, self.shared.alone() as view:
            _BYTES.pack_into(view, 0, _BYTES.unpack_from(view)[0] + size)
