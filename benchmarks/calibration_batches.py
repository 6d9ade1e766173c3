"""Calibration in batches of several sizes, of models whose batch is open, as ratios to samples one by one.

All sizes run in turn in one process, and the median counts. Models with a fixed batch get an open one first:
their files say 1. "Apart" is the most by which an end of a range differs, as a share of that range.
Run as `python -m benchmarks.calibration_batches [--write]`, with the models of QPLAN_MODELS; `--write` puts
the table into docs/results/calibration-methods.md.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx

import planner
from benchmarks.losses import decoder
from benchmarks.samples import Sample, model_folder, models, samples
from planner.calibration.statistics import Statistics

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "calibration-methods.md"
TITLE: Final = "\n## Batches\n"
NAMES: Final = ("ad01_fp32", "pretrainedResnet", "vww_96_float", "squeezenet_real_fp32", "stories260k")
METHODS: Final = ("minmax", "entropy")
SIZES: Final = (1, 4, 8, 32)
SAMPLES: Final = 32
REPEATS: Final = 5


def opened(path: Path) -> onnx.ModelProto:
    """The model with a name for the batch of its inputs and outputs."""
    model = onnx.load(path)
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    return model


def read(name: str) -> tuple[planner.Graph, list[Sample]]:
    """A model with an open batch, and its samples."""
    if name == "stories260k":
        model = planner.load_model(model_folder() / "language" / f"{name}.onnx")
        return model, [dict(feed) for feed in decoder(model, SAMPLES)]
    (found,) = [one for one in models() if one.name == name]
    return planner.load_model(opened(found.path)), samples(name, found.path, SAMPLES)


def batches(feeds: list[Sample], size: int) -> list[Sample]:
    """The samples, joined along their first axis."""
    return [
        {key: np.concatenate([feed[key] for feed in feeds[k : k + size]]) for key in feeds[0]}
        for k in range(0, len(feeds), size)
    ]


def apart(one: Statistics, other: Statistics) -> float:
    """The most by which the end of a range differs, as a share of the range."""
    ends = [np.asarray([(seen.lo, seen.hi) for seen in stats.values.values()]) for stats in (one, other)]
    widths = np.maximum(ends[0][:, 1] - ends[0][:, 0], np.finfo(np.float32).tiny)
    return float((np.abs(ends[0] - ends[1]).max(axis=1) / widths).max())


def measure(name: str) -> Iterator[str]:
    """A row of the table for each method."""
    model, feeds = read(name)
    joined = {size: batches(feeds, size) for size in SIZES}
    for method in METHODS:
        seconds: Mapping[int, list[float]] = {size: [] for size in SIZES}
        found: dict[int, Statistics] = {}
        for _ in range(REPEATS):
            for size, runs in joined.items():
                begun = time.perf_counter()
                found[size] = planner.calibrate(model, runs, method=method)
                seconds[size].append(time.perf_counter() - begun)
        middle = {size: statistics.median(taken) for size, taken in seconds.items()}
        ratios = " | ".join(f"{middle[1] / middle[size]:.2f}" for size in SIZES[1:])
        far = max(apart(found[1], found[size]) for size in SIZES[1:])
        yield f"| {name} | `{method}` | {middle[1]:.3f} | {ratios} | {far:.0e} |"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    sizes = " | ".join(f"batches of {size}" for size in SIZES[1:])
    lines = [
        f"| model | method | one by one, s | {sizes} | apart |",
        "|---|---|" + "---:|" * (len(SIZES) + 1),
    ]
    print("\n".join(lines))
    for name in NAMES:
        for row in measure(name):
            lines.append(row)
            print(row, flush=True)
    if given.write:
        head, title, old = PAGE.read_text(encoding="utf-8").partition(TITLE)
        text, _, behind = old.partition("\n| model |")
        _, _, rest = behind.partition("\n\n")
        PAGE.write_text(f"{head}{title}{text}\n" + "\n".join(lines) + ("\n\n" + rest if rest else "\n"))


if __name__ == "__main__":
    main()
