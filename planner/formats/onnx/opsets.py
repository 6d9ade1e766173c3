"""Opset differences: ops of opset 7 to current, rewritten to mean the same in opset 21.

One adapter per op type whose meaning or form changed, for opsets before the change; types that only gained
element types are not listed. Subgraph bodies are adapted too. onnx's own version converter is not used: it
refuses custom domains and bodies. Older ones: `operators.before_opset_7`. Source: ONNX Changelog.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import defs

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NUMPY, dtype_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.structure.subgraph_nodes import (
    graph_of,
    node_of,
    op_types,
    opaque,
    ops_of,
    subgraphs,
)
from planner.formats.onnx.tensors import tensor_of
from planner.ir.graph import Constant, Graph, Op, Opaque, Value

TARGET: Final = 21
_BIG: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Scope:
    """The graph around an op as adapters see it, and the constants they add.

    `adapters`: those of ops that `version` has otherwise than 21.
    """

    version: int
    adapters: "Mapping[str, Adapter]"
    values: Mapping[str, Value]
    taken: set[str]
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, op: Op, part: str, array: np.ndarray) -> str:
        """Add a constant operand and give its name."""
        name = self.name(f"{op.outputs[0]}/{part}")
        self.constants[name] = array
        return name

    def name(self, wanted: str) -> str:
        """A name that no value has."""
        return unused(wanted, self.taken)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of a value, f32 where it is unknown."""
        value = self.values.get(name)
        return NUMPY[value.dtype] if value is not None and value.dtype else NUMPY["f32"]


Adapter: TypeAlias = Callable[[Op, _Scope], list[Op]]


def to_opset_21(graph: Graph) -> Graph:
    """Rewrite a graph of any accepted opset; a graph of a newer one keeps ops that 21 lacks.

    Raises:
      ModelError: an op whose old meaning has no counterpart.
    """
    version = graph.opsets.get("", TARGET)
    if version > TARGET:
        return _from_newer(graph, version)
    if version == TARGET:
        return graph
    adapters = {kind: adapter for kind, (changed, adapter) in ADAPTERS.items() if version < changed}
    scope = _Scope(version, adapters, graph.values, set(graph.values))
    ops = tuple(new for op in graph.ops for new in _adapt(op, scope))
    added = {name: Value(name, array.shape, dtype_of(array)) for name, array in scope.constants.items()}
    fresh = {out: Value(out, None, "") for op in ops for out in op.outputs if out and out not in graph.values}
    constants = {name: Constant(array) for name, array in scope.constants.items()}
    return replace(
        graph,
        ops=ops,
        values={**graph.values, **fresh, **added},
        constants={**graph.constants, **constants},
        opsets={**graph.opsets, "": TARGET},
    )


def _adapt(op: Op, scope: _Scope) -> list[Op]:
    bodies = {key: _adapted_body(body, scope) for key, body in subgraphs(op).items()}
    if any(body is not op.attributes[key] for key, body in bodies.items()):
        op = replace(op, attributes={**op.attributes, **bodies})
    adapter = scope.adapters.get(op.type)
    return [op] if adapter is None else adapter(op, scope)


def _adapted_body(given: Opaque, outer: _Scope) -> Opaque:
    """The body in opset 21; itself where it holds no op that changed."""
    body = graph_of(given)
    if outer.adapters.keys().isdisjoint(op_types(body)):
        return given
    inner = replace(outer, constants={})
    ops = [new for op in ops_of(body.node) for new in _adapt(op, inner)]
    del body.node[:]
    body.node.extend(node_of(op) for op in ops)
    body.initializer.extend(tensor_of(name, array) for name, array in inner.constants.items())
    return opaque(body)


def _from_newer(graph: Graph, version: int) -> Graph:
    for op in graph.ops:
        if "::" not in op.type and defs.has(op.type) and not _is_in_target(op):
            note = f"opset {version} is kept: {op.type} at {op.name!r} is newer than opset {TARGET}"
            return replace(graph, notes=(*graph.notes, note))
    if any(subgraphs(op) for op in graph.ops):
        return graph
    return replace(graph, opsets={**graph.opsets, "": TARGET})


def _is_in_target(op: Op) -> bool:
    try:
        schema = defs.get_schema(op.type, TARGET)
    except defs.SchemaError:
        return False
    return not schema.deprecated and all(key in schema.attributes for key in op.attributes)


def _without(op: Op, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in op.attributes.items() if key not in keys}


def _int64(*numbers: int) -> np.ndarray:
    return np.asarray(numbers, dtype=np.int64)


def _attribute_to_input(op: Op, scope: _Scope, key: str) -> Op:
    """Move a list of integers from an attribute to an operand behind the others."""
    if key not in op.attributes:
        return op
    items = op.attributes[key]
    many = items if isinstance(items, tuple) else (items,)
    inputs = (*op.inputs, scope.constant(op, key, _int64(*many)))
    return replace(op, inputs=inputs, attributes=_without(op, key))


def _axes(op: Op, scope: _Scope) -> list[Op]:
    return [_attribute_to_input(op, scope, "axes")]


def _batch_normalization(op: Op, scope: _Scope) -> list[Op]:
    # Results behind the first serve training alone.
    plain = replace(op, outputs=op.outputs[:1], attributes=_without(op, "spatial"))
    return [plain] if op.attributes.get("spatial", 1) else _per_element(op, scope)


def _per_element(op: Op, scope: _Scope) -> list[Op]:
    """Statistics per element, spatial=0, which opset 9 removed: `x * f + (b - mean * f)`."""
    x, gain, offset, mean, variance = op.inputs
    epsilon = scope.constant(op, "epsilon", np.asarray(op.attributes.get("epsilon", 1e-5), np.float32))
    parts = ("widened", "deviation", "factor", "scaled", "moved", "shift")
    wide, root, factor, scaled, moved, shift = (scope.name(f"{op.outputs[0]}/{part}") for part in parts)
    steps = (
        ("Add", (variance, epsilon), wide),
        ("Sqrt", (wide,), root),
        ("Div", (gain, root), factor),
        ("Mul", (x, factor), scaled),
        ("Mul", (mean, factor), moved),
        ("Sub", (offset, moved), shift),
    )
    ops = [
        Op(f"{op.name}/{out.rpartition('/')[2]}", kind, names, (out,), scope=op.scope)
        for kind, names, out in steps
    ]
    return [*ops, Op(op.name, "Add", (scaled, shift), op.outputs[:1], scope=op.scope)]


def _clip(op: Op, scope: _Scope) -> list[Op]:
    dtype = scope.dtype(op.inputs[0])
    # Opset 11 made the bounds operands, and an absent one "" (then dropped at the end).
    bounds = [
        scope.constant(op, key, np.asarray(op.attributes[key], dtype=dtype)) if key in op.attributes else ""
        for key in ("min", "max")
    ]
    while bounds and not bounds[-1]:
        bounds.pop()
    return [replace(op, inputs=(*op.inputs, *bounds), attributes=_without(op, "min", "max"))]


def _crop(op: Op, scope: _Scope) -> list[Op]:
    left, top, right, bottom = op.attributes["border"]
    ends = _int64(-bottom or _BIG, -right or _BIG)
    if "scale" in op.attributes:
        height, width = op.attributes["scale"]
        ends = _int64(top + height, left + width)
    operands = (("starts", _int64(top, left)), ("ends", ends), ("axes", _int64(2, 3)))
    names = tuple(scope.constant(op, part, array) for part, array in operands)
    return [replace(op, type="Slice", inputs=(*op.inputs, *names), attributes={})]


def _dft(op: Op, scope: _Scope) -> list[Op]:
    with_axis = replace(op, attributes={"axis": 1, **op.attributes})
    axis = scope.constant(op, "axis", np.asarray(with_axis.attributes["axis"], dtype=np.int64))
    inputs = (*op.inputs, *([""] * (2 - len(op.inputs))), axis)
    return [replace(op, inputs=inputs, attributes=_without(op, "axis"))]


def _dropout(op: Op, _scope: _Scope) -> list[Op]:
    # Since opset 12 training is an operand, false where it is absent: at inference Dropout copies.
    return [replace(op, attributes=_without(op, "ratio", "is_test"))]


def _grid_sample(op: Op, _scope: _Scope) -> list[Op]:
    # Opset 20 renamed the modes when it allowed more than two spatial dimensions.
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    mode = op.attributes.get("mode", "bilinear")
    return [replace(op, attributes={**op.attributes, "mode": modes.get(mode, mode)})]


def _group_normalization(op: Op, scope: _Scope) -> list[Op]:
    # Before opset 21 gain and offset belong to a group, which an InstanceNormalization calls a channel.
    stem, groups = op.outputs[0], op.attributes["num_groups"]
    split, normal, shape = (scope.name(f"{stem}/{part}") for part in ("groups", "normal", "shape"))
    parts = scope.constant(op, "parts", _int64(0, groups, -1))
    return [
        Op(f"{op.name}/split", "Reshape", (op.inputs[0], parts), (split,), scope=op.scope),
        replace(
            op,
            type="InstanceNormalization",
            inputs=(split, *op.inputs[1:]),
            outputs=(normal,),
            attributes={"epsilon": op.attributes.get("epsilon", 1e-5)},
        ),
        Op(f"{op.name}/shape", "Shape", op.inputs[:1], (shape,), scope=op.scope),
        Op(f"{op.name}/whole", "Reshape", (normal, shape), op.outputs, scope=op.scope),
    ]


def _image_scaler(op: Op, scope: _Scope) -> list[Op]:
    scale = scope.constant(op, "scale", np.asarray(op.attributes.get("scale", 1.0), dtype=np.float32))
    scaled = scope.name(f"{op.outputs[0]}/scaled")
    mul = Op(f"{op.name}/scale", "Mul", (op.inputs[0], scale), (scaled,), scope=op.scope)
    channels = np.asarray(op.attributes["bias"], dtype=np.float32).reshape(-1, 1, 1)
    return [
        mul,
        Op(op.name, "Add", (scaled, scope.constant(op, "bias", channels)), op.outputs, scope=op.scope),
    ]


def _pad(op: Op, scope: _Scope) -> list[Op]:
    value = np.asarray(op.attributes.get("value", 0.0), dtype=scope.dtype(op.inputs[0]))
    operands = (("pads", _int64(*op.attributes["pads"])), ("value", value))
    names = tuple(scope.constant(op, part, array) for part, array in operands)
    return [replace(op, inputs=(op.inputs[0], *names), attributes=_without(op, "pads", "value"))]


def _resize(op: Op, _scope: _Scope) -> list[Op]:
    return [_asymmetric(op, op.inputs[1])]


def _upsample(op: Op, scope: _Scope) -> list[Op]:
    if len(op.inputs) > 1:
        return [_asymmetric(op, op.inputs[1])]
    scales = np.asarray(op.attributes["scales"], dtype=np.float32)
    return [_asymmetric(op, scope.constant(op, "scales", scales))]


def _asymmetric(op: Op, scales: str) -> Op:
    """Before opset 11 output pixel i shows input pixel i / scale, rounded down."""
    attributes = {
        "mode": op.attributes.get("mode", "nearest"),
        # Upsample and Resize 10 map x_out to x_out / scale and take the
        # pixel below; Resize 11 has modes for it, with other defaults.
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return replace(op, type="Resize", inputs=(op.inputs[0], "", scales), attributes=attributes)


def _roi_align(op: Op, _scope: _Scope) -> list[Op]:
    # Opset 16 made `half_pixel` the default; before there was no shift by half a pixel.
    return [replace(op, attributes={**op.attributes, "coordinate_transformation_mode": "output_half_pixel"})]


def _scan(op: Op, _scope: _Scope) -> list[Op]:
    raise ModelError(f"Scan at {op.name!r} is of opset 8, which later opsets cannot express")


def _scatter(op: Op, _scope: _Scope) -> list[Op]:
    return [replace(op, type="ScatterElements")]


def _slice(op: Op, scope: _Scope) -> list[Op]:
    names = [
        scope.constant(op, key, _int64(*op.attributes[key]))
        for key in ("starts", "ends", "axes")
        if key in op.attributes
    ]
    return [replace(op, inputs=(op.inputs[0], *names), attributes={})]


def _softmax(op: Op, scope: _Scope) -> list[Op]:
    """Before opset 13 it normalises over all dimensions from `axis` on."""
    axis = op.attributes.get("axis", 1)
    value = scope.values.get(op.inputs[0])
    shape = value.shape if value is not None else None
    # Before opset 13 all axes from `axis` on were normalised together, as one row; now it is that axis alone.
    # Both agree where the axes behind it have size 1, else a Flatten makes the row.
    if shape is not None and all(dim == 1 for dim in shape[axis % max(len(shape), 1) + 1 :]):
        return [replace(op, attributes={"axis": axis})]
    rows, flat, shape_name = (scope.name(f"{op.outputs[0]}/{p}") for p in ("rows", "flat", "shape"))
    return [
        Op(f"{op.name}/flatten", "Flatten", (op.inputs[0],), (rows,), {"axis": axis}, scope=op.scope),
        Op(op.name, op.type, (rows,), (flat,), {"axis": -1}, scope=op.scope),
        Op(f"{op.name}/shape", "Shape", (op.inputs[0],), (shape_name,), scope=op.scope),
        Op(f"{op.name}/reshape", "Reshape", (flat, shape_name), op.outputs, scope=op.scope),
    ]


def _split(op: Op, scope: _Scope) -> list[Op]:
    if scope.version < 13:
        op = _attribute_to_input(op, scope, "split")
    # Opset 18 wants the sizes or `num_outputs`; earlier ones counted the results.
    if len(op.inputs) < 2:
        op = replace(op, attributes={**op.attributes, "num_outputs": len(op.outputs)})
    return [op]


def _top_k(op: Op, scope: _Scope) -> list[Op]:
    return [_attribute_to_input(op, scope, "k")]


ADAPTERS: Final[Mapping[str, tuple[int, Adapter]]] = {
    "BatchNormalization": (14, _batch_normalization),
    "Clip": (11, _clip),
    "Crop": (TARGET, _crop),
    "DFT": (20, _dft),
    "Dropout": (12, _dropout),
    "GridSample": (20, _grid_sample),
    "GroupNormalization": (TARGET, _group_normalization),
    "Hardmax": (13, _softmax),
    "ImageScaler": (TARGET, _image_scaler),
    "LogSoftmax": (13, _softmax),
    "Pad": (11, _pad),
    "ReduceL1": (18, _axes),
    "ReduceL2": (18, _axes),
    "ReduceLogSum": (18, _axes),
    "ReduceLogSumExp": (18, _axes),
    "ReduceMax": (18, _axes),
    "ReduceMean": (18, _axes),
    "ReduceMin": (18, _axes),
    "ReduceProd": (18, _axes),
    "ReduceSum": (13, _axes),
    "ReduceSumSquare": (18, _axes),
    "Resize": (11, _resize),
    "RoiAlign": (16, _roi_align),
    "Scan": (9, _scan),
    "Scatter": (TARGET, _scatter),
    "Slice": (10, _slice),
    "Softmax": (13, _softmax),
    "Split": (18, _split),
    "Squeeze": (13, _axes),
    "TopK": (10, _top_k),
    "Unsqueeze": (13, _axes),
    "Upsample": (TARGET, _upsample),
}
"""The opset from which on an op is as in 21, and the adapter of older ones."""
