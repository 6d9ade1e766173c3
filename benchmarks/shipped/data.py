"""The tasks' common form: samples to calibrate with, and a score of any file with the same signature."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Sample = Mapping[str, Array]
Run = Callable[[Sample], list[Array]]
"""Runs a file on a sample; outputs in the file's order."""
CALIBRATION: Final = 32
"""Samples that every side calibrates with."""


class NoData(Exception):
    """This machine lacks what a task's data is made of; the text says what to install."""


@dataclass(frozen=True, slots=True)
class Made:
    """A task made ready on this machine.

    Attributes:
      model: the float file.
      calibration: samples of all sides.
      score: the task's metric of a file, on evaluation data that no side sees. Call it with float's first:
        where there is no truth, float's answers are it.
      probe: the sample that latency is measured with.
    """

    model: Path
    calibration: list[Sample]
    score: Callable[[Run], float]
    probe: Sample


@dataclass(frozen=True, slots=True)
class Task:
    """A model of a wheel with what it is for.

    Attributes:
      name: ours, short.
      wheel: the package that has the model.
      metric: what `score` is, for people.
      data: what the samples are, for people.
      make: from the folder of all wheels (a function of a package's name) to the task.
      is_transformer: whether NNCF's documentation says `model_type=TRANSFORMER` of it.
    """

    name: str
    wheel: str
    metric: str
    data: str
    make: Callable[[Callable[[str], Path]], Made]
    is_transformer: bool = False


def random(seed: int) -> np.random.Generator:
    """Return a seeded source of random numbers."""
    return np.random.default_rng(seed)
