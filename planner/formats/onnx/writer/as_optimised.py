"""An exported file as onnxruntime runs it by default: its results, and the operators that it left in float.

onnxruntime fuses DequantizeLinear, an operator and QuantizeLinear into an integer kernel where it has one,
and computes in float where not, without a word. The file it writes of the optimised graph says which.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from onnx import GraphProto, load

from planner.formats.onnx.sessions import open_session, run_arrays, session_options

_QUANTIZERS: Final = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


@dataclass(frozen=True, slots=True, eq=False)
class OptimisedRun:
    """Outputs by name, and the types of the operators that read what a DequantizeLinear gives."""

    outputs: Mapping[str, np.ndarray]
    floats: tuple[str, ...]


def run_optimised(data: bytes, inputs: Mapping[str, np.ndarray]) -> OptimisedRun:
    """Run a model with all of onnxruntime's optimisations, and look at what they left.

    Products of u8 and i8 are exact, also on processors whose instructions saturate.

    Args:
      data: an ONNX file with its weights inside.
      inputs: an array for each input of the model, by name.

    Raises:
      one of `sessions.FAILURES`: onnxruntime refuses the model or the inputs.
    """
    options = session_options("all", exact_products=True)
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        session = open_session(data, options)
        names = [port.name for port in session.get_outputs()]
        found = run_arrays(session, names, {port.name: inputs[port.name] for port in session.get_inputs()})
        return OptimisedRun(dict(zip(names, found, strict=True)), _floats(load(path).graph))


def _floats(graph: GraphProto) -> tuple[str, ...]:
    given = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    return tuple(
        node.op_type for node in graph.node if node.op_type not in _QUANTIZERS and given & {*node.input}
    )
