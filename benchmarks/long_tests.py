"""tests/long.txt: tests that take half a second or more somewhere, which `make check` leaves out.

Usage, from the repository root, after `make test`: `python -m benchmarks.long_tests out/tests.xml`.
"""

import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET  # our own pytest wrote the file

LIST: Final = Path(__file__).resolve().parents[1] / "tests" / "long.txt"
SECONDS: Final = 0.5
KEPT: Final = frozenset({"tests/plans/test_revision.py::test_a_key_stands_for_one_plan"})
"""Long tests that every commit is to pass: what they find, the author has to act on."""


def long_tests(report: Path) -> list[str]:
    """The names of the functions of a JUnit report with a case that takes so long."""
    found = set()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314
        module, name = case.get("classname", ""), case.get("name", "")
        if float(case.get("time", "0")) >= SECONDS:
            found.add(f"{module.replace('.', '/')}.py::{name.partition('[')[0]}")
    return sorted(found - KEPT)


if __name__ == "__main__":
    LIST.write_text("\n".join(long_tests(Path(sys.argv[1]))) + "\n", encoding="utf-8")
