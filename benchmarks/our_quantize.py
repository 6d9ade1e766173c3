"""The planner's main job on one model in a process of its own, timed; prints one JSON line.

Run by `main_job`, never imported. Writes `WORK/ours.onnx` (onnx-qdq for `onnxruntime-cpu`, default
settings). Peak memory is this process's own after one job, the samples are read one at a time. Planning and
exporting are then done again: `*_first_s` is the first time, `plan_s` and `export_s` are medians of all.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from onnx import defs

import planner
from benchmarks.memory import peak_rss_mb
from benchmarks.parts import parts
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.target.records import Target

TARGET = "onnxruntime-cpu"
REPEATS = 9
SECONDS = 3.0


class Clock:
    """Seconds since the last mark, by name."""

    def __init__(self) -> None:
        """Start."""
        self.taken: dict[str, float] = {}
        self._at = time.perf_counter()

    def mark(self, name: str) -> None:
        """Give the time since the last mark to `name`."""
        now = time.perf_counter()
        self.taken[name] = now - self._at
        self._at = now


def plan_again(model: Graph, target: Target, first: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yield seconds of (planning, exporting): the first time, then more while they are short."""
    yield first
    end = time.perf_counter() + SECONDS
    for _ in range(REPEATS - 1):
        if time.perf_counter() + sum(first) > end:
            return
        clock = Clock()
        plan = planner.plan(model, target)
        clock.mark("plan")
        planner.export(model, plan, "onnx-qdq")
        clock.mark("export")
        yield clock.taken["plan"], clock.taken["export"]


def facts_of(plan: Plan) -> dict[str, object]:
    """Count rescales, tell the price and name the kernels left in float."""
    rescales = [item for item in plan.rescales if item.kind not in ("quantize", "dequantize")]
    return {
        "regions": len(plan.kernels_in_order),
        "rescales": len(rescales),
        "casts": len(plan.rescales) - len(rescales),
        "cost": plan.cost,
        "bound": plan.bound,
        "optimal": plan.optimal,
        "float_kernels": sorted(
            f"{kernel.kernel}: {kernel.reason}"
            for kernel in plan.kernels_in_order
            if kernel.row is None and (kernel.inputs or kernel.outputs)
        ),
    }


def main() -> None:
    """Run `MODEL SAMPLES WORK METHOD`; imports are done before the clock starts, as theirs."""
    source, samples, work = (Path(item) for item in sys.argv[1:4])
    planner.load_target(TARGET)
    for name in ("load_model", "calibrate", "annotate", "correct_biases", "plan", "export"):
        getattr(planner, name)
    # onnx makes its table of operators at first use; their imports use it.
    defs.has("Relu")
    import_rss_mb = peak_rss_mb()
    clock = Clock()
    model = planner.load_model(source)
    clock.mark("read_s")
    stats = planner.calibrate(model, samples, method=sys.argv[4])
    clock.mark("calibrate_s")
    target = planner.load_target(TARGET)
    clock.mark("target_s")
    model = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
    clock.mark("annotate_s")
    plan = planner.plan(model, target)
    clock.mark("plan_s")
    data = planner.export(model, plan, "onnx-qdq")
    clock.mark("export_s")
    (work / "ours.onnx").write_bytes(data)
    clock.mark("write_s")
    del data
    first = dict(clock.taken)
    rss_mb = peak_rss_mb()
    every = list(plan_again(model, target, (first["plan_s"], first["export_s"])))
    print(
        json.dumps(
            {
                **first,
                "plan_s": statistics.median(plan_s for plan_s, _ in every),
                "export_s": statistics.median(export_s for _, export_s in every),
                "plan_first_s": first["plan_s"],
                "export_first_s": first["export_s"],
                "planned": len(every),
                "total_s": sum(first.values()),
                "rss_mb": rss_mb,
                "import_rss_mb": import_rss_mb,
                "parts": parts(lambda: planner.export(model, planner.plan(model, target), "onnx-qdq")),
                "greedy_cost": planner.plan(model, target, strategy="rfc").cost,
                **facts_of(plan),
            }
        )
    )


if __name__ == "__main__":
    main()
