"""Lint: parts of a target that are legal and yet surely not meant, by stable code.

`load_target` refuses a target with findings of severity `error`; the others are for `target lint`. No check
looks at a model. One function a code, by noun (`rows`, `fusions`, `file`, `words`); `CHECKS`.
Source: docs/command.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from planner.target.lint import file as lintfile
from planner.target.lint import fusions as lintfusions
from planner.target.lint import inherited as lintinherited
from planner.target.lint import limits as lintlimits
from planner.target.lint import rows as lintrows
from planner.target.lint import words as lintwords
from planner.target.lint.rows import Found
from planner.target.records import Target
from planner.target.yamltree import Source

Severity: TypeAlias = Literal["error", "warning"]
Check: TypeAlias = Callable[[Target], Found]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding in a target: where (line and column from 1), its code, its severity, a message."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}"


def lint(target: Target) -> tuple[Finding, ...]:
    """List the findings, by position, then code."""
    return _findings(target, ("error", "warning"))


def lint_errors(target: Target) -> tuple[Finding, ...]:
    """List the findings for which `load_target` refuses a file."""
    return _findings(target, ("error",))


def quote(target: Target, finding: Finding) -> str:
    """The line of the file that a finding is about; "" where it is not known."""
    text = target.texts.get(finding.file)
    return "" if text is None else Source(finding.file, text).quote(finding.line, finding.column)


def finding_text(target: Target, finding: Finding) -> str:
    """`file:line:column: CODE message [severity] | the line`."""
    quoted = quote(target, finding)
    return f"{finding} [{finding.severity}]" + (f" | {quoted}" if quoted else "")


def _findings(target: Target, severities: tuple[Severity, ...]) -> tuple[Finding, ...]:
    found = [
        _finding(target, code, severity, source, message)
        for code, (severity, check) in CHECKS.items()
        if severity in severities
        for source, message in dict.fromkeys(check(target))
    ]
    return tuple(sorted(found, key=lambda f: (f.file != target.file, f.file, f.line, f.column, f.code)))


def _finding(target: Target, code: str, severity: Severity, source: str, message: str) -> Finding:
    if source in target.places:
        return Finding(*target.places[source], code, severity, message)
    file, _, line = source.rpartition(":")
    if not file:
        return Finding(target.file, 1, 1, code, severity, message)
    column = target.columns.get(source) or _indent(target, file, int(line))
    return Finding(file, int(line), column, code, severity, message)


def _indent(target: Target, file: str, line: int) -> int:
    """Column of the first character of a line that is no blank."""
    lines = target.texts.get(file, "").splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    return len(text) - len(text.lstrip()) + 1


def unreadable_predicate(target: Target) -> Found:
    """L016: a predicate of a fusion or a row that cannot be read."""
    yield from lintfusions.unreadable_where(target)
    yield from lintrows.unreadable_when(target)


CHECKS: Final[Mapping[str, tuple[Severity, Check]]] = {
    "L001": ("error", lintrows.unknown_port),
    "L002": ("warning", lintrows.shadowed_row),
    "L003": ("error", lintrows.fixed_outside),
    "L004": ("warning", lintrows.differing_storages),
    "L005": ("error", lintfusions.unreadable_pattern),
    "L006": ("warning", lintfusions.never_matches),
    "L007": ("warning", lintfusions.fused_without_rows),
    "L008": ("warning", lintfusions.ports_do_not_fit),
    "L009": ("warning", lintfusions.shadowed_fusion),
    "L010": ("warning", lintfusions.idle_predicate),
    "L011": ("warning", lintfile.without_tests),
    "L012": ("warning", lintrows.wildcard_without_default),
    "L013": ("warning", lintrows.idle_axis),
    "L014": ("warning", lintrows.decided_twice),
    "L015": ("warning", lintfile.unused_type),
    "L016": ("error", unreadable_predicate),
    "L017": ("error", lintfile.unreadable_model),
    "L018": ("warning", lintrows.overlapping_rows),
    "L019": ("warning", lintrows.kernel_of_nothing),
    "L020": ("warning", lintfile.unknown_kernel),
    "L021": ("warning", lintfile.unused_group),
    "L022": ("warning", lintrows.narrow_accumulator),
    "L023": ("error", lintrows.forbidden_scale),
    "L024": ("warning", lintrows.unreachable_bits),
    "L025": ("warning", lintfile.tests_of_one_name),
    "L026": ("warning", lintrows.axis_left_out),
    "L027": ("warning", lintrows.idle_computes),
    "L028": ("warning", lintrows.mixed_granularity),
    "L029": ("warning", lintrows.shift_without_powers),
    "L030": ("warning", lintrows.odd_default),
    "L031": ("warning", lintwords.unknown_attribute),
    "L032": ("warning", lintwords.legalized_into_nothing),
    "L033": ("warning", lintwords.lone_scale),
    "L034": ("warning", lintwords.derived_from_itself),
    "L035": ("warning", lintfusions.idle_accumulator),
    "L036": ("warning", lintwords.derived_in_a_circle),
    "L037": ("warning", lintrows.scale_of_a_float),
    "L038": ("warning", lintwords.text_for_a_number),
    "L039": ("error", lintrows.too_narrow_for_a_product),
    "L040": ("error", lintrows.fixed_apart),
    "L041": ("warning", lintfile.idle_wanted_float),
    "L042": ("error", lintfusions.ports_in_another_order),
    "L043": ("warning", lintinherited.limit_without_effect),
    "L044": ("error", lintlimits.beyond_limits),
    "L045": ("error", lintlimits.too_many_steps),
    "L046": ("warning", lintfile.unknown_format),
    "L047": ("warning", lintwords.unmet_bounds),
}
"""Severity and check by code; codes are never reused."""
