"""docs/results/soak.md from what `make soak` wrote: each test, how much it did, how long, at which commit.

Usage, from the repository root:
`python -m benchmarks.soak_page out/soak.xml [MORE.xml ...] docs/results/soak.md`,
with a report for each part where it did not run in one piece; of a test run again the last run counts.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET  # our own pytest wrote the file

HEAD: Final = """\
# What `make soak` found

Made by `make soak`, tests that take longer than everyday work allows: in {parts}, ended at commit `{commit}`
of {date}. {passed} passed, {failed} failed, {skipped} skipped; {minutes:.0f} minutes.

| test | did | found | seconds |
|---|---|---|---|
"""


def page(reports: Sequence[Path]) -> str:
    """The page of JUnit reports, one a part; tests without a count are summed up."""
    roots = [ET.parse(report).getroot() for report in reports]  # noqa: S314
    cases = {
        (case.get("classname"), case.get("name")): case for root in roots for case in root.iter("testcase")
    }
    rows, ended, seconds = [], {"passed": 0, "failed": 0, "skipped": 0}, 0.0
    for case in cases.values():
        state = "skipped" if case.find("skipped") is not None else "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            state = "failed"
        ended[state] += 1
        took = float(case.get("time", "0"))
        seconds += took
        told = {p.get("name"): p.get("value") for p in case.iter("property")}
        if told or state == "failed":
            found = "; ".join(f"{name}: {text}" for name, text in told.items() if name != "count")
            name = f"{case.get('classname', '').removeprefix('tests.')}.{case.get('name')}"
            rows.append(f"| `{name}` | {told.get('count', '')} | {state}; {found} | {took:.0f} |")
    parts = "one piece" if len(roots) == 1 else f"{len(roots)} parts"
    return (
        HEAD.format(parts=parts, commit=_git("%h"), date=_git("%cs"), minutes=seconds / 60, **ended)
        + "\n".join(rows)
        + "\n"
    )


def _git(what: str) -> str:
    line = ["git", "log", "-1", f"--format={what}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    *reports, target = (Path(name) for name in sys.argv[1:])
    target.write_text(page(reports), encoding="utf-8")
