"""Jobs for an engine and its answers: plain records."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One file, and the inputs that it is run on.

    Attributes:
      file: in the format of the engine.
      inputs: an array for each input of the model, by name, in the model's order.
      outputs: names of the model's outputs, in order.
    """

    file: bytes
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The outcome of a job.

    Attributes:
      outputs: arrays by name; None where the engine only compiles, or refused.
      elsewhere: operators that ran in float or on the CPU, not in integer arithmetic on the device.
      refusal: the engine's message; "" where it took the file.
    """

    outputs: Mapping[str, np.ndarray] | None = None
    elsewhere: tuple[str, ...] = ()
    refusal: str = ""
