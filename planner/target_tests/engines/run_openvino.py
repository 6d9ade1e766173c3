"""Script for the Python of an environment with `openvino`: ONNX files on its CPU plugin.

`jobs.json` of the folder lists {"file", "samples": [[archive, names of its arrays], ...]}. Job n leaves
`answer_n_k.npz` (outputs in order) for its k-th sample and `answer_n.json` (names of the outputs, and layers
that run in floats), or `answer_n.txt` with the refusal. Floats are computed in 32 bits.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino

OPTIONS = {"INFERENCE_PRECISION_HINT": "f32"}
BESIDE = frozenset({"Const", "Convert", "FakeQuantize", "Input", "Output", "Reorder", "Reshape"})
"""Layers of the plugin that carry or convert data."""


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Compile one file and run it on its samples."""
    compiled = openvino.Core().compile_model(str(folder / job["file"]), "CPU", OPTIONS)
    names = [next(iter(port.get_names())) for port in compiled.outputs]
    for k, (archive_name, keys) in enumerate(job["samples"]):
        with np.load(folder / archive_name) as archive:
            results = compiled({key: archive[str(i)] for i, key in enumerate(keys)})
        arrays = {str(i): np.asarray(results[i]) for i in range(len(names))}
        np.savez(folder / f"answer_{number}_{k}.npz", **arrays)  # type: ignore[arg-type]
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    kinds = [(info["layerType"].astype(str), info["runtimePrecision"].astype(str)) for info in infos]
    floats = [kind for kind, precision in kinds if kind not in BESIDE and precision.startswith(("f", "bf"))]
    said = {"outputs": names, "floats": floats}
    (folder / f"answer_{number}.json").write_text(json.dumps(said), encoding="utf-8")


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        try:
            answer(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            text = " ".join(str(error).split())
            (folder / f"answer_{number}.txt").write_text(f"{type(error).__name__}: {text}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
