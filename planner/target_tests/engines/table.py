"""Table: the engines by name, the format of their files, and how operators without a kernel run there."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from planner.formats.onnx.sessions import FAILURES, one_line
from planner.formats.onnx.writer.as_optimised import run_optimised
from planner.target_tests.engines.answers import Answer, Job
from planner.target_tests.engines.environment import ask_litert, ask_qnn, ask_tosa, ask_vela, version_of
from planner.target_tests.engines.fpga import ask_finn, ask_hls4ml
from planner.target_tests.engines.openvino_cpu import ask_openvino

OwnEngine: TypeAlias = Callable[[bytes, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""A user's engine: a file and arrays by name in, arrays by name out; what it raises is its refusal."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine is asked.

    Attributes:
      form: the format of its files, a key of `EXPORTERS`.
      ask: with the Python of the engine's environment, and jobs; an answer for each.
      otherwise: how an operator runs that it has no integer kernel for; "" where that is unknown.
      float_ends: whether its files take and give reals where a port is quantized.
      package: that has the engine's version; "" where none has.
    """

    form: str
    ask: Callable[[str, Sequence[Job]], Sequence[Answer]]
    otherwise: str = ""
    float_ends: bool = False
    package: str = ""

    def version(self, python: str) -> str:
        """Of the engine in an environment, `onnxruntime-qnn 2.7.0`; "" where it tells none."""
        number = version_of(python, self.package) if self.package else ""
        return f"{self.package} {number}" if number else ""


def own_engine(function: OwnEngine, form: str) -> Engine:
    """An engine of the user's: one call for each file."""

    def ask(_: str, jobs: Sequence[Job]) -> list[Answer]:
        return [_asked(function, job) for job in jobs]

    return Engine(form, ask)


def _asked(function: OwnEngine, job: Job) -> Answer:
    try:
        return Answer(outputs=dict(function(job.file, job.inputs)))
    except Exception as error:  # noqa: BLE001 - whatever a stranger's code raises is its refusal
        return Answer(refusal=f"{type(error).__name__}: {error}")


def _ask_onnxruntime(_: str, jobs: Sequence[Job]) -> list[Answer]:
    answers = []
    for job in jobs:
        try:
            found = run_optimised(job.file, job.inputs)
        except FAILURES as error:
            answers.append(Answer(refusal=one_line(error)))
        else:
            answers.append(Answer(outputs=found.outputs, elsewhere=found.floats))
    return answers


ENGINES: Final[Mapping[str, Engine]] = {
    "finn": Engine("finn", ask_finn, "cpu", float_ends=True, package="qonnx"),  # FINN is no package
    "hls4ml": Engine("hls4ml", ask_hls4ml, float_ends=True, package="hls4ml"),
    "litert": Engine("litert", partial(ask_litert, kernels="reference"), package="ai-edge-litert"),
    "litert-optimized": Engine("litert", partial(ask_litert, kernels="optimized"), package="ai-edge-litert"),
    "onnxruntime": Engine("onnx-qdq", _ask_onnxruntime, "float", package="onnxruntime"),
    "openvino": Engine("onnx-qdq", ask_openvino, "float", package="openvino"),
    "qnn": Engine("onnx-qdq", ask_qnn, "cpu", package="onnxruntime-qnn"),
    "tosa": Engine("tosa", ask_tosa, package="tosa-tools"),
    "vela": Engine("litert", ask_vela, "cpu", package="ethos-u-vela"),
}

HERE: Final = sys.executable
"""Our own Python, where nothing else is said."""
