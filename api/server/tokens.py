"""Tokens: who may ask for what. Only sha256 digests of tokens are ever kept.

`write` includes `plan`, `plan` includes `read`; `metrics` stands alone, for a scraper. What a request needs
is decided by `needed` from its method and path, before any route. Source: RFC 6750; design 06.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from planner.errors import InputError

SCOPES: Final = {
    "read": frozenset({"read"}),
    "plan": frozenset({"read", "plan"}),
    "write": frozenset({"read", "plan", "write"}),
    "metrics": frozenset({"metrics"}),
}
EVERYTHING: Final = frozenset({"read", "plan", "write", "metrics"})
METRICS: Final = "/metrics"
TARGETS: Final = "/v1/targets/"
_TOKEN: Final = re.compile(r"(?:([\w.-]{1,40}):([a-z+]+):)?([0-9a-f]{64})")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Token:
    """A token: what logs and limits call it, its sha256 in hexadecimal, and its scopes."""

    name: str
    digest: str
    scopes: frozenset[str] = EVERYTHING


def parse_token(text: str, where: str) -> Token:
    """Read `digest` (all scopes) or `name:scopes:digest` with scopes joined by `+`.

    Raises:
      InputError: neither; the text itself is not quoted, for it may be a token.
    """
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise InputError(
            f"{where} holds something that is no sha256 in hexadecimal",
            hint="write name:scopes:sha256, as qplan token prints it",
        )
    name, words, digest = found.groups()
    if name is None:
        return Token(digest[:8], digest)
    unknown = [word for word in words.split("+") if word not in SCOPES]
    if unknown:
        known = ", ".join(SCOPES)
        raise InputError(f"{where}: token {name!r} has a scope {unknown[0]!r}", hint=f"known: {known}")
    return Token(name, digest, frozenset().union(*(SCOPES[word] for word in words.split("+"))))


def make_token(name: str, scopes: Iterable[str]) -> tuple[str, str]:
    """Make a token.

    Returns:
      The token itself, to be handed over once, and the line that stands for it in the settings.

    Raises:
      InputError: a name or scope that cannot be.
    """
    token = secrets.token_urlsafe(32)
    line = f"{name}:{'+'.join(scopes)}:{hashlib.sha256(token.encode()).hexdigest()}"
    if parse_token(line, "the new token").name != name:
        raise InputError(f"{name!r} is no name for a token", hint="letters, digits, . - _")
    return token, line


def find_token(tokens: Iterable[Token], header: bytes) -> Token | None:
    """The token that an Authorization header bears; every known one is compared, in constant time."""
    scheme, _, given = header.partition(b" ")
    digest = hashlib.sha256(given.strip()).hexdigest()
    found = [token for token in tokens if secrets.compare_digest(digest, token.digest)]
    return found[0] if found and scheme.lower() == b"bearer" else None


def needed(method: str, path: str) -> str:
    """Scope that a request needs."""
    if path == METRICS:
        return "metrics"
    if method in _READS:
        return "read"
    if method == "DELETE" or (method == "PUT" and path.startswith(TARGETS)):
        return "write"
    return "plan"
