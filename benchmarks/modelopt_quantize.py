"""NVIDIA Model Optimizer's int8 of an ONNX file, in an environment of its own; prints one JSON line.

Knows nothing of planner; run by `benchmarks.shipped` and `benchmarks.hand_made` as
`PYTHON -P benchmarks/modelopt_quantize.py MODEL SAMPLES OUT`, SAMPLES a folder of .npz files. Its defaults,
on the processor, what stays float in float32: its default of half precision is for GPUs.
"""

import json
import logging
import shutil
import sys
import time
from pathlib import Path

import modelopt
import numpy as np
from modelopt.onnx.quantization import quantize


def main() -> None:
    """Quantize by Model Optimizer's defaults."""
    source, samples, out = (Path(item) for item in sys.argv[1:4])
    feeds = []
    for path in sorted(samples.glob("*.npz")):
        with np.load(path) as archive:
            feeds.append({name: archive[name] for name in archive.files})
    # It leaves files beside the model that it reads.
    own = out.with_name("modelopt-input.onnx")
    shutil.copyfile(source, own)
    start = time.perf_counter()
    quantize(
        str(own),
        "int8",
        calibration_data={name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]},
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        output_path=str(out),
        log_level="ERROR",
    )
    print(json.dumps({"seconds": time.perf_counter() - start, "modelopt": modelopt.__version__}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
