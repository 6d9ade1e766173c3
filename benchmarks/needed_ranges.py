"""What needed ranges and integer islands are worth: a trained decoder's cross entropy without, with both.

Each plan is written as `onnx-qdq` and run on the held-out texts, optimisations off; without needed ranges is
without the row maxima that calibration saw. Usage, from the repository root (the model folder is needed):
`python -m benchmarks.needed_ranges [--texts 32] [TARGET ...]`; it prints the table of docs/accuracy.md, and
what rows with float results are worth there.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

import planner
from benchmarks.samples import model_folder
from planner.calibration.statistics import Statistics
from planner.formats.onnx.sessions import open_session, session_options
from planner.ir.graph import Graph
from planner.target.load import load_target
from planner.target.records import Target

TARGETS: Final = ("onnxruntime-cpu", "litert-int8", "qnn-htp", "teaching-npu", "tensorrt-int8", "tosa-int8")
Sample = Mapping[str, Any]


def texts(model: Graph, name: str, count: int) -> list[Sample]:
    """The first texts of an archive of the decoder's folder: token ids and masks, [1, 128]."""
    with np.load(model_folder() / "language" / f"{name}.npz") as arrays:
        wanted = {key: arrays[key] for key in arrays.files if key in model.inputs}
    return [{key: array[k : k + 1] for key, array in wanted.items()} for k in range(count)]


def cross_entropy(session: Any, samples: list[Sample]) -> float:
    """Mean negative log likelihood of each next token, in nats."""
    total = count = 0.0
    for sample in samples:
        logits = session.run(None, dict(sample))[0][0].astype(np.float64)
        ids = sample["input_ids"][0]
        likely = logits - logits.max(-1, keepdims=True)
        likely -= np.log(np.exp(likely).sum(-1, keepdims=True))
        total -= likely[np.arange(len(ids) - 1), ids[1:]].sum()
        count += len(ids) - 1
    return float(total / count)


def without_rows(stats: Statistics) -> Statistics:
    """The statistics as they were before rows were looked at."""
    return replace(stats, values={name: replace(seen, rows=()) for name, seen in stats.values.items()})


def measured(model: Graph, stats: Statistics, target: Target, samples: list[Sample]) -> float:
    """Cross entropy of the file that a plan gives."""
    ready = planner.annotate(model, stats=stats)
    data = planner.export(ready, planner.plan(ready, target), "onnx-qdq")
    return cross_entropy(open_session(data, session_options()), samples)


def rows(model: Graph, targets: list[str], count: int) -> Iterator[str]:
    """The lines of the table."""
    samples = texts(model, "held_out", count)
    stats = planner.calibrate(model, texts(model, "calibration", 32))
    path = model_folder() / "language" / "stories260k.onnx"
    floats = cross_entropy(open_session(str(path), session_options()), samples)
    yield f"| cross entropy, float {floats:.3f} | without either | needed ranges | and islands |"
    yield "|---|---|---|---|"
    for name in targets:
        target = load_target(name)
        stored = replace(target, islands="integer")
        found = [
            measured(model, without_rows(stats), stored, samples),
            measured(model, stats, stored, samples),
            measured(model, stats, target, samples),
        ]
        yield f"| `{name}` | {' | '.join(f'{one:.3f}' for one in found)} |"


def products_alone(model: Graph, count: int) -> Iterator[str]:
    """What float results are worth where nothing but products runs on integers, on `onnxruntime-cpu`."""
    samples, target = texts(model, "held_out", count), load_target("onnxruntime-cpu")
    stats = planner.calibrate(model, texts(model, "calibration", 32))
    kernels = {name: target.rows[name] for name in ("gemm", "matmul")}
    stored = {name: tuple(row for row in found if not row.hands_on_floats) for name, found in kernels.items()}
    rounded, handed_on = (
        measured(model, stats, replace(target, rows=table), samples) for table in (stored, kernels)
    )
    yield f"products alone on integers: results stored {rounded:.3f}, handed on as float {handed_on:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--texts", type=int, default=32)
    asked = parser.parse_args()
    model = planner.load_model(model_folder() / "language" / "stories260k.onnx")
    for line in rows(model, list(asked.targets), asked.texts):
        print(line, flush=True)
    for line in products_alone(model, asked.texts):
        print(line, flush=True)


if __name__ == "__main__":
    main()
