"""onnxruntime's own weight-only quantizer, in an environment of its own; prints one JSON line.

`MatMulNBitsQuantizer` as its users call it. Knows nothing of planner; run by `language` as
`.oracles/nbits/bin/python -P benchmarks/ort_nbits.py MODEL SAMPLES OUT METHOD STORAGE`: SAMPLES an archive of
arrays, one sample a row; METHOD one of CONFIGS; STORAGE the integers, `i4` for symmetric ones, `u4` with zero
points.
"""

import contextlib
import io
import json
import logging
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnxruntime.quantization import matmul_nbits_quantizer as quantizer
from onnxruntime.quantization.calibrate import CalibrationDataReader

BLOCK: Final = 32
FLOAT32: Final = 1


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """The samples of an archive, in order."""

    def __init__(self, path: str, inputs: list[str]) -> None:
        """Start at the first sample."""
        with np.load(path) as arrays:
            whole = {name: arrays[name] for name in inputs}
        count = len(next(iter(whole.values())))
        self._rows = iter([{name: array[k : k + 1] for name, array in whole.items()} for k in range(count)])

    def get_next(self) -> dict[str, Any] | None:
        """Return the next sample, None at the end."""
        return next(self._rows, None)


Make = Callable[[Reader | None, int], Any]
CONFIGS: Final[Mapping[str, Make]] = {
    "default": lambda _reader, _bits: None,
    "gptq": lambda reader, _bits: quantizer.GPTQWeightOnlyQuantConfig(calibration_data_reader=reader),
    "hqq": lambda _reader, bits: quantizer.HQQWeightOnlyQuantConfig(block_size=BLOCK, bits=bits),
    "k_quant": lambda _reader, _bits: quantizer.KQuantWeightOnlyQuantConfig(),
    "rtn": lambda _reader, _bits: quantizer.RTNWeightOnlyQuantConfig(),
}


def quantize(model: str, samples: str, out: Path, method: str, storage: str) -> None:
    """Read, quantize, write."""
    read = onnx.load(model)
    reader = Reader(samples, [port.name for port in read.graph.input]) if method == "gptq" else None
    bits = int(storage[1:])
    made = quantizer.MatMulNBitsQuantizer(
        read,
        bits=bits,
        block_size=BLOCK,
        is_symmetric=storage.startswith("i"),
        accuracy_level=FLOAT32,
        algo_config=CONFIGS[method](reader, bits),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        made.process()
    large = Path(model).with_suffix(".data").exists()
    made.model.save_model_to_file(str(out), use_external_data_format=large)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    start = time.perf_counter()
    quantize(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:6])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))
