"""Datatypes: FINN's `quantization_annotation` of tensors, as types on values.

A tensor with an integer datatype holds these integers in floats: scale 1, zero point 0. Said of a model input
or of the result of a MultiThreshold it is a type; of a weight too where devices have such grids (`grids`); of
sums nothing, as kernels find what they need themselves. Source: QONNX `qonnx.core.datatype`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from onnx import TensorAnnotation

from planner.errors import QTypeError
from planner.formats.onnx.grids import is_common
from planner.ir.graph import Facts, Graph
from planner.ir.types.qtypes import AnyType, Bipolar, Storage, Uniform, storage
from planner.ops import LINEAR

DATATYPE: Final = "finn_datatype"
_STEPS: Final = "MultiThreshold"
_WIDEST: Final = 16
_INTEGER: Final = re.compile(r"(U?)INT(\d{1,2})")
_FIXED: Final = re.compile(r"FIXED<(\d{1,2}),(\d{1,2})>")


def with_datatypes(graph: Graph, annotations: Iterable[TensorAnnotation]) -> Graph:
    """Put the types that a file's annotations say on its values; the same graph if they say none.

    Args:
      graph: ops as the file has them, of any domain.
      annotations: `quantization_annotation` of the file's graph.
    """
    steps = (op for op in graph.ops if op.type.endswith(_STEPS))
    made = {out for op in steps for out in op.outputs} | set(graph.inputs)
    weights = {name for op in graph.ops if op.type in LINEAR for name in op.inputs[:2]} & set(graph.constants)
    values = dict(graph.values)
    for name, text in _texts(annotations).items():
        facts = _facts(text, graph, name) if name in made | weights else ()
        if facts:
            values[name] = replace(values[name], facts=facts)
    return graph if values == graph.values else replace(graph, values=values)


def _texts(annotations: Iterable[TensorAnnotation]) -> Mapping[str, str]:
    return {
        entry.tensor_name: pair.value
        for entry in annotations
        for pair in entry.quant_parameter_tensor_names
        if pair.key == DATATYPE
    }


def _facts(text: str, graph: Graph, name: str) -> Facts:
    array = graph.constants[name].array if name in graph.constants else None
    if text == "BIPOLAR":
        return (Bipolar("f32", 1.0),) if array is None or np.all(np.abs(array) == 1) else ()
    found = _storage_of(text)
    if found is None:
        return ()
    store, scale = found
    if array is None or (is_common(store) and np.all(np.mod(array, scale) == 0)):
        return (Uniform(store, (scale,), (0,)),)
    return (AnyType(store),)


def _storage_of(text: str) -> tuple[Storage, float] | None:
    """Storage and scale of a datatype; None where it is float, too wide or unknown."""
    if text == "TERNARY":
        return Storage(2, signed=True, qmin=-1, qmax=1), 1.0
    if text == "BINARY":
        return storage("u1"), 1.0
    whole, fixed = _INTEGER.fullmatch(text), _FIXED.fullmatch(text)
    try:
        if whole is not None and int(whole[2]) <= _WIDEST:
            return storage(f"{'u' if whole[1] else 'i'}{whole[2]}"), 1.0
        if fixed is not None and int(fixed[1]) <= _WIDEST:
            return storage(f"i{fixed[1]}"), 2.0 ** (int(fixed[2]) - int(fixed[1]))
    except QTypeError:
        return None
    return None
