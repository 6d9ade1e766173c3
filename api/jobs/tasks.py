"""Tasks of a child that only jobs ask for: calibrating, in shards or whole, and comparing.

A calibration may be cut into shards of samples, each a power of two of them: then every mean of a shard times
its samples is the very sum that calibrating in one piece has, and the merged statistics are the same to the
last bit, wherever the shards ran. Source: design 06; design 09, "Statistics".
"""

import json
import math
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from api.intake.scan import scan_onnx
from api.intake.scan_zip import scan_npz
from planner.accuracy.metrics import SQNR, Score
from planner.accuracy.quality import Quality
from planner.calibration.run import calibrate, require_numbers
from planner.calibration.samples import Samples, open_samples
from planner.calibration.shards import merge_shards
from planner.calibration.statistics import Statistics
from planner.calibration.statsjson import read_statistics, write_statistics
from planner.interpreter.compare import compare
from planner.ir.expand import expand
from planner.ir.graph import Graph

MOST_LISTED: Final = 100
THREADS: Final = 1

Arguments = Mapping[str, Any]


def calibrate_model(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Run samples through a model and write statistics.

    Args:
      job: `samples`, a file; `method`; `shard`, the first sample and the one after the last, or null; `out`.
    """
    _work_in(Path(job["out"]).parent)
    flat = expand(graph)
    samples = open_samples(_scanned(job["samples"]), flat)
    if job["shard"] is not None:
        first, end = job["shard"]
        samples = Samples(islice(samples.feeds, first, end), end - first)
    stats = calibrate(flat, samples, method=job["method"], progress=job["tell"], threads=THREADS)
    return _write(stats if job["shard"] is not None else require_numbers(flat, stats), job)


def count_samples(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Say, and write, how many samples a file holds, and how many bytes the model has."""
    samples = open_samples(_scanned(job["samples"]), expand(graph)).count
    found = {"samples": samples, "bytes": sum(graph.values[name].elements * 4 for name in graph.constants)}
    Path(job["out"]).write_text(json.dumps(found), encoding="utf-8")
    return found


def merge_statistics(job: Arguments) -> dict[str, Any]:
    """Join the statistics of shards (`parts`, in order) and write them."""
    return _write(
        merge_shards([read_statistics(Path(part).read_text("utf-8")) for part in job["parts"]]), job
    )


def compare_file(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Run a model and a quantized file of it side by side.

    Args:
      job: `file`, the quantized one; `samples`; `values`, whether to compare inner values; `metrics`, names,
        `output`, which they judge, or null, and `reference`; `out`, where all of the comparison goes.
    """
    _work_in(Path(job["out"]).parent)
    flat = expand(graph)
    metrics = [name for name in job.get("metrics", ()) if name != SQNR]
    samples = open_samples(_scanned(job["samples"]), flat, labeled=bool(metrics))
    file = Path(job["file"]).read_bytes()
    scan_onnx(file, whole=True)
    kind = job.get("reference", "written")
    found = compare(
        flat,
        file,
        samples,
        values=job["values"],
        reference=kind,
        output=job.get("output"),
        metrics=metrics,
    )
    about = {
        "samples": found.samples,
        "reference": found.reference,
        "metrics": {name: _score(found.scores[name]) for name in metrics},
        "warnings": list(found.warnings)[:MOST_LISTED],
    }
    outputs = _rows(found.outputs)
    whole = {**about, "outputs": outputs, "values": _rows(found.values)}
    Path(job["out"]).write_text(json.dumps(whole), encoding="utf-8")
    return {**about, "outputs": dict(islice(outputs.items(), MOST_LISTED))}


def _rows(found: Mapping[str, Quality]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            **_figures(quality),
            "groups": {label: _figures(group) for label, group in quality.groups.items()},
        }
        for name, quality in found.items()
    }


def _figures(quality: Quality) -> dict[str, Any]:
    """A quality as JSON, which has no word for infinity: null, and `exact` tells which one."""
    return {
        "sqnr": _number(quality.sqnr),
        "exact": quality.max_error == 0.0,
        "max_error": _number(quality.max_error),
        "elements": quality.elements,
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "reference": _number(score.reference),
        "quantized": _number(score.quantized),
        "larger_is_better": score.larger_is_better,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _write(stats: Statistics, job: Arguments) -> dict[str, Any]:
    Path(job["out"]).write_text(write_statistics(stats), encoding="utf-8")
    about = {name: getattr(stats, name) for name in ("model", "method", "samples")}
    return {**about, "values": len(stats.values)}


def _scanned(samples: str) -> Path:
    path = Path(samples)
    scan_npz(path)
    return path


def _work_in(folder: Path) -> None:
    """Have temporary files lie where this process may write."""
    tempfile.tempdir = str(folder)
