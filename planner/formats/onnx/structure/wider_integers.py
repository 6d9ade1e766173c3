"""Wider integers: nodes on narrow integers as nodes on wide ones, which onnxruntime has kernels for.

ONNX lets `Add`, say, take i8, onnxruntime's CPU takes i32: operands are cast there, results back. Sums,
differences and products are the same modulo 2^n, and what else is here stays within the narrow type.
Source: ONNX operator pages; onnxruntime's table of operator kernels.
"""

from collections.abc import Callable, Sequence
from typing import Final

from planner.formats.onnx.dtypes import enum_of
from planner.formats.onnx.nodes import Node

_WIDER: Final = {"i16": "i32", "i8": "i32", "u16": "i32", "u32": "i64", "u8": "i32"}
_OPS: Final = frozenset(
    {
        *("Abs", "Add", "Clip", "CumSum", "Div", "Equal", "Gemm", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "ReduceMax", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "Relu", "Sign", "Sub", "Sum"),
    }
)


def widened(nodes: Sequence[Node], dtype: Callable[[str], str]) -> list[Node]:
    """The same nodes, those on narrow integers between casts.

    Args:
      dtype: the element type of a value by its name.
    """
    found: list[Node] = []
    for place, node in enumerate(nodes):
        kind = dtype(node.inputs[0]) if node.inputs and node.inputs[0] else ""
        if not node.domain and node.op_type in _OPS and kind in _WIDER:
            found += _between_casts(node, place, kind, dtype)
        else:
            found.append(node)
    return found


def _between_casts(node: Node, place: int, kind: str, dtype: Callable[[str], str]) -> list[Node]:
    narrow = [name for name in dict.fromkeys((*node.inputs, *node.outputs)) if name and dtype(name) == kind]
    wide = {name: f"{name}@wide{place}" for name in narrow}
    ins = [_cast(node, name, wide[name], _WIDER[kind]) for name in narrow if name in node.inputs]
    outs = [_cast(node, wide[name], name, kind) for name in narrow if name in node.outputs]
    inputs, outputs = (tuple(wide.get(name, name) for name in names) for names in (node.inputs, node.outputs))
    return [*ins, node._replace(inputs=inputs, outputs=outputs), *outs]


def _cast(node: Node, source: str, result: str, kind: str) -> Node:
    return Node("Cast", (source,), (result,), "", "", {"to": enum_of(kind)}, node.scope)
