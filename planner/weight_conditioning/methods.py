"""Methods of conditioning as users name them: which exist, their order, their parameters, what they need."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import InputError, UnknownName
from planner.weight_conditioning.migrate import ALPHA

ORDER: Final = ("equalize", "absorb", "migrate", "clip", "round", "correct")
"""Methods in the order in which they run, whatever order they are given in."""


@dataclass(frozen=True, slots=True)
class Method:
    """One requested method.

    Attributes:
      alpha: of `migrate`.
      bits, block: of `clip` and `round`: the grid of its own, blocks of inputs that share a scale (0: none);
        0 bits: the grid is that of a target's plan.
    """

    name: str
    alpha: float = ALPHA
    bits: int = 0
    block: int = 0

    def __str__(self) -> str:
        if self.name == "migrate":
            return f"migrate:{self.alpha:g}"
        if not self.bits:
            return self.name
        return f"{self.name}:{self.bits}" + (f"x{self.block}" if self.block else "")


def read_methods(asked: str | Iterable[str]) -> tuple[Method, ...]:
    """Read methods, `equalize,migrate:0.8` or one text each, into the order in which they run.

    Raises:
      UnknownName: no such method.
      InputError: none given, one given twice, or a parameter that it does not take.
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
        raise InputError(f"method {twice!r} is given twice", hint="once is accepted")
    if {"clip", "round"} <= set(names):
        raise InputError(
            "methods 'clip' and 'round' are both given: each chooses the scales of weights",
            hint="round tries narrower ranges by itself",
        )
    return tuple(sorted(found, key=lambda method: ORDER.index(method.name)))


def _read(text: object) -> Method:
    if not isinstance(text, str):
        raise InputError(f"a method is a text such as 'migrate:0.8', not a {type(text).__name__}")
    name, colon, parameter = text.strip().partition(":")
    if name not in ORDER:
        raise UnknownName(f"unknown method of conditioning {name!r}", hint=f"there are {', '.join(ORDER)}")
    if not colon:
        return Method(name)
    if name not in _PARAMETERS:
        raise InputError(f"method {text!r}: {name!r} takes no parameter")
    return _PARAMETERS[name](text, parameter)


def _migrate(text: str, parameter: str) -> Method:
    try:
        alpha = float(parameter)
    except ValueError:
        alpha = math.nan
    if not 0 <= alpha <= 1:
        raise InputError(f"method {text!r}: accepted is migrate:ALPHA, a number of 0 to 1")
    return Method("migrate", alpha)


def _gridded(text: str, parameter: str) -> Method:
    name = text.strip().partition(":")[0]
    match = _GRID.fullmatch(parameter)
    if match is None or int(match[1]) not in BITS or (match[2] and not int(match[2])):
        raise InputError(
            f"method {text!r}: accepted is {name}:BITS or {name}:BITSxBLOCK, bits {BITS[0]} to {BITS[-1]}",
            hint=f"{name} alone takes the grids that the target's plan gives to weights",
        )
    return Method(name, bits=int(match[1]), block=int(match[2] or 0))


_GRID: Final = re.compile(r"(\d{1,2})(?:x(\d{1,6}))?")
BITS: Final = range(2, 9)
_PARAMETERS: Final[Mapping[str, Callable[[str, str], Method]]] = {
    "clip": _gridded,
    "migrate": _migrate,
    "round": _gridded,
}
