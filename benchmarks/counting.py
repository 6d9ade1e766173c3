"""How much of a QDQ file runs in integers: ops, float leftovers and multiply-adds.

The same functions count everybody's file, so no side is judged by its own bookkeeping. An op counts
as integer when every float operand that is data comes from DequantizeLinear and every result goes to
QuantizeLinear only, a Relu or Clip in between being part of it. That is what the file says; what
onnxruntime makes of it is `executed_ops`, on the graph it writes after optimising. Nodes inside
`If`/`Loop` bodies are not counted, they are float in everybody's file so far.
Source: onnxruntime's QDQ node groups.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference

Array = NDArray[Any]

QUANTIZE: Final = "QuantizeLinear"
DEQUANTIZE: Final = "DequantizeLinear"
ACTIVATIONS: Final = frozenset({"Clip", "Relu"})
FLOATS: Final = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16})
EIGHT_BITS: Final = frozenset({TensorProto.INT8, TensorProto.UINT8})
# Ops that compute nothing on the reals, or only look at a shape.
UNCOUNTED: Final = frozenset(
    {QUANTIZE, DEQUANTIZE, "Cast", "Constant", "ConstantOfShape", "Dropout", "Identity", "Shape", "Size"}
)
# Leading operands that are data, where a later float operand is a setting of the op.
DATA_OPERANDS: Final[Mapping[str, int]] = {"Clip": 1, "Pad": 1, "Resize": 1, "Slice": 1, "Unsqueeze": 1}
# Contrib results that are stored integers, beside everything named QLinear*.
STORED_RESULTS: Final = frozenset({QUANTIZE, "DynamicQuantizeLinear", "QGemm"})
# Ops whose result has the type of the first operand.
TYPE_KEEPING: Final = frozenset(
    {
        *(
            "Clip",
            "Concat",
            "DepthToSpace",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "Identity",
            "MaxPool",
        ),
        *("Max", "Min", "Pad", "Relu", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze"),
        *("Tile", "Transpose", "Unsqueeze", "NhwcMaxPool"),
    }
)


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Producer, consumers and element type by value name, of the main graph."""

    nodes: tuple[NodeProto, ...]
    producer: Mapping[str, NodeProto]
    consumers: Mapping[str, tuple[NodeProto, ...]]
    outputs: frozenset[str]
    element_type: Mapping[str, int]
    shape: Mapping[str, tuple[int, ...] | None]


def integer_ops(model: ModelProto, *, stored_results: bool = True) -> Counter[str]:
    """Count the ops that take and give quantized values, by op type.

    Args:
      stored_results: whether a Gemm or MatMul of stored integers counts only where its result is stored, too;
        onnxruntime multiplies them as integers all the same (QGemm, MatMulIntegerToFloat).

    Relu and Clip that a quantizer folded away are gone from the file: compare them by `float_ops`.
    """
    return _split(model, stored_results=stored_results)[0]


def float_ops(model: ModelProto, *, stored_results: bool = True) -> Counter[str]:
    """Count the ops that compute on floats, by op type; constant and shape arithmetic left out.

    Args:
      stored_results: as for `integer_ops`.
    """
    return _split(model, stored_results=stored_results)[1]


def _split(model: ModelProto, *, stored_results: bool) -> tuple[Counter[str], Counter[str]]:
    """Ops on integers, and ops on floats."""
    wiring = _wire(model)
    found: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for node in wiring.nodes:
        if _is_counted(node, wiring):
            is_product = node.op_type in ("Gemm", "MatMul") and _multiplies_integers(node, wiring)
            is_integer = _is_integer(node, wiring) or (is_product and not stored_results)
            found[0 if is_integer else 1][node.op_type] += 1
    return found


def macs_by_op(
    model: ModelProto, sample: Mapping[str, Array] | None = None, *, stored_results: bool = True
) -> dict[str, tuple[int, int]]:
    """Return (integer, total) multiply-adds of Conv, ConvTranspose, Gemm and MatMul, by op type.

    Args:
      model: a QDQ or a float file.
      sample: one input; with it the shapes are those of a run, for files whose shapes are not static.
      stored_results: whether a product of stored integers counts only where its result is stored, too.

    Raises:
      ValueError: a shape that the count needs is not static and no sample was given.
    """
    wiring = _wire(model)
    nodes = [node for node in wiring.nodes if node.op_type in MAC_COUNTS]
    if sample is not None:
        wiring = replace(wiring, shape={**wiring.shape, **_observed_shapes(model, nodes, sample)})
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        macs = MAC_COUNTS[node.op_type](node, wiring)
        integer, total = found.get(node.op_type, (0, 0))
        is_integer = (_is_integer if stored_results else _multiplies_integers)(node, wiring)
        found[node.op_type] = (integer + macs * is_integer, total + macs)
    return found


def executed_ops(optimized: ModelProto) -> tuple[Counter[str], Counter[str]]:
    """Split the nodes of a graph that onnxruntime optimised into (on stored integers, on floats).

    Types are followed from QuantizeLinear and the QLinear ops, as contrib ops have no shape inference
    outside onnxruntime. Q and DQ nodes themselves are in neither.
    """
    stored = {item.name for item in optimized.graph.initializer if item.data_type in EIGHT_BITS}
    integer: Counter[str] = Counter()
    floating: Counter[str] = Counter()
    for node in optimized.graph.node:
        gives_stored = node.op_type.startswith("QLinear") or node.op_type in STORED_RESULTS
        takes_stored = any(name in stored for name in node.input[:1])
        if gives_stored or (takes_stored and node.op_type in TYPE_KEEPING):
            stored.update(node.output)
        if node.op_type in UNCOUNTED:
            continue
        (integer if takes_stored or any(name in stored for name in node.output) else floating)[
            node.op_type
        ] += 1
    return integer, floating


def quantize_nodes(model: ModelProto) -> tuple[int, int]:
    """Return the numbers of QuantizeLinear and DequantizeLinear nodes."""
    types = Counter(node.op_type for node in model.graph.node)
    return types[QUANTIZE], types[DEQUANTIZE]


def _wire(model: ModelProto) -> _Wiring:
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    producer = {name: node for node in graph.node for name in node.output if name}
    consumers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in {*node.input, *_captured(node)}:
            consumers.setdefault(name, []).append(node)
    infos = [*graph.input, *graph.value_info, *graph.output]
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    types.update({item.name: item.data_type for item in graph.initializer})
    shapes = {info.name: _static_shape(info) for info in infos}
    shapes.update({item.name: tuple(item.dims) for item in graph.initializer})
    return _Wiring(
        nodes=tuple(graph.node),
        producer=producer,
        consumers={name: tuple(nodes) for name, nodes in consumers.items()},
        outputs=frozenset(info.name for info in graph.output),
        element_type=types,
        shape=shapes,
    )


def _captured(node: NodeProto) -> set[str]:
    """Return every name that the bodies of a node mention."""
    bodies = [item.g for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]
    inner = [child for body in bodies for child in body.node]
    return {name for child in inner for name in {*child.input, *_captured(child)}} | {
        info.name for body in bodies for info in body.output
    }


def _static_shape(info: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    if not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _is_float(name: str, wiring: _Wiring) -> bool:
    known = wiring.element_type.get(name, TensorProto.UNDEFINED)
    return known in FLOATS or known == TensorProto.UNDEFINED


def _float_data(node: NodeProto, wiring: _Wiring) -> list[str]:
    operands = node.input[: DATA_OPERANDS.get(node.op_type, len(node.input))]
    return [name for name in operands if name and _is_float(name, wiring)]


def _is_counted(node: NodeProto, wiring: _Wiring) -> bool:
    if node.op_type in UNCOUNTED or not any(_is_float(name, wiring) for name in node.output if name):
        return False
    return bool(_float_data(node, wiring)) or bool(_captured(node))


def _is_integer(node: NodeProto, wiring: _Wiring) -> bool:
    operands = _float_data(node, wiring)
    if not operands or _captured(node):
        return False
    if _is_folded_activation(node, wiring):
        return _is_integer(wiring.producer[operands[0]], wiring)
    multiplied = _biased_matmul(node, wiring)
    if multiplied is not None:
        return _is_integer(multiplied, wiring)
    from_integers = all(_comes_from_dequantize(name, wiring) for name in operands)
    results = [name for name in node.output if name and _is_float(name, wiring)]
    return from_integers and all(_goes_to_quantize(name, wiring) for name in results)


def _multiplies_integers(node: NodeProto, wiring: _Wiring) -> bool:
    """Whether both operands are stored integers, views of them included."""
    for name in node.input[:2]:
        while name in wiring.producer and wiring.producer[name].op_type in VIEWS:
            name = wiring.producer[name].input[0]  # noqa: PLW2901 - what the view is of
        if not _comes_from_dequantize(name, wiring):
            return False
    return True


def _is_folded_activation(node: NodeProto, wiring: _Wiring) -> bool:
    """Whether a Relu or Clip stands between a computing op and QuantizeLinear."""
    if node.op_type not in ACTIVATIONS or node.input[0] not in wiring.producer:
        return False
    return wiring.producer[node.input[0]].op_type not in {DEQUANTIZE, *ACTIVATIONS}


def _biased_matmul(node: NodeProto, wiring: _Wiring) -> NodeProto | None:
    """The MatMul that this Add gives a constant bias to: one kernel, whose sum is quantized once."""
    if node.op_type != "Add":
        return None
    for name, other in ((node.input[0], node.input[1]), (node.input[1], node.input[0])):
        made, bias = wiring.producer.get(name), wiring.producer.get(other)
        if made is None or made.op_type != "MatMul" or len(wiring.consumers.get(name, ())) != 1:
            continue
        if bias is not None and bias.op_type == DEQUANTIZE and bias.input[0] not in wiring.producer:
            return made
    return None


def _comes_from_dequantize(name: str, wiring: _Wiring) -> bool:
    return name in wiring.producer and wiring.producer[name].op_type == DEQUANTIZE


def _goes_to_quantize(name: str, wiring: _Wiring, *, through_activation: bool = True) -> bool:
    """Whether a value is read, and read only by QuantizeLinear, or by one Relu or Clip whose result is."""
    readers = wiring.consumers.get(name, ())
    if name in wiring.outputs or not readers:
        return False
    if all(reader.op_type == QUANTIZE for reader in readers):
        return True
    if len(readers) == 1 and _biased_matmul(readers[0], wiring) is wiring.producer.get(name):
        return _goes_to_quantize(readers[0].output[0], wiring, through_activation=through_activation)
    if not through_activation or len(readers) != 1 or readers[0].op_type not in ACTIVATIONS:
        return False
    return _goes_to_quantize(readers[0].output[0], wiring, through_activation=False)


def _observed_shapes(
    model: ModelProto, nodes: Sequence[NodeProto], sample: Mapping[str, Array]
) -> dict[str, tuple[int, ...]]:
    """Run the model once and return the shapes of everything the nodes read and write."""
    constants = {item.name for item in model.graph.initializer}
    given = {
        info.name: value.shape for info in model.graph.input if (value := sample.get(info.name)) is not None
    }
    read = {name for node in nodes for name in (*node.input, *node.output) if name}
    names = sorted(read - constants - given.keys())
    observed = ModelProto()
    observed.CopyFrom(model)
    del observed.graph.output[:]
    observed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(observed.SerializeToString(), options)
    results = session.run(names, dict(sample)) if names else []
    return given | {name: result.shape for name, result in zip(names, results, strict=True)}


def _dims(name: str, wiring: _Wiring) -> tuple[int, ...]:
    shape = wiring.shape.get(name)
    if shape is None:
        raise ValueError(
            f"the shape of {name!r} is not static: its multiply-adds need a sample to be counted"
        )
    return shape


def _conv_macs(node: NodeProto, wiring: _Wiring) -> int:
    return prod(_dims(node.output[0], wiring)) * prod(_dims(node.input[1], wiring)[1:])


def _conv_transpose_macs(node: NodeProto, wiring: _Wiring) -> int:
    return prod(_dims(node.input[0], wiring)) * prod(_dims(node.input[1], wiring)[1:])


def _matmul_macs(node: NodeProto, wiring: _Wiring) -> int:
    return prod(_dims(node.output[0], wiring)) * _dims(node.input[0], wiring)[-1]


def _gemm_macs(node: NodeProto, wiring: _Wiring) -> int:
    transposed = any(item.name == "transA" and helper.get_attribute_value(item) for item in node.attribute)
    rows_first = _dims(node.input[0], wiring)
    return prod(_dims(node.output[0], wiring)) * rows_first[0 if transposed else 1]


VIEWS: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
MAC_COUNTS: Final = {
    "Conv": _conv_macs,
    "ConvTranspose": _conv_transpose_macs,
    "Gemm": _gemm_macs,
    "MatMul": _matmul_macs,
}
