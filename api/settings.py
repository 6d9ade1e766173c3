"""Settings of the service, read from the environment once: where things lie, limits, tokens.

`VARIABLES` is the whole list, and docs/reference/settings.md is made of it; nothing else reads the
environment. Sizes are bytes, times seconds. Source: docs/service.md.
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
    """Settings of a server; `VARIABLES` says which variable each comes from, and its meaning."""

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
    start_seconds: int = 0
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
    traces: str = ""
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
    for variable, (name, read, _) in VARIABLES.items():
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
        for variable, (name, *_) in VARIABLES.items()
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


VARIABLES: Final[Mapping[str, tuple[str, Callable[[str, str], Any], str]]] = {
    "QPLAN_DATA": ("data", _path, "folder of everything kept"),
    "QPLAN_DATABASE_URL": (
        "database_url",
        _text,
        "`postgresql://USER:PASSWORD@HOST/NAME` or `sqlite:///FILE`; none is SQLite in the data folder",
    ),
    "QPLAN_DATABASE_URL_FILE": (
        "database_url",
        _text_of_file,
        "file that has it, so that a password stands in no environment; one of the two alone",
    ),
    "QPLAN_BLOBS": (
        "blobs",
        _text,
        "`s3://BUCKET/PREFIX` or `file:///DIR` for files; none is the data folder",
    ),
    "QPLAN_EXECUTOR": ("executor", _text, "`dask://HOST:PORT` for jobs; none is this machine"),
    "QPLAN_TRACES": (
        "traces",
        _text,
        "`http://HOST:4318` of an OpenTelemetry collector for spans of requests, jobs and children",
    ),
    "QPLAN_JOB_WORKERS": ("job_workers", _positive, "jobs at work in one server process"),
    "QPLAN_JOB_SECONDS": (
        "job_seconds",
        _positive,
        "processor seconds of a job, and five times that on the clock",
    ),
    "QPLAN_JOB_MEMORY": (
        "job_memory",
        _positive,
        "bytes of memory of a job, beside ten times its input and once the external data of its model",
    ),
    "QPLAN_LEASE_SECONDS": (
        "lease_seconds",
        _positive,
        "seconds of silence after which a job's server counts as dead",
    ),
    "QPLAN_MAX_JOBS": ("max_jobs", _positive, "jobs that may wait"),
    "QPLAN_TOKENS": ("tokens", _tokens, "tokens, separated by commas; none is loopback only"),
    TOKENS_FILE: (
        "tokens",
        _tokens_of_file,
        "file of further tokens, one a line; read again when it changes",
    ),
    "QPLAN_SHARE": (
        "share",
        _percent,
        (
            "per cent of contended resources that one of several tokens may have, "
            "see [shares](../service.md#shares)"
        ),
    ),
    "QPLAN_HOSTS": (
        "hosts",
        _names,
        "host names answered to beside addresses and `localhost`, without tokens",
    ),
    "QPLAN_FUNCTIONS": (
        "functions",
        _functions,
        "functions that targets may name: `name=package.module:function`, separated by commas",
    ),
    "QPLAN_RATE": ("rate", _count, "requests a second of one token; 0 is no limit"),
    "QPLAN_BURST": ("burst", _positive, "requests of one token at once"),
    "QPLAN_QUOTA": ("quota", _count, "bytes of everything kept; 0 is no limit"),
    "QPLAN_TENANT_QUOTA": ("tenant_quota", _count, "bytes of everything kept for one tenant; 0 is no limit"),
    "QPLAN_KEEP_DAYS": ("keep_days", _count, "days that something unused is kept; 0 is for ever"),
    "QPLAN_KEEP_BYTES": ("keep_bytes", _count, "bytes of blobs that are kept of each tenant; 0 is all"),
    "QPLAN_ACCESS_LOG": ("access_log", _switch, "a line of the log for each request, `on` or `off`"),
    "QPLAN_MAX_BODY": ("max_body", _positive, "bytes of a JSON or YAML body"),
    "QPLAN_MAX_BLOB": ("max_blob", _positive, "bytes of a blob"),
    "QPLAN_MAX_UPLOAD": ("max_upload", _positive, "bytes of a file that comes in parts"),
    "QPLAN_UPLOAD_HOURS": ("upload_hours", _positive, "hours that such a file may take"),
    "QPLAN_MAX_VALUES": ("max_values", _positive, "values in a JSON body"),
    "QPLAN_INLINE_KERNELS": (
        "inline_kernels",
        _positive,
        "kernels of an annotated model that is planned in the server's process",
    ),
    "QPLAN_CHILD_SECONDS": (
        "child_seconds",
        _positive,
        "processor seconds of a reading process, and five times that on the clock",
    ),
    "QPLAN_CHILD_MEMORY": ("child_memory", _positive, "bytes of memory of a reading process"),
    "QPLAN_CHILDREN": ("children", _positive, "reading processes at work"),
    "QPLAN_WAITING": ("waiting", _positive, "requests that may wait for one"),
    "QPLAN_RESIDENTS": (
        "residents",
        _held,
        (
            "plans that children hold in memory for [previews](../service.md#previews), "
            "each with the limits of a reading process; 0 holds none"
        ),
    ),
    "QPLAN_HEAD_SECONDS": ("head_seconds", _positive, "seconds for the head of a request to arrive"),
    "QPLAN_BODY_SECONDS": (
        "body_seconds",
        _positive,
        "seconds for a JSON or YAML body to arrive, and longest silence in a blob",
    ),
    "QPLAN_BODY_RATE": (
        "body_rate",
        _count,
        "bytes a second of a blob, on average; slower ones are given up; 0 is no limit",
    ),
    "QPLAN_BODIES": (
        "bodies",
        _positive,
        "bytes of JSON bodies of one process that are here or on their way",
    ),
    "QPLAN_CONNECTIONS": ("connections", _positive, "open connections of one process; more are closed"),
    "QPLAN_DRAIN_SECONDS": (
        "drain_seconds",
        _positive,
        "seconds that requests under way have when the server ends",
    ),
    "QPLAN_START_SECONDS": (
        "start_seconds",
        _count,
        "seconds that a start waits for a database that does not answer; 0 does not wait",
    ),
}
DATABASE_URLS: Final = ("QPLAN_DATABASE_URL", "QPLAN_DATABASE_URL_FILE")
OTHERS: Final = frozenset({"QPLAN_HYPOTHESIS", "QPLAN_MODELS", "QPLAN_TRACEBACK"})
"""Variables of the command and of the tests, not of the service."""
