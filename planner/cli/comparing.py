"""Evaluating files: as users run them, by bounds on their figures, and the report on them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.cli.console import progress, say, say_table, warn
from planner.cli.options import load_module
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.accuracy.losses import Losses
    from planner.accuracy.metrics import Metric
    from planner.accuracy.quality import Quality
    from planner.accuracy.verdict import Verdict
    from planner.interpreter.compare import Comparison, Evaluated
    from planner.interpreter.reference import ReferenceKind, Run
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan
    from planner.target.records import Files

FEW: Final = 4
"""Samples that this is measured on."""
QUICK: Final = 200_000_000
"""Elements of all values times kernels, up to which it takes seconds; beyond, its command is printed."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Settings of an evaluation: see the options of `compare`; `held_out` says which the samples are."""

    reference: "ReferenceKind" = "written"
    output: str | None = None
    metrics: "tuple[str | Metric, ...]" = ()
    min_sqnr: float | None = None
    min_metric: float | None = None
    min_coverage: float | None = None
    samples: str | None = None
    held_out: bool | None = None

    @property
    def has_bound(self) -> bool:
        """Whether something may be missed."""
        return self.min_sqnr is not None or self.min_metric is not None

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `planner.compare`."""
        return {"reference": self.reference, "output": self.output, "metrics": self.metrics}


def read_judging(
    reference: "ReferenceKind",
    output: str | None,
    metric: str | None,
    min_sqnr: float | None,
    min_metric: float | None,
    *,
    min_coverage: float | None = None,
) -> Judging:
    """Read the options.

    Raises:
      InputError: NaN, a metric that is no name of ours and no function, a share beyond 1.
    """
    from planner.accuracy.verdict import require_share

    require_share(min_coverage, "--min-coverage")
    bounds = (("--min-sqnr", min_sqnr, "number of decibels"), ("--min-metric", min_metric, "bound"))
    for option, bound, kind in bounds:
        if bound is not None and math.isnan(bound):
            raise InputError(f"{option}: NaN is no {kind}")
    name = metric or ("top1" if min_metric is not None else "")
    if name in ("top1", "top5") and min_metric is not None and not 0 <= min_metric <= 1:
        raise InputError(f"--min-metric {min_metric:g}: {name} is a share of the labels, between 0 and 1")
    if name == "sqnr" and min_metric is not None:
        raise InputError("--min-metric is not for sqnr", hint="--min-sqnr")
    return Judging(reference, output, (_metric(name),) if name else (), min_sqnr, min_metric, min_coverage)


def _metric(name: str) -> "str | Metric":
    """A metric of ours by its name, or a function of the user's, `module:function` or `file.py:function`."""
    from planner.accuracy.metrics import BUILT_IN, SQNR

    if name in (*BUILT_IN, SQNR):
        return name
    module, colon, function = name.rpartition(":")
    if not colon:
        known = ", ".join((SQNR, *BUILT_IN))
        raise InputError(f"--metric {name}: expected module:function, or one of {known}")
    found = getattr(load_module(module, f"--metric {name}"), function, None)
    if not callable(found):
        raise InputError(f"--metric {name}: {module} has no function {function!r}")
    metric: Metric = found
    return metric


def compare_and_warn(
    graph: "Graph",
    name: str,
    data: "bytes | Path | Evaluated",
    samples: str,
    judging: Judging,
    *,
    device: "Files",
    known: "Run | None" = None,
) -> "Comparison":
    """Compare a file in a format with the model as it is used, and print its warnings.

    Args:
      known: the reference, which remembers its outputs, where several formats are compared.
    """
    from planner.interpreter.as_used import compare_as_used

    with progress(f"comparing {name}") as bar:
        asked = {**judging.arguments, "known": known, "progress": bar}
        found = compare_as_used(graph, name, data, samples, device=device, **asked)
    found = replace(found, held_out=judging.held_out)
    for warning in found.warnings:
        warn(f"{name}: {warning}")
    return found


def missed(
    comparisons: "Mapping[str, Comparison]", judging: Judging, verdict: "Verdict | None" = None
) -> list[str]:
    """Figures that miss their bounds, by name of the file, which may be "".

    Args:
      verdict: of the plan, whose coverage has a bound; a file with nothing to offer is short of any.
    """
    from planner.accuracy.verdict import missed_coverage

    found: list[str] = []
    covered = None if verdict is None else verdict.covered
    # A plan alone is no file that somebody might ship: it misses its bound, or quantizes nothing.
    if covered is not None and (comparisons or judging.min_coverage is not None or covered.is_nothing):
        found += filter(None, [missed_coverage(covered, judging.min_coverage)])
    for name, comparison in comparisons.items():
        place = f"{name}: " if name else ""
        if comparison.failure:
            found.append(f"{place}does not run at the engine's defaults")
            continue
        for output, quality in comparison.outputs.items():
            bound = judging.min_sqnr
            if bound is not None and not quality.worst >= bound:
                label = next((key for key, part in quality.parts.items() if part.sqnr == quality.worst), "")
                found.append(f"{place}{output}{label} has {quality.worst:.2f} dB of at least {bound:g}")
        for metric in judging.metrics if judging.min_metric is not None else ():
            found += _missed_metric(place, comparison, metric, judging.min_metric)
    return found


def is_negative(comparisons: "Mapping[str, Comparison]", judging: Judging, verdict: "Verdict | None") -> bool:
    """Whether a part of a verdict on files is poor, and no bound of the user's was given for that part."""
    if not comparisons:
        return False
    accuracies = [found.accuracy for one in comparisons.values() if (found := one.verdict) is not None]
    has_bound = judging.min_sqnr is not None or judging.min_metric is not None
    parts = [] if has_bound else [part for part in accuracies if part is not None]
    if judging.min_coverage is None and verdict is not None and verdict.coverage is not None:
        parts.append(verdict.coverage)
    return any(part.level == "poor" for part in parts)


def _missed_metric(
    place: str, comparison: "Comparison", metric: "str | Metric", bound: float | None
) -> Iterator[str]:
    from planner.accuracy.metrics import metric_name

    name = metric if isinstance(metric, str) else metric_name(metric)
    score = comparison.scores[name]
    value = score.quantized if score.larger_is_better else -score.quantized
    if bound is not None and not value >= bound:
        kind = name if score.larger_is_better else f"minus {name}"
        yield f"{place}{kind} is {value:.4g} of at least {bound:g}"


def quality_json(comparisons: "Mapping[str, Comparison]") -> dict[str, Any]:
    """SQNR (dB) and largest error of each output by format, and of its groups where it has some."""
    return {
        name: {output: _figures(quality) for output, quality in comparison.outputs.items()}
        for name, comparison in comparisons.items()
    }


def _figures(quality: "Quality") -> dict[str, Any]:
    own: dict[str, Any] = {"sqnr": quality.sqnr, "max_error": quality.max_error}
    if quality.decided is not None:
        own["decided"] = asdict(quality.decided)
    groups = {label: _figures(group) for label, group in quality.groups.items()}
    return own | ({"groups": groups} if groups else {})


def judged_json(comparison: "Comparison") -> dict[str, Any]:
    """The data and the reference that a file was evaluated with, and its metrics."""
    return {
        "samples": comparison.samples,
        "held_out": comparison.held_out,
        "reference": comparison.reference,
        "verdict": None if (found := comparison.verdict) is None else found.to_dict(),
        "of": comparison.of,
        "by": comparison.by,
        "metrics": {
            name: {"reference": score.reference, "quantized": score.quantized}
            for name, score in comparison.scores.items()
        },
    }


def quality_text(comparisons: "Mapping[str, Comparison]") -> str:
    """The data of the comparison, then a line for each output, group and metric of each format."""
    lines: list[str] = []
    measured = ""
    for name, comparison in comparisons.items():
        if comparison.outputs and comparison.measured_on != measured:
            hint = "; --eval-data takes held-out ones" if comparison.held_out is False else ""
            lines.append(f"quality {comparison.measured_on}{hint}:")
            measured = comparison.measured_on
        lines += [f"  {name}: {line}" for line in figure_lines(comparison)]
    return "\n".join(lines)


def verdict_text(
    comparisons: "Mapping[str, Comparison]", verdict: "Verdict | None", formats: Iterable[str]
) -> str:
    """Whether the files are good, fair or poor, and how much is quantized, with why the rest is not.

    Args:
      verdict: of the plan alone, its coverage.
      formats: of the files that were written: a verdict names its own where there are several.
    """
    from planner.report.causes import fallback_lines

    lines = list(verdict_lines(comparisons, is_named=len(set(formats)) > 1))
    if not lines and verdict is not None:
        lines = [f"verdict: {verdict}; accuracy was not measured"]
    if verdict is not None and verdict.covered is not None and verdict.coverage is not None:
        if verdict.coverage.reason not in lines[0]:
            lines.append(f"coverage: {verdict.coverage.level}: {verdict.coverage.reason}")
        lines += [f"  {line}" for line in fallback_lines(verdict.covered)]
    return "\n".join(lines)


def verdict_lines(comparisons: "Mapping[str, Comparison]", *, is_named: bool = False) -> Iterator[str]:
    """Whether the files are good, fair or poor: one line where there is one file, else one each."""
    for name, comparison in comparisons.items():
        if (found := comparison.verdict) is not None:
            place = f" of {name}" if is_named or len(comparisons) > 1 else ""
            other = found.accuracy if found.accuracy is not None else None
            measured = f"; {other.reason}" if other is not None and other.reason != found.reason else ""
            yield f"verdict{place}: {found}{measured}"


def figure_lines(comparison: "Comparison") -> Iterator[str]:
    """A line for each output, group and metric."""
    from planner.accuracy.metrics import score_text
    from planner.accuracy.quality import decibels

    for output, quality in comparison.outputs.items():
        for label, part in quality.parts.items():
            yield f"{output}{label} {decibels(part.sqnr)}, largest error {part.max_error:.4g}"
    for name, score in comparison.scores.items():
        model = "as given" if comparison.reference == "written" else "float"
        yield f"{name} {score_text(name, score.quantized)}, {model} {score_text(name, score.reference)}"


def say_comparison(comparison: "Comparison") -> None:
    """Print one comparison as tables."""
    from planner.accuracy.metrics import score_text
    from planner.accuracy.quality import decibels

    rows = [
        (f"{output}{label}", decibels(part.sqnr), f"{part.max_error:.6g}")
        for output, quality in comparison.outputs.items()
        for label, part in quality.parts.items()
    ]
    say(f"quality {comparison.measured_on}:")
    say_table("Outputs", ("output", "SQNR", "largest error"), rows)
    for line in verdict_lines({"": comparison}):
        say(line)
    scores = [
        (name, score_text(name, score.quantized), score_text(name, score.reference))
        for name, score in comparison.scores.items()
    ]
    say_table("By the labels", ("metric", "the file", "the model"), scores)


def poor_losses(
    graph: "Graph",
    ready: "Graph",
    planned: "Plan",
    comparisons: "Mapping[str, Comparison]",
    samples: str | None,
) -> "Losses | None":
    """The error attribution of a plan of poor quality, if that is quickly found."""
    import planner
    from planner.calibration.samples import open_samples

    size = sum(value.elements for value in ready.values.values()) * len(planned.kernels_in_order)
    if samples is None or not is_poor(comparisons) or size > QUICK:
        return None
    few = [dict(feed.arrays) for feed in islice(open_samples(samples, graph).feeds, FEW)]
    with progress("looking for the loss") as bar:
        return planner.losses(ready, planned, few, reference=graph, progress=bar)


def is_poor(comparisons: "Mapping[str, Comparison]") -> bool:
    """Whether an output of a file that was compared has few dB."""
    from planner.accuracy.verdict import FAIR_SQNR

    return any(one.worst_sqnr < FAIR_SQNR for one in comparisons.values() if one.outputs)


def lost_text(lost: "Losses | None") -> str:
    """The error attribution of a plan of poor quality, and the two changes that would help most."""
    from planner.accuracy.losses_text import remedy_lines, sentence
    from planner.accuracy.verdict import FAIR_SQNR

    if lost is None:
        return ""
    # What three kernels cannot mend a search may.
    line = f"a search finds which kernels need more bits: qplan search ... --goal sqnr={FAIR_SQNR:g}"
    return "\n".join((sentence(lost), *remedy_lines(lost)[:2], *([line] if lost.remedies else [])))


def bigger(model: str, sizes: Mapping[str, int]) -> Iterator[str]:
    """Warnings of models that are bigger than the file they come from, weights beside it not counted."""
    source = Path(model).stat().st_size if Path(model).is_file() else 0
    for name, size in sizes.items():
        if model.endswith(".onnx") and name.endswith(".onnx") and size > source > 0:
            yield f"{name} is bigger than {model}: {size:,} bytes, not {source:,}"


def slow(plan: "Plan", formats: Iterable[str]) -> Iterator[str]:
    """A warning of `onnx-integer`, where it spells out requantizes; rows quantized at run time have none."""
    rows = filter(None, map(plan.row_of, plan.kernels))
    if "onnx-integer" in formats and any(row.dynamic is None for row in rows):
        yield (
            "onnx-integer spells out every integer, and takes 2 to 50 times as long as the float model in "
            "onnxruntime: for speed choose onnx-qdq or onnx-qoperator (docs/results/integer-speed.md)"
        )
