"""Ours beside onnxruntime's `quantize_static`: time, memory, integer ops, SQNR, latency, in one run.

Same samples, same machine, the two sides in turn; ratios are what counts. Usage, from the repository
root: `python -m benchmarks.main_job [--only NAME ...] [--chain BLOCKS ...] [--repeat 3] [--write]`;
`--write` puts the tables into docs/benchmarks.md.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx
import onnxruntime

from benchmarks.comparison import OPTIMIZED, Record, latencies_ms, mac_share, measure, open_session
from benchmarks.onnxruntime_baseline import Case, PhaseFailed, cases, quantize
from benchmarks.samples import models

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PLANNING: Final = ("plan_s", "export_s")  # `export` checks the plan first
EVERY: Final = ("read_s", "calibrate_s", "target_s", "annotate_s", *PLANNING, "write_s", "total_s")


def our_side(case: Case, work: Path, repeat: int) -> Record:
    """Run our job `repeat` times in processes of its own; median times, largest memory.

    Raises:
      PhaseFailed: with the last line of the error.
    """
    command = [sys.executable, "-m", "benchmarks.our_quantize", case.model.path, work / "samples", work]
    runs: list[Record] = []
    for _ in range(repeat):
        done = subprocess.run(
            [str(item) for item in command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PhaseFailed(f"ours: exit code {done.returncode}: {last}")
        runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    record = dict(runs[-1])
    record |= {key: statistics.median(run[key] for run in runs) for key in EVERY}
    record["rss_mb"] = max(run["rss_mb"] for run in runs)
    return record


def both_sides(case: Case, repeat: int) -> Record:
    """Measure one model on both sides; the other side's failure is a result, too."""
    record: Record = {"model": case.model.name}
    with tempfile.TemporaryDirectory(prefix="main_job.") as scratch:
        work = Path(scratch)
        try:
            record["theirs"] = quantize(case.model, case.calibration, work, repeat)
            record["theirs"] |= measure(case.model.path, work / "static.onnx", case.held_out, work)
        except Exception as error:  # noqa: BLE001 - recorded, and shown in the table
            record["theirs_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        record["ours"] = our_side(case, work, repeat)
        record["ours"] |= measure(case.model.path, work / "ours.onnx", case.held_out, work)
        files = [work / "ours.onnx", work / "static.onnx"]
        if all(path.exists() for path in files):
            sessions = [open_session(path, OPTIMIZED) for path in files]
            record["ours_ms"], record["theirs_ms"] = latencies_ms(sessions, case.held_out[0])
    return record


def planning_s(ours: Record) -> float:
    """Plan + check + export, seconds."""
    return sum(ours[key] for key in PLANNING)


def speed_row(record: Record) -> str:
    """Time, memory, latency as ratios (ours : theirs; below 1 we are faster or smaller)."""
    ours, theirs = record["ours"], record.get("theirs")
    mine = f"| {record['model']} | {planning_s(ours):.3f} "
    if theirs is None or "static_s" not in theirs or "ours_ms" not in record:
        return (
            f"{mine}| - | - | {ours['total_s']:.2f} | - | - | {ours['rss_mb']:.0f} | - | - | "
            f"{record.get('theirs_error', 'no file')[:90]} |"
        )
    return (
        f"{mine}| {theirs['quantize_s']:.3f} | {planning_s(ours) / theirs['quantize_s']:.2f} "
        f"| {ours['total_s']:.2f} | {theirs['static_s']:.2f} | {ours['total_s'] / theirs['static_s']:.2f} "
        f"| {ours['rss_mb']:.0f} | {theirs['rss_mb']:.0f} "
        f"| {record['ours_ms'] / record['theirs_ms']:.2f} |  |"
    )


def quality_row(record: Record) -> str:
    """SQNR of each output, ops and multiply-adds in integer, Q/DQ nodes, rescales."""
    ours, theirs = record["ours"], record.get("theirs", {})
    outputs = []
    for name, mine in ours["sqnr_db"].items():
        other = theirs.get("sqnr_db", {}).get(name)
        outputs.append(
            f"{mine:.1f} / {other:.1f} ({mine - other:+.1f})" if other is not None else f"{mine:.1f} / -"
        )
    nodes = f"{ours['quantize_nodes']}/{ours['dequantize_nodes']}"
    left = ", ".join(f"{kind} {number}" for kind, number in ours["float_ops"].items()) or "-"
    their_left = ", ".join(f"{k} {n}" for k, n in theirs.get("float_ops", {}).items()) or "-"
    their_nodes = (
        f"{theirs['quantize_nodes']}/{theirs['dequantize_nodes']}" if "quantize_nodes" in theirs else "-"
    )
    share = f"{100 * mac_share(ours['macs']):.1f}"
    their_share = f"{100 * mac_share(theirs['macs']):.1f}" if "macs" in theirs else "-"
    least = "yes" if ours["optimal"] else f"within {100 * (ours['cost'] / ours['bound'] - 1):.1f} %"
    return (
        f"| {record['model']} | {'; '.join(outputs)} | {share} / {their_share} | {left} | {their_left} "
        f"| {nodes} | {their_nodes} | {ours['rescales']} | {least} |"
    )


SPEED_HEAD: Final = (
    "| model | plan+check+export s | their quantize s | ratio | whole job s | theirs s | ratio "
    "| peak MB | theirs | latency ratio | note |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
QUALITY_HEAD: Final = (
    "| model | SQNR dB, ours / theirs per output | integer MACs % | float ops, ours | float ops, theirs "
    "| Q/DQ | theirs | rescales | least price |\n|---|---|---|---|---|---|---|---|---|"
)


def page(records: Sequence[Record]) -> str:
    """The Markdown page."""
    better = sum(
        min(r["ours"]["sqnr_db"][n] - r["theirs"]["sqnr_db"][n] for n in r["ours"]["sqnr_db"]) > 0
        for r in records
        if "sqnr_db" in r.get("theirs", {})
    )
    compared = sum("sqnr_db" in r.get("theirs", {}) for r in records)
    return f"""# Benchmarks

Made by `make bench` (`python -m benchmarks.main_job --write`): our main job (target `onnxruntime-cpu`,
format `onnx-qdq`, default settings) beside `quantize_static` of onnxruntime {onnxruntime.__version__}
(QDQ, u8/s8, per channel, MinMax, after its preprocessing). 32 calibration and 32 held-out samples, the
same on both sides, each job in a process of its own, the two sides in turn. Seconds depend on the machine
({platform.machine()}, Python {platform.python_version()}) and its load; the ratios are what counts
(below 1: ours is faster or smaller).

SQNR is measured in onnxruntime with `ORT_DISABLE_ALL`, latency with `ORT_ENABLE_ALL` on one thread.
Ours is better on every output of {better} of {compared} models.

## Speed
{SPEED_HEAD}
{chr(10).join(speed_row(record) for record in records)}

## Quality
{QUALITY_HEAD}
{chr(10).join(quality_row(record) for record in records)}
"""


def main() -> None:
    """Measure, print both tables, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--chain", nargs="*", type=int, default=[], metavar="BLOCKS")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    records = []
    with tempfile.TemporaryDirectory(prefix="chains.") as folder:
        chosen = options.only or [model.name for model in models()]
        for case in cases(chosen, options.chain, options.samples, Path(folder)):
            records.append(both_sides(case, options.repeat))
            print(speed_row(records[-1]))
            print(quality_row(records[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"onnx": onnx.__version__, "models": records}, indent=1), "utf-8")
    if options.write:
        PAGE.write_text(page(records), "utf-8")


if __name__ == "__main__":
    main()
