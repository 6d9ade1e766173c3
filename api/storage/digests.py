"""Digests: the names of everything that is kept, `sha256:...`. Light, for a child imports them too."""

import hashlib
from pathlib import Path
from typing import Final

DIGEST: Final = r"^sha256:[0-9a-f]{64}$"


def digest_of(data: bytes) -> str:
    """`sha256:...` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def value_names_digest(plain: str) -> str:
    """Digest of the answer that lists the values of a model, by the model's digest without its facts."""
    return digest_of(f"values {plain}".encode())


def digest_of_file(path: Path) -> str:
    """`sha256:...` of a file's bytes."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
