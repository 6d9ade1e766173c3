"""Serialized MLIR recognized by its first bytes, without MLIR: bytecode, and `jax.export`'s file around it.

A portable artifact of StableHLO is bytecode of the versioned dialect VHLO. A file of `jax.export` is a
flatbuffer that holds one. Source: MLIR bytecode format; StableHLO, compatibility; jax.export's schema.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAGIC: Final = b"ML\xefR"
PORTABLE: Final = b"StableHLO_v"
"""The producer of a portable artifact, behind the magic and a version of one byte."""
_HEAD: Final = 64
_TEXTS: Final = frozenset({".json", ".mlir", ".onnx", ".tflite"})


def payload(data: bytes) -> bytes | None:
    """The bytecode in a file's bytes; None where there is none."""
    if data.startswith(MAGIC):
        return data
    if not _may_be_flatbuffer(data[:4]):
        return None
    return next((part for part in _vectors(data) if part.startswith(MAGIC) and is_portable(part)), None)


def _vectors(data: bytes) -> Iterator[bytes]:
    """Vectors of bytes that are fields of a flatbuffer's root; what a table within it holds is not its own.

    A file of jax.export has the modules of its gradients within it, in front of the one of the function.
    """

    def number(at: int, size: int = 4) -> int:
        return int.from_bytes(data[at : at + size], "little") if 0 <= at <= len(data) - size else -1

    root = number(0)
    table = root - int.from_bytes(data[root : root + 4], "little", signed=True)
    for field in range(table + 4, table + number(table, 2), 2):
        place = root + number(field, 2)
        at = place + number(place)
        length = number(at)
        if place > root and 0 < length <= len(data) - at - 4:
            yield data[at + 4 : at + 4 + length]


def is_portable(bytecode: bytes) -> bool:
    """Whether bytecode is a portable artifact."""
    return PORTABLE in bytecode[:_HEAD]


def is_serialized(source: str | Path | bytes) -> bool:
    """Whether a file, or its bytes, are serialized MLIR; one whose suffix says otherwise is not read."""
    if isinstance(source, bytes):
        return payload(source) is not None
    path = Path(source)
    if path.suffix.lower() in _TEXTS:
        return False
    try:
        with path.open("rb") as file:
            head = file.read(4)
            return head == MAGIC or (_may_be_flatbuffer(head) and payload(head + file.read()) is not None)
    except OSError:
        return False


def _may_be_flatbuffer(head: bytes) -> bool:
    """Whether the first four bytes can be the place of a flatbuffer's root, which is near."""
    return len(head) == 4 and head[2:] == b"\0\0"
