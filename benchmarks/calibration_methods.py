"""Calibration methods against each other: what each leaves of every trained model, on held-out samples.

One calibration with histograms serves all methods. Each plan, biases corrected as `qplan plan` does, is
written as `onnx-qdq` and run with optimisations off; the figure is the SQNR of the worst output, there of its
worst group, a last softmax judged by what it reads. The decoder is judged by the cross entropy of its tokens.
Usage, from the repository root: `python -m benchmarks.calibration_methods [--samples 8] [--target T]`;
docs/results/calibration-methods.md keeps what it prints.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

import planner
from benchmarks.bias_correction import with_logits
from benchmarks.needed_ranges import cross_entropy, texts
from benchmarks.samples import evaluation, model_folder, photos, resize, samples
from planner.calibration.statistics import Statistics
from planner.formats.onnx.sessions import open_session, session_options
from planner.ir.graph import Graph
from planner.target.load import load_target
from planner.target.records import Target

METHODS: Final = ("minmax", "percentile:99.99", "percentile:99.9", "mse", "entropy")
TRAINED: Final = (
    "mlperf-tiny/ad01_fp32",
    "mlperf-tiny/pretrainedResnet",
    "mlperf-tiny/vww_96_float",
    "vision/mnist",
    "vision/squeezenet_real_fp32",
    "vision/superres_real",
    "vision/ultraface_slim320_op13",
    "vision/yolox_nano",
    "sequence/silero_vad_16k_op15",
)
DECODER: Final = "language/stories260k"
CALIBRATING: Final = 16
SIDE: Final = 416
Feeds = list[dict[str, Any]]
Judge = Callable[[Graph, bytes], float]


def framed(picture: np.ndarray) -> np.ndarray:
    """A picture as the detector reads it: 416 wide, blue first, filled with 114 below, NCHW."""
    small = resize(picture, SIDE * picture.shape[0] // picture.shape[1], SIDE)
    whole = np.full((SIDE, SIDE, 3), 114.0, np.float32)
    whole[: small.shape[0]] = small[..., ::-1]
    return np.ascontiguousarray(whole.transpose(2, 0, 1)[None])


def feeds_of(name: str, count: int, *, held_out: bool) -> Feeds:
    """Samples of a model by its path in the model folder."""
    stem = name.rpartition("/")[2]
    if stem == "yolox_nano":
        return [{"images": framed(shot)} for shot in photos("240x320", count, held_out=held_out)]
    draw = evaluation if held_out else samples
    return draw(stem, model_folder() / f"{name}.onnx", count)


def planned(model: Graph, stats: Statistics, target: Target) -> bytes:
    """The file of a model with these statistics, as `qplan plan` makes it."""
    ready = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
    return planner.export(ready, planner.plan(ready, target), "onnx-qdq")


def figures(model: Graph, calibrating: Feeds, judge: Judge, target: Target) -> Mapping[str, float]:
    """What a judge says of each method."""
    stats = planner.calibrate(model, calibrating, method="mse")
    return {method: judge(model, planned(model, stats.by(method), target)) for method in METHODS}


def rows(names: list[str], count: int, target: Target) -> Iterator[str]:
    """A line for each model: dB, for the decoder nats."""
    yield f"| model | {' | '.join(f'`{method}`' for method in METHODS)} |"
    yield f"|---|{'---:|' * len(METHODS)}"
    for name in names:
        model = planner.load_model(model_folder() / f"{name}.onnx")
        if name == DECODER:
            calibrating = texts(model, "calibration", CALIBRATING)
            found = figures(model, calibrating, by_tokens(texts(model, "held_out", count)), target)
        else:
            judge = by_outputs(feeds_of(name, count, held_out=True), judged(model))
            calibrating = feeds_of(name, CALIBRATING, held_out=False)
            found = figures(with_logits(model), calibrating, judge, target)
        digits = 4 if name == DECODER else 2
        cells = " | ".join(f"{one:.{digits}f}" for one in found.values())
        yield f"| {name.rpartition('/')[2]} | {cells} |"


def by_tokens(held_out: Feeds) -> Judge:
    """Judge by the cross entropy of the next tokens, in nats."""
    return lambda _, data: cross_entropy(open_session(data, session_options()), held_out)


def by_outputs(held_out: Feeds, kept: set[str]) -> Judge:
    """Judge by the SQNR (dB) of the worst of some outputs, there of the worst group."""

    def judge(model: Graph, data: bytes) -> float:
        outputs = planner.compare(model, data, held_out).outputs
        return min(outputs[name].worst for name in kept)

    return judge


def judged(plain: Graph) -> set[str]:
    """The outputs that count: a last softmax does not, what it reads does."""
    found: set[str] = set()
    for name in plain.outputs:
        found.add(with_logits(replace(plain, outputs=(name,))).outputs[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*TRAINED, DECODER])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--target", default="onnxruntime-cpu")
    asked = parser.parse_args()
    target = load_target(asked.target)
    print(f"`{asked.target}`, {CALIBRATING} samples to calibrate, {asked.samples} held out\n")
    for line in rows(list(asked.models), asked.samples, target):
        print(line, flush=True)


if __name__ == "__main__":
    main()
