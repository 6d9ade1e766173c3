"""Kept bytes: the bytes that a quota counts: files of every kind, parts of uploads; not the rows of jobs."""

from pathlib import Path
from typing import Final, get_args

from .store import Kind, Store

UPLOADS: Final = "uploads"
_LINKS: Final = frozenset({"requests"})
"""In the folder these are second names of plans."""


def kept_bytes(store: Store) -> int:
    """Bytes of everything that is kept, in the object store where there is one."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    counted = (kind for kind in kinds if store.objects is not None or kind not in _LINKS)
    return sum(map(store.size, counted)) + _bytes_of_parts(store.root / UPLOADS)


def _bytes_of_parts(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/data"))
