"""NNCF's post-training quantization of an ONNX file, in an environment of its own; prints one JSON line.

Knows nothing of planner; run by `benchmarks.quantizers` and `benchmarks.shipped` as
`.oracles/nncf/bin/python -P benchmarks/nncf_quantize.py MODEL SAMPLES OUT [PRESET [MODEL_TYPE]]`, SAMPLES a
folder of .npz files.
"""

import json
import logging
import sys
import time
from pathlib import Path

import nncf
import numpy as np
import onnx


def main() -> None:
    """Quantize by NNCF's defaults, or by a preset and a type of models."""
    preset, model_type = [*sys.argv[4:6], None, None][:2]
    source, samples, out = (Path(item) for item in sys.argv[1:4])
    feeds = []
    for path in sorted(samples.glob("*.npz")):
        with np.load(path) as archive:
            feeds.append({name: archive[name] for name in archive.files})
    start = time.perf_counter()
    made = nncf.quantize(
        onnx.load(source),
        nncf.Dataset(feeds),
        preset=nncf.QuantizationPreset(preset) if preset else None,
        model_type=nncf.ModelType(model_type) if model_type else None,
        subset_size=len(feeds),
    )
    onnx.save(made, out)
    print(json.dumps({"seconds": time.perf_counter() - start, "nncf": nncf.__version__}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
