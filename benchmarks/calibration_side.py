"""One side of `benchmarks.calibration` in a process of its own; prints one JSON line.

Imports are local, so that no side pays for the other's modules. Run as
`python -m benchmarks.calibration_side SIDE METHOD MODEL SAMPLES`.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

Run = Callable[[Path, Path, str, Path], int]


def ours() -> Run:
    """Import our side; the function returns how many values got statistics."""
    from planner.calibration.run import calibrate
    from planner.formats.onnx.read import read_onnx

    return lambda model, folder, method, _work: len(calibrate(read_onnx(model), folder, method=method).values)


def onnxruntime() -> Run:
    """Import the other side; the function returns how many values got ranges."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    from benchmarks.ort_quantize import FolderReader

    kinds = {"minmax": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile}

    def run(model: Path, folder: Path, method: str, work: Path) -> int:
        calibrator = create_calibrator(
            model, None, str(work / "augmented.onnx"), calibrate_method=kinds[method]
        )
        calibrator.collect_data(FolderReader(folder))
        return len(calibrator.compute_data().data)

    return run


SIDES: Final[Mapping[str, Callable[[], Run]]] = {"onnxruntime": onnxruntime, "ours": ours}


def main() -> None:
    """Measure in this process and print one JSON line."""
    side, method, model, folder = sys.argv[1:]
    run = SIDES[side]()
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        n_values = run(Path(model), Path(folder), method, Path(work))
        seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak_kb = int(status.split("VmHWM:")[1].split()[0])
    print(json.dumps({"seconds": seconds, "rss_mb": peak_kb / 1024, "values": n_values}))


if __name__ == "__main__":
    main()
