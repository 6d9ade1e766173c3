"""Changed rows: the effect of an upgrade of an engine, a device or a table on the findings of a probe.

In: findings of before, from `--json` of `qplan target probe` or `qplan target kit --check`, and of now. Out:
the items whose verdict or detail differs. Source: docs/targets/trust.md.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.target_tests.row_probe import RowFinding


@dataclass(frozen=True, slots=True)
class Before:
    """Findings of an earlier probe.

    Attributes:
      version: of the engine; "" where none is known.
    """

    findings: tuple[RowFinding, ...]
    version: str = ""


@dataclass(frozen=True, slots=True)
class RowChange:
    """An item of a kit that has another verdict or detail; None where one of the probes lacks it."""

    before: RowFinding | None
    after: RowFinding | None

    @property
    def name(self) -> str:
        """Of the item."""
        return next(finding.name for finding in (self.after, self.before) if finding is not None)

    @property
    def refuted(self) -> bool:
        """Whether the row got worse: it has another verdict that refutes it, and came no closer by it."""
        was, now = (found and found.verdict for found in (self.before, self.after))
        is_closer = was == "refused" or (was, now) == ("differs", "one step")
        return self.after is not None and self.after.refuted and was != now and not is_closer

    @property
    def text(self) -> str:
        """`add-1: integers -> one step (2 of 64 elements of y0 differ, by 1 at most)`."""
        return f"{self.name}: {_said(self.before, self.after)} -> {_said(self.after, self.before)}"


def _said(finding: RowFinding | None, other: RowFinding | None) -> str:
    if finding is None:
        return "absent"
    is_alike = other is not None and other.detail == finding.detail
    return finding.verdict if is_alike or not finding.detail else f"{finding.verdict} ({finding.detail})"


def changed_rows(before: Sequence[RowFinding], after: Sequence[RowFinding]) -> tuple[RowChange, ...]:
    """The items whose verdict or detail differs, in the order of now, then those that are gone."""
    old, new = _by_item(before), _by_item(after)
    pairs = [RowChange(old.get(key), finding) for key, finding in new.items()]
    pairs += [RowChange(finding, None) for key, finding in old.items() if key not in new]
    return tuple(pair for pair in pairs if _facts(pair.before) != _facts(pair.after))


def read_before(path: Path) -> Before:
    """Read the findings of an earlier probe.

    Raises:
      InputError: the file is no JSON of `qplan target probe` or `qplan target kit --check`.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        findings = tuple(
            RowFinding(**{key: _text(said) for key, said in row.items()}) for row in told["rows"]
        )
        version = _text(told.get("version", ""))
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} holds no findings of an earlier probe",
            hint="write them with qplan target probe --target T --json, or qplan target kit --check --json",
        ) from error
    return Before(findings, version)


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise TypeError(f"{said!r} is no text")
    return said


def _by_item(found: Sequence[RowFinding]) -> dict[tuple[str, int], RowFinding]:
    """Findings by item; rows without one are counted, since lines of a table move."""
    seen: Counter[str] = Counter()
    items = {}
    for finding in found:
        items[finding.name, seen[finding.name]] = finding
        seen[finding.name] += 1
    return items


def _facts(finding: RowFinding | None) -> tuple[str, str] | None:
    return None if finding is None else (finding.verdict, finding.detail)
