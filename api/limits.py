"""Limits between clients: requests a second, and bytes of all blobs. Each server process counts for itself.

Nothing here knows HTTP. Source: the token bucket of RFC 2698, with one colour.
"""

import math
import os
from collections import OrderedDict
from pathlib import Path
from typing import Final

from api.problems import Refused

MOST_KEYS: Final = 10_000


class Buckets:
    """A bucket for each key: `burst` requests at once, then `rate` a second; the longest unused key goes."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self.known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Take one request out of a bucket.

        Args:
          now: seconds of any clock that does not go back.

        Returns:
          0 when there was one, else seconds until there will be.
        """
        if self.rate <= 0:
            return 0.0
        level, at = self.known.pop(key, (self.burst, now))
        level = min(self.burst, level + (now - at) * self.rate)
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self.known[key] = (level - 1 if level >= 1 else level, now)
        if len(self.known) > MOST_KEYS:
            self.known.popitem(last=False)
        return wait


def retry_after(wait: float) -> str:
    """Seconds of a Retry-After header."""
    return str(max(1, math.ceil(wait)))


class Quota:
    """Bytes of all blobs in a folder, counted when it is opened and as they come; 0 allows any number."""

    def __init__(self, most: int, folder: Path) -> None:
        self.most = most
        self.folder = folder
        self.used = 0

    def count(self) -> None:
        """Count what is there, which a sweep or another process changed."""
        if self.most:
            self.used = _bytes_below(self.folder)

    def check(self, size: int) -> None:
        """Refuse a blob that does not fit.

        Raises:
          Refused: `quota`.
        """
        if self.most and self.used + size > self.most:
            raise Refused("quota", f"all blobs together may have {self.most} bytes; {self.used} are taken")

    def add(self, size: int) -> None:
        """Count a blob that was kept."""
        self.used += size


def _bytes_below(folder: Path) -> int:
    found = 0
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if entry.is_dir(follow_symlinks=False):
            found += _bytes_below(Path(entry.path))
        else:
            found += entry.stat(follow_symlinks=False).st_size
    return found
