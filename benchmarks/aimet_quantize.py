"""AIMET's post-training quantization of an ONNX file, in an environment of its own; prints one JSON line.

Knows nothing of planner; run by `benchmarks.shipped` and `benchmarks.hand_made` as
`PYTHON -P benchmarks/aimet_quantize.py MODEL SAMPLES OUT plain|mixed [DECIBELS]`, SAMPLES a folder of .npz
files. `plain` has 8 bits everywhere, weights by channel; `mixed` is its automatic mixed precision between
8 bits and half precision, for so many dB at the worst output.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aimet_onnx
import numpy as np
import onnx
import onnxruntime as ort
from aimet_onnx import QuantizationSimModel, float16, int8
from aimet_onnx.mixed_precision import analyze_mixed_precision_sensitivity, apply_amp

Sample = Mapping[str, Any]
CONFIG: Final = Path(aimet_onnx.__file__).parent.joinpath(
    "common", "quantsim_config", "default_config_per_channel.json"
)
FEW: Final = 4
"""Samples that a trial is measured on; ours measures noise on as many of a large model."""
EXACT: Final = 200.0
"""dB of a file without any noise."""


def sqnr_of(source: Path, feeds: Sequence[Sample]) -> Callable[[ort.InferenceSession], float]:
    """Return what measures a session: dB of its worst output."""
    reference = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    wanted = [reference.run(None, dict(feed)) for feed in feeds]

    def measured(session: ort.InferenceSession) -> float:
        found = [session.run(None, dict(feed)) for feed in feeds]
        worst = EXACT
        for at in range(len(wanted[0])):
            pairs = [
                (np.float64(one[at]), np.float64(other[at])) for one, other in zip(wanted, found, strict=True)
            ]
            signal = math.fsum(float((one**2).sum()) for one, _ in pairs)
            noise = math.fsum(float(((one - other) ** 2).sum()) for one, other in pairs)
            worst = min(worst, 10 * math.log10(signal / noise) if noise and signal else EXACT)
        return worst

    return measured


def main() -> None:
    """Quantize by AIMET's defaults, weights by channel, or by its automatic mixed precision."""
    source, samples, out = (Path(item) for item in sys.argv[1:4])
    how, decibels = [*sys.argv[4:6], "30"][:2]
    feeds = []
    for path in sorted(samples.glob("*.npz")):
        with np.load(path) as archive:
            feeds.append({name: archive[name] for name in archive.files})
    start = time.perf_counter()
    sim = QuantizationSimModel(
        onnx.load(source), param_type=int8, activation_type=int8, config_file=str(CONFIG)
    )
    sim.compute_encodings(feeds)
    runs = trials = 0
    if how == "mixed":
        measure = sqnr_of(source, feeds[:FEW])

        def score(session: ort.InferenceSession) -> float:
            nonlocal runs
            runs += 1
            return measure(session)

        def accept(session: ort.InferenceSession) -> bool:
            nonlocal trials
            trials += 1
            return measure(session) >= float(decibels)

        apply_amp(
            sim,
            analyze_mixed_precision_sensitivity(sim, [(int8, int8), (float16, float16)], score, feeds),
            accept,
        )
    onnx.save(sim.to_onnx_qdq(prequantize_constants=True), out)
    figures = {"seconds": time.perf_counter() - start, "runs": runs, "trials": trials}
    print(json.dumps({**figures, "aimet": aimet_onnx.__version__}))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
