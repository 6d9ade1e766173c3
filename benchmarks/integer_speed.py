"""How slow integers spelled out are: files of each format beside the float model, one sample, one thread.

Run as `python -m benchmarks.integer_speed [--write] [MODEL ...]`; `--write` puts the table into
docs/results/integer-speed.md. Ratios of medians, taken in turns in one process; no other job should run.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

import planner
from benchmarks.samples import model_folder

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "integer-speed.md"
MODELS: Final = (
    "mlperf-tiny/ad01_fp32.onnx",
    "mlperf-tiny/pretrainedResnet.onnx",
    "mlperf-tiny/vww_96_float.onnx",
    "vision/mnist.onnx",
    "vision/squeezenet_real_fp32.onnx",
    "vision/ultraface_slim320_op13.onnx",
)
FORMATS: Final = (
    ("onnxruntime-cpu", "onnx-qdq"),
    ("onnxruntime-cpu", "onnx-qoperator"),
    ("onnxruntime-cpu", "onnx-integer"),
    ("onnxruntime-dynamic", "onnx-integer"),
)
SECONDS: Final = 2.0
_TEXT: Final = """# How slow integers spelled out are

Made by `python -m benchmarks.integer_speed --write`: seconds of one sample in onnxruntime VERSION, one
thread, over those of the float model; medians of runs in turns. Ranges are of random samples: they do not
matter here.

| model | float, ms | HEADS |
|---|---|---|---|---|---|
ROWS

`onnx-integer` of a plan with types for activations is there to show every integer, not to be fast: each
requantize is a Cast to int64, Mul, Add, a shift by division and Clip over the whole tensor. Rows quantized at
run time have none of these; onnxruntime fuses their products (`DynamicQuantizeMatMul`,
`MatMulIntegerToFloat`), its convolutions not.
"""


def session(data: bytes) -> onnxruntime.InferenceSession:
    """One thread, default optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options)


def measured(path: Path) -> list[float]:
    """Median seconds of the float model, then of each format."""
    graph = planner.load_model(path, dims={})
    rng = np.random.default_rng(0)
    shapes = {
        name: [dim if isinstance(dim, int) else 1 for dim in graph.values[name].shape or ()]
        for name in graph.inputs
    }
    feeds: Mapping[str, Any] = {
        name: rng.uniform(0, 1, shape).astype(np.float32) for name, shape in shapes.items()
    }
    stats = planner.calibrate(graph, [feeds])
    ready = planner.annotate(graph, stats=stats)
    plans = {target: planner.plan(ready, target) for target in dict.fromkeys(target for target, _ in FORMATS)}
    files = [path.read_bytes(), *(planner.export(ready, plans[target], name) for target, name in FORMATS)]
    sessions = [session(data) for data in files]
    taken: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + SECONDS * len(sessions)
    while time.perf_counter() < end or len(taken[0]) < 3:
        for own, times in zip(sessions, taken, strict=True):
            begin = time.perf_counter()
            own.run(None, dict(feeds))
            times.append(time.perf_counter() - begin)
    return [statistics.median(times) for times in taken]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = []
    for name in given.models:
        base, *others = measured(model_folder() / name)
        ratios = " | ".join(f"{seconds / base:.1f}" for seconds in others)
        rows.append(f"| {Path(name).stem} | {base * 1000:.2f} | {ratios} |")
        print(rows[-1], flush=True)
    heads = " | ".join(f"`{name}`, `{target}`" for target, name in FORMATS)
    text = _TEXT.replace("VERSION", onnxruntime.__version__).replace("HEADS", heads)
    text = text.replace("ROWS", "\n".join(rows))
    if given.write:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
