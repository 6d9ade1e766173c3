"""Deleted: names an object that was deleted while it was read, by the path of the missing file.

A request finds a file and opens it a moment later; a `DELETE` may come between. Its answer is then the one
that it would have got after the `DELETE`. Nothing here opens a file or knows a route.
"""

import re
from typing import Final

from ..problems import Refused, unknown
from .kept_bytes import UPLOADS
from .store import NAMES
from .uploads import ID

_FILE: Final = re.compile(rf"/({'|'.join(NAMES)})/([0-9a-f]{{2}})/(\2[0-9a-f]{{62}})\Z")
_PART: Final = re.compile(rf"/{UPLOADS}/({ID.strip('^$')})/\w+\Z")


def gone(error: OSError) -> Refused | None:
    """The refusal of what a missing file held, as if it had never been there; None: another error."""
    if not isinstance(error, FileNotFoundError):
        return None
    path = str(error.filename)
    file, part = (pattern.search(path) for pattern in (_FILE, _PART))
    if file is not None:
        (name,) = (name for kind, name in NAMES.items() if kind == file[1])
        return unknown(name, f"sha256:{file[3]}", [])
    if part is not None:
        return unknown("upload", part[1], [])
    return None
