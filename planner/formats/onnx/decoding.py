"""Decoding: a graph of a file, the main one or a body, as our Graph; nothing is changed or folded.

Source: onnx.proto.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from onnx import GraphProto, ModelProto, SparseTensorProto, ValueInfoProto

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NAMES, dtype_of
from planner.formats.onnx.quantized.datatypes import with_datatypes
from planner.formats.onnx.shapes import type_of
from planner.formats.onnx.structure.subgraph_nodes import ops_of
from planner.formats.onnx.tensors import array_of
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Constant, Graph, Op, Value


def graph_of_bytes(data: bytes, opsets: Mapping[str, int], name: str) -> Graph:
    """The graph of a model that was written here, its bodies as they stand in their ops."""
    return decoded(ModelProto.FromString(data).graph, opsets, name)


def decoded(proto: GraphProto, opsets: Mapping[str, int], name: str, folder: Path | None = None) -> Graph:
    """The graph of a `GraphProto` as it stands there: ops in the file's order, Constant nodes taken out.

    Raises:
      ModelError: two initializers of one name that differ.
    """
    outputs = tuple(info.name for info in proto.output)
    ops, constants, values = _constants_apart(ops_of(proto.node, folder), outputs)
    for tensor in proto.initializer:
        array = array_of(tensor, folder)
        _check_single(tensor.name, array, constants.get(tensor.name))
        constants[tensor.name] = array
        values[tensor.name] = Value(tensor.name, tuple(tensor.dims), NAMES[tensor.data_type])
    for sparse in proto.sparse_initializer:
        tensor = sparse.values
        constants[tensor.name] = _dense(sparse)
        values[tensor.name] = Value(tensor.name, tuple(sparse.dims), NAMES[tensor.data_type])
    inputs = tuple(info.name for info in proto.input if info.name not in constants)
    graph = Graph(
        name=name,
        values=_declared(ops, (*proto.value_info, *proto.output, *proto.input)) | values,
        ops=ops,
        inputs=inputs,
        outputs=outputs,
        constants={key: Constant(array) for key, array in constants.items()},
        opsets=opsets,
    )
    return with_datatypes(graph, proto.quantization_annotation)


def _check_single(name: str, array: np.ndarray, other: np.ndarray | None) -> None:
    if other is not None and not (other.dtype == array.dtype and np.array_equal(other, array)):
        raise ModelError(
            f"initializer {name!r} is there twice, with different numbers",
            hint="nothing says which one counts",
        )


def _constants_apart(
    ops: Iterable[Op], outputs: tuple[str, ...]
) -> tuple[tuple[Op, ...], dict[str, np.ndarray], dict[str, Value]]:
    """Take the Constant nodes out; one that writes a model output stays."""
    kept: list[Op] = []
    arrays: dict[str, np.ndarray] = {}
    for op in ops:
        array = _constant(op) if op.type == "Constant" and op.outputs[0] not in outputs else None
        if array is None:
            kept.append(op)
        else:
            arrays[op.outputs[0]] = array
    values = {name: Value(name, array.shape, dtype_of(array)) for name, array in arrays.items()}
    return tuple(kept), arrays, values


def _constant(op: Op) -> np.ndarray | None:
    for key, dtype in _CONSTANT_KINDS.items():
        if key in op.attributes:
            return np.asarray(op.attributes[key], dtype=dtype)
    return None


def _declared(ops: Iterable[Op], infos: Iterable[ValueInfoProto]) -> dict[str, Value]:
    """Every value that ops name, with the type the file declares of it, if any."""
    values = {out: Value(out, None, UNKNOWN) for op in ops for out in op.outputs if out}
    for info in infos:
        values[info.name] = Value(info.name, *type_of(info.type))
    return values


def _dense(sparse: SparseTensorProto) -> np.ndarray:
    values, indices = array_of(sparse.values), array_of(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


_CONSTANT_KINDS: Final[dict[str, type | None]] = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}
