"""Every model of ours on every shipped target: kernels served, kernels left in float and why, rescales.

Each model is planned and checked in a process of its own. Usage, from the repository root:
`python -m benchmarks.target_matrix [--only MODEL ...] [--targets T ...] [--json FILE] [--read FILE]
[--write]`; `--read` takes the records of an earlier `--json` in place of a run, or adds those of `--only` to
them; `--write` puts the tables into docs/results/matrix.md. The exit code is 1 where something crashed or a
kernel fell back without a reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.light import light_names
from benchmarks.matrix_page import page
from benchmarks.samples import model_folder
from planner.target.load import target_ids

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "matrix.md"
SECONDS: Final = 900

Record = dict[str, Any]


def model_names() -> list[str]:
    """Names of all models: files of the model folder as `folder/stem`, then the light ones."""
    folder = model_folder()
    files = [path.relative_to(folder).with_suffix("") for path in sorted(folder.glob("*/*.onnx"))]
    return [*(path.as_posix() for path in files), *light_names()]


def measure(name: str, targets: Sequence[str]) -> list[Record]:
    """Plan a model for targets in a process of its own; one record a target, with `error` where it failed."""
    with tempfile.TemporaryDirectory(prefix="matrix.") as work:
        out = Path(work) / "records.json"
        command = [sys.executable, "-m", "benchmarks.target_matrix_side", name, str(out), *targets]
        try:
            done = subprocess.run(
                command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return [_lost(name, target, f"took more than {SECONDS} s") for target in targets]
        if done.returncode or not out.is_file():
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return [_lost(name, target, last) for target in targets]
        records: list[Record] = json.loads(out.read_text(encoding="utf-8"))
        return records


def _lost(model: str, target: str, error: str) -> Record:
    return {"model": model, "target": target, "crash": error}


def problems(records: Iterable[Record]) -> Iterator[str]:
    """Say what must not be: a crash, an invalid plan, a kernel in float without a reason."""
    for record in records:
        where = f"{record['model']} on {record['target']}"
        if "crash" in record:
            yield f"{where}: {record['crash']}"
        for entry in record.get("floats", ()):
            if not entry["reason"]:
                yield f"{where}: {entry['kernel']} is in float without a reason"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.target_matrix")
    parser.add_argument("--only", nargs="*", metavar="MODEL")
    parser.add_argument("--targets", nargs="*", metavar="T", default=list(target_ids()))
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--read", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    records: dict[tuple[str, str], Record] = {}
    if options.read:
        earlier = json.loads(options.read.read_text(encoding="utf-8"))
        records = {(record["model"], record["target"]): record for record in earlier}
    wanted = options.only if options.only is not None else [] if options.read else model_names()
    for name in wanted:
        for record in measure(name, options.targets):
            records[record["model"], record["target"]] = record
        print(name, file=sys.stderr, flush=True)
    order = {name: i for i, name in enumerate(model_names())}
    kept = sorted(records.values(), key=lambda r: (order.get(r["model"], len(order)), r["target"]))
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    text = page(kept)
    if options.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    else:
        print(text)
    wrong = list(problems(kept))
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
