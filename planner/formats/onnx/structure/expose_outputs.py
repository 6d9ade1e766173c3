"""Exposed outputs: the tensors inside an ONNX file, and the file with some of them as further outputs.

Works on bytes, without weights being decoded twice. Source: onnx.proto.
"""

from collections.abc import Iterable

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, ValueInfoProto

from planner.errors import ModelError


def inner_tensors(data: bytes) -> tuple[str, ...]:
    """Names of the results of nodes of a file's main graph, model outputs left out.

    Raises:
      ModelError: bytes that are no ONNX model.
    """
    graph = _parsed(data).graph
    outputs = {port.name for port in graph.output}
    return tuple(name for node in graph.node for name in node.output if name and name not in outputs)


def with_outputs(data: bytes, names: Iterable[str]) -> bytes:
    """An ONNX file that also returns tensors it computes, after its own outputs; their types stay open.

    Raises:
      ModelError: bytes that are no ONNX model.
    """
    model = _parsed(data)
    model.graph.output.extend(ValueInfoProto(name=name) for name in names)
    result: bytes = model.SerializeToString()
    return result


def _parsed(data: bytes) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(f"{len(data)} bytes that are no ONNX model") from None
    return model
