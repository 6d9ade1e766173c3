"""Contrib: operators of onnxruntime's domain with other operands or attributes than they have are refused.

onnxruntime ends the process at some of them, where an operand that it needs is left out, and so does onnx's
inference at some of `ai.onnx.ml` (LabelEncoder). Unknown names of the domains stay opaque. Source: the
schemas that onnxruntime itself, or onnx, is built with.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
from onnx import TensorProto, defs

from planner.errors import ModelError
from planner.formats.onnx.dtypes import enum_of
from planner.formats.onnx.sessions import CONTRIB, contrib_schemas
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Graph, Op, Opaque

LEARNING: Final = "ai.onnx.ml"
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "FLOAT": float,
    "FLOATS": tuple,
    "GRAPH": Opaque,
    "INT": int,
    "INTS": tuple,
    "STRING": (str, bytes),
    "STRINGS": tuple,
    "TENSOR": np.ndarray,
}


def refuse_contrib(graph: Graph) -> None:
    """Refuse operators of onnxruntime's domain and of `ai.onnx.ml` that could not be loaded.

    Raises:
      ModelError: the op, and the operands or the attribute that do not fit.
    """
    for op in graph.ops:
        domain, _, kind = op.type.rpartition("::")
        schema = contrib_schemas().get(kind) if domain == CONTRIB else None
        problem = "" if schema is None else _of_operands(op, schema) or _of_attributes(op, schema)
        learnt = _learning_schema(kind) if domain == LEARNING else None
        problem = problem or (_of_operands(op, learnt) if learnt is not None else "")
        if problem:
            raise ModelError(f"{kind} at {op.name!r}: {problem}")


@lru_cache(maxsize=64)
def _learning_schema(kind: str) -> Any:
    """The newest schema of a classical operator, whose operands never changed; None of an unknown one."""
    try:
        return defs.get_schema(kind, domain=LEARNING)
    except defs.SchemaError:
        return None


def refuse_types(graph: Graph) -> None:
    """Refuse operators of onnxruntime's domain on element types that it has no such operator for.

    Raises:
      ModelError: the op, its operand, and the types that fit.
    """
    for op in graph.ops:
        domain, _, kind = op.type.rpartition("::")
        schema = contrib_schemas().get(kind) if domain == CONTRIB else None
        if schema is not None:
            _refuse_types(op, schema, graph)


def _refuse_types(op: Op, schema: Any, graph: Graph) -> None:
    bound: dict[str, str] = {}
    for i, name in enumerate(op.inputs):
        told = schema.inputs[min(i, len(schema.inputs) - 1)]
        dtype = graph.values[name].dtype if name else UNKNOWN
        if dtype == UNKNOWN:
            continue
        text = f"tensor({TensorProto.DataType.Name(enum_of(dtype)).lower()})"
        accepted = {bound.get(told.typeStr, text)} & set(told.types)
        if text not in accepted:
            takes = bound.get(told.typeStr) or ", ".join(sorted(told.types))
            raise ModelError(
                f"{op.type.rpartition('::')[2]} at {op.name!r}: its operand {told.name!r} is a {text}",
                hint=f"accepted: {takes}",
            )
        if told.isHomogeneous:
            bound[told.typeStr] = text


def _of_operands(op: Op, schema: Any) -> str:
    if not schema.min_input <= len(op.inputs) <= schema.max_input:
        few = "few" if len(op.inputs) < schema.min_input else "many"
        least, most = schema.min_input, min(schema.max_input, 1 << 16)
        return f"{len(op.inputs)} operands are too {few}; onnxruntime takes {least} to {most}"
    for given, told in zip(op.inputs, schema.inputs, strict=False):
        if not given and str(told.option).endswith("Single"):
            return f"its operand {told.name!r} is left out, and onnxruntime needs it"
    return ""


def _of_attributes(op: Op, schema: Any) -> str:
    for key, given in op.attributes.items():
        told = schema.attributes.get(key)
        if told is None:
            known = ", ".join(sorted(schema.attributes)) or "none"
            return f"its attribute {key!r} is unknown to onnxruntime, which has {known}"
        kind = str(told.type).rpartition(".")[2]
        if not isinstance(given, _KINDS.get(kind, object)):
            return f"its attribute {key!r} is {given!r:.60}; onnxruntime takes {kind}"
    lacking = [key for key, told in schema.attributes.items() if told.required and key not in op.attributes]
    return f"its attribute {lacking[0]!r} is missing, and onnxruntime needs it" if lacking else ""
