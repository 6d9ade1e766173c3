"""Gemm in plain form: a product of rows by a matrix plus one number per column, as devices have it.

A bias of another shape, or one that is no constant, becomes an Add; a transposed left operand a Transpose;
a product of two activations a MatMul. In: factors already folded (`normalise`). Source: ONNX Gemm.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from planner.formats.onnx.dtypes import NUMPY
from planner.formats.onnx.naming import unused
from planner.ir.graph import Constant, Graph, Op, Shape, Value


@dataclass(frozen=True, slots=True)
class _Added:
    """Values and constants that the pass makes."""

    taken: set[str]
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def value(self, wanted: str, shape: Shape | None, dtype: str) -> str:
        name = unused(wanted, self.taken)
        self.values[name] = Value(name, shape, dtype)
        return name

    def constant(self, wanted: str, array: np.ndarray, dtype: str) -> str:
        name = self.value(wanted, array.shape, dtype)
        self.constants[name] = Constant(array)
        return name


def plain_gemms(graph: Graph) -> Graph:
    """Rewrite every Gemm that is not in plain form; the same graph if there is none."""
    added = _Added(set(graph.values))
    ops: list[Op] = []
    for op in graph.ops:
        ops.extend(_plain(op, graph, added) if op.type == "Gemm" else [op])
    if not added.values:
        return graph
    return replace(
        graph,
        ops=tuple(ops),
        values={**graph.values, **added.values},
        constants={**graph.constants, **added.constants},
    )


def _plain(op: Op, graph: Graph, added: _Added) -> list[Op]:
    if not graph.values[op.outputs[0]].is_float:
        return [op]
    before, op = _untransposed(op, graph, added)
    product, after = _with_row_bias(op, graph, added)
    turns, product, scaling = _as_matmul(product, graph, added)
    return [*before, *turns, product, *scaling, *after]


def _untransposed(op: Op, graph: Graph, added: _Added) -> tuple[list[Op], Op]:
    if not op.attributes.get("transA", 0) or op.inputs[0] in graph.constants:
        return [], op
    turn = _transpose(op, op.inputs[0], "a", graph, added)
    attributes = {key: item for key, item in op.attributes.items() if key != "transA"}
    return [turn], replace(op, inputs=(*turn.outputs, *op.inputs[1:]), attributes=attributes)


def _transpose(op: Op, source: str, part: str, graph: Graph, added: _Added) -> Op:
    value = graph.values[source]
    shape = None if value.shape is None else value.shape[::-1]
    turned = added.value(f"{op.outputs[0]}/{part}", shape, value.dtype)
    return Op(f"{op.name}/{part}", "Transpose", (source,), (turned,), {"perm": (1, 0)}, scope=op.scope)


def _with_row_bias(op: Op, graph: Graph, added: _Added) -> tuple[Op, list[Op]]:
    """The Gemm with a bias of one number per column or none, and the ops that add any other bias."""
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    if not name:
        return replace(op, inputs=op.inputs[:2]), []
    constant = graph.constants.get(name)
    columns = _columns(op, graph)
    is_weighted = op.inputs[1] in graph.constants
    if is_weighted and constant is not None and constant.array is not None and columns is not None:
        shape = constant.array.shape
        if shape == (columns,):
            return op, []
        # Gemm broadcasts C to (M, N); only a row, or one number, is a bias per output channel.
        if all(dim == 1 for dim in shape[:-1]) and shape[-1:] in ((), (1,), (columns,)):
            row = np.broadcast_to(constant.array.reshape(-1), (columns,))
            bias = added.constant(f"{name}/row", np.ascontiguousarray(row), graph.values[name].dtype)
            return replace(op, inputs=(*op.inputs[:2], bias)), []
    return _bias_apart(op, name, graph, added)


def _columns(op: Op, graph: Graph) -> int | None:
    shape = graph.values[op.inputs[1]].shape
    if shape is None or len(shape) != 2:
        return None
    size = shape[0 if op.attributes.get("transB", 0) else 1]
    return size if isinstance(size, int) else None


def _bias_apart(op: Op, bias: str, graph: Graph, added: _Added) -> tuple[Op, list[Op]]:
    result = graph.values[op.outputs[0]]
    product = added.value(f"{result.name}/product", result.shape, result.dtype)
    attributes = {key: item for key, item in op.attributes.items() if key != "beta"}
    bare = replace(
        op, name=f"{op.name}/product", inputs=op.inputs[:2], outputs=(product,), attributes=attributes
    )
    beta = op.attributes.get("beta", 1.0)
    after: list[Op] = []
    if beta != 1.0:
        value = graph.values[bias]
        factor = np.asarray(beta, NUMPY[value.dtype])
        scaled = added.value(f"{result.name}/bias", value.shape, value.dtype)
        factor_name = added.constant(f"{result.name}/beta", factor, value.dtype)
        after.append(Op(f"{op.name}/beta", "Mul", (bias, factor_name), (scaled,), scope=op.scope))
        bias = scaled
    return bare, [*after, Op(op.name, "Add", (product, bias), op.outputs, scope=op.scope)]


def _as_matmul(op: Op, graph: Graph, added: _Added) -> tuple[list[Op], Op, list[Op]]:
    """A product of two activations: a Transpose of the right side, the MatMul, a Mul by alpha."""
    if op.inputs[1] in graph.constants or len(op.inputs) > 2:
        return [], op, []
    turns = [_transpose(op, op.inputs[1], "b", graph, added)] if op.attributes.get("transB", 0) else []
    right = turns[0].outputs[0] if turns else op.inputs[1]
    matmul = replace(op, type="MatMul", inputs=(op.inputs[0], right), attributes={})
    alpha = op.attributes.get("alpha", 1.0)
    if alpha == 1.0:
        return turns, matmul, []
    out = op.outputs[0]
    result = added.values.get(out) or graph.values[out]
    bare = added.value(f"{out}/matmul", result.shape, result.dtype)
    factor = added.constant(f"{out}/alpha", np.asarray(alpha, NUMPY[result.dtype]), result.dtype)
    scaling = Op(f"{op.name}/alpha", "Mul", (bare, factor), op.outputs, scope=op.scope)
    return turns, replace(matmul, outputs=(bare,)), [scaling]
