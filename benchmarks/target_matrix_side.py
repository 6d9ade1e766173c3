"""One model on several targets: read once, calibrated once, planned and checked for each; records as JSON.

Run by `target_matrix` in a process of its own:
`python -m benchmarks.target_matrix_side MODEL OUT TARGET ...`.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.light import light_names, light_samples, write_light
from benchmarks.samples import SAMPLERS, Sample, model_folder, samples
from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.errors import PlanInvalid, PlannerError
from planner.formats.onnx.read import read_onnx
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph
from planner.pipeline import check
from planner.pipeline import plan as plan_model
from planner.plans.plan import Plan

SEED = 20240501
SAMPLES = 2
CASTS = ("quantize", "dequantize")
OPEN = {"total": 2}
"""A decoder's mask covers the one step before and its own."""


def load(name: str, work: Path) -> tuple[Graph, list[Sample]]:
    """Read a model with the ranges of a few samples on its values; and these samples."""
    if name in light_names():
        written = write_light(work, name)
        graph = read_onnx(written.path)
        batch = light_samples(written, SAMPLES, held_out=False)
    else:
        path = model_folder() / f"{name}.onnx"
        graph = read_onnx(path)
        batch = samples(path.stem, path, SAMPLES) if path.stem in SAMPLERS else _drawn(graph)
    return annotate(graph, stats=calibrate(graph, batch)), batch


def _drawn(graph: Graph) -> list[Sample]:
    """Standard normal inputs, integers 1; open dimensions 1, but for those of `OPEN`."""
    rng = np.random.default_rng(SEED)
    batch = []
    for _ in range(SAMPLES):
        sample = {}
        for name in graph.inputs:
            value = graph.values[name]
            shape = [dim if isinstance(dim, int) else OPEN.get(str(dim), 1) for dim in value.shape or ()]
            drawn = rng.standard_normal(shape) if value.is_float else np.ones(shape)
            sample[name] = drawn.astype(NUMPY[value.dtype])
        batch.append(sample)
    return batch


def record(name: str, graph: Graph, target: str) -> dict[str, Any]:
    """Plan and check; what came out, or the refusal, or the crash."""
    try:
        plan = plan_model(graph, target)
        check(plan, graph)
    except PlannerError as error:
        verdict = "crash" if isinstance(error, PlanInvalid) else "refused"
        return {"model": name, "target": target, verdict: f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - a bug of ours is what the matrix looks for
        return {"model": name, "target": target, "crash": f"{type(error).__name__}: {error}"}
    return {"model": name, "target": target, **summary(plan)}


def summary(plan: Plan) -> dict[str, Any]:
    """Kernels by row, kernels in float with their reasons, rescales and casts of a plan."""
    kernels = plan.kernels_in_order
    floats = Counter((kernel.kernel, kernel.reason or "") for kernel in kernels if not kernel.row)
    kinds = Counter(rescale.kind for rescale in plan.rescales)
    return {
        "kernels": dict(sorted(Counter(kernel.kernel for kernel in kernels if kernel.row).items())),
        "floats": [
            {"kernel": kernel, "reason": reason, "count": count}
            for (kernel, reason), count in sorted(floats.items())
        ],
        "rescales": sum(count for kind, count in kinds.items() if kind not in CASTS),
        "casts": sum(count for kind, count in kinds.items() if kind in CASTS),
        "warnings": len(plan.warnings),
        "optimal": plan.optimal,
    }


def main(arguments: Sequence[str]) -> None:
    """Write the records of one model."""
    name, out, *targets = arguments
    with tempfile.TemporaryDirectory(prefix="matrix.") as work:
        try:
            graph, _ = load(name, Path(work))
        except PlannerError as error:
            refusal = f"{type(error).__name__}: {error}"
            records = [{"model": name, "target": target, "refused": refusal} for target in targets]
        else:
            records = [record(name, graph, target) for target in targets]
    Path(out).write_text(json.dumps(records), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
