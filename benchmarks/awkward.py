"""Awkward models: what ours and onnxruntime's `quantize_static` make of each, as a table.

Each side of each model runs in a process of its own: some of them take the process down. Usage, from the
repository root: `python -m benchmarks.awkward [--only NAME ...] [--jobs 2] [--write]`; `--write` puts the
table into docs/results/awkward-models.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import onnxruntime

from tests.awkward.models import AWKWARD

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "awkward-models.md"
SIDES: Final = ("ours", "theirs")
VERDICTS: Final = ("ok", "refused", "useless", "invalid", "crash")
SECONDS: Final = 120

Record = dict[str, Any]


def run_side(side: str, name: str) -> Record:
    """Return one side's verdict on one model; a process that dies has crashed."""
    with tempfile.TemporaryDirectory(prefix="awkward.") as work:
        command = [sys.executable, "-m", "benchmarks.awkward_side", side, name]
        try:
            done = subprocess.run(
                command,
                cwd=work,  # onnxruntime's preprocessing leaves files where it runs
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return {"verdict": "crash", "note": f"not done after {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"verdict": "crash", "note": f"exit code {done.returncode}: {last}"[:150]}
    record: Record = json.loads(lines[-1])
    return record


def run(name: str) -> dict[str, Record]:
    """Return both sides' verdicts on one model."""
    return {side: run_side(side, name) for side in SIDES}


def cell(record: Record) -> str:
    """The verdict with its figures, or with what went wrong."""
    parts = [record["verdict"] if record["verdict"] == "ok" else f"**{record['verdict']}**"]
    if "db" in record:
        db = "exact" if record["db"] == float("inf") else f"{record['db']:.1f} dB"
        parts.append(f"{db}, {record['integer_ops']} integer / {record['float_ops']} float ops")
    parts += [record[key] for key in ("note", "remark") if record.get(key)]
    return "; ".join(parts).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def row(name: str, sides: dict[str, Record]) -> str:
    """One line of the table."""
    kind = (AWKWARD[name].__doc__ or "").strip().splitlines()
    told = kind[0].rstrip(".") if kind else ""
    shown = f"`{name}`" + (f": {told}" if told else "")
    cells = " | ".join(cell(sides[side]) for side in SIDES)
    return f"| {shown.replace('|', '/').replace('<', '&lt;')} | {cells} |"


def totals(found: Sequence[dict[str, Record]]) -> str:
    """How often each verdict was given to each side."""
    lines = ["| verdict | ours | onnxruntime |", "|---|---|---|"]
    counts = {side: Counter(sides[side]["verdict"] for sides in found) for side in SIDES}
    lines += [
        f"| {verdict} | {counts['ours'][verdict]} | {counts['theirs'][verdict]} |" for verdict in VERDICTS
    ]
    return "\n".join(lines)


def page(found: dict[str, dict[str, Record]]) -> str:
    """The Markdown page."""
    rows = "\n".join(row(name, sides) for name, sides in found.items())
    return f"""# Awkward models

Made by `python -m benchmarks.awkward --write`: each model of `tests/awkward` through our main job (target
`onnxruntime-cpu`, format `onnx-qdq`, default settings) and through `quantize_static` of onnxruntime
{onnxruntime.__version__} (QDQ, u8/s8, per channel, MinMax), with the same three samples. Theirs has four
attempts, the best counts: converted to opset 13 and preprocessed, without the one, the other, and both. One
function judges both files: valid by onnx's checker, loaded and run by onnxruntime with and without its
optimiser, with exact products of u8 and i8 on any processor, SQNR of the worst output against the float
model, operators in integers (products of stored integers, float results or not).

`refused` is an error of the planner's own that says what and where; `useless` is a file with nothing in
integers, below 10 dB, or bigger than its source; a model with nothing to quantize may stay as it is. For
ours, every format and three targets are tested in `tests/awkward/test_job.py`.

{totals(list(found.values()))}

| model | ours | onnxruntime `quantize_static` |
|---|---|---|
{rows}
"""


def main() -> None:
    """Run every model, print the table, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/results/awkward-models.md")
    options = parser.parse_args()
    found = {}
    names = options.only or list(AWKWARD)
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, sides in zip(names, pool.map(run, names), strict=True):
            found[name] = sides
            print(row(name, sides), flush=True)
    print(totals(list(found.values())))
    if options.write:
        PAGE.write_text(page(found), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
