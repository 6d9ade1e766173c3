"""Sessions of onnxruntime: loading models, its exceptions, and its messages on one line.

On the CPU, silent, and as written: with its optimisations on its numbers are no oracle, so whoever wants
them asks. Nothing here knows graphs. Source: design 05, "Traps".
"""

import re
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as states

FAILURES: Final = (
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NotImplemented,
    states.RuntimeException,
)
"""Exceptions with which onnxruntime refuses a model or its inputs."""

_LONGEST: Final = 300
# The file of ours that onnxruntime was given is nothing to the user.
_OWN_FILE: Final = re.compile(r"Load model from \S+ failed: ?")


def session_options(*, optimise: bool = False) -> Any:
    """Options of a silent session, optimisations off unless asked for."""
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options


def observing_options(threads: int = 0) -> Any:
    """Options of a session between whose runs we work: threads that spin meanwhile take the core for it.

    Args:
      threads: 0 is one a core.
    """
    options = session_options()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def open_session(source: bytes | str, options: Any = None) -> onnxruntime.InferenceSession:
    """Load a model's bytes or path on the CPU; raises one of `FAILURES`."""
    chosen = session_options() if options is None else options
    return onnxruntime.InferenceSession(source, chosen, providers=["CPUExecutionProvider"])


def one_line(error: Exception) -> str:
    """A message of onnxruntime, without line breaks and without a file of ours."""
    text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
    text = _OWN_FILE.sub("", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
