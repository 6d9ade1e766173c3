"""The planner's main job on one model in a process of its own, timed; prints one JSON line.

Run by `main_job`, never imported. Writes `WORK/ours.onnx` (onnx-qdq for `onnxruntime-cpu`, default
settings). Peak memory is this process's own, the samples are read one at a time.
"""

import json
import sys
import time
from pathlib import Path

import planner
from benchmarks.ort_quantize import peak_rss_mb

TARGET = "onnxruntime-cpu"


def main() -> None:
    """Run `MODEL SAMPLES WORK` and print the figures; imports are done before the clock starts, as theirs."""
    source, samples, work = (Path(item) for item in sys.argv[1:])
    planner.load_target(TARGET)
    for name in ("load_model", "calibrate", "annotate", "correct_biases", "plan", "export"):
        getattr(planner, name)
    before = peak_rss_mb()
    marks = [("start", time.perf_counter())]

    def mark(name: str) -> None:
        marks.append((name, time.perf_counter()))

    model = planner.load_model(source)
    mark("read_s")
    stats = planner.calibrate(model, samples)
    mark("calibrate_s")
    target = planner.load_target(TARGET)
    mark("target_s")
    model = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
    mark("annotate_s")
    plan = planner.plan(model, target)
    mark("plan_s")
    data = planner.export(model, plan, "onnx-qdq")
    mark("export_s")
    (work / "ours.onnx").write_bytes(data)
    mark("write_s")
    times = {name: at - marks[i][1] for i, (name, at) in enumerate(marks[1:])}
    rescales = [item for item in plan.rescales if item.kind not in ("quantize", "dequantize")]
    print(
        json.dumps(
            {
                **times,
                "total_s": marks[-1][1] - marks[0][1],
                "rss_mb": peak_rss_mb(),
                "import_rss_mb": before,
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
        )
    )


if __name__ == "__main__":
    main()
