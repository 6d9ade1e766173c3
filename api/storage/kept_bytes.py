"""Kept bytes: what a quota counts, measured: files of every kind, parts of uploads; not the rows of jobs."""

from pathlib import Path
from typing import Final

from api.storage.store import Kind, Store

UPLOADS: Final = "uploads"
_LINKS: Final[tuple[Kind, ...]] = ("requests",)
"""In the folder these are second names of plans."""
_KINDS: Final[tuple[Kind, ...]] = (
    "answers",
    "blobs",
    "descriptions",
    "keys",
    "models",
    "origins",
    "plans",
    "stats",
    "targets",
)


def kept_bytes(store: Store) -> int:
    """Bytes of everything that is kept, in the object store where there is one."""
    kinds = _KINDS if store.objects is None else _KINDS + _LINKS
    return sum(store.size(kind) for kind in kinds) + _bytes_of_parts(store.root / UPLOADS)


def _bytes_of_parts(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*/data"))
