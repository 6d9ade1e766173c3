"""Layouts: the Resizes that onnxruntime's optimisations would run in a layout that it cannot resize in.

From level extended on, a Transpose between channels first and channels last moves from in front of a 4-D
Resize to behind it, over whatever stands between; from level all on, quantized convolutions bring such
Transposes of their own. The Resize then runs in the other layout, with scales and sizes in the other order.
Two kinds do not run there: linear and cubic ones that the kernels have in one layout alone (a cubic one that
makes pictures smaller, say), and any with `axes`, which are not put in the other order. A DepthToSpace in
blocks of one element copies a tensor, and no Transpose moves over it.
Source: onnxruntime's `ort_transpose_optimization.cc`, `upsamplebase.h` (`ScalesValidation`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from planner.formats.onnx.nodes import Node
from planner.ir.graph import Graph, Op

COPY: Final = "DepthToSpace"
_RANK: Final = 4
_FIRST: Final = (0, 3, 1, 2)
_LAST: Final = (0, 2, 3, 1)
_DTYPES: Final = frozenset({"f16", "f32", "f64"})


def kept_in_layout(nodes: Sequence[Node], graph: Graph, fresh: Callable[[str], str]) -> list[Node]:
    """Return the nodes of a file, a copy in front of each Resize that may run in no other layout.

    Args:
      graph: the model of the file.
      fresh: gives a name that is free.
    """
    found, written = relaid(graph), list[Node]()
    for node in nodes:
        if node.name not in found or node.op_type != "Resize":
            written.append(node)
            continue
        source, copy = node.inputs[0], fresh(f"{node.inputs[0]}_copy")
        name = fresh(f"{COPY}_{len(written)}")
        written.append(Node(COPY, (source,), (copy,), name, attributes={"blocksize": 1}, scope=node.scope))
        written.append(node._replace(inputs=(copy, *node.inputs[1:])))
    return written


def relaid(graph: Graph) -> frozenset[str]:
    """Names of Resizes that onnxruntime's optimisations may move into a layout that it refuses."""
    found = set()
    turned: set[str] = set()
    for op in graph.all_ops():
        is_turn = op.type == "Transpose" and tuple(op.attributes.get("perm", ())) != _FIRST
        if is_turn or not turned.isdisjoint(op.inputs):
            turned.update(op.outputs)
        if op.type == "Resize" and _is_image(graph, op):
            orders = (_FIRST, _LAST) if op.inputs[0] in turned else (_FIRST,)
            if "axes" in op.attributes or not all(_runs(graph, op, order) for order in orders):
                found.add(op.name)
    return frozenset(found)


def _is_image(graph: Graph, op: Op) -> bool:
    value = graph.values[op.inputs[0]]
    return value.shape is not None and len(value.shape) == _RANK and value.dtype in _DTYPES


def _runs(graph: Graph, op: Op, order: Sequence[int]) -> bool:
    """Whether a Resize runs where the Transpose of this order in front of it is moved behind it."""
    mode = op.attributes.get("mode", "nearest")
    if mode == "nearest":
        return True
    factors = list(_factors(graph, op))
    before: list[float | None] = [None] * _RANK
    for place, axis in enumerate(order):
        before[axis] = factors[place]
    if before[:2] == [1, 1]:
        return True
    if before[0] != 1 or before[3] != 1:
        return False
    grows = all(factor is not None and factor >= 1 for factor in before)
    return mode == "linear" or bool(op.attributes.get("antialias", 0)) or grows


def _factors(graph: Graph, op: Op) -> Iterator[float | None]:
    """The factor of each axis, None where it is not known."""
    scales = graph.constants.get(op.inputs[2]) if len(op.inputs) > 2 else None
    if scales is not None and scales.array is not None and scales.array.size == _RANK:
        yield from scales.array.reshape(-1).tolist()
        return
    given, wanted = (graph.values[name].shape or (None,) * _RANK for name in (op.inputs[0], op.outputs[0]))
    for old, new in zip(given, wanted, strict=True):
        if isinstance(old, int) and isinstance(new, int) and old > 0:
            yield new / old
        else:
            yield 1.0 if old is not None and old == new else None
