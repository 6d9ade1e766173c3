"""Settings of the service, read from the environment once: where data lies, limits, tokens.

Nothing else reads the environment. Sizes are bytes, times seconds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from planner.errors import InputError

MIB: Final = 1 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told. `tokens` are sha256 of bearer tokens; none: loopback only.

    Attributes:
      data: folder of everything kept.
      max_body, max_blob: longest JSON or YAML body, longest blob.
      max_values: most values in one JSON body.
      inline_kernels: annotated models up to this size are planned in the server's own process.
      child_seconds: wall and processor time of one child.
      child_memory: memory of one child beside ten times what it reads.
      children, waiting: children at work at once, requests that may wait for one.
      body_seconds: time for a JSON or YAML body to arrive, and longest silence in a blob.
      hosts: names the server answers to beside addresses and `localhost`.
    """

    data: Path
    max_body: int = 4 * MIB
    max_blob: int = 256 * MIB
    max_values: int = 100_000
    inline_kernels: int = 64
    child_seconds: int = 30
    child_memory: int = 512 * MIB
    children: int = 2
    waiting: int = 32
    body_seconds: int = 30
    tokens: frozenset[str] = field(default_factory=frozenset)
    hosts: frozenset[str] = field(default_factory=frozenset)


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read `QPLAN_DATA`, `QPLAN_TOKENS`, `QPLAN_HOSTS` and `QPLAN_<NAME>` of each number in `Settings`.

    Raises:
      InputError: a number that is none, or a token that is no sha256.
    """
    numbers = {name: _number(environment, name) for name in _NUMBERS if _variable(name) in environment}
    return Settings(
        data=Path(environment.get("QPLAN_DATA") or "qplan-data").absolute(),
        tokens=frozenset(_digest(text) for text in _words(environment, "QPLAN_TOKENS")),
        hosts=frozenset(text.lower() for text in _words(environment, "QPLAN_HOSTS")),
        **numbers,
    )


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return [word.strip() for word in environment.get(name, "").split(",") if word.strip()]


def _variable(name: str) -> str:
    return f"QPLAN_{name.upper()}"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[_variable(name)]
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{_variable(name)} is {text!r}, not a positive whole number")
    return int(text)


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise InputError(
            "QPLAN_TOKENS holds something that is no sha256 in hexadecimal",
            hint="make one with: printf %s TOKEN | sha256sum",
        )
    return text


_NUMBERS: Final = (
    "max_body",
    "max_blob",
    "max_values",
    "inline_kernels",
    "child_seconds",
    "child_memory",
    "children",
    "waiting",
    "body_seconds",
)
