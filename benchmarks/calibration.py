"""Calibration side by side: ours and onnxruntime's calibrators, on the same samples, as ratios.

Every measurement is a process of its own: seconds from the ONNX file to ranges (reading the model
included, imports not), and the process's peak memory (imports included). Runs alternate and the median
counts. Run as `python -m benchmarks.calibration [MODEL ...]`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.samples import models, samples, write_samples

MODELS: Final = ("mobilenetv2_100", "ultraface_slim320_op13", "bert_l4_h256")
METHODS: Final = ("minmax", "percentile")
SAMPLES: Final = 32
REPEATS: Final = 3


SIDES: Final = ("onnxruntime", "ours")


def measure(side: str, method: str, model: Path, folder: Path) -> dict[str, float]:
    """Run one side in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.calibration_side", side, method, str(model), str(folder)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip().splitlines()[-1])
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def compare(name: str, path: Path) -> None:
    """Print both methods of one model."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "samples"
        write_samples(folder, samples(name, path, SAMPLES))
        for method in METHODS:
            runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            try:
                for _ in range(REPEATS):
                    for side, found in runs.items():
                        found.append(measure(side, method, path, folder))
            except RuntimeError as error:
                print(f"| {name} | {method} | failed: {error} |")
                continue
            print_row(name, method, runs)


def print_row(name: str, method: str, runs: Mapping[str, list[dict[str, float]]]) -> None:
    """Print medians and ratios (above 1: ours is faster, or smaller)."""
    middle = {
        side: {key: statistics.median(run[key] for run in found) for key in found[0]}
        for side, found in runs.items()
    }
    mine, theirs = middle["ours"], middle["onnxruntime"]
    faster, smaller = theirs["seconds"] / mine["seconds"], theirs["rss_mb"] / mine["rss_mb"]
    print(
        f"| {name} | {method} | {mine['seconds']:.2f} | {theirs['seconds']:.2f} | {faster:.2f} "
        f"| {mine['rss_mb']:.0f} | {theirs['rss_mb']:.0f} | {smaller:.2f} "
        f"| {mine['values']:.0f} | {theirs['values']:.0f} |",
        flush=True,
    )


def main() -> None:
    """Compare the models named, or the usual ones."""
    wanted = sys.argv[1:] or MODELS
    print(f"{SAMPLES} samples, {os.cpu_count()} cores, median of {REPEATS}")
    print("| model | method | ours s | ort s | ratio | ours MB | ort MB | ratio | values | ort values |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for model in models():
        if model.name in wanted:
            compare(model.name, model.path)


if __name__ == "__main__":
    main()
