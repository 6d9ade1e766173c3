"""Qonnx's own pytest suite, its entry points calling ours: counts per file, and each miss with its reason.

`python -m benchmarks.qonnx_suite --source QONNX --python ENV/bin/python [--write]`: QONNX is a checkout of
qonnx, ENV an environment with this project, onnx 1.20, qonnx's requirements and pytest; nothing of qonnx is
in this repository. Each test (of a file of thousands, 40) runs twice, with qonnx alone and with
`benchmarks.qonnx_shim`; those that fail with qonnx alone (they fetch models, say) do not count. `--write`
puts the tables into docs/results/qonnx-suite.md.
"""

import argparse
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
_TEXT: Final = """# qonnx's own tests

Made by `python -m benchmarks.qonnx_suite --write`: the tests of qonnx at VERSION, once with qonnx alone and
once with its executor, shape inference, cleanup and those of its transformations that `qplan convert` has
([by name](../qonnx.md#qonnxs-tools-by-name)) calling ours. What fails with qonnx alone, without a network,
does not count. Of a file with more than 40 tests those are spread evenly.

| file | tests | pass with qonnx | pass with ours |
|---|---|---|---|
ROWS

## Misses
| file | tests | one of them | what it says |
|---|---|---|---|
MISSES
"""


def run(source: Path, python: Path, *, alone: bool) -> Mapping[tuple[str, str], str]:
    """What each test ends in: "" where it passes, else its reason; skipped ones are left out."""
    with tempfile.TemporaryDirectory(prefix="qonnx-suite.") as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-p", SHIM]
        paths = f"{source / 'src'}:{ROOT}"
        environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": folder}
        environment |= {"QONNX_ALONE": "1"} if alone else {}
        subprocess.run(command, cwd=source, env=environment, check=False, capture_output=True)
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - written by our own run
    found = {}
    for case in cases:
        wrong = [*case.iter("failure"), *case.iter("error")]
        if case.find("skipped") is None:
            said = wrong[0].get("message", "") if wrong else ""
            key = (case.get("classname", ""), case.get("name", ""))
            found[key] = " ".join(said.split())[:_LONG] or ("failed" if wrong else "")
    return found


def page(alone: Mapping[tuple[str, str], str], ours: Mapping[tuple[str, str], str], version: str) -> str:
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
        reasons: dict[str, list[str]] = defaultdict(list)
        for key in counted:
            if key not in passed:
                reasons[ours.get(key, "not run")].append(key[1])
        misses += [
            f"| `{name.removeprefix('tests.')}` | {len(tests)} | `{tests[0]}` | {_plain(reason)} |"
            for reason, tests in sorted(reasons.items())
        ]
    rows.append(f"| all | {totals[0]} | {totals[1]} | {totals[2]} |")
    tables = {"ROWS": rows, "MISSES": misses, "VERSION": [version]}
    text = _TEXT
    for key, lines in tables.items():
        text = text.replace(key, "\n".join(lines))
    return text


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("<", "&lt;").replace("`", "'")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--version", default="its main branch")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    python = given.python.absolute()
    text = page(run(given.source, python, alone=True), run(given.source, python, alone=False), given.version)
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
