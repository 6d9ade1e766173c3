"""Tasks of a child that only jobs ask for: calibrating, in shards or whole, comparing, and losses.

A calibration may be cut into shards of samples, each a power of two of them: then every mean of a shard times
its samples is the very sum that calibrating in one piece has, and the merged statistics are the same to the
last bit, wherever the shards ran. Source: docs/service.md; docs/formats.md.
"""

import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from planner.accuracy.consumers import measure_readers
from planner.accuracy.coverage import coverage_of
from planner.accuracy.losses import losses
from planner.accuracy.losses_text import losses_json
from planner.accuracy.metrics import SQNR, Score
from planner.accuracy.quality import Quality
from planner.accuracy.unseen_values import unlike_calibration
from planner.accuracy.verdict import missed_coverage
from planner.calibration.annotate import mismatch
from planner.calibration.odd_samples import odd_samples
from planner.calibration.run import calibrate, require_numbers
from planner.calibration.samples import Samples, open_samples
from planner.calibration.shards import merge_shards
from planner.calibration.statistics import Statistics
from planner.calibration.statsjson import read_statistics
from planner.errors import UnsupportedExport
from planner.factors.form import in_form_of_plan
from planner.formats.file_coverage import coverage_in_file, coverage_of_file
from planner.formats.litert.identifier import is_litert
from planner.formats.runnable import ARITHMETICS, is_runnable, runnable
from planner.interpreter.as_used import compare_as_used
from planner.interpreter.compare import Evaluated, compare
from planner.ir.expand import expand
from planner.ir.graph import Graph
from planner.pipeline import check, export, exportable
from planner.plans.plan import Plan
from planner.plans.read_json import plan_from_json
from planner.report.summary import INTERPRETED
from planner.target.records import Target
from planner.what_if.replan import as_planned

from ..intake.scan_onnx import scan_onnx
from ..intake.scan_zip import scan_npz
from ..planning.plan_answers import quality_of
from .quality import quality_record

MOST_LISTED: Final = 100
FIRST: Final = "onnx-qdq"
"""The default format of a plan's file, if the plan can be written in it."""
THREADS: Final = 1

Arguments = Mapping[str, Any]


def calibrate_model(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Run samples through a model and write statistics.

    Args:
      job: `samples`, a file; `method`; `shard`, the first sample and the one after the last, or null;
        `readers`, the number of samples that consumers are measured on, of all samples only; `out`.
    """
    _work_in(Path(job["out"]).parent)
    flat, file = expand(graph), _scanned(job["samples"])
    samples = open_samples(file, flat)
    if job["shard"] is not None:
        first, end = job["shard"]
        samples = Samples(islice(samples.feeds, first, end), end - first)
    stats = calibrate(flat, samples, method=job["method"], progress=job["tell"], threads=THREADS)
    if job["shard"] is not None:
        # What is odd, and what readers lose, is a matter of all samples.
        return _write(stats, job) | {"warnings": []}
    whole = _measured(flat, require_numbers(flat, stats), file, job)
    return _write(whole, job) | {"warnings": _odd(flat, file)}


def add_readers(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Measure the error of rounding each value at its consumers, and write the statistics that have it.

    Args:
      job: `stats` of all `samples`, files both; `readers`, the number of samples; `out`.
    """
    _work_in(Path(job["out"]).parent)
    stats = read_statistics(Path(job["stats"]).read_text("utf-8"))
    return _write(_measured(expand(graph), stats, _scanned(job["samples"]), job), job)


def _measured(flat: Graph, stats: Statistics, file: Path, job: Arguments) -> Statistics:
    # A request of before there were readers, which waited in the database, has none.
    count = job.get("readers", 0)
    return measure_readers(flat, stats, file, count=count, threads=THREADS) if count else stats


def count_samples(graph: Graph, job: Arguments) -> dict[str, Any]:
    """Return and write the number of samples in a file, warnings about them, and the model's bytes."""
    flat, file = expand(graph), _scanned(job["samples"])
    size = sum(graph.values[name].elements * 4 for name in graph.constants)
    found = {"samples": open_samples(file, flat).count, "bytes": size, "warnings": _odd(flat, file)}
    Path(job["out"]).write_text(json.dumps(found), encoding="utf-8")
    return found


def merge_statistics(job: Arguments) -> dict[str, Any]:
    """Join the statistics of shards (`parts`, in order) and write them."""
    return _write(
        merge_shards([read_statistics(Path(part).read_text("utf-8")) for part in job["parts"]]), job
    )


def compare_file(graph: Graph, corrected: Graph, job: Arguments) -> dict[str, Any]:
    """Run a model and a quantized file of it, or a plan of it, side by side.

    Args:
      corrected: the model that the plan is for.
      job: `file`, the quantized one, or `plan` and what was `told` of it, with `quality`, where what is
        measured of it goes; `samples`; `stats` of calibration, a file or null; `values`, whether to
        compare inner values; `metrics`, names, `output`, which they evaluate, or null, `reference` and
        `min_coverage`; `out`,
        where all of the comparison goes.
    """
    _work_in(Path(job["out"]).parent)
    metrics = [name for name in job.get("metrics", ()) if name != SQNR]
    given = _scanned(job["samples"])
    plan = plan_from_json(Path(job["plan"]).read_bytes()) if "plan" in job else None
    flat, file, form = _quantized(graph, corrected, plan, job)
    asked: dict[str, Any] = {
        "values": job["values"],
        "reference": job.get("reference", "written"),
        "output": job.get("output"),
        "metrics": metrics,
    }
    if plan is None:
        found = compare(flat, file, open_samples(given, flat, labeled=bool(metrics)), **asked)
    else:
        found = compare_as_used(flat, form, file, given, device=plan.target.files, **asked)
    odd = [*_odd(flat, given), *_beyond(flat, job.get("stats"), given)]
    about = {
        "samples": found.samples,
        "reference": found.reference,
        "metrics": {name: _score(found.scores[name]) for name in metrics if name in found.scores},
        "warnings": [*odd, *found.warnings][:MOST_LISTED],
    }
    bound = job.get("min_coverage")
    covered = None
    if plan is not None:
        covered = coverage_of(plan)
        if isinstance(file, bytes):
            covered = coverage_of_file(plan, flat, form, len(file))
    elif bound is not None and isinstance(file, bytes):
        covered = coverage_in_file(file, next(iter(open_samples(given, flat).feeds)).arrays)
    if bound is not None and covered is not None:
        about["missed"] = [text for text in [missed_coverage(covered, bound)] if text]
    outputs = _rows(found.outputs)
    whole = {**about, "outputs": outputs, "values": _rows(found.values)}
    Path(job["out"]).write_text(json.dumps(whole), encoding="utf-8")
    listed = {**about, "outputs": dict(islice(outputs.items(), MOST_LISTED))}
    if plan is None:
        return listed
    found = replace(found, coverage=covered)
    quality = quality_record(found, {**about, "outputs": outputs}, {**job["told"], "format": form})
    Path(job["quality"]).write_text(json.dumps(quality), encoding="utf-8")
    return {**listed, "quality": quality_of(quality)}


def _quantized(
    graph: Graph, corrected: Graph, plan: Plan | None, job: Arguments
) -> tuple[Graph, bytes | Plan | Evaluated, str]:
    """The model; the file that was sent, once it was scanned, or the plan, written; and its format."""
    flat = expand(graph)
    if plan is not None:
        file, form = as_run(corrected, plan, job["told"]["format"])
        if not isinstance(file, Plan):
            return flat, file, form
        own = in_form_of_plan(expand(corrected), plan.graph)
        return (own, plan, form) if corrected is graph else (flat, Evaluated(own, plan), form)
    sent = Path(job["file"]).read_bytes()
    if not is_litert(sent):
        scan_onnx(sent, whole=True)
    return flat, sent, ""


def as_run(graph: Graph, plan: Plan, form: str | None) -> tuple[bytes | Plan | Evaluated, str]:
    """A plan as something that runs here, in a format or, where none was named, in the first that there is.

    Raises:
      UnsupportedExport: the plan cannot be written so, or nothing here runs such files.
    """
    if form == INTERPRETED:
        return plan, form
    if form is None:
        try:
            return export(graph, plan, FIRST), FIRST
        except UnsupportedExport:
            return plan, INTERPRETED
    if form in ARITHMETICS:
        export(graph, plan, form)  # it is checked, and the format can say it
        return Evaluated(exportable(graph, plan, form), plan, ARITHMETICS[form]), form
    file = runnable(form, export(graph, plan, form)) if is_runnable(form) else None
    if not isinstance(file, bytes):
        raise UnsupportedExport(
            f"nothing here runs files of the format {form}",
            hint=f"{FIRST}, or {INTERPRETED}: the plan's own types, in the reference interpreter",
        )
    return file, form


def measure_losses(target: Target, graph: Graph, corrected: Graph, job: Arguments) -> dict[str, Any]:
    """Say where a plan loses the numbers of a model.

    Args:
      target: the plan's.
      corrected: the model that the plan is for.
      job: `plan`, a file; `samples`; `output`, for the error, or null; `limit`, of the kernels whose noise is
        taken apart; `out`, where all of the losses go.
    """
    _work_in(Path(job["out"]).parent)
    plan = plan_from_json(Path(job["plan"]).read_bytes())
    model = in_form_of_plan(corrected, plan.graph)
    # The plan may be a stranger's: what runs its kernels takes it to be whole.
    check(plan, model, target)
    samples = _scanned(job["samples"])
    found = losses(
        model,
        as_planned(plan, model, target),
        samples,
        output=job["output"],
        limit=job["limit"],
        reference=None if corrected is graph else graph,
        progress=job["tell"],
    )
    whole = losses_json(found)
    Path(job["out"]).write_text(json.dumps(whole), encoding="utf-8")
    return _worst(whole) | {"warnings": _odd(model, samples)}


def _worst(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Losses without their values, the worst outputs and kernels alone: an answer stays small."""
    outputs = whole["outputs"][:MOST_LISTED]
    labels = [output["label"] for output in outputs]
    kernels = [
        {**kernel, "noise": {label: kernel["noise"][label] for label in labels}}
        for kernel in whole["kernels"][:MOST_LISTED]
    ]
    about = {name: item for name, item in whole.items() if name != "values"}
    return {**about, "outputs": outputs, "kernels": kernels}


def _rows(found: Mapping[str, Quality]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            **_figures(quality),
            "decided": None if quality.decided is None else asdict(quality.decided),
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


def _odd(graph: Graph, samples: Path) -> list[str]:
    """Warnings of samples that no device will see."""
    return _named(odd_samples(graph, samples)[:MOST_LISTED], samples)


def _beyond(graph: Graph, stats: str | None, samples: Path) -> list[str]:
    """Warnings of samples that go beyond statistics, a file, if there is one."""
    if stats is None:
        return []
    known = read_statistics(Path(stats).read_text("utf-8"))
    text = mismatch(graph, known)
    return [text] if text else _named(unlike_calibration(graph, known, samples), samples)


def _named(warnings: Iterable[str], samples: Path) -> list[str]:
    """Warnings in the client's words: what lies here under a digest is its `samples`."""
    return [text.replace(samples.name, "samples") for text in warnings]


def _write(stats: Statistics, job: Arguments) -> dict[str, Any]:
    Path(job["out"]).write_text(stats.to_json(), encoding="utf-8")
    about = {name: getattr(stats, name) for name in ("model", "method", "samples")}
    return {**about, "values": len(stats.values)}


def _scanned(samples: str) -> Path:
    path = Path(samples)
    scan_npz(path)
    return path


def _work_in(folder: Path) -> None:
    """Have temporary files lie where this process may write."""
    tempfile.tempdir = str(folder)
