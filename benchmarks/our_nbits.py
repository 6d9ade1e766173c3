"""Our weight-only quantization in a process of its own; prints one JSON line, as `ort_nbits` does.

Run by `language` as `python -m benchmarks.our_nbits MODEL SAMPLES OUT METHOD STORAGE`: METHOD `nearest`, or
one of conditioning; STORAGE the integers, `i4` for symmetric ones, `u4` with zero points.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.memory import peak_rss_mb
from planner.formats.to_file import write_to
from planner.pipeline import annotate, check, load_model
from planner.plan_model import plan as plan_model
from planner.weight_conditioning.condition import condition

TARGET: Final = "llm-w4"
FORM: Final = "onnx-matmulnbits"
NEAREST: Final = "nearest"


def read_samples(path: str, inputs: tuple[str, ...]) -> list[dict[str, Any]]:
    """The samples of an archive, one a row."""
    with np.load(path) as arrays:
        whole = {name: arrays[name] for name in inputs}
    count = len(next(iter(whole.values())))
    return [{name: array[k : k + 1] for name, array in whole.items()} for k in range(count)]


def quantize(model: str, samples: str, out: Path, method: str, storage: str) -> None:
    """Read, condition, plan, check, write."""
    graph = load_model(model)
    ready = annotate(graph, kernels={"*": {"in": ["f32", storage]}})
    if method != NEAREST:
        given = read_samples(samples, graph.inputs) if method == "round" else None
        ready = condition(ready, method, target=TARGET, samples=given).model
    plan = plan_model(ready, TARGET)
    check(plan, ready)
    write_to(ready, plan, FORM, out)


if __name__ == "__main__":
    start = time.perf_counter()
    quantize(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:6])
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mb": peak_rss_mb()}))
