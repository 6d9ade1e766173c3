"""Script for the Python of an environment with `hls4ml`: archives of ours into its C simulation, and run.

`jobs.json` of the folder lists {"file": an archive of `--format hls4ml`, "samples": [[archive, names of its
arrays], ...], "seconds": after which it is given up, or null}. Job n leaves `answer_n.json` (names of the
outputs, layers, seconds) and `answer_n_k.npz` (outputs in order) for its k-th sample, or `answer_n.txt` with
the error that was raised. It needs a C++ compiler.

The archive's model goes to hls4ml as it is, with the `IOType` of its configuration; with images after QONNX's
conversion to channels last, which hls4ml asks for. The simulation is compiled without optimization, which
changes no number of it.
"""

import json
import signal
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hls4ml.converters import convert_from_onnx_model
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.util.cleanup import cleanup_model

IMAGE = 3


def compiled(folder: Path, *, is_image: bool) -> Any:
    """A project of hls4ml, its C simulation compiled within the time that the job has left."""
    model = ModelWrapper(str(folder / "model.onnx"))
    if is_image:
        model = cleanup_model(model.transform(ConvertToChannelsLastAndClean()).transform(GemmToMatMul()))
    config = json.loads((folder / "hls_config.json").read_text(encoding="utf-8"))
    made = convert_from_onnx_model(
        model,
        output_dir=str(folder / "project"),
        backend="Vitis",
        io_type=config.get("IOType", "io_parallel"),
        hls_config=config,
    )
    made.write()
    script = folder / "project" / "build_lib.sh"
    text = script.read_text(encoding="utf-8").replace("-O3", "-O0")
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    if left:  # a compiler that outlives its job would run beside the next one
        text = text.replace("CC=g++", f'CC="timeout {left + 1:.0f} g++"')
    script.write_text(text, encoding="utf-8")
    made.write = lambda: None  # which compile() calls, and would write -O3 again
    made.compile()
    return made


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Compile one archive, and run it on its samples."""
    started = time.monotonic()
    place = folder / f"job_{number}"
    with zipfile.ZipFile(folder / job["file"]) as archive:
        archive.extractall(place)
    samples = []
    for archive_name, keys in job["samples"]:
        with np.load(folder / archive_name) as arrays:
            # An archive has no dots in the names of its inputs.
            named = [(key.replace(".", "_"), arrays[str(i)]) for i, key in enumerate(keys)]
            samples.append({key: np.asarray(array, np.float32) for key, array in named})
    model = ModelWrapper(str(place / "model.onnx"))
    inputs = [item.name for item in model.graph.input if model.get_initializer(item.name) is None]
    outputs = [item.name for item in model.graph.output]
    shapes = [model.get_tensor_shape(name) for name in outputs]
    ranks = [np.ndim(samples[0][name]) for name in inputs]
    made = compiled(place, is_image=max(ranks) >= IMAGE)
    for k, sample in enumerate(samples):
        given = [np.ascontiguousarray(sample[name]) for name in inputs]
        found = made.predict(given[0] if len(given) == 1 else given)
        found = found if isinstance(found, list) else [found]
        reals = [np.asarray(y).reshape(-1, *shape[1:]) for y, shape in zip(found, shapes, strict=True)]
        np.savez(
            folder / f"answer_{number}_{k}.npz",
            **{str(i): array for i, array in enumerate(reals)},  # type: ignore[arg-type]
        )
    said = {"outputs": outputs, "layers": len(list(made.get_layers())), "seconds": time.monotonic() - started}
    (folder / f"answer_{number}.json").write_text(json.dumps(said), encoding="utf-8")


def give_up(*_: object) -> None:
    """End a job whose time is over."""
    raise TimeoutError("no answer within its time")


def timed(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Answer one job within its time; the alarm ends with it."""
    signal.setitimer(signal.ITIMER_REAL, job["seconds"] or 0)
    try:
        answer(folder, job, number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    signal.signal(signal.SIGALRM, give_up)
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        try:
            timed(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            (folder / f"answer_{number}.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
