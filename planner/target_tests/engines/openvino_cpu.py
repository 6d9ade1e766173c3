"""OpenVINO's CPU plugin in an environment of its own, on `onnx-qdq` files."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.target_tests.engines.answers import Answer, Job
from planner.target_tests.engines.environment import answers_of, run_script, save_arrays


def ask_openvino(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Run ONNX files on OpenVINO's CPU plugin; float layers are reported.

    Args:
      python: of an environment with `openvino`.
      jobs: files and inputs by their names.

    Raises:
      InputError: the engine does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as place:
        folder, asked = Path(place), []
        for number, job in enumerate(jobs):
            (folder / f"file_{number}.onnx").write_bytes(job.file)
            save_arrays(folder / f"sample_{number}_0.npz", job.inputs.values())
            asked.append(
                {"file": f"file_{number}.onnx", "samples": [[f"sample_{number}_0.npz", list(job.inputs)]]}
            )
        run_script(python, "run_openvino.py", folder, asked, "openvino")
        return [_answer(folder, number) for number in range(len(jobs))]


def _answer(folder: Path, number: int) -> Answer:
    answers = answers_of(folder, number, 1)
    if isinstance(answers, str):
        return Answer(refusal=answers)
    told = json.loads((folder / f"answer_{number}.json").read_text(encoding="utf-8"))
    return Answer(
        outputs=dict(zip(told["outputs"], answers[0], strict=True)), elsewhere=tuple(told["floats"])
    )
