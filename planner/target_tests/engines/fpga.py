"""The tools of FPGAs, each in an environment of its own: FINN's front half, and hls4ml's C simulation.

FINN is no package: its sources are a checkout, on the path of the environment that has what they import.
Nothing of Xilinx's is needed up to hardware layers, which FINN's own Python executes; hls4ml's simulation
needs a C++ compiler.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.target_tests.engines.answers import Answer, Job
from planner.target_tests.engines.environment import Files, jobs_in, run_script, runs_of


@dataclass(frozen=True, slots=True)
class Step:
    """A step of FINN's builder.

    Attributes:
      difference: the largest from the numbers of the file as written; None where it raised.
      error: what it raised, or "".
    """

    name: str
    difference: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FinnRun:
    """The outcome of a file in FINN's front half.

    Attributes:
      outputs: for each sample arrays by name, of the last step that was reached.
      steps: in order; the last one may have raised.
      layers: hardware layers, by operator.
      left: operators in software.
      missed: those of them that FINN has a layer for.
      on_integers: those that compute with integers, between the model's ends.
    """

    outputs: tuple[Mapping[str, np.ndarray], ...]
    steps: tuple[Step, ...]
    layers: tuple[str, ...]
    left: tuple[str, ...]
    missed: tuple[str, ...]
    on_integers: tuple[str, ...] = ()

    @property
    def stopped(self) -> Step | None:
        """The step that raised, if any."""
        return next((step for step in self.steps if step.error), None)


def run_finn(python: str, folder: Path, files: Files) -> list[FinnRun | str]:
    """For each file its run through FINN, or the refusal of the file as it is.

    Args:
      python: of an environment that imports FINN.
      folder: an empty one to work in.
      files: bytes, and samples of arrays by the names of the model's inputs.

    Raises:
      InputError: FINN does not start there.
    """
    run_script(python, "run_finn.py", folder, jobs_in(folder, files, "onnx"), "FINN")

    def run(outputs: tuple[dict[str, np.ndarray], ...], told: Any) -> FinnRun:
        steps = tuple(Step(s["name"], s.get("difference"), s.get("error", "")) for s in told["steps"])
        layers, left, missed, inner = (
            tuple(told[key]) for key in ("layers", "left", "missed", "on_integers")
        )
        return FinnRun(outputs, steps, layers, left, missed, inner)

    return runs_of(folder, files, run)


def ask_finn(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Take files through FINN's front half, and run the hardware layers.

    Args:
      python: of an environment that imports FINN.
      jobs: files and inputs by their names.

    Raises:
      InputError: FINN does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        found = run_finn(python, Path(folder), [(job.file, [job.inputs]) for job in jobs])
    return [_answer(run) for run in found]


@dataclass(frozen=True, slots=True, eq=False)
class Hls4mlRun:
    """The outcome of an archive in hls4ml's C simulation.

    Attributes:
      outputs: for each sample arrays by name.
      layers: of the project.
      seconds: from the archive to the last number.
    """

    outputs: tuple[Mapping[str, np.ndarray], ...]
    layers: int
    seconds: float


def run_hls4ml(
    python: str,
    folder: Path,
    files: Files,
    *,
    seconds: float | None = None,
) -> list[Hls4mlRun | str]:
    """For each archive its run in hls4ml's C simulation, or the error that was raised.

    Args:
      python: of an environment with `hls4ml`.
      folder: an empty one to work in.
      files: archives of the format `hls4ml`, and samples of arrays by the names of the model's inputs.
      seconds: after which an archive is given up.

    Raises:
      InputError: hls4ml does not start there.
    """
    run_script(python, "run_hls4ml.py", folder, jobs_in(folder, files, "zip", seconds=seconds), "hls4ml")
    return runs_of(folder, files, lambda outputs, told: Hls4mlRun(outputs, told["layers"], told["seconds"]))


def ask_hls4ml(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Run archives in hls4ml's C simulation.

    Args:
      python: of an environment with `hls4ml`.
      jobs: archives and inputs by the names of the model's.

    Raises:
      InputError: hls4ml does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        found = run_hls4ml(python, Path(folder), [(job.file, [job.inputs]) for job in jobs])
    return [Answer(refusal=run) if isinstance(run, str) else Answer(outputs=run.outputs[0]) for run in found]


def _answer(run: FinnRun | str) -> Answer:
    if isinstance(run, str):
        return Answer(refusal=run)
    if run.stopped is not None:
        return Answer(refusal=f"{run.stopped.name}: {run.stopped.error}")
    return Answer(outputs=run.outputs[0], elsewhere=run.on_integers)
