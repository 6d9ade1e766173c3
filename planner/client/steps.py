"""Steps of a call: its requests, one after another, without knowing how they are sent.

A call is a generator that yields steps and is sent their results; `Client` and `AsyncClient` take them, each
in its way. A step that fails is thrown into it.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request; its result is the answer. A status in `also` is no failure."""

    method: str
    path: str
    json: Any = None
    content: bytes | None = None
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    """Work on a file, which takes a while; its result is returned."""

    work: Callable[[], Any]


Step: TypeAlias = Ask | Pause | Do
Steps: TypeAlias = Generator[Step, Any, T]
