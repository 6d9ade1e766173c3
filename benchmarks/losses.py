"""What measuring the own noise of every kernel costs, in float passes.

One thread on both sides, seconds of the processor: a float pass is the whole model in one session of
onnxruntime, optimisations off.
Usage, from the repository root: `python -m benchmarks.losses [--samples 8]`, with the models of QPLAN_MODELS.
"""

import argparse
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from planner.accuracy.choices import choices_of
from planner.accuracy.own_noise import own_noise
from planner.formats.onnx.sessions import observing_options, open_graph
from planner.ir.expand import expand
from planner.ir.graph import Graph

ROOT: Final = Path(__file__).resolve().parents[1]
MODELS: Final = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
TARGET: Final = "onnxruntime-cpu"
INLINE: Final = 1 << 30

Feeds = list[dict[str, Any]]


def pictures(size: int, number: int) -> np.ndarray:
    """Photographs of 0 to 255, NCHW."""
    shots = np.load(MODELS / "vision" / "photos_224_u8_nhwc.npz")["photos"][:number].astype(np.float32)
    tiled = np.concatenate([shots, shots], axis=1)
    tiled = np.concatenate([tiled, tiled], axis=2)[:, :size, :size]
    return tiled.transpose(0, 3, 1, 2)


def squeezenet(model: Graph, number: int) -> Feeds:
    """Photographs less their mean."""
    return [{model.inputs[0]: shot[None] - 120.0} for shot in pictures(224, number)]


def yolox(model: Graph, number: int) -> Feeds:
    """Photographs, side by side."""
    return [{model.inputs[0]: shot[None]} for shot in pictures(416, number)]


def decoder(_: Graph, number: int) -> Feeds:
    """Texts of 128 tokens."""
    texts = np.load(MODELS / "language" / "calibration.npz")
    return [{name: texts[name][k : k + 1] for name in texts.files} for k in range(number)]


def windows(model: Graph, number: int) -> Feeds:
    """Windows of sound."""
    found = np.load(MODELS / "mlperf-tiny" / "ad_windows.npy")[:number].astype(np.float32)
    return [{model.inputs[0]: window.reshape(1, 640)} for window in found]


CASES: Final[Mapping[str, Any]] = {
    "mlperf-tiny/ad01_fp32": windows,
    "vision/squeezenet_real_fp32": squeezenet,
    "language/stories260k": decoder,
    "vision/yolox_nano": yolox,
}


def float_pass(model: Graph, feeds: Feeds) -> float:
    """Seconds of one run of the float model: the median over the samples, after one to warm up."""
    session = open_graph(model, observing_options(1), inline=INLINE)
    seconds = []
    for feed in [feeds[0], *feeds]:
        begun = time.process_time()
        session.run(None, feed)
        seconds.append(time.process_time() - begun)
    return statistics.median(seconds[1:])


def measure(name: str, number: int) -> Sequence[str]:
    """A row of the table."""
    model = planner.load_model(MODELS / f"{name}.onnx")
    feeds = CASES[name](model, number)
    ready = planner.annotate(model, stats=planner.calibrate(model, feeds))
    plan = planner.plan(ready, TARGET)
    choices = choices_of(plan)
    one = float_pass(model, feeds)
    begun = time.process_time()
    with ThreadPoolExecutor(1) as pool:
        own_noise(expand(ready), plan, choices, feeds, executor=pool, parts=1)
    seconds = time.process_time() - begun
    passes = seconds / (one * len(feeds))
    return (
        name.rpartition("/")[2],
        str(len(choices)),
        f"{one * 1e3:.1f}",
        f"{seconds:.1f}",
        f"{100 * passes / len(choices):.0f}",
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8)
    number = parser.parse_args().samples
    print("| model | kernels | float pass, ms | all, s | passes for 100 kernels |")
    print("|---|---|---|---|---|")
    for name in CASES:
        print("|", " | ".join(measure(name, number)), "|", flush=True)


if __name__ == "__main__":
    main()
