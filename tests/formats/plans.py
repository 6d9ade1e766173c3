"""Small planned models for exporter tests: ops as text, types by value, everything else by default."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.types.qtypes import QType, Storage, Uniform, storage, uniform
from planner.ir.types.ranges import uniform_per_axis
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, TargetRef, ValuePlan
from planner.target.records import Row

WEIGHT = storage("i8", -127, 127)


def u8(scale: float, zero_point: int = 0) -> Uniform:
    return uniform(storage("u8"), scale, zero_point)


def i8(scale: float, zero_point: int = 0) -> Uniform:
    return uniform(storage("i8"), scale, zero_point)


def weight(array: np.ndarray, axis: int = 0, store: Storage = WEIGHT) -> Uniform:
    """Per-axis symmetric type of a weight."""
    other = tuple(i for i in range(array.ndim) if i != axis)
    return uniform_per_axis(array.min(other), array.max(other), store, axis)


def bias(x: Uniform, w: Uniform, store: str = "i32") -> Uniform:
    """The bias type of a linear kernel."""
    axis = None if w.axis is None else 0
    scales = [float(np.float32(x.scale) * np.float32(s)) for s in w.scales]
    return uniform(storage(store), scales if axis == 0 else scales[0], 0, axis=axis)


def op(kind: str, inputs: str, outputs: str, **attributes: Any) -> Op:
    """`op("Conv", "x w b", "y", pads=...)`; "-" is an absent operand; the op is named for its result."""
    names = tuple("" if name == "-" else name for name in inputs.split(" "))
    results = tuple(outputs.split(" "))
    return Op(f"op_{results[0]}", kind, names, results, attributes)


def model(
    ops: Sequence[Op],
    *,
    inputs: Mapping[str, tuple[int | str, ...]],
    outputs: Mapping[str, tuple[int | str, ...] | None],
    constants: Mapping[str, np.ndarray],
    facts: Mapping[str, tuple[QType, ...]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    shapes: Mapping[str, tuple[int | str, ...]] | None = None,
) -> Graph:
    """A float graph; values not mentioned are f32 of unknown shape."""
    of_numpy = {"float32": "f32", "float16": "f16", "float64": "f64", "int64": "i64", "bool": "bool"}
    kinds = {name: of_numpy[array.dtype.name] for name, array in constants.items()} | dict(dtypes or {})
    known: dict[str, Any] = {name: array.shape for name, array in constants.items()}
    known |= {**(shapes or {}), **inputs, **outputs}
    names = [*inputs, *constants, *(name for o in ops for name in (*o.inputs, *o.outputs) if name)]
    values = {
        name: Value(name, known.get(name), kinds.get(name, "f32"), (facts or {}).get(name, ()))
        for name in dict.fromkeys(names)
    }
    arrays = {name: Constant(array) for name, array in constants.items()}
    return Graph("test", values, tuple(ops), tuple(inputs), tuple(outputs), arrays, opsets={"": 21})


def plan_of(
    graph: Graph,
    kernels: Sequence[tuple[Sequence[str], str, str]],
    types: Mapping[str, Any],
    arithmetic: str = "float32_even",
) -> Plan:
    """Plan by hand.

    Args:
      kernels: (names of the results of its ops, input ports, output ports); "-" is an absent port.
      types: by port address (`y.in[0]`, the kernel is named for its first op's result), else by value;
        a value without one is float.
      arithmetic: of the one row all integer kernels have.
    """
    by_result = {o.outputs[0]: o for o in graph.ops}
    regions, planned = [], []
    for results, reads, writes in kernels:
        ops = tuple(by_result[name] for name in results)
        ins = tuple("" if name == "-" else name for name in reads.split())
        outs = tuple(writes.split())
        name = results[0]
        regions.append(Region(name, "+".join(o.type for o in ops), ins, outs, ops))
        ports = [
            tuple(
                Port(f"{name}.{side}[{i}]", v, types.get(f"{name}.{side}[{i}]", types.get(v)) if v else None)
                for i, v in enumerate(values)
            )
            for side, values in (("in", ins), ("out", outs))
        ]
        is_integer = any(port.type for port in (*ports[0], *ports[1]))
        planned.append(KernelPlan(name, regions[-1].kernel, "row@1" if is_integer else None, None, *ports))
    hollow = {name: Constant() for name in graph.constants}
    planned_graph = Graph(
        graph.name, graph.values, (), graph.inputs, graph.outputs, hollow, tuple(regions), graph.opsets
    )
    values = {name: ValuePlan(types.get(name)) for name in graph.values}
    rows = {"row@1": Row("any", (), (), requantize=arithmetic)}
    target = TargetRef("test", "1", "", "test.yaml", rows)
    return Plan("", "", target, {}, planned_graph, tuple(planned), values, (), 0.0, True, 0.0)


def loaded(data: bytes) -> onnx.ModelProto:
    """The checked model."""
    proto = onnx.load_from_string(data)
    if all(node.domain == "" for node in proto.graph.node):
        onnx.checker.check_model(proto, full_check=True)
    else:
        onnx.checker.check_model(proto)
    return proto


def op_types(data: bytes) -> list[str]:
    """Node types but for Q and DQ, in order."""
    nodes = loaded(data).graph.node
    return [n.op_type for n in nodes if n.op_type not in ("QuantizeLinear", "DequantizeLinear")]


def run(data: bytes, feeds: Mapping[str, np.ndarray], watch: Sequence[str] = ()) -> list[np.ndarray]:
    """Check and run in onnxruntime; `watch` names inner tensors to return after the outputs."""
    proto = loaded(data)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in watch)
    return execute(proto.SerializeToString(), feeds)


def execute(data: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run in onnxruntime without any optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def executed(data: bytes, tmp_path: Any) -> list[str]:
    """Node types of the graph onnxruntime makes at full optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [n.op_type for n in onnx.load(str(tmp_path / "optimized.onnx")).graph.node]


def residual_ops(rng):
    """Convolutions with attributes at their defaults, a residual Add with a Relu, layers of a matrix."""
    ops = [
        op("Conv", "x w", "c"),
        op("Relu", "c", "r"),
        op("Conv", "r v", "d", pads=(1, 1, 1, 1)),
        op("Add", "d r", "s"),
        op("Relu", "s", "t"),
        op("Flatten", "t", "f"),
        op("MatMul", "f g", "m"),
        op("Relu", "m", "n"),
        op("MatMul", "n h", "y"),
    ]
    shapes = {"w": (4, 3, 3, 3), "v": (4, 4, 3, 3), "g": (144, 8), "h": (8, 5)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return ops, {"x": (1, 3, 8, 8)}, constants
