"""Fixed types as ops: a model that states types of values, MLIR say, as one that rounds there, to be run.

A value of a fixed type goes through `(rint(clip(x / scale + zero_point)) - zero_point) * scale`, in float32,
op by op. Scales per block and float storages have no such formula and are refused.
Source: docs/qonnx.md, StableHLO's quantize.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.decoding import graph_of_bytes
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.topology import topological
from planner.ir.types.qtypes import Uniform


def with_rounding(graph: Graph) -> Graph:
    """A model of ops alone that rounds as its fixed types say; the same model where there are none.

    Loops and branches that stand in place are ONNX's own again, with subgraphs, which onnxruntime runs.

    Raises:
      ModelError: kernels without ops, or a fixed type that has no formula.
    """
    empty = next((region.name for region in graph.regions if not region.ops), None)
    if empty is not None:
        raise ModelError(f"kernel {empty!r} has no ops of its own, so nothing here can run it")
    work = _Rounding(graph)
    for name in (*graph.inputs, *graph.constants):
        work.round(name)
    for op in graph.all_ops():
        work.take(op)
    outputs = tuple([work.rounded.get(name, name) for name in graph.outputs])
    values = {**{name: replace(value, facts=()) for name, value in graph.values.items()}, **work.values}
    found = replace(
        graph,
        values=values,
        constants={**graph.constants, **work.constants},
        ops=tuple(work.ops),
        regions=(),
        outputs=outputs,
    )
    if not graph.scopes:
        return found
    written = graph_of_bytes(write_graph(infer(found)), graph.opsets, graph.name)
    return replace(written, ops=topological(written.ops), notes=graph.notes)


@dataclass
class _Rounding:
    """The ops so far; `rounded` has the name of a value behind its rounding."""

    graph: Graph
    rounded: dict[str, str] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def take(self, op: Op) -> None:
        self.ops.append(replace(op, inputs=tuple([self.rounded.get(name, name) for name in op.inputs])))
        for name in op.outputs:
            self.round(name)

    def round(self, name: str) -> None:
        value = self.graph.values.get(name)
        kinds = [fact for fact in value.facts if isinstance(fact, Uniform)] if value is not None else []
        if value is None or not kinds:
            return
        kind = kinds[0]
        if kind.grid or kind.ranges or kind.storage.float_name or value.dtype != "f32":
            raise ModelError(f"{name!r} has the fixed type {kind}; accepted: a type per tensor or per axis")
        last = name
        for step, (op, parameters) in enumerate(_formula(kind, len(value.shape or ()))):
            inputs = [last]
            for at, array in enumerate(parameters):
                constant = f"{name}#r{step}.{at}"
                self.values[constant] = Value(constant, array.shape, "f32")
                self.constants[constant] = Constant(array)
                inputs.append(constant)
            last = f"{name}#r{step}"
            self.values[last] = replace(value, name=last, facts=())
            self.ops.append(Op(last, op, tuple(inputs), (last,)))
        self.rounded[name] = last


def _formula(kind: Uniform, rank: int) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    scale, zero = np.asarray(kind.scales, np.float32), np.asarray(kind.zero_points, np.float32)
    shape = () if kind.axis is None else tuple([-1 if axis == kind.axis else 1 for axis in range(rank)])
    scale, zero = scale.reshape(shape), zero.reshape(shape)
    low, high = kind.storage.qmin, kind.storage.qmax
    ends = np.asarray(low, np.float32), np.asarray(high, np.float32)
    yield "Div", (scale,)
    yield "Add", (zero,)
    yield "Clip", ends
    yield "Round", ()
    yield "Sub", (zero,)
    yield "Mul", (scale,)
