"""onnxruntime's own static quantizer on every test model: the figures to beat.

QDQ, u8 activations, s8 weights, per channel, MinMax, after its preprocessing. Every phase runs in a
process of its own, `--repeat` times (median times, largest memory). Usage, from the repository root:
`python -m benchmarks.onnxruntime_baseline [--out JSON] [--keep DIR] [--only NAME ...] [--chain BLOCKS ...]`.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
import onnxruntime

from benchmarks.chain import chain_samples, write_chain
from benchmarks.comparison import Record, mac_share, measure, sorted_counts
from benchmarks.counting import float_ops
from benchmarks.samples import BenchModel, Sample, evaluation, models, samples, write_samples

REPEATED: Final = ("pieces", "static", "cached")
TIMES: Final = ("static_s", "load_s", "calibrate_s", "quantize_s", "quantize_first_s", "cached_s")
SHOWN: Final = ("static_s", "load_s", "calibrate_s", "quantize_s", "cached_s")


@dataclass(frozen=True, slots=True)
class Case:
    """A model with its calibration and its held-out samples."""

    model: BenchModel
    calibration: list[Sample]
    held_out: list[Sample]


class PhaseFailed(Exception):
    """A phase of onnxruntime's quantizer ended with an error; the text is its last line."""


def run_phase(phase: str, source: Path, sample_folder: Path, work: Path) -> Record:
    """Run one phase of `ort_quantize` and return its figures.

    Raises:
      PhaseFailed: with the error text.
    """
    paths = [str(path) for path in (source, sample_folder, work)]
    command = [sys.executable, "-m", "benchmarks.ort_quantize", phase, *paths]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PhaseFailed(f"{phase}: exit code {done.returncode}: {last}")
    figures: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def prepare(source: Path, sample_folder: Path, work: Path) -> Record:
    """Write `work/preprocessed.onnx`, and one that its quantizer accepts where that fails.

    Raises:
      PhaseFailed: neither did.
    """
    prepared = work / "preprocessed.onnx"
    record = run_phase("preprocess", source, sample_folder, work)
    try:
        run_phase("pieces", prepared, sample_folder, work)
    except PhaseFailed as error:
        record = run_phase("convert", source, sample_folder, work)
        record["preprocess_note"] = f"opset converted and not preprocessed, as that ended with: {error}"
    del record["rss_mb"], record["import_rss_mb"]
    return record


def quantize(
    model: BenchModel, batch: list[Sample], work: Path, repeat: int, phases: Sequence[str] = REPEATED
) -> Record:
    """Quantize with onnxruntime into `work` and return times (s) and peak memory (MB).

    Args:
      model: the float file.
      batch: calibration samples.
      work: a folder for what the phases write.
      repeat: how often each phase runs; the quantize phase also runs several times in its process.
      phases: `pieces` and `static`, and `cached` or not.

    Raises:
      PhaseFailed: a phase ended with an error.
    """
    folder = work / "samples"
    write_samples(folder, batch)
    record = prepare(model.path, folder, work)
    runs = [
        {phase: run_phase(phase, work / "preprocessed.onnx", folder, work) for phase in phases}
        for _ in range(repeat)
    ]
    merged = [{key: value for figures in run.values() for key, value in figures.items()} for run in runs]
    record |= {key: statistics.median(run[key] for run in merged) for key in TIMES if key in merged[0]}
    record["rss_mb"] = max(run["static"]["rss_mb"] for run in runs)
    record["import_rss_mb"] = max(run["static"]["import_rss_mb"] for run in runs)
    record["pieces_equal_static"] = _same_graph(work / "pieces.onnx", work / "static.onnx")
    return record


def _same_graph(left: Path, right: Path) -> bool:
    return onnx.load(left).graph == onnx.load(right).graph


def baseline(case: Case, repeat: int, keep: Path | None) -> Record:
    """Return all figures of one model, or what went wrong under `error`."""
    model = case.model
    record: Record = {"model": model.name, "source_ops": sorted_counts(float_ops(onnx.load(model.path)))}
    with tempfile.TemporaryDirectory(prefix="baseline.") as scratch:
        work = Path(scratch)
        try:
            record |= quantize(model, case.calibration, work, repeat)
            record["preprocessed_ops"] = sorted_counts(float_ops(onnx.load(work / "preprocessed.onnx")))
            record |= measure(model.path, work / "static.onnx", case.held_out, work)
        except Exception as error:  # noqa: BLE001 - the other side's failure is a result, too
            record["error"] = f"{type(error).__name__}: {error}"
        if keep is not None:
            _keep(work, keep, model.name)
    return record


def _keep(work: Path, keep: Path, name: str) -> None:
    keep.mkdir(parents=True, exist_ok=True)
    for part in ("preprocessed", "static", "optimized"):
        if (work / f"{part}.onnx").exists():
            shutil.copyfile(work / f"{part}.onnx", keep / f"{name}.{part}.onnx")


def row(record: Record) -> str:
    """Return one line of the table."""
    if "error" in record:
        return f"{record['model']:24} {record['error']}"
    nodes = f"{record['quantize_nodes']}/{record['dequantize_nodes']}"
    left = ", ".join(f"{kind} {number}" for kind, number in record["float_ops"].items()) or "-"
    return (
        f"{record['model']:24} "
        + " ".join(f"{record[key]:6.2f}" for key in SHOWN)
        + f" {record['rss_mb']:6.0f} {nodes:>8} "
        f"{record['sqnr_worst_db']:6.1f} {min(record['sqnr_optimized_db'].values()):6.1f} "
        f"{sum(record['integer_ops'].values()):5} {100 * mac_share(record['macs']):6.2f} "
        f"{record['float_ms'] / record['integer_ms']:5.2f}x  {left}"
    )


def cases(only: Sequence[str], blocks: Sequence[int], count: int, folder: Path) -> Iterator[Case]:
    """Yield the models named in `only` (all if empty), then a chain for each number of blocks."""
    for model in models():
        if model.name in only or not (only or blocks):
            yield Case(model, samples(model.name, model.path, count), evaluation(model.name, model.path))
    for number in blocks:
        chain = write_chain(folder, number)
        yield Case(chain, chain_samples(count, held_out=False), chain_samples(32, held_out=True))


HEADER: Final = (
    f"{'model':24} {'static':>6} {'load':>6} {'calib':>6} {'quant':>6} {'cached':>6} {'RSS MB':>6} "
    f"{'Q/DQ':>8} {'SQNR':>6} {'fused':>6} {'int':>5} {'MAC %':>6} {'speed':>6}  float ops left"
)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--chain", nargs="*", type=int, default=[], metavar="BLOCKS")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--samples", type=int, default=32)
    options = parser.parse_args()
    print(HEADER)
    records = []
    with tempfile.TemporaryDirectory(prefix="chains.") as folder:
        for case in cases(options.only, options.chain, options.samples, Path(folder)):
            records.append(baseline(case, options.repeat, options.keep))
            print(row(records[-1]), flush=True)
    if options.out is not None:
        versions = {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}
        options.out.write_text(
            json.dumps({"versions": versions, "models": records}, indent=1) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
