"""Counts of one suite of others: how far its programs get, how near its numbers are, and what is refused.

Not part of the product; `benchmarks.suites` makes a row of each.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.engine_models import short

STAGES: Final = ("read", "planned", "exported", "equal", "one step off", "further")
HEADS: Final = ("suite", "source", "programs", *STAGES, "refused, and why", "command")
SHOWN: Final = 10
_LONG: Final = 90
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLACE: Final = re.compile(r"\b\d+:\d+: ")


@dataclass(slots=True)
class Tally:
    """Counts of one suite.

    Attributes:
      source: with its version.
      columns: those of `STAGES` that the suite has; others are blank.
      programs: as many as the suite has; None where it was not run.
      refused: reasons with their counts, names left out.
    """

    suite: str
    source: str
    command: str
    columns: Sequence[str] = STAGES
    programs: int | None = 0
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def reach(self, *stages: str) -> None:
        """Count a program that got through stages."""
        self.counts.update(stages)

    def compare(self, steps: float) -> None:
        """Count a program by its largest difference, in steps of the type of its result."""
        self.reach("equal" if steps < 0.5 else "one step off" if steps < 1.5 else "further")

    def refuse(self, reason: object, who: str = "") -> None:
        """Count a refusal, by its reason without names and places."""
        text = _PLACE.sub("", _QUOTED.sub("..", str(reason)))
        self.refused[f"{who}{': ' if who else ''}{short(text, _LONG)}"] += 1

    def row(self) -> str:
        """The row of the table."""
        if self.programs is None:
            return f"| {self.suite} | {self.source} |{' |' * (len(STAGES) + 1)} not run | {self.command} |"
        cells = [str(self.counts[stage]) if stage in self.columns else "" for stage in STAGES]
        told = [f"{count} × {reason}" for reason, count in self.refused.most_common(SHOWN)]
        rest = sum(self.refused.values()) - sum(count for _, count in self.refused.most_common(SHOWN))
        told += [f"{rest} others"] if rest else []
        why = "; ".join(told) or "none"
        return " | ".join(
            [f"| {self.suite}", self.source, str(self.programs), *cells, why, f"{self.command} |"]
        )


def table(tallies: Sequence[Tally]) -> Iterator[str]:
    """A row for each suite."""
    yield f"| {' | '.join(HEADS)} |"
    yield f"|---|---|{'---:|' * (len(STAGES) + 1)}---|---|"
    yield from (tally.row() for tally in tallies)
