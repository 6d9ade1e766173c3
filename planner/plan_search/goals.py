"""Goals: what a search is to reach, as a person writes it: `sqnr=30`, `work=0.5`, `drop=1%`, `size=25MB`.

Source: docs/search.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from planner.errors import InputError, require_name


@dataclass(frozen=True, slots=True)
class Meaning:
    """The quantity that a goal bounds.

    Attributes:
      what: for messages.
      accepted: of its number.
      is_quality: whether it bounds quality from below; else it bounds means.
    """

    what: str
    accepted: Callable[[float], bool]
    hint: str
    is_quality: bool


GOALS: Final[Mapping[str, Meaning]] = {
    "sqnr": Meaning("SQNR of the worst output, at least", math.isfinite, "dB, such as sqnr=30", True),
    "metric": Meaning("the metric, at least", math.isfinite, "a number of its own unit", True),
    "drop": Meaning(
        "loss of the metric against the model as given, at most",
        lambda bound: 0 <= bound < math.inf,
        "0 or more, in the metric's unit or in per cent of the model's: drop=0.01, drop=1%",
        True,
    ),
    "work": Meaning(
        "work, as a share of the plan with every kernel at its costliest, at most",
        lambda bound: 0 < bound <= 1,
        "above 0 and up to 1, such as work=0.5",
        False,
    ),
    "weight_bits": Meaning(
        "mean bits of a number in constants, at most",
        lambda bound: 0 < bound < math.inf,
        "above 0, such as weight_bits=4.5",
        False,
    ),
    "size": Meaning(
        "bytes of all weights, at most",
        lambda bound: 0 < bound < math.inf,
        "above 0, in bytes or with a unit, such as size=25MB or size=800kB",
        False,
    ),
    "coverage": Meaning(
        "share of the multiply-adds that run in the device's own types, at least",
        lambda bound: 0 < bound <= 1,
        "above 0 and up to 1, such as coverage=0.9",
        False,
    ),
}

UNITS: Final[Mapping[str, int]] = {
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
"""Units of sizes, the longer names first."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One bound.

    Attributes:
      kind: a key of `GOALS`.
      bound: its number; per cent of the float model's metric where `is_relative`.
    """

    kind: str
    bound: float
    is_relative: bool = False

    def __str__(self) -> str:
        if self.kind == "size":
            return f"size={size_text(self.bound, digits=15)}"
        return f"{self.kind}={self.bound:g}{'%' if self.is_relative else ''}"

    @property
    def is_quality(self) -> bool:
        """Whether it asks for quality, of which least work is looked for; else for the best within means."""
        return GOALS[self.kind].is_quality

    @property
    def needs_metric(self) -> bool:
        """Whether a metric has to be there."""
        return self.kind in ("metric", "drop")


def size_text(size: float, digits: int = 4) -> str:
    """Return a number of bytes as a goal writes it: `25MB`, `800kB`, `12B`."""
    unit = next((unit for unit in ("GB", "MB", "kB") if size >= UNITS[unit]), "B")
    return f"{size / UNITS[unit]:.{digits}g}{unit}"


def goal_of(text: str | Goal | Mapping[str, Any]) -> Goal:
    """Read a goal.

    Args:
      text: `sqnr=30`, or `{"sqnr": 30}`; a drop may end in `%`, a size in a unit.

    Raises:
      InputError: no such form, or a number out of bounds.
      UnknownName: no such goal.
    """
    if isinstance(text, Goal):
        return text
    if isinstance(text, Mapping) and len(text) == 1:
        kind, value = (str(item) for item in next(iter(text.items())))
    elif isinstance(text, str) and "=" in text:
        kind, _, value = (part.strip() for part in text.partition("="))
    else:
        raise InputError(
            f"{text!r:.80} is no goal", hint=f"one of {', '.join(GOALS)} with a number, such as 'sqnr=30'"
        )
    require_name("goal", kind, GOALS)
    is_relative = kind == "drop" and value.endswith("%")
    unit = next((unit for unit in UNITS if kind == "size" and value.endswith(unit)), "")
    try:
        bound = float(value.removesuffix("%") if is_relative else value.removesuffix(unit)) * UNITS.get(
            unit, 1
        )
    except ValueError:
        bound = math.nan
    bound = float(round(bound)) if unit and math.isfinite(bound) else bound
    meaning = GOALS[kind]
    if not meaning.accepted(bound):
        raise InputError(f"{kind}={value} is no goal", hint=f"{meaning.what}: {meaning.hint}")
    return Goal(kind, bound, is_relative)
