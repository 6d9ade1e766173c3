"""The whole job's time beside onnxruntime's static quantization, in turn in one run.

Usage, from the repository root: `python -m benchmarks.shipped.paired [--write] [--models NAME ...]
[--cache DIR]`. Ours is `qplan quantize --effort quick`: calibration, plan, file and its evaluation. The other
side calibrates and writes a file, evaluates nothing. So a pass of the float model over the samples, in the
engine, stands beside. Whole processes, imports included; the least of `TURNS` turns.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.samples import write_samples
from benchmarks.shipped.__main__ import JSON, read, write_page
from benchmarks.shipped.data import Made
from benchmarks.shipped.measuring import open_session
from benchmarks.shipped.sides import Job, Side, make, onnxruntime, ours
from benchmarks.shipped.tasks import TASKS, made_ready
from benchmarks.shipped.wheels import default_cache

Record = dict[str, Any]
TURNS: Final = 2
SIDES: Final[dict[str, Side]] = {
    "ours": partial(ours, ["--effort", "quick"]),
    "onnxruntime": partial(onnxruntime, "static"),
}


def measured(name: str, made: Made, cache: Path) -> Record:
    """Return seconds of both sides and of a pass over the samples; of a side that fails, what it said."""
    work = cache / "paired" / name
    samples = work / "samples"
    for old in samples.glob("*.npz"):
        old.unlink()
    write_samples(samples, made.calibration)
    record: Record = {"model": name, "pass": _pass(made)}
    for _ in range(TURNS):
        for side, run in SIDES.items():
            written = make(run, Job(made.model, samples, work / side, cache, is_transformer=False))
            if isinstance(written, str):
                record[f"{side}_said"] = written
            else:
                record[side] = min(written.seconds, record.get(side, written.seconds))
    return record


def _pass(made: Made) -> float:
    session = open_session(made.model)
    began = time.perf_counter()
    for sample in made.calibration:
        session.run(None, dict(sample))
    return time.perf_counter() - began


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [task.name for task in TASKS]
    parser.add_argument("--models", nargs="*", default=names, choices=names, metavar="NAME")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for task, made in made_ready(given.models, given.cache):
        record = json.loads(json.dumps(measured(task.name, made, given.cache)), parse_float=_short)
        print(json.dumps(record), flush=True)
        if given.write:
            results = read()
            others = [one for one in results.get("paired", []) if one["model"] != task.name]
            results["paired"] = sorted([*others, record], key=lambda one: names.index(one["model"]))
            JSON.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            write_page(results)


def _short(text: str) -> float:
    return round(float(text), 2)


if __name__ == "__main__":
    main()
