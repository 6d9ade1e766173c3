"""Qonnx's own pytest suite, its entry points calling ours: counts per file, and each miss with its reason.

`make qonnx-suite`, or `python -m benchmarks.qonnx_suite --source QONNX --python ENV/bin/python [--most N]
[--write]`: QONNX is a checkout of qonnx, ENV an environment of tests/oracles/qonnx-suite.txt; nothing of
qonnx is in this repository. Each test runs twice, with qonnx alone and with `benchmarks.qonnx_shim`; those
that fail with qonnx alone (they fetch models, say) do not count. All 14,787 take 40 minutes on two cores;
`--most` takes N of a file, evenly spread. `--write` puts the tables into docs/results/qonnx-suite.md.
"""

import argparse
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "qonnx-suite.md"
SHIM: Final = "benchmarks.qonnx_shim"
_LONG: Final = 160
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")
"""Of an object, which differs from run to run."""
_TEXT: Final = """# qonnx's own tests

Made by `make qonnx-suite` (`python -m benchmarks.qonnx_suite --write`): the tests of qonnx at VERSION,
once with qonnx alone and once with its executor, shape and datatype inference, cleanup, pruning, batch size
and those of its transformations that `qplan convert` has ([by name](../qonnx.md#qonnxs-tools-by-name))
calling ours. TAKEN What fails with qonnx alone, without a network, does not count; what it skips itself is
no test.

| file | tests | pass with qonnx | pass with ours |
|---|---|---|---|
ROWS

## Misses
| file | tests | one of them | what it says | why |
|---|---|---|---|---|
MISSES
"""
_REASONS: Final = (
    ("type: tensor(int8)", "Its Add of int8 is of an opset that has none: refused as by onnx's checker."),
    ("GenericPartition", "A node that stands for a model in another file: qonnx alone opens these."),
    ("its scale is", "It draws scales from a normal distribution: one not above 0 is refused."),
    ("BipolarQuant at", "It gives BipolarQuant three operands of two."),
    ("with f64", "Its model declares float32 and computes float64: refused, as engines refuse it."),
    ("roi_resize", "Its Resize reads a name that nothing defines."),
    ("internal_rounding", "qonnx rounds what is annotated as integers; a run is what the file says."),
)
"""Of what a miss says, or of the test's name: why it is one."""


def run(source: Path, python: Path, report: Path, *, alone: bool, most: int) -> None:
    """Run the suite, its results into a JUnit file."""
    command = [python, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["-p", SHIM]
    environment = {
        "PYTHONPATH": f"{source / 'src'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(report.parent),
    }
    environment |= {"QONNX_MOST": str(most)} if most else {}
    environment |= {"QONNX_ALONE": "1"} if alone else {}
    subprocess.run(command, cwd=source, env=environment, check=False, capture_output=True)


def results(report: Path) -> Mapping[tuple[str, str], str]:
    """What each test ends in: "" where it passes, else its reason; skipped ones are left out."""
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - written by our own run
    found = {}
    for case in cases:
        wrong = [*case.iter("failure"), *case.iter("error")]
        if case.find("skipped") is None:
            said = wrong[0].get("message", "") if wrong else ""
            key = (case.get("classname", ""), case.get("name", ""))
            found[key] = _ADDRESS.sub("0x..", " ".join(said.split()))[:_LONG] or ("failed" if wrong else "")
    return found


def page(
    alone: Mapping[tuple[str, str], str], ours: Mapping[tuple[str, str], str], version: str, most: int
) -> str:
    """The tables in Markdown."""
    files: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in alone:
        files[key[0]].append(key)
    rows, misses, totals = [], [], [0, 0, 0]
    for name, keys in sorted(files.items()):
        counted = [key for key in keys if not alone[key]]
        passed = [key for key in counted if ours.get(key, "not run") == ""]
        rows.append(f"| `{name.removeprefix('tests.')}` | {len(keys)} | {len(counted)} | {len(passed)} |")
        totals = [a + b for a, b in zip(totals, (len(keys), len(counted), len(passed)), strict=True)]
        misses_of: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key in counted:
            if key not in passed:
                said = ours.get(key, "not run")
                misses_of[_why(key[1], said) or said].append((key[1], said))
        misses += [
            f"| `{name.removeprefix('tests.')}` | {len(found)} | `{found[0][0]}` | {_plain(found[0][1])} | "
            f"{_why(*found[0]) or 'not looked into'} |"
            for _, found in sorted(misses_of.items())
        ]
    rows.append(f"| all | {totals[0]} | {totals[1]} | {totals[2]} |")
    taken = (
        f"Of a file with more than {most} tests those are spread evenly."
        if most
        else "All tests of all files."
    )
    tables = {"TAKEN": [taken], "ROWS": rows, "MISSES": misses, "VERSION": [version]}
    text = _TEXT
    for key, lines in tables.items():
        text = text.replace(key, "\n".join(lines))
    return text


def _why(test: str, said: str) -> str:
    return next((why for key, why in _REASONS if key in said or key in test), "")


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "&lt;").replace("`", "'")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--version", default="its main branch")
    parser.add_argument("--most", type=int, default=0, help="of a file; 0 is all")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    source, python = given.source.absolute(), given.python.absolute()
    with tempfile.TemporaryDirectory(prefix="qonnx-suite.") as folder:
        reports = [Path(folder) / f"{name}.xml" for name in ("alone", "ours")]
        for report, alone in zip(reports, (True, False), strict=True):
            run(source, python, report, alone=alone, most=given.most)
        text = page(*map(results, reports), given.version, given.most)
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
