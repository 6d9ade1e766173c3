"""Files of the front end, under an address with the digest of them all, and the policy of the page.

The page runs our files alone. A plan stands in a frame without an origin, whose style and two scripts,
by digest, are all that may count besides. Source: CSP level 3; docs/service.md.
"""

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from planner.installation import example_folder
from planner.report.resources import policy

STATIC: Final = Path(__file__).parent / "static"
PREFIX: Final = "/page/"
KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
EXAMPLE: Final = ("digits.onnx", "calibration.npz")
"""Files of the example that the page runs, which needs no file of the user's own."""
PLACES: Final = re.compile(r"/|/docs|/(models|plans|jobs|targets)(/[^/]{1,300})?")
"""Paths of pages. They hold nothing that is kept, so they need no token; what they ask the API for does."""


class File(NamedTuple):
    """A file and its media type."""

    data: bytes
    media: str


@cache
def files() -> dict[str, File]:
    """The files by name, but the page itself."""
    found = sorted(path for path in STATIC.iterdir() if path.suffix in KINDS)
    example = (example_folder() / name for name in EXAMPLE)
    binary = "application/octet-stream"
    return {path.name: File(path.read_bytes(), KINDS.get(path.suffix, binary)) for path in (*found, *example)}


@cache
def version() -> str:
    """The digest of all files, short: their addresses change when one of them does."""
    whole = hashlib.sha256()
    for name, file in files().items():
        whole.update(name.encode() + b"\0" + file.data)
    return whole.hexdigest()[:16]


@cache
def page() -> bytes:
    """The page: a frame for what its script shows."""
    text = (STATIC / "index.html").read_text("utf-8")
    return text.replace("{files}", f"{PREFIX}{version()}").encode()


@cache
def page_policy() -> str:
    """The content security policy of the page."""
    styles, scripts = (
        " ".join(re.findall(r"'sha256-[^']+'", part)) for part in policy().split(";") if "sha256" in part
    )
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {scripts}",
            f"style-src 'self' {styles}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def is_open(method: str, path: str) -> bool:
    """Whether a request is for a page or a file of it."""
    return method in ("GET", "HEAD") and (path.startswith(PREFIX) or PLACES.fullmatch(path) is not None)
