"""One phase of onnxruntime's own quantizer in a process of its own, timed; prints one JSON line.

Run by `onnxruntime_baseline` and `quantizers`, never imported. Phases: `preprocess`, or `convert` where its
result is refused; `pieces` (calibrator and QDQQuantizer called one after the other, as `quantize_static`
does); `static` (`quantize_static` as a user calls it); `cached` (the same with the ranges given); `entropy`,
`percentile`, `distribution` (by another method of calibration); `dynamic` (`quantize_dynamic`, its
defaults). Peak memory is this process's own, the
samples are read one at a time.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.calibrate import (
    CalibrationDataReader,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer, update_opset_version
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.memory import peak_rss_mb

ACTIVATION: Final = QuantType.QUInt8
WEIGHT: Final = QuantType.QInt8
REPEATS: Final = 9
SECONDS: Final = 3.0


class FolderReader(CalibrationDataReader):  # type: ignore[misc]
    """The `.npz` samples of a folder, in order, one in memory."""

    def __init__(self, folder: Path) -> None:
        """Start at the first sample."""
        self._paths = iter(sorted(folder.glob("*.npz")))

    def get_next(self) -> dict[str, Any] | None:
        """Return the next sample, None at the end."""
        path = next(self._paths, None)
        if path is None:
            return None
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}


def preprocess(source: Path, _samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/preprocessed.onnx`; without symbolic shape inference where that fails."""
    start = time.perf_counter()
    note = ""
    target = str(work / "preprocessed.onnx")
    try:
        quant_pre_process(str(source), target)
    except Exception as error:  # noqa: BLE001 - whatever it raises, a user would try again without
        note = f"symbolic shape inference skipped: {type(error).__name__} {error}".strip()
        quant_pre_process(str(source), target, skip_symbolic_shape=True)
    return {"preprocess_s": time.perf_counter() - start, "preprocess_note": note}


def convert(source: Path, _samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/preprocessed.onnx` by nothing but raising the opset to 13, where per-channel QDQ begins."""
    start = time.perf_counter()
    model = onnx.load(source)
    version = max(13, *(item.version for item in model.opset_import if not item.domain))
    onnx.save(version_converter.convert_version(model, version), work / "preprocessed.onnx")
    return {"preprocess_s": time.perf_counter() - start}


def pieces(source: Path, samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/pieces.onnx` and `work/ranges.json`; time loading, calibration, quantization.

    Quantization is done again while it is short: its first time and the median.
    """
    op_types = sorted({*QLinearOpsRegistry, *QDQRegistry})
    start = time.perf_counter()
    model = update_opset_version(load_model_with_shape_infer(source), WEIGHT, ACTIVATION)
    loaded = time.perf_counter()
    calibrator = create_calibrator(
        source, op_types, str(work / "augmented.onnx"), calibrate_method=CalibrationMethod.MinMax
    )
    calibrator.collect_data(FolderReader(samples))
    ranges = calibrator.compute_data()
    del calibrator
    calibrated = time.perf_counter()
    again = onnx.ModelProto()
    again.CopyFrom(model)
    start_quantize = time.perf_counter()
    _quantize(model, ranges, op_types, work)
    taken = [time.perf_counter() - start_quantize]
    while len(taken) < REPEATS and sum(taken) + taken[0] < SECONDS:
        copied = onnx.ModelProto()
        copied.CopyFrom(again)
        started = time.perf_counter()
        _quantize(copied, ranges, op_types, work)
        taken.append(time.perf_counter() - started)
    save_tensors_data(ranges, work / "ranges.json")
    return {
        "load_s": loaded - start,
        "calibrate_s": calibrated - loaded,
        "quantize_s": statistics.median(taken),
        "quantize_first_s": taken[0],
    }


def _quantize(model: onnx.ModelProto, ranges: Any, op_types: list[str], work: Path) -> None:
    quantizer = QDQQuantizer(model, True, False, WEIGHT, ACTIVATION, ranges, [], [], op_types, {})
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(str(work / "pieces.onnx"), False)


def _quantize_static(
    source: Path,
    target: Path,
    reader: FolderReader | None,
    cache: Path | None,
    method: CalibrationMethod = CalibrationMethod.MinMax,
) -> float:
    start = time.perf_counter()
    quantize_static(
        str(source),
        str(target),
        reader,
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=ACTIVATION,
        weight_type=WEIGHT,
        calibrate_method=method,
        calibration_cache_path=cache,
    )
    return time.perf_counter() - start


def static(source: Path, samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/static.onnx`: the whole of `quantize_static`."""
    return {"static_s": _quantize_static(source, work / "static.onnx", FolderReader(samples), None)}


def cached(source: Path, _samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/cached.onnx`: `quantize_static` with the ranges of `pieces`."""
    load_tensors_data(work / "ranges.json")
    return {"cached_s": _quantize_static(source, work / "cached.onnx", None, work / "ranges.json")}


def dynamic(source: Path, _samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/dynamic.onnx`: ranges of activations are found while running."""
    start = time.perf_counter()
    quantize_dynamic(str(source), str(work / "dynamic.onnx"))
    return {"dynamic_s": time.perf_counter() - start}


def by_method(name: str, source: Path, samples: Path, work: Path) -> dict[str, float | str]:
    """Write `work/NAME.onnx`: the whole of `quantize_static` by a method of calibration."""
    method, target = CalibrationMethod[name.capitalize()], work / f"{name}.onnx"
    return {f"{name}_s": _quantize_static(source, target, FolderReader(samples), None, method)}


PHASES: Final[Mapping[str, Callable[[Path, Path, Path], dict[str, float | str]]]] = {
    "cached": cached,
    "convert": convert,
    "dynamic": dynamic,
    "pieces": pieces,
    "preprocess": preprocess,
    "static": static,
    **{name: partial(by_method, name) for name in ("entropy", "percentile", "distribution")},
}


def main() -> None:
    """Run `PHASE MODEL SAMPLES WORK` and print the figures."""
    phase, source, samples, work = sys.argv[1:]
    before = peak_rss_mb()
    figures = PHASES[phase](Path(source), Path(samples), Path(work))
    print(json.dumps({**figures, "import_rss_mb": before, "rss_mb": peak_rss_mb()}))


if __name__ == "__main__":
    main()
