"""How a LiteRT file is known before anything heavy is imported. Source: TensorFlow Lite's schema."""

from pathlib import Path
from typing import Final

IDENTIFIER: Final = b"TFL3"
"""Bytes 4 to 8 of a file."""


def is_litert(data: bytes) -> bool:
    """Whether bytes begin as a LiteRT file does."""
    return data[4:8] == IDENTIFIER


def starts_as_litert(source: str | Path | bytes) -> bool:
    """Whether a file, or its bytes, begin as a LiteRT file does; False where it cannot be read."""
    if isinstance(source, bytes):
        return is_litert(source)
    try:
        with Path(source).open("rb") as file:
            return is_litert(file.read(8))
    except (OSError, TypeError):
        return False
