"""Whether the plan of less work is the faster one: predicted work beside measured latency, ratios to float.

Usage, from the repository root: `python -m benchmarks.work_is_time [--write]`.
Plans for `onnxruntime-cpu` of models inside wheels (`benchmarks.shipped`), each in several forms: all in 8
bits, every second kernel in float, what does not multiply in float, and products quantized at run time. All
files of a model run in turn at the engine's defaults, on two threads; medians. Writes docs/results/work.md.
The rates of the target's rows come from here: work is a sum of counts times rates, and the page names the
rates that fit the latencies best, out of a grid.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

import planner
from benchmarks.comparison import latencies_ms
from benchmarks.shipped.measuring import THREADS, Neighbours, open_session, processor, ticks
from benchmarks.shipped.metrics import spearman
from benchmarks.shipped.page import table
from benchmarks.shipped.tasks import TASKS, made_ready
from benchmarks.shipped.wheels import ROOT, default_cache
from planner.accuracy.coverage import coverage_of
from planner.calibration.statistics import Statistics
from planner.errors import PlannerError
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.plans.work import float_work_of, work_of
from planner.target.records import WorkRates

PAGE: Final = ROOT / "docs" / "results" / "work.md"
TARGET: Final = "onnxruntime-cpu"
PRODUCTS: Final = ("conv", "conv_transpose", "gemm", "matmul")
MODELS: Final = (
    *("magika", "minilm", "ppocr-recognition", "ppocr-angle", "page-orientation", "captcha-detection"),
    *("silero-vad", "wake-words"),
)
RATES: Final = ("float_work.mac", "float_work.element", "work.mac", "work.element")
"""What is fitted; a cast of an element is 1."""
GRID: Final = tuple(0.01 * 1.25**step for step in range(20))
"""Values of each rate, from 0.01 to 0.7."""


@dataclass(frozen=True, slots=True)
class Point:
    """A plan of a model.

    Attributes:
      work, latency: predicted and measured, ratios to float.
      counts: of the plan, what each of `RATES` is multiplied by, then the work of casts and rescales.
      float_counts: the same of the model in float.
    """

    model: str
    form: str
    work: float
    latency: float
    counts: tuple[float, ...]
    float_counts: tuple[float, ...]


def counted(plan: Plan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the counts of a plan and of its model in float: work where one rate is 1 and others are 0."""
    counts, floats = list[float](), list[float]()
    for name in RATES:
        part, rate = name.split(".")
        rates = {key: WorkRates(0.0, 0.0, 0.0) for key in ("float_work", "work")}
        rates[part] = replace(rates[part], **{rate: 1.0})
        rows = {key: replace(row, work=rates["work"]) for key, row in plan.target.rows.items()}
        probed = replace(plan, target=replace(plan.target, rows=rows, float_work=rates["float_work"]))
        counts.append(work_of(probed).kernels)
        floats.append(float_work_of(probed))
    work = work_of(plan)
    return (*counts, work.total - work.kernels), (*floats, 0.0)


def fitted(points: list[Point]) -> tuple[float, ...]:
    """Return the rates of the grid whose ratios lie nearest to the measured ones, in mean squared logs.

    A model counts as much as another, however many plans it has.
    """
    counts, floats = (np.array([getattr(p, name) for p in points]) for name in ("counts", "float_counts"))
    wanted = np.log([p.latency for p in points])
    weights = np.array([1 / sum(q.model == p.model for q in points) for p in points])
    grid = np.array([(*rates, 1.0) for rates in product(GRID, repeat=len(RATES))])
    best, least = grid[0], np.inf
    for some in np.array_split(grid, 100):
        errors = np.log((some @ counts.T) / (some @ floats.T)) - wanted
        sums = np.square(errors) @ weights
        at = int(sums.argmin())
        if sums[at] < least:
            best, least = some[at], float(sums[at])
    return tuple(best[:-1].tolist())


def forms(first: Plan) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return names of forms, and what is asked of kernels beyond the plan of 8 bits."""
    served = [kernel for kernel in first.kernels_in_order if kernel.row is not None]
    products = [kernel.name for kernel in served if kernel.kernel in PRODUCTS]
    yield "8 bits", {}
    yield "every second in float", {kernel.name: "float" for kernel in served[::2]}
    yield "products alone", {kernel.name: "float" for kernel in served if kernel.name not in products}
    yield "every second product in float", dict.fromkeys(products[::2], "float")
    yield (
        "products at run time",
        {kernel.name: "dynamic" for kernel in served if kernel.kernel in ("gemm", "matmul")},
    )


def planned(graph: Graph, stats: Statistics, asked: Mapping[str, Any]) -> tuple[Graph, Plan]:
    """Return the annotated model and its plan."""
    ready = planner.annotate(graph, stats=stats, kernels=asked)
    return ready, planner.plan(ready, TARGET)


def points_of(
    name: str, model: Path, samples: list[Any], probe: Mapping[str, Any], folder: Path
) -> list[Point]:
    """Return the points of a model, all its files measured in turn."""
    graph = planner.load_model(model)
    stats = planner.calibrate(graph, samples)
    first = planned(graph, stats, {})[1]
    sessions: dict[str, tuple[Plan, onnxruntime.InferenceSession]] = {}
    for form, asked in forms(first):
        if form != "8 bits" and not asked:
            continue
        try:
            ready, plan = planned(graph, stats, asked)
            file = folder / f"{name}.onnx"
            file.write_bytes(planner.export(ready, plan, "onnx-qdq"))
            sessions[form] = plan, open_session(file)
        except (PlannerError, onnxruntime.capi.onnxruntime_pybind11_state.Fail) as error:
            print(f"{name}, {form}: {error}", flush=True)
    opened = [open_session(model), *(session for _, session in sessions.values())]
    base, *taken = latencies_ms(opened, probe, seconds=6.0, runs=15)
    points = []
    for (form, (plan, _)), one in zip(sessions.items(), taken, strict=True):
        covered = coverage_of(plan)
        points.append(Point(name, form, covered.work / covered.float_work, one / base, *counted(plan)))
    return points


def page(points: list[Point], busy: float | None) -> str:
    """Return the page."""
    every = spearman(np.array([p.work for p in points]), np.array([p.latency for p in points]))
    rows = [[p.model, p.form, f"{p.work:.3f}", f"{p.latency:.2f}"] for p in points]
    inside = []
    for name in dict.fromkeys(p.model for p in points):
        own = [p for p in points if p.model == name]
        if len(own) > 2:
            inside.append(
                (name, spearman(np.array([p.work for p in own]), np.array([p.latency for p in own])))
            )
    each = ", ".join(f"{name} {value:.2f}" for name, value in inside)
    shared = "an unknown share" if busy is None else f"{busy:.0%}"
    factors = [max(p.work / p.latency, p.latency / p.work) for p in points]
    off, worst = float(np.median(factors)), max(factors)
    rates = ", ".join(f"`{name}` {rate:.2g}" for name, rate in zip(RATES, fitted(points), strict=True))
    return f"""# Work beside time

Made by `python -m benchmarks.work_is_time --write`: {len(points)} plans of {len(inside)} models inside wheels
for `{TARGET}`; predicted [work](../targets/rules.md#work), latency in onnxruntime {onnxruntime.__version__}
at its defaults on {THREADS} threads of {processor()}, both as ratios to the float model's. Other work took
{shared} of the processors.

- Rank correlation over all plans: {every:.2f}.
- Inside a model: {each}.
- A predicted ratio is off by a factor of {off:.2f} in the median, of {worst:.2f} at most.
- Rates of a grid that fit these latencies best, where a cast of an element is 1: {rates}.
  Those of the target lie between the fits of several runs, which differ by as much.

{table(["model", "plan", "work", "latency"], rows)}
"""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=[task.name for task in TASKS])
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    watched, points = Neighbours(ticks()), list[Point]()
    folder = given.cache / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for task, made in made_ready(given.models, given.cache):
        points += points_of(task.name, made.model, list(made.calibration), made.probe, folder)
        for point in points[-5:]:
            print(point, flush=True)
    text = page(points, watched.share())
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
