"""Whether the plan of less work is the faster one: predicted work beside measured latency, ratios to float.

Usage, from the repository root: `python -m benchmarks.work_is_time [--write]`.
Plans for `onnxruntime-cpu` of models inside wheels (`benchmarks.shipped`), each in several forms: all in 8
bits, every second kernel in float, what does not multiply in float, and products quantized at run time. All
files of a model run in turn at the engine's defaults, on two threads; medians. Writes docs/results/work.md.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

import planner
from benchmarks.comparison import latencies_ms
from benchmarks.shipped.measuring import THREADS, Neighbours, open_session, ticks
from benchmarks.shipped.metrics import spearman
from benchmarks.shipped.page import table
from benchmarks.shipped.tasks import TASKS, made_ready
from benchmarks.shipped.wheels import ROOT, default_cache
from planner.accuracy.coverage import coverage_of
from planner.calibration.statistics import Statistics
from planner.errors import PlannerError
from planner.ir.graph import Graph
from planner.plans.plan import Plan

PAGE: Final = ROOT / "docs" / "results" / "work.md"
TARGET: Final = "onnxruntime-cpu"
PRODUCTS: Final = ("conv", "conv_transpose", "gemm", "matmul")
MODELS: Final = (
    *("magika", "minilm", "ppocr-recognition", "ppocr-angle", "page-orientation", "captcha-detection"),
    *("silero-vad", "wake-words"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """A plan of a model: predicted work and measured latency, ratios to float."""

    model: str
    form: str
    work: float
    latency: float


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
    sessions: dict[str, tuple[float, onnxruntime.InferenceSession]] = {}
    for form, asked in forms(first):
        if form != "8 bits" and not asked:
            continue
        try:
            ready, plan = planned(graph, stats, asked)
            file = folder / f"{name}.onnx"
            file.write_bytes(planner.export(ready, plan, "onnx-qdq"))
            covered = coverage_of(plan)
            sessions[form] = covered.work / covered.float_work, open_session(file)
        except (PlannerError, onnxruntime.capi.onnxruntime_pybind11_state.Fail) as error:
            print(f"{name}, {form}: {error}", flush=True)
    opened = [open_session(model), *(session for _, session in sessions.values())]
    base, *taken = latencies_ms(opened, probe, seconds=6.0, runs=15)
    return [
        Point(name, form, work, one / base)
        for (form, (work, _)), one in zip(sessions.items(), taken, strict=True)
    ]


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
    return f"""# Work beside time

Made by `python -m benchmarks.work_is_time --write`: {len(points)} plans of {len(inside)} models inside wheels
for `{TARGET}`; predicted [work](../targets/rules.md#work), latency in onnxruntime {onnxruntime.__version__}
at its defaults on {THREADS} threads, both as ratios to the float model's. Other work took {shared} of the
processors.

- Rank correlation over all plans: {every:.2f}.
- Inside a model: {each}.
- Predicted ratios are far below measured ones, and differ from model to model: the rates of the target's rows
  are the defaults (bits times bits), not measured on this engine, where a convolution by channel or of few
  channels gains little from 8 bits.

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
