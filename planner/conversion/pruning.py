"""Pruning: channels that the caller names, taken out of a model with all that belongs to them.

A channel is an index of an axis of a tensor. Ops link axes: of an elementwise op each axis of its operands
with that of its result, of a Conv the weight's first axis with the channels it gives. A channel that is taken
out of one axis leaves all axes linked with it, numbers of constants too. The caller decides which channels
are worth keeping. Source: QONNX `transformation.pruning`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import ModelError, UnsupportedExport, require_name
from planner.formats.onnx.operators.soundness import sound
from planner.formats.onnx.quantized.dialect import ELEMENTWISE, MULTI_THRESHOLD
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph, Op
from planner.ops import find_movements, of_form
from planner.ops.forms import Form
from planner.ops.operands import operands_of
from planner.ops.steps import Pick, Turn, View

Axis: TypeAlias = tuple[str, int]
Channels: TypeAlias = Iterable[int] | Mapping[int, Iterable[int]]
"""Indices of axis 1, or of axes by number."""


@dataclass(frozen=True, slots=True)
class Link:
    """Index `i` of `source` is indices `first + i * block` and on, `block` of them, of `goal`."""

    source: Axis
    goal: Axis
    first: int = 0
    block: int = 1


def pruned(graph: Graph, channels: Mapping[str, Channels]) -> Graph:
    """Take channels out of a model.

    Args:
      graph: as `read_written` gives it, shapes inferred.
      channels: what to take out, by tensor.

    Raises:
      UnknownName: no such tensor.
      ModelError: no such axis or channel.
      UnsupportedExport: an op through which channels cannot be followed, a group that loses a part, an axis
        of which nothing would be left.
    """
    taken = _asked(graph, channels)
    links = [link for op in graph.ops for link in _links(op, graph)]
    _spread(taken, links, graph)
    for op in graph.ops:
        _check(op, graph, taken)
    return infer(sound(_without(graph, {axis: gone for axis, gone in taken.items() if gone})))


def _asked(graph: Graph, channels: Mapping[str, Channels]) -> dict[Axis, set[int]]:
    taken: dict[Axis, set[int]] = {}
    for name, given in channels.items():
        require_name("tensor", name, graph.values)
        for axis, indices in (given if isinstance(given, Mapping) else {1: given}).items():
            shape = graph.values[name].shape or ()
            size = shape[axis] if -len(shape) <= axis < len(shape) else None
            gone = {int(index) for index in indices}
            if not isinstance(size, int):
                raise ModelError(f"{name!r} has no axis {axis} of known size: its shape is {list(shape)}")
            if any(not 0 <= index < size for index in gone):
                raise ModelError(
                    f"{name!r} has channels 0 to {size - 1} on axis {axis}, asked is {sorted(gone)}"
                )
            taken.setdefault((name, axis % len(shape)), set()).update(gone)
    return taken


def _spread(taken: dict[Axis, set[int]], links: Sequence[Link], graph: Graph) -> None:
    """Follow links both ways until nothing is added."""
    at: dict[Axis, list[Link]] = {}
    for link in links:
        at.setdefault(link.source, []).append(link)
        at.setdefault(link.goal, []).append(link)
    waiting = list(taken)
    while waiting:
        axis = waiting.pop()
        for link in at.get(axis, ()):
            forth = link.source == axis
            other = link.goal if forth else link.source
            known = taken.setdefault(other, set())
            found = _forth(taken[axis], link) if forth else _back(taken[axis], link, _size(graph, other))
            new = found - known
            if new:
                known |= new
                waiting.append(other)


def _forth(gone: set[int], link: Link) -> set[int]:
    return {link.first + i * link.block + k for i in gone for k in range(link.block)}


def _back(gone: set[int], link: Link, size: int) -> set[int]:
    return {i for i in range(size) if _forth({i}, link) <= gone}


def _size(graph: Graph, axis: Axis) -> int:
    size = (graph.values[axis[0]].shape or ())[axis[1]]
    return size if isinstance(size, int) else 0


def _check(op: Op, graph: Graph, taken: Mapping[Axis, set[int]]) -> None:
    """Refuse what cannot be followed: an axis of this op that loses indices and has no link."""
    names = {name for name in (*op.inputs, *op.outputs) if name}
    links = list(_links(op, graph))
    followed = {axis for link in links for axis in (link.source, link.goal)}
    for axis, gone in taken.items():
        if axis[0] not in names or not gone:
            continue
        if len(gone) == _size(graph, axis):
            raise UnsupportedExport(f"pruning leaves nothing of axis {axis[1]} of {axis[0]!r}")
        if axis not in followed:
            raise UnsupportedExport(
                f"{op.type} at {op.name!r}: channels of axis {axis[1]} of {axis[0]!r} cannot be followed "
                "through it",
                hint=f"prune tensors on one side of it, or write it as one of {', '.join(sorted(RULES))}",
            )
    for link in links:
        reach = range(link.first, link.first + _size(graph, link.source) * link.block)
        gone = {i for i in taken.get(link.goal, set()) if i in reach}
        if gone != _forth(taken.get(link.source, set()), link):
            raise UnsupportedExport(
                f"{op.type} at {op.name!r}: {link.goal[0]!r} would lose a part of a channel of "
                f"{link.source[0]!r}",
                hint=f"name channels of {link.source[0]!r}: each is {link.block} of {link.goal[0]!r}",
            )


def _without(graph: Graph, taken: Mapping[Axis, set[int]]) -> Graph:
    """The graph with smaller constants; shapes of what is computed are inferred anew."""
    constants, values = dict(graph.constants), dict(graph.values)
    for name, value in graph.values.items():
        axes = {axis: sorted(gone) for (own, axis), gone in taken.items() if own == name}
        if name not in graph.inputs and name not in constants:
            values[name] = replace(value, shape=None)
        elif axes and value.shape is not None:
            shape = [
                dim - len(axes.get(i, ())) if isinstance(dim, int) else dim
                for i, dim in enumerate(value.shape)
            ]
            values[name] = replace(value, shape=tuple(shape))
        if axes and name in constants:
            array = np.asarray(constants[name].array)
            for axis, gone in axes.items():
                array = np.delete(array, gone, axis=axis)
            constants[name] = Constant(array)
    ops = []
    for op in graph.ops:
        lost = {axis: len(gone) for (own, axis), gone in taken.items() if own == op.outputs[0]}
        changed = op
        if op.type == "Conv" and op.attributes.get("group", 1) > 1 and 1 in lost:
            changed = replace(op, attributes={**op.attributes, "group": op.attributes["group"] - lost[1]})
        elif op.type == "Reshape" and lost:
            target = np.array(graph.constants[op.inputs[1]].array)
            for axis, count in lost.items():
                target[axis] -= count if target[axis] > 0 else 0
            name = f"{op.outputs[0]}/pruned"
            constants[name] = Constant(target)
            values[name] = replace(graph.values[op.inputs[1]], name=name)
            changed = replace(op, inputs=(op.inputs[0], name))
        ops.append(changed)
    return replace(graph, ops=tuple(ops), constants=constants, values=values)


Rule: TypeAlias = Callable[[Op, Graph], Iterator[Link]]


def _links(op: Op, graph: Graph) -> Iterator[Link]:
    rule = RULES.get(op.type)
    if rule is not None and all(
        graph.values[name].shape is not None for name in (*op.inputs, *op.outputs) if name
    ):
        yield from rule(op, graph)


def _shape(graph: Graph, name: str) -> Sequence[Any]:
    return graph.values[name].shape or ()


def _broadcast(op: Op, graph: Graph) -> Iterator[Link]:
    """Elementwise: axes counted from the end; one of size 1 goes along with all."""
    out = op.outputs[0]
    shape = _shape(graph, out)
    for name in filter(None, op.inputs):
        own = _shape(graph, name)
        for axis, size in enumerate(own):
            at = axis + len(shape) - len(own)
            if size == shape[at] and size != 1:
                yield Link((name, axis), (out, at))


def _same(op: Op, axes: Iterable[int]) -> Iterator[Link]:
    yield from (Link((op.inputs[0], axis), (op.outputs[0], axis)) for axis in axes)


def _pooled(op: Op, _graph: Graph) -> Iterator[Link]:
    yield from _same(op, (0, 1))


def _resized(op: Op, graph: Graph) -> Iterator[Link]:
    # Sizes as numbers would have to change with the channels.
    if len(op.inputs) < 4 or not op.inputs[3]:
        sizes = zip(_shape(graph, op.inputs[0]), _shape(graph, op.outputs[0]), strict=False)
        yield from _same(op, (i for i, (before, after) in enumerate(sizes) if before == after))


def _conv(op: Op, graph: Graph) -> Iterator[Link]:
    x, w, *bias = op.inputs
    y, groups = op.outputs[0], op.attributes.get("group", 1)
    yield from (Link((b, 0), (y, 1)) for b in filter(None, bias))
    yield Link((x, 0), (y, 0))
    if op.type == "ConvTranspose":
        if groups == 1:
            yield from (Link((x, 1), (w, 0)), Link((w, 1), (y, 1)))
    elif groups == 1:
        yield from (Link((x, 1), (w, 1)), Link((w, 0), (y, 1)))
    elif groups == _shape(graph, x)[1] == _shape(graph, w)[0]:
        yield from (Link((x, 1), (w, 0)), Link((w, 0), (y, 1)))


def _matmul(op: Op, graph: Graph) -> Iterator[Link]:
    a, b = op.inputs
    first, second, result = (_shape(graph, name) for name in (a, b, op.outputs[0]))
    if len(first) < 2 or len(second) < 2:
        return
    yield Link((a, len(first) - 1), (b, len(second) - 2))
    yield Link((b, len(second) - 1), (op.outputs[0], len(result) - 1))
    yield Link((a, len(first) - 2), (op.outputs[0], len(result) - 2))
    for name, own in ((a, first), (b, second)):
        for axis, size in enumerate(own[:-2]):
            at = axis + len(result) - len(own)
            if size == result[at] and size != 1:
                yield Link((name, axis), (op.outputs[0], at))


def _gemm(op: Op, graph: Graph) -> Iterator[Link]:
    a, b, *bias = op.inputs
    (row, depth), (deep, column) = (
        (1, 0) if op.attributes.get(key, 0) else (0, 1) for key in ("transA", "transB")
    )
    yield from (
        Link((a, depth), (b, deep)),
        Link((b, column), (op.outputs[0], 1)),
        Link((a, row), (op.outputs[0], 0)),
    )
    if bias and bias[0]:
        yield from _broadcast(replace(op, inputs=(bias[0],)), graph)


def _per_channel(op: Op, graph: Graph) -> Iterator[Link]:
    """Parameters of one axis beside the channels of the first operand."""
    yield from _same(op, range(len(_shape(graph, op.inputs[0]))))
    axis = op.attributes.get("axis", 1) if op.type != "BatchNormalization" else 1
    rank = len(_shape(graph, op.inputs[0]))
    for name in filter(None, op.inputs[1:]):
        if rank and len(_shape(graph, name)) == 1 and _shape(graph, name)[0] != 1:
            yield Link((name, 0), (op.outputs[0], axis % rank))


def _thresholds(op: Op, graph: Graph) -> Iterator[Link]:
    x, table = op.inputs
    rank = len(_shape(graph, x))
    yield from _same(op, range(rank))
    if _shape(graph, table)[0] != 1:
        last = str(op.attributes["data_layout"]).endswith("C")
        yield Link((table, 0), (op.outputs[0], rank - 1 if last else 1))


def _moved(op: Op, graph: Graph) -> Iterator[Link]:
    """Data movement by its definition: axes turned, operands joined, a channel of a view as a block."""
    if op.type == "Reshape" and op.inputs[1] not in graph.constants:
        return
    for out, movement in zip(op.outputs, find_movements(operands_of(op, graph)) or (), strict=False):
        names, steps, first = [op.inputs[i] for i in movement.operands], movement.steps, 0
        picked = [step.axis for step in steps if isinstance(step, Pick)]
        if len(picked) == len(steps):
            for name in names:
                shape = _shape(graph, name)
                for axis in sorted(set(range(len(shape))) - set(picked)):
                    yield Link((name, axis), (out, axis), first if axis == movement.joined else 0)
                first += 0 if movement.joined is None else shape[movement.joined]
        elif isinstance(steps[0], Turn) and len(steps) == 1:
            yield from (Link((names[0], source), (out, at)) for at, source in enumerate(steps[0].order))
        elif isinstance(steps[0], View) and len(steps) == 1:
            yield from _viewed(_shape(graph, names[0]), _shape(graph, out), names[0], out)


def _viewed(before: Sequence[Any], after: Sequence[Any], name: str, out: str) -> Iterator[Link]:
    """Of a tensor laid out as (batch, all the rest): a channel is a block."""
    if before[:1] != after[:1] or len(before) < 2:
        return
    yield Link((name, 0), (out, 0))
    if len(after) == 2 and all(isinstance(dim, int) for dim in before[1:]):
        yield Link((name, 1), (out, 1), block=int(np.prod(before[2:], dtype=np.int64)))


_BROADCAST: Final = (Form.BINARY, Form.PRODUCT, Form.SUM, Form.UNARY, Form.VARIADIC)
RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(sorted(of_form(*_BROADCAST)), _broadcast),
    **dict.fromkeys(sorted(ELEMENTWISE - {MULTI_THRESHOLD}), _broadcast),
    **dict.fromkeys(of_form(Form.POOL), _pooled),
    **dict.fromkeys(("BatchNormalization", "DequantizeLinear", "QuantizeLinear"), _per_channel),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    **dict.fromkeys((*sorted(of_form(Form.CONCAT, Form.VIEW)), "Pad", "Slice", "Split", "Transpose"), _moved),
    **dict.fromkeys(("Resize", "Upsample"), _resized),
    "Gemm": _gemm,
    "MatMul": _matmul,
    MULTI_THRESHOLD: _thresholds,
}
