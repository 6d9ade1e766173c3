"""Shapes and element types of every value, by onnx's shape inference on a copy without the weights.

Only small constants (shapes, axes, scales) go into that copy, so its cost does not grow with the
model's weights. Ops that onnx infers nothing of have stand-ins there (`operators.stand_ins`); of the rest the
file's own `value_info` counts, then a guess: the element type of the first float operand.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from onnx import (
    ModelProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    shape_inference,
)

from planner.formats.onnx.dtypes import NAMES
from planner.formats.onnx.operators.stand_ins import STAND_INS, is_inferred, stand_in
from planner.formats.onnx.quantized.compound_ops import OPENERS, open_compounds
from planner.formats.onnx.quantized.expand import EXPANSIONS, expand
from planner.formats.onnx.structure.subgraph_nodes import (
    graph_of,
    node_of,
    op_types,
    opaque,
    ops_of,
    subgraphs,
)
from planner.formats.onnx.write import Port, op_node, value_info, write_model
from planner.ir.dims import symbol_of
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import FLOAT_DTYPES, Dim, Graph, Op, Opaque, Shape, Value

_SMALL: Final = 1024
_LONG: Final = 1 << 20


def infer(graph: Graph, copy: bytes = b"") -> Graph:
    """Return the graph with the shapes and element types that follow from inputs and constants.

    Args:
      copy: what `copy_of` gives, where it is there already.

    A value that cannot be inferred keeps its type in the file, and what follows from that is inferred too;
    else shape None and element type "".
    """
    hints: dict[str, Value] = {}
    guessed: dict[str, Value] = {}
    copy = copy or copy_of(graph)
    foreign = [op for op in graph.ops if is_foreign(op, graph.opsets[""])]
    while True:
        found = _inferred(graph, copy, hints.values())
        values = {**graph.values, **hints, **found}
        fresh = _declared(graph, found, hints)
        if not fresh:
            # A guess lets inference reach the next op of an unknown domain: again, until nothing is learned.
            fresh = _guesses(foreign, values, hints)
            guessed |= fresh
        if not fresh:
            break
        hints |= fresh
    notes = graph.notes
    if guessed:
        types = sorted({op.type for op in foreign if any(out in guessed for out in op.outputs)})
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
    return symbol_of(str(entry.dim_param))


def is_foreign(op: Op, opset: int) -> bool:
    """Whether nothing is known of an op's results."""
    known = (STAND_INS, EXPANSIONS, OPENERS)
    return not any(op.type in rules for rules in known) and not is_inferred(op.type, opset)


def _declared(graph: Graph, found: Mapping[str, Value], known: Mapping[str, Value]) -> dict[str, Value]:
    """Results of which nothing is inferred and whose type is in the file."""
    made = (out for op in graph.ops for out in op.outputs if out and out not in known)
    have = ((graph.values[out], found.get(out)) for out in made)
    return {
        old.name: old
        for old, new in have
        if old.dtype and old.shape is not None and (new is None or new.shape is None or not new.dtype)
    }


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


def _inferred(graph: Graph, copy: bytes, hints: Collection[Value]) -> dict[str, Value]:
    """Infer without and then, where it may help, with the contents of shape tensors.

    onnx writes out the contents of every vector, also of one with 10^9 elements: not on those.
    """
    model = _with_hints(copy, hints)
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
            # A few types serve all values of a model, and their bytes are quicker to compare than to read.
            shape, dtype = _type_in(info.type.SerializeToString(deterministic=True))
            told = shape if shape == old.shape else _told(old.shape, shape)
            found[info.name] = replace(old, shape=told, dtype=dtype or old.dtype)
    return found


@lru_cache(maxsize=1 << 10)
def _type_in(data: bytes) -> tuple[Shape | None, str]:
    return type_of(TypeProto.FromString(data))


def _told(declared: Shape | None, inferred: Shape | None) -> Shape | None:
    """The inferred shape; of a size that does not follow from anything what the file says."""
    if declared is None or inferred is None or len(declared) != len(inferred):
        return declared if inferred is None else inferred
    return tuple(old if new is None else new for old, new in zip(declared, inferred, strict=True))


def _with_hints(data: bytes, hints: Collection[Value]) -> bytes:
    """The model with the known types of values that no inference reaches."""
    if not hints:
        return data
    model: ModelProto = ModelProto.FromString(data)
    outputs = {info.name: info for info in model.graph.output}
    for hint in hints:
        info = value_info(hint.name, hint.dtype, hint.shape)
        if hint.name in outputs:
            outputs[hint.name].CopyFrom(info)
        else:
            model.graph.value_info.append(info)
    found: bytes = model.SerializeToString()
    return found


def copy_of(graph: Graph) -> bytes:
    """The bytes of a model to infer from: without weights, with stand-ins."""
    opset = graph.opsets[""]
    plain = expand(open_compounds(graph))
    return without_weights(
        replace(plain, ops=tuple([step for op in plain.ops for step in _stood_in(op, opset)]))
    )


def _stood_in(op: Op, opset: int) -> Sequence[Op]:
    bodies = {key: _body_stood_in(body, opset) for key, body in subgraphs(op).items()}
    if bodies:
        return (replace(op, attributes={**op.attributes, **bodies}),)
    return stand_in(op, opset)


def _body_stood_in(given: Opaque, opset: int) -> Opaque:
    """A body with stand-ins in it; itself where it needs none."""
    body = graph_of(given)
    if STAND_INS.keys().isdisjoint(op_types(body)):
        return given
    ops = [step for op in ops_of(body.node) for step in _stood_in(op, opset)]
    del body.node[:]
    body.node.extend(node_of(op) for op in ops)
    return opaque(body)


def without_weights(graph: Graph) -> bytes:
    """The bytes of a model whose larger constants are inputs of it."""
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
        nodes=[op_node(op) for op in graph.ops],
        inputs=[*ports, *large],
        outputs=[(name, UNKNOWN, None) for name in graph.outputs],
        constants=small,
        opset=graph.opsets[""],
        domains={domain: version for domain, version in graph.opsets.items() if domain},
    )
