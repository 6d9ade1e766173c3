"""Script for the Python of an environment with `tosa-tools`: modules serialised, then the reference model.

`jobs.json` of the folder lists {"module": file of MLIR text, "inputs": archives of arrays in order,
"extensions", "profiles"}. Job n leaves `answer_n_k.npz` (outputs in order) for its k-th archive, or
`answer_n.txt` with the refusal.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tosa_reference_model as model

TOOL = Path(sys.executable).with_name("tosa-opt")


def serialised(folder: Path, job: Mapping[str, Any], number: int) -> bytes:
    """A module as the flatbuffer that the reference model reads."""
    target = f"specification_version=1.0 profiles={job['profiles']} extensions={job['extensions']} level=8k"
    file = folder / f"module_{number}.tosa"
    done = subprocess.run(  # noqa: S603
        [
            str(TOOL),
            f"--tosa-attach-target={target}",
            "--tosa-validate=strict-op-spec-alignment",
            "--tosa-serialize",
            f"--tosa-flatbuffer-filename={file}",
            str(folder / job["module"]),
            "-o",
            "/dev/null",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not file.exists():
        raise ValueError(f"tosa-opt: {done.stderr[:2000]}")
    return file.read_bytes()


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Run one module on its archives."""
    data = serialised(folder, job, number)
    for k, name in enumerate(job["inputs"]):
        with np.load(folder / name) as archive:
            arrays = [archive[key] for key in sorted(archive, key=int)]
        outputs, status = model.run(data, arrays, tosa_level="EIGHTK")
        if status != model.GraphStatus.TOSA_VALID:
            raise ValueError(f"reference model: {status}")
        np.savez(folder / f"answer_{number}_{k}.npz", **{str(i): item for i, item in enumerate(outputs)})


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        try:
            answer(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            (folder / f"answer_{number}.txt").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
