"""MLPerf Tiny beside its official 8-bit files: SQNR against the float model, same inputs, LiteRT's kernels.

Usage: `python -m benchmarks.litert_tiny`. Needs the model folder and the oracle `litert`. ad01 is
calibrated on 128 of its windows and judged on 64 others; vww has four pictures, which serve for both;
resnet is calibrated on 28 cuts of 14 photographs and judged on 26 of 13 others, brought to 32 by 32 pixels.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import planner
from planner.interpreter.models import ModelRunner
from tests.formats.litert.reader.files import MODELS
from tests.oracles import litert

TINY = MODELS / "mlperf-tiny"


def decibels(wanted: Sequence[Any], got: Sequence[Any]) -> float:
    """Signal to noise of all samples together."""
    one, other = (np.asarray(arrays, np.float64).reshape(len(arrays), -1) for arrays in (wanted, got))
    return float(10 * np.log10((one**2).sum() / ((one - other) ** 2).sum()))


def run(
    name: str, official: str, calibration: Any, judged: Any, order: tuple[int, ...] | None = None
) -> tuple[float, float]:
    """(ours, official) in dB; `order` brings samples to the axes of the official file."""
    graph = planner.load_model(TINY / name)
    (key,), (out,) = graph.inputs, graph.outputs
    stats = planner.calibrate(graph, [{key: array} for array in calibration])
    ready = planner.correct_biases(planner.annotate(graph, stats=stats), "litert-int8", stats)
    data = planner.export(ready, planner.plan(ready, "litert-int8"), "litert")
    runner = ModelRunner(graph)
    wanted = [runner.run({key: array})[out] for array in judged]

    other = planner.load_model(TINY / official)
    given, found = (other.values[names[0]].facts[0] for names in (other.inputs, other.outputs))
    turned = [array if order is None else array.transpose(order) for array in judged]
    fed = [
        {other.inputs[0]: np.clip(np.rint(a / given.scale) + given.zero_point, -128, 127).astype(np.int8)}
        for a in turned
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = [(data, [{key: array} for array in judged]), ((TINY / official).read_bytes(), fed)]
        mine, theirs = litert.run(Path(folder), files)
    reals = [(a[other.outputs[0]].astype(np.float64) - found.zero_point) * found.scale for a in theirs]
    return decibels(wanted, [a[out] for a in mine]), decibels(wanted, reals)


def thumbnails() -> Any:
    """Two cuts of each photograph, means of 7 x 7 pixels: (n, 1, 3, 32, 32), 0..255."""
    with np.load(MODELS / "vision" / "photos_240x320_u8_nhwc.npz") as archive:
        photos = archive["photos"].astype(np.float32)
    cuts = np.stack([photos[:, 8:232, at : at + 224] for at in (0, 96)], 1).reshape(-1, 224, 224, 3)
    means = cuts.reshape(-1, 32, 7, 32, 7, 3).mean((2, 4))
    return np.rint(means).transpose(0, 3, 1, 2)[:, None].astype(np.float32)


def main() -> None:
    """Print the table."""
    windows = np.load(TINY / "ad_windows.npy").astype(np.float32)[:, None]
    rows = {"ad01": run("ad01_fp32.onnx", "ad01_int8.tflite", windows[:128], windows[128:192])}
    with np.load(TINY / "vww_96_float.io.npz") as archive:
        pictures = next(archive[k] for k in archive.files if archive[k].ndim >= 4).astype(np.float32)
    pictures = pictures.reshape(-1, 1, *pictures.shape[-3:])
    if pictures.shape[-1] == 3:
        pictures = pictures.transpose(0, 1, 4, 2, 3)
    rows["vww"] = run("vww_96_float.onnx", "vww_96_int8.tflite", pictures, pictures, (0, 2, 3, 1))
    cuts = thumbnails()
    rows["resnet"] = run(
        "pretrainedResnet.onnx", "pretrainedResnet_quant.tflite", cuts[:28], cuts[28:], (0, 2, 3, 1)
    )
    print("| model | planned here, dB | official file, dB |\n|---|---|---|")
    for name, (ours, theirs) in rows.items():
        print(f"| {name} | {ours:.1f} | {theirs:.1f} |")


if __name__ == "__main__":
    main()
