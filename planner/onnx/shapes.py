"""Shapes and element types of every value, by onnx's shape inference on a copy without the weights.

Only small constants (shapes, axes, scales) go into that copy, so its cost does not grow with the
model's weights. Ops of unknown domains get a guess: the element type of their first float operand.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from onnx import (
    ModelProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    defs,
    shape_inference,
)

from planner.ir.graph import FLOAT_DTYPES, Dim, Graph, Op, Shape, Value
from planner.onnx.dtypes import NAMES, UNKNOWN
from planner.onnx.quantized.dialect import ELEMENTWISE
from planner.onnx.write import Port, op_node, value_info, write_model

_SMALL: Final = 1024
_LONG: Final = 1 << 20
_GENERATED: Final = "unk__"


def infer(graph: Graph) -> Graph:
    """Return the graph with the shapes and element types that follow from inputs and constants.

    A value that cannot be inferred keeps its type in the file, else shape None and element type "".
    """
    hints: dict[str, Value] = {}
    foreign = [op for op in graph.ops if _is_foreign(op)]
    while True:
        values = {**graph.values, **hints, **_inferred(graph, hints.values())}
        # A guess lets inference reach the next op of an unknown domain: again, until nothing is learned.
        fresh = _guesses(foreign, values, hints)
        if not fresh:
            break
        hints.update(fresh)
    notes = graph.notes
    if hints:
        types = sorted({op.type for op in foreign if any(out in hints for out in op.outputs)})
        notes = tuple(dict.fromkeys((*notes, f"element types behind {', '.join(types)} are a guess")))
    return replace(graph, values=values, notes=notes)


def type_of(proto: TypeProto) -> tuple[Shape | None, str]:
    """Shape and element type that a `TypeProto` states; (None, "") where it is no tensor."""
    if not proto.HasField("tensor_type"):
        return None, UNKNOWN
    tensor = proto.tensor_type
    dtype = NAMES.get(tensor.elem_type, UNKNOWN)
    if not tensor.HasField("shape"):
        return None, dtype
    return tuple(_dim(entry) for entry in tensor.shape.dim), dtype


def _dim(entry: TensorShapeProto.Dimension) -> Dim:
    if entry.HasField("dim_value"):
        return int(entry.dim_value) if entry.dim_value >= 0 else None
    symbol = str(entry.dim_param)
    return symbol if symbol and not symbol.startswith(_GENERATED) else None


def _is_foreign(op: Op) -> bool:
    return op.type not in ELEMENTWISE and ("::" in op.type or not defs.has(op.type))


def _stand_in(op: Op) -> Op:
    """An op onnx knows, of the same shapes and element types."""
    if op.type not in ELEMENTWISE:
        return op
    return replace(op, type="Identity", inputs=op.inputs[:1], outputs=op.outputs[:1], attributes={})


def _guesses(
    foreign: Iterable[Op], values: Mapping[str, Value], known: Mapping[str, Value]
) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for op in foreign:
        dtypes = [values[name].dtype for name in op.inputs if name and values[name].is_float]
        if not dtypes:
            continue
        for out in op.outputs:
            if out and out not in known and values[out].dtype == UNKNOWN:
                found[out] = replace(values[out], dtype=dtypes[0])
    return found


def _inferred(graph: Graph, hints: Collection[Value]) -> dict[str, Value]:
    """Infer without and then, where it may help, with the contents of shape tensors.

    onnx writes out the contents of every vector, also of one with 10^9 elements: not on those.
    """
    model = _with_hints(_without_weights(graph), hints)
    found = _merged(graph, _run(model, data_prop=False))
    complete = found.keys() >= {out for op in graph.ops for out in op.outputs if out}
    if complete and all(map(_is_static, found.values())):
        return found
    if not _reads_computed_integers(graph, found):
        return found
    if any(map(_is_long_vector, (*graph.values.values(), *found.values()))):
        return found
    return found | _merged(graph, _run(model, data_prop=True))


def _run(model: bytes, *, data_prop: bool) -> Iterable[ValueInfoProto]:
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=data_prop)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return ()
    return (*inferred.graph.value_info, *inferred.graph.output)


def _reads_computed_integers(graph: Graph, found: Mapping[str, Value]) -> bool:
    """Whether an op, or a body, reads integers that are no constants: no other contents are followed."""
    if any(op.captures for op in graph.ops):
        return True
    read = {name for op in graph.ops for name in op.inputs if name and name not in graph.constants}
    return any((found.get(name) or graph.values[name]).dtype not in FLOAT_DTYPES for name in read)


def _is_static(value: Value) -> bool:
    shape = value.shape
    return value.dtype != UNKNOWN and shape is not None and all(isinstance(dim, int) for dim in shape)


def _is_long_vector(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == 1 and value.elements > _LONG


def _merged(graph: Graph, infos: Iterable[ValueInfoProto]) -> dict[str, Value]:
    found = {}
    fixed = {*graph.inputs, *graph.constants}
    for info in infos:
        old = graph.values.get(info.name)
        # Inputs and constants are as the file says; inference may only add to the rest.
        if old is not None and info.name not in fixed:
            shape, dtype = type_of(info.type)
            found[info.name] = Value(
                old.name, old.shape if shape is None else shape, dtype or old.dtype, old.facts
            )
    return found


def _with_hints(data: bytes, hints: Collection[Value]) -> bytes:
    """The model with the known types of values that no inference reaches."""
    if not hints:
        return data
    model: ModelProto = ModelProto.FromString(data)
    model.graph.value_info.extend(value_info(hint.name, hint.dtype, hint.shape) for hint in hints)
    found: bytes = model.SerializeToString()
    return found


def _without_weights(graph: Graph) -> bytes:
    small, large = {}, []
    for name, constant in graph.constants.items():
        value = graph.values[name]
        if constant.array is not None and constant.array.size <= _SMALL and value.dtype != "string":
            small[name] = (constant.array, value.dtype)
        else:
            large.append((name, value.dtype, value.shape))
    ports: list[Port] = [(name, graph.values[name].dtype, graph.values[name].shape) for name in graph.inputs]
    return write_model(
        name="shapes",
        nodes=[op_node(_stand_in(op)) for op in graph.ops],
        inputs=[*ports, *large],
        outputs=[(name, graph.values[name].dtype, None) for name in graph.outputs],
        constants=small,
        opset=graph.opsets[""],
        domains={domain: version for domain, version in graph.opsets.items() if domain},
    )
