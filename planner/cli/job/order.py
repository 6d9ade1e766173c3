"""Order: a request to `plan` or `quantize`, and the job: plan, evaluate, write, answer."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from planner.cli.comparing import (
    Judging,
    bigger,
    is_negative,
    judged_json,
    lost_text,
    missed,
    poor_losses,
    quality_json,
    quality_text,
    slow,
    verdict_text,
)
from planner.cli.condition import Preparation, change_json, change_text, prepared
from planner.cli.console import held_warnings, progress, say, say_json, say_missed, warn, warn_all
from planner.cli.effort import Attempt, Task, is_wanting, tried_harder
from planner.cli.files import STDIN, as_samples, keep_inputs, only_one_stdin, size_of, staging, write_folder
from planner.cli.job.files import corrected_in, documents_of, leftovers, written_in
from planner.cli.job.summaries import kept_text, next_steps, plan_summary, summary_text, worst_verdict
from planner.cli.options import (
    parse_costs,
    read_annotations_argument,
    read_model,
    read_stats,
    read_target,
    sizes_of,
    stats_warnings,
)
from planner.cli.saved import with_sources
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.accuracy.coverage import Coverage
    from planner.calibration.statistics import Statistics
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plan_search.aims import Effort
    from planner.plans.plan import Plan

_NO_DATA: Final = "give samples with --data or statistics with --stats"
_NO_NUMBERS: Final = "no sample gives any value a finite number: clean them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request to `plan` or `quantize`; see their options.

    Attributes:
      effort: how hard to look for a better plan where the verdict is not good.
      force: whether files are written that have nothing to offer over the float model.
    """

    model: str
    target: str
    out: str
    data: str | None = None
    eval_data: str | None = None
    stats: str | None = None
    method: str | None = None
    readers: int = 0
    annotations: str | None = None
    bits: str | None = None
    cut: str | None = None
    dim: list[str] | None = None
    condition: str | None = None
    strategy: Literal["minimal", "rfc"] = "minimal"
    formats: tuple[str, ...] = ()
    functions: str | None = None
    settings: tuple[str, ...] = ()
    bias_correction: bool = True
    best_effort: bool = False
    judging: Judging = field(default_factory=Judging)
    effort: "Effort" = "quick"
    force: bool = True
    json: bool = False

    @property
    def inputs(self) -> tuple[str | None, ...]:
        """Files that are read."""
        return (
            self.model,
            self.target,
            self.data,
            self.eval_data,
            self.stats,
            self.annotations,
            self.functions,
        )

    @property
    def plan_line(self) -> tuple[str, ...]:
        """The command that writes the plan and its report, whatever its verdict."""
        given: tuple[tuple[str, str | None], ...] = (
            ("--data", self.data),
            ("--annotations", self.annotations),
            ("--bits", self.bits),
            ("--cut", self.cut),
            *(("--dim", size) for size in self.dim or ()),
            ("--functions", self.functions),
            ("--out", self.out),
        )
        words = (word for option, value in given if value is not None for word in (option, value))
        return ("qplan", "plan", self.model, "--target", self.target, *words)


def carry_out(order: Order) -> int:
    """Plan, evaluate and write; where that is not good and the effort allows it, look for a better plan."""
    import planner
    from planner.accuracy.consumers import SAMPLES
    from planner.accuracy.verdict import offers_nothing, verdict_of
    from planner.bits import missed_bits, read_bits, with_bits
    from planner.formats.to_file import has_large_weights
    from planner.plan_model import require_ranges
    from planner.plans.write_json import json_parts
    from planner.quantizing import sizes_to_read_with

    model, out, data, formats = order.model, order.out, order.data, list(order.formats)
    only_one_stdin(model, order.target, data, order.eval_data, order.stats, order.annotations)
    judging = order.judging
    _check_choices(formats, data, order.stats)
    _check_judging(judging, formats, data, order.eval_data)
    costs = parse_costs(order.settings)
    device = read_target(order.target, order.functions)
    dims = sizes_of(order.dim)
    bits = {} if order.bits is None else read_bits(order.bits)
    graph = with_bits(read_model(model, order.cut, dims=dims), device, bits)

    def make(ready: "Graph") -> "Plan":
        with progress("planning") as bar:
            made = planner.plan(
                ready,
                device,
                strategy=order.strategy,
                functions=None,
                best_effort=order.best_effort,
                bias_pins="error",
                progress=bar,
                formats=order.formats,
                **costs,
            )
        with progress("checking") as bar:
            planner.check(made, ready, device, progress=bar)
        return made

    annotations = None if order.annotations is None else read_annotations_argument(order.annotations)
    with ExitStack() as stack:
        samples = None if data is None else stack.enter_context(as_samples(data, graph))
        held_out = (
            None if order.eval_data is None else stack.enter_context(as_samples(order.eval_data, graph))
        )
        floor = costs.get("wanted_db", device.costs.wanted_db)
        if samples is not None and model != STDIN:
            sizes = sizes_to_read_with(graph, device, formats, samples)
            dims |= sizes
            graph = with_bits(read_model(model, order.cut, dims=dims), device, bits) if sizes else graph
        few = order.readers or (0 if floor is None else SAMPLES)
        seen = statistics_of(graph, samples, order.stats, order.method, readers=few)
        judging = replace(judging, samples=held_out or samples, held_out=held_out is not None)
        large: list[Path] = []

        def attempt(given: str | Mapping[str, Any] | None) -> Attempt:
            with held_warnings(order.effort != "quick") as held:
                wanted = Preparation(order.condition, seen, samples, given, correct=order.bias_correction)
                ready, changes = prepared(graph, device, wanted)
                planned = make(ready)
                require_ranges(planned, _NO_DATA if samples is None else _NO_NUMBERS)
                if has_large_weights(ready) and not large:
                    large.append(stack.enter_context(staging(out)))
                files, comparisons = written_in(
                    graph,
                    ready,
                    planned,
                    formats,
                    judging,
                    is_cut=order.cut is not None,
                    staged=large[0] if large else None,
                )
            return Attempt(ready, changes, planned, files, comparisons, given, tuple(held))

        made, tried = attempt(annotations), None
        staged = large[0] if large else None
        if order.effort != "quick" and seen is not None:
            if staged is None:
                task = Task(order, graph, device, seen, judging, attempt)
                made, tried = tried_harder(task, made)
            elif is_wanting(made.comparisons):
                warn("no better plan is looked for: the weights are too large for many trials (qplan search)")
        warn_all(made.warnings)
        ready, planned, comparisons = made.ready, made.planned, made.comparisons
        odd = _odd_data(graph, seen, made.given, samples, held_out)
        lost = poor_losses(graph, ready, planned, comparisons, judging.samples)
        corrected = corrected_in(planned.graph.name, made.files)
        source = str(Path(out) / corrected) if corrected else model
        whole = model if corrected and order.cut is None else STDIN
        told = with_sources(planned, out, model=source, target=order.target, reference=whole, dims=dims)
        search = None if tried is None else tried.search
        documents: dict[str, Callable[[], Iterable[str]]] = {
            "plan.json": lambda: json_parts(told),
            "plan.mlir": lambda: [planned.to_mlir()],
            "report.html": lambda: [
                planner.write_report(planned, comparisons, losses=lost, stats=seen, search=search)
            ],
        }
        covered = _best_covered(planned, comparisons)
        is_kept = not order.force and offers_nothing(covered, judging.min_coverage)
        files: dict[str, bytes | Path] = {}
        if not is_kept:
            files = documents_of(documents, staged) | {**made.files}
            files |= {} if tried is None else {**tried.files}
        keep_inputs(out, files, order.inputs)
        own = {name: size_of(data) for name, data in files.items() if name != corrected}
        written = write_folder(out, files) if files else ()
        warned = (
            *(() if is_kept else leftovers(out, planned, files, order.inputs)),
            *bigger(model, own),
            *slow(planned, formats),
        )
        unmet = missed_bits(planned, bits)
        warn_all((*odd, *stats_warnings(graph, seen), *planned.warnings, *unmet, *warned))
    whole_verdict = verdict_of({}, {}, covered)
    short = missed(comparisons, judging, whole_verdict)
    if order.json:
        quality: dict[str, Any] = {
            "quality": quality_json(comparisons), "files": list(written), "missed": short,
        }  # fmt: skip
        quality |= {"verdict": worst_verdict(comparisons, whole_verdict)}
        quality |= {} if tried is None else {"effort": tried.document}
        judged = {name: judged_json(comparison) for name, comparison in comparisons.items()}
        conditioned = {"conditioned": [change_json(change) for change in made.changes]}
        say_json(plan_summary(planned) | quality | {"judged": judged} | (conditioned if made.changes else {}))
    else:
        say(summary_text(planned))
        say("\n".join(f"  {change_text(change)}" for change in made.changes))
        say(quality_text(comparisons))
        say(verdict_text(comparisons, whole_verdict, formats))
        say("" if tried is None else tried.text)
        given_data = order.eval_data if order.eval_data is not None else data
        wanting, changed = is_wanting(comparisons), bool(made.changes)
        if is_kept:
            say(kept_text(order.plan_line))
        else:
            say(f"wrote {', '.join(written)}")
            say(next_steps(out, planned, files, model, given_data, is_wanting=wanting, conditioned=changed))
        say(lost_text(lost))
        if short:
            say_missed(f"missed: {'; '.join(short)}")
    return 1 if short or is_negative(comparisons, judging, whole_verdict) else 0


def _best_covered(planned: "Plan", comparisons: "Mapping[str, Comparison]") -> "Coverage":
    """Return the coverage of the file that has most to offer, or of the plan where no file was compared."""
    from planner.accuracy.coverage import coverage_of

    found = [one.coverage for one in comparisons.values() if one.coverage is not None]
    return max(found, key=lambda one: one.pays, default=None) or coverage_of(planned)


def _check_choices(formats: list[str], data: str | None, stats: str | None) -> None:
    from planner.formats.table import require_format

    for name in formats:
        require_format(name)
    if data is not None and stats is not None:
        raise InputError("--data and --stats both give ranges", hint="give one of them")


def _check_judging(judging: Judging, formats: list[str], data: str | None, eval_data: str | None) -> None:
    """Refuse to evaluate where nothing runs.

    Raises:
      InputError: no samples, or no format that onnxruntime runs.
    """
    from planner.formats.runnable import is_comparable

    is_asked = judging.has_bound or judging.metrics or judging.output is not None or eval_data is not None
    if not is_asked:
        return
    if not any(map(is_comparable, formats)):
        raise InputError(
            "options that evaluate files (--eval-data, --output, --metric, --min-sqnr, --min-metric) need a "
            "format that can be run here",
            hint="--format onnx-qdq, say",
        )
    if data is None and eval_data is None:
        raise InputError("no evaluation data", hint="--eval-data, held out, or --data")


def statistics_of(
    graph: "Graph", samples: str | None, stats: str | None, method: str | None, *, readers: int = 0
) -> "Statistics | None":
    """Statistics of the samples, else those of a file, if any."""
    import planner

    if samples is None:
        return None if stats is None else read_stats(stats, method)
    with progress("calibrating") as bar:
        return planner.calibrate(graph, samples, method=method or "minmax", progress=bar, readers=readers)


def _odd_data(
    graph: "Graph",
    stats: "Statistics | None",
    annotations: str | Mapping[str, Any] | None,
    samples: str | None,
    held_out: str | None,
) -> tuple[str, ...]:
    """Warnings of samples that are no likely data, and of held-out ones unlike what calibration saw."""
    import planner

    annotated = planner.annotate(graph, annotations=annotations)
    odd = () if samples is None else planner.odd_samples(annotated, samples)
    if held_out is None or stats is None:
        return odd
    return (*odd, *planner.unlike_calibration(graph, stats, held_out))
