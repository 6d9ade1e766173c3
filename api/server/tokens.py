"""Tokens: the permissions and the tenant of each client. Only sha256 digests of tokens are ever kept.

A token belongs to a tenant, `DEFAULT` where it names none. `write` includes `plan`, `plan` includes `read`;
`metrics` stands alone, for a scraper. `needed` decides from its method and path what a request needs, before
any route. Source: RFC 6750; docs/service.md.
"""

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
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
UPLOADS: Final = "/v1/uploads/"
DEFAULT: Final = "default"
"""The tenant of tokens that name none, and of everybody on a server without tokens."""
TENANT: Final = "qplan.tenant"
PRINCIPAL: Final = "qplan.principal"
LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the file of tokens."""
_TOKEN: Final = re.compile(r"(?:(?:([a-z0-9][a-z0-9-]{0,30})/)?([\w.-]{1,40}):([a-z+]+):)?([0-9a-f]{64})")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

log: Final = logging.getLogger("qplan.api")


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
      name: what logs call it.
      digest: its sha256 in hexadecimal.
      tenant: whose things it sees, changes and takes away.
      file: the file it was read from, which is read again when it changes.
    """

    name: str
    digest: str
    scopes: frozenset[str] = EVERYTHING
    tenant: str = DEFAULT
    file: str = field(default="", compare=False)

    @property
    def principal(self) -> str:
        """Its name among the tokens of all tenants: whom limits count for."""
        return self.name if self.tenant == DEFAULT else f"{self.tenant}/{self.name}"


def parse_token(text: str, where: str, file: str = "") -> Token:
    """Read `digest` (all scopes) or `name:scopes:digest` with scopes joined by `+`; `tenant/name`, too.

    Raises:
      InputError: neither; the text itself is not quoted, for it may be a token.
    """
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise InputError(
            f"{where} holds something that is no sha256 in hexadecimal",
            hint="write name:scopes:sha256 or tenant/name:scopes:sha256, as qplan token prints it",
        )
    tenant, name, words, digest = found.groups()
    if name is None:
        return Token(digest[:8], digest, file=file)
    unknown = [word for word in words.split("+") if word not in SCOPES]
    if unknown:
        known = ", ".join(SCOPES)
        raise InputError(f"{where}: token {name!r} has a scope {unknown[0]!r}", hint=f"known: {known}")
    scopes = frozenset[str]().union(*(SCOPES[word] for word in words.split("+")))
    return Token(name, digest, scopes, tenant or DEFAULT, file)


def read_tokens(file: str, variable: str) -> tuple[Token, ...]:
    """Read a file of tokens, one a line, with comments behind `#`; a mark of byte order is none of them.

    Raises:
      InputError: it cannot be read, a line holds no token, or two lines have one sha256 and differ.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{variable}: cannot read {file!r}") from error
    bare = (line.partition("#")[0].strip() for line in lines)
    found = {
        f"{file}:{number}": parse_token(line, f"{file}:{number}", file)
        for number, line in enumerate(bare, 1)
        if line
    }
    require_one_owner(found.items())
    return tuple(found.values())


def require_one_owner(tokens: Iterable[tuple[str, Token]]) -> None:
    """Refuse two tokens of one sha256 that differ: whose things it sees must not depend on their order.

    Args:
      tokens: each with where it stands.

    Raises:
      InputError: names both, and where they stand.
    """
    first: dict[str, tuple[str, Token]] = {}
    for where, token in tokens:
        before, known = first.setdefault(token.digest, (where, token))
        if known != token:
            raise InputError(
                f"{where}: {token.principal!r} has the sha256 of {known.principal!r} ({before})",
                hint="make a token for each: qplan token NAME --tenant TENANT",
            )


class KnownTokens:
    """The tokens of a server: those of its settings, and of a file that is read again when it changes.

    A file that cannot be read any more, or holds what is no token, changes nothing, and is a line of the log.

    Args:
      clock: seconds of a clock that does not go back.
    """

    def __init__(
        self, tokens: Iterable[Token], file: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.all = tuple(tokens)
        self.file = file
        self.clock = clock
        self.due = clock() + LOOK_EVERY
        self.mark = self._mark()

    def now(self) -> tuple[Token, ...]:
        """The tokens of now."""
        if self.file and self.clock() >= self.due:
            self.due = self.clock() + LOOK_EVERY
            mark = self._mark()
            if mark != self.mark:
                self.mark = mark
                self._read()
        return self.all

    def _read(self) -> None:
        kept = tuple(token for token in self.all if not token.file)
        try:
            found = read_tokens(self.file, "QPLAN_TOKENS_FILE")
            require_one_owner((token.file or "QPLAN_TOKENS", token) for token in (*kept, *found))
        except InputError as error:
            log.error("the tokens stay as they were: %s", error)  # noqa: TRY400 - its places say nothing
            return
        self.all = (*kept, *found)
        log.info("%d tokens were read again", len(found))

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            stands = Path(self.file).stat() if self.file else None
        except OSError:
            return None
        return None if stands is None else (stands.st_ino, stands.st_size, stands.st_mtime_ns)


def make_token(name: str, scopes: Iterable[str], tenant: str | None = None) -> tuple[str, str]:
    """Make a token, of a tenant or of the one that needs no name.

    Returns:
      The token itself, to be handed over once, and the line that stands for it in the settings.

    Raises:
      InputError: a name or scope that cannot be.
    """
    token = secrets.token_urlsafe(32)
    whole = name if tenant is None else f"{tenant}/{name}"
    line = f"{whole}:{'+'.join(scopes)}:{hashlib.sha256(token.encode()).hexdigest()}"
    try:
        made = parse_token(line, "the new token")
    except InputError as error:
        if "scope" in error.message:
            raise
        made = None
    if made is None or (made.name, made.tenant) != (name, tenant or DEFAULT):
        raise InputError(
            f"{whole!r} is no name for a token",
            hint="letters, digits, . - _; of a tenant 31 small letters, digits, -",
        )
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
    if method == "DELETE" and path.startswith(UPLOADS):
        return "plan"  # who may upload may give up
    if method == "DELETE" or (method == "PUT" and path.startswith(TARGETS)):
        return "write"
    return "plan"
