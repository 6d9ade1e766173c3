"""Methods of conditioning as users name them: which exist, their order, their parameters, what they need."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from planner.errors import InputError, UnknownName
from planner.weight_conditioning.migrate import ALPHA

ORDER: Final = ("equalize", "absorb", "migrate", "round", "correct")
"""Methods in the order in which they run, whatever order they are asked for in."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method asked for; `number` is its parameter: alpha of `migrate`."""

    name: str
    number: float = ALPHA

    def __str__(self) -> str:
        return f"{self.name}:{self.number:g}" if self.name == "migrate" else self.name


def read_methods(asked: str | Iterable[str]) -> tuple[Method, ...]:
    """Read methods, `equalize,migrate:0.8` or one text each, into the order in which they run.

    Raises:
      UnknownName: no such method.
      InputError: none asked for, one asked for twice, or a parameter that it does not take.
    """
    if not isinstance(asked, str) and not isinstance(asked, Iterable):
        raise InputError(f"methods are texts such as 'equalize,migrate:0.8', not a {type(asked).__name__}")
    texts = asked.split(",") if isinstance(asked, str) else list(asked)
    found = [_read(text) for text in texts if text != ""]
    names = [method.name for method in found]
    if not found:
        raise InputError("no method to condition with", hint=f"there are {', '.join(ORDER)}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"method {twice!r} is asked for twice", hint="once is accepted")
    return tuple(sorted(found, key=lambda method: ORDER.index(method.name)))


def _read(text: object) -> Method:
    if not isinstance(text, str):
        raise InputError(f"a method is a text such as 'migrate:0.8', not a {type(text).__name__}")
    name, colon, parameter = text.strip().partition(":")
    if name not in ORDER:
        raise UnknownName(f"unknown method of conditioning {name!r}", hint=f"there are {', '.join(ORDER)}")
    if not colon:
        return Method(name)
    if name != "migrate":
        raise InputError(f"method {text!r}: {name!r} takes no parameter")
    try:
        alpha = float(parameter)
    except ValueError:
        alpha = math.nan
    if not 0 <= alpha <= 1:
        raise InputError(f"method {text!r}: accepted is migrate:ALPHA, a number of 0 to 1")
    return Method(name, alpha)
