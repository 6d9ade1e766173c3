"""Runs inside the hls4ml oracle's environment: compiles exports into hls4ml's C simulation and runs them.

argv: a folder with `jobs.json`, a list; an answer is `answer_N.npz`, or `answer_N.txt` with what was raised.
A job is a zip of `--format hls4ml` and its samples, one along the first axis each.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from hls4ml.converters import convert_from_onnx_model
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.util.cleanup import cleanup_model


def compiled(archive, folder, *, is_image):
    archive.extractall(folder)
    model = cleanup_model(ModelWrapper(str(folder / "model.onnx")))
    if is_image:
        model = cleanup_model(model.transform(ConvertToChannelsLastAndClean()).transform(GemmToMatMul()))
    config = json.loads((folder / "hls_config.json").read_text())
    made = convert_from_onnx_model(
        model, output_dir=str(folder / "project"), backend="Vitis", io_type="io_parallel", hls_config=config
    )
    made.write()
    script = folder / "project" / "build_lib.sh"
    script.write_text(script.read_text().replace("-O3", "-O0"))  # most of the time goes into optimising
    made.write = lambda: None  # which compile() calls, and would write -O3 again
    made.compile()
    return made


def main():
    folder = Path(sys.argv[1])
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        with np.load(folder / job["sample"]) as arrays:
            sample = np.ascontiguousarray(arrays["x"])
        try:
            with zipfile.ZipFile(job["archive"]) as archive:
                made = compiled(archive, folder / f"job_{number}", is_image=sample.ndim > 2)
            np.savez(folder / f"answer_{number}.npz", y=made.predict(sample))
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            (folder / f"answer_{number}.txt").write_text(f"{type(error).__name__}: {error}")


main()
