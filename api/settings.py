"""Settings of the service, read from the environment once: where things lie, limits, tokens.

`VARIABLES` is the whole list, and docs/service.md its table; nothing else reads the environment. Sizes are
bytes, times seconds. Source: docs/service.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from planner.errors import InputError

from .server.tokens import Token, parse_token, read_tokens, require_one_owner

TOKENS_FILE: Final = "QPLAN_TOKENS_FILE"
KIB: Final = 1 << 10
MIB: Final = 1 << 20
ALL: Final = 100
"""Per cent."""
_FUNCTION: Final = re.compile(r"([\w.:-]{1,200})=([A-Za-z_][\w.]*:[A-Za-z_]\w*)")


class CannotStart(InputError):
    """A part of the server cannot be used; nothing was wrong with the command, so the exit code is 1."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server; `VARIABLES` says which variable each comes from.

    Attributes:
      data: folder of everything kept.
      database_url, blobs, executor: where rows, files and jobs go instead of that folder and this machine;
        empty: nowhere else.
      max_body, max_blob: longest JSON or YAML body, longest blob.
      max_upload, upload_hours: longest file that comes in parts, and how long it may take.
      max_values: most values in one JSON body.
      inline_kernels: annotated models up to this size are planned in the server's own process.
      child_seconds: processor time of one child; five times that on the clock.
      child_memory: memory of one child beside ten times what it reads.
      children, waiting: children at work at once, requests that may wait for one.
      residents: plans that children hold in memory for previews of edits; 0 holds none.
      head_seconds, body_seconds: time for a request's head to arrive; for a JSON or YAML body, and longest
        silence in a blob.
      body_rate: bytes a second that a blob comes at, on average, once `body_seconds` are over; 0 is no limit.
      bodies: JSON bodies of one process that are here or on their way, in bytes.
      connections: open connections of one process; more are closed at once.
      drain_seconds: how long a server that was told to end waits for requests under way.
      rate, burst: requests a second of one token, and how many more at once; 0 is no limit.
      quota: bytes of everything kept; 0 is no limit.
      keep_days, keep_bytes: what is unused for longer is swept away, and blobs beyond; 0 keeps for ever.
      job_workers, job_seconds, job_memory: jobs at work in this process, and what each may use, memory beside
        ten times what it reads.
      lease_seconds: after this long without a word, a job's server is taken for dead.
      max_jobs: jobs that may wait.
      access_log: whether each request is a line of the log.
      tokens: who may ask; none: loopback only.
      tokens_file: a file that further ones came from, and come from again when it changes.
      share: the percentage of what many want at once (children, jobs at work, places to wait, bytes on their
        way) that one token may have.
      tenant_quota: bytes of everything kept for one tenant; 0 is no limit.
      hosts: names the server answers to beside addresses and `localhost`.
      functions: allow-list of QuantFns that targets may name in `fn` rules: name and `module:function`.
    """

    data: Path
    max_body: int = 4 * MIB
    max_blob: int = 256 * MIB
    max_upload: int = 8192 * MIB
    upload_hours: int = 24
    max_values: int = 100_000
    inline_kernels: int = 64
    child_seconds: int = 30
    child_memory: int = 512 * MIB
    children: int = 2
    waiting: int = 32
    residents: int = 2
    head_seconds: int = 10
    body_seconds: int = 30
    body_rate: int = KIB
    bodies: int = 256 * MIB
    connections: int = 1024
    drain_seconds: int = 20
    rate: int = 50
    burst: int = 200
    quota: int = 0
    keep_days: int = 0
    keep_bytes: int = 0
    database_url: str = ""
    blobs: str = ""
    executor: str = ""
    job_workers: int = 2
    job_seconds: int = 3600
    job_memory: int = 2048 * MIB
    lease_seconds: int = 15
    max_jobs: int = 10_000
    access_log: bool = True
    tokens: tuple[Token, ...] = ()
    tokens_file: str = ""
    share: int = 50
    tenant_quota: int = 0
    hosts: frozenset[str] = frozenset()
    functions: tuple[tuple[str, str], ...] = ()


def share_of(settings: Settings) -> int:
    """The percentage that one token may have: everything, where there are no others."""
    return settings.share if len(settings.tokens) > 1 or settings.tokens_file else ALL


def tenant_share_of(settings: Settings) -> int:
    """The percentage that the tokens of one tenant may have together: everything, where there is no other."""
    tenants = {token.tenant for token in settings.tokens}
    return settings.share if len(tenants) > 1 else ALL


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read every variable of `VARIABLES` that is set and not empty.

    Raises:
      InputError: one that cannot be read, with its name; two tokens of one sha256 that differ.
      CannotStart: a database that is named twice, or by a file that names none.
    """
    if all(environment.get(name, "").strip() for name in DATABASE_URLS):
        raise CannotStart(f"{' and '.join(DATABASE_URLS)} are both set", hint="leave one of them out")
    given: dict[str, Any] = {"data": _path("QPLAN_DATA", "qplan-data")}
    for variable, (name, read) in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text:
            continue
        found = read(variable, text)
        given[name] = (*given.get(name, ()), *found) if name == "tokens" else found
        if variable == TOKENS_FILE:
            given["tokens_file"] = text
    require_one_owner((token.file or "QPLAN_TOKENS", token) for token in given.get("tokens", ()))
    return Settings(**given)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that start as ours do and are none: misspelt ones."""
    return sorted(n for n in environment if n.startswith("QPLAN_") and n not in VARIABLES and n not in OTHERS)


def defaults() -> dict[str, str]:
    """The default of each variable, as the documentation has it."""
    known = {field.name: field.default for field in fields(Settings)}
    return {
        variable: "qplan-data" if name == "data" else _shown(known[name])
        for variable, (name, _) in VARIABLES.items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, int):
        return str(value) if value else "none"
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if value and value % unit == 0:
            return f"{value // unit} {name}"
    return str(value)


def _path(_variable: str, text: str) -> Path:
    return Path(text).absolute()


def _text(_variable: str, text: str) -> str:
    return text


def _text_of_file(variable: str, text: str) -> str:
    try:
        found = Path(text).read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise CannotStart(f"{variable} names {text!r}, which cannot be read") from error
    if len(found) != 1:
        raise CannotStart(f"{variable} names {text!r}, which holds {len(found)} words", hint="one address")
    return found[0]


def _positive(variable: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{variable} is {text!r}, not a positive whole number")
    return int(text)


def _count(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{variable} is {text!r}, not a whole number; 0 is no limit")
    return int(text)


def _held(variable: str, text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{variable} is {text!r}, not a whole number; 0 holds none")
    return int(text)


def _percent(variable: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= ALL:
        raise InputError(f"{variable} is {text!r}, not a whole number from 1 to {ALL}")
    return int(text)


def _switch(variable: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise InputError(f"{variable} is {text!r}, neither on nor off")
    return text == "on"


def _words(_variable: str, text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _names(variable: str, text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _words(variable, text))


def _tokens(variable: str, text: str) -> tuple[Token, ...]:
    return tuple(parse_token(word, variable) for word in _words(variable, text))


def _tokens_of_file(variable: str, text: str) -> tuple[Token, ...]:
    return read_tokens(text, variable)


def _functions(variable: str, text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for word in _words(variable, text):
        match = _FUNCTION.fullmatch(word)
        if match is None:
            raise InputError(f"{variable} holds {word!r}", hint="write name=package.module:function")
        found.append((match[1], match[2]))
    return tuple(found)


VARIABLES: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "QPLAN_DATA": ("data", _path),
    "QPLAN_DATABASE_URL": ("database_url", _text),
    "QPLAN_DATABASE_URL_FILE": ("database_url", _text_of_file),
    "QPLAN_BLOBS": ("blobs", _text),
    "QPLAN_EXECUTOR": ("executor", _text),
    "QPLAN_JOB_WORKERS": ("job_workers", _positive),
    "QPLAN_JOB_SECONDS": ("job_seconds", _positive),
    "QPLAN_JOB_MEMORY": ("job_memory", _positive),
    "QPLAN_LEASE_SECONDS": ("lease_seconds", _positive),
    "QPLAN_MAX_JOBS": ("max_jobs", _positive),
    "QPLAN_TOKENS": ("tokens", _tokens),
    TOKENS_FILE: ("tokens", _tokens_of_file),
    "QPLAN_SHARE": ("share", _percent),
    "QPLAN_HOSTS": ("hosts", _names),
    "QPLAN_FUNCTIONS": ("functions", _functions),
    "QPLAN_RATE": ("rate", _count),
    "QPLAN_BURST": ("burst", _positive),
    "QPLAN_QUOTA": ("quota", _count),
    "QPLAN_TENANT_QUOTA": ("tenant_quota", _count),
    "QPLAN_KEEP_DAYS": ("keep_days", _count),
    "QPLAN_KEEP_BYTES": ("keep_bytes", _count),
    "QPLAN_ACCESS_LOG": ("access_log", _switch),
    "QPLAN_MAX_BODY": ("max_body", _positive),
    "QPLAN_MAX_BLOB": ("max_blob", _positive),
    "QPLAN_MAX_UPLOAD": ("max_upload", _positive),
    "QPLAN_UPLOAD_HOURS": ("upload_hours", _positive),
    "QPLAN_MAX_VALUES": ("max_values", _positive),
    "QPLAN_INLINE_KERNELS": ("inline_kernels", _positive),
    "QPLAN_CHILD_SECONDS": ("child_seconds", _positive),
    "QPLAN_CHILD_MEMORY": ("child_memory", _positive),
    "QPLAN_CHILDREN": ("children", _positive),
    "QPLAN_WAITING": ("waiting", _positive),
    "QPLAN_RESIDENTS": ("residents", _held),
    "QPLAN_HEAD_SECONDS": ("head_seconds", _positive),
    "QPLAN_BODY_SECONDS": ("body_seconds", _positive),
    "QPLAN_BODY_RATE": ("body_rate", _count),
    "QPLAN_BODIES": ("bodies", _positive),
    "QPLAN_CONNECTIONS": ("connections", _positive),
    "QPLAN_DRAIN_SECONDS": ("drain_seconds", _positive),
}
DATABASE_URLS: Final = ("QPLAN_DATABASE_URL", "QPLAN_DATABASE_URL_FILE")
OTHERS: Final = frozenset({"QPLAN_HYPOTHESIS", "QPLAN_MODELS", "QPLAN_TRACEBACK"})
"""Variables of the command and of the tests, not of the service."""
