"""Layout: a channels-first model with QONNX's channels-last convolutions and pools.

Each such op is put between transposes, and transposes that meet, or that only a pointwise op keeps apart,
cancel out. Model inputs and outputs stay as they are. Source: QONNX utility `to_channels_last`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from planner.ir.graph import Graph, Op, Value
from planner.onnx.naming import unused, use_counts
from planner.onnx.quantized.dialect import CHANNELS_LAST, ELEMENTWISE
from planner.onnx.quantized.lowering import Draft, draft_of
from planner.onnx.shapes import infer

_TURNED: Final[Mapping[str, int]] = {"BatchNormalization": 1, "Conv": 2, "MaxPool": 1}
_POINTWISE: Final = frozenset({
    "Abs", "Ceil", "Clip", "Elu", "Floor", "HardSigmoid", "Identity", "LeakyRelu", "Neg", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Softplus", "Sqrt", "Tanh",
})  # fmt: skip


def channels_last(graph: Graph) -> Graph:
    """Turn every Conv, MaxPool and BatchNormalization, and cancel transposes.

    A BatchNormalization of another rank than 4 stays: nothing in the file would say which rank it has.
    """
    draft = draft_of(graph)
    for op in graph.ops:
        shape = graph.values[op.inputs[0]].shape if op.type in _TURNED else None
        ranks = (4,) if op.type == "BatchNormalization" else (3, 4)
        if shape is None or len(shape) not in ranks or len([out for out in op.outputs if out]) != 1:
            draft.ops.append(op)
        else:
            _turn(op, draft, len(shape))
    turned = draft.finish()
    while True:
        # Sinking brings a transpose to the next one, which may undo it; that frees the one in front of it.
        once = _cancelled(_sunk(turned))
        if once is turned or once.ops == turned.ops:
            return infer(once)
        turned = once


def _perms(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """To channels last, and back."""
    return (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))


def _turn(op: Op, draft: Draft, rank: int) -> None:
    to_last, to_first = _perms(rank)
    inputs = list(op.inputs)
    for i in range(_TURNED[op.type]):
        array = draft.array(inputs[i])
        if array is not None:
            inputs[i] = draft.constant(
                f"{inputs[i]}/channels_last", np.ascontiguousarray(array.transpose(to_last))
            )
            continue
        old = draft.graph.values[inputs[i]]
        turned = draft.emit(op, "Transpose", inputs[i], dtype=old.dtype, attributes={"perm": to_last})
        shape = None if old.shape is None else tuple(old.shape[axis] for axis in to_last)
        draft.values[turned] = Value(turned, shape, old.dtype)
        inputs[i] = turned
    attributes = {key: item for key, item in op.attributes.items() if key != "auto_pad" or item != "NOTSET"}
    last = draft.emit(op, f"{CHANNELS_LAST}::{op.type}", *inputs, attributes=attributes)
    old = draft.graph.values[op.outputs[0]]
    shape = None if old.shape is None else tuple(old.shape[axis] for axis in to_last)
    draft.values[last] = Value(last, shape, old.dtype)
    draft.emit(op, "Transpose", last, out=op.outputs[0], attributes={"perm": to_first})


def _sunk(graph: Graph) -> Graph:
    """Move a transpose behind the pointwise op that alone reads it."""
    counts = use_counts(graph)
    ops, values = list(graph.ops), dict(graph.values)
    writer = {out: at for at, op in enumerate(ops) for out in op.outputs if out}
    taken = set(graph.values)
    for at, op in enumerate(ops):
        first = writer.get(op.inputs[0], -1) if op.inputs and _is_pointwise(op, graph) else -1
        if first < 0 or ops[first].type != "Transpose" or counts[op.inputs[0]] != 1:
            continue
        turn = ops[first]
        # Between an input and an output it would only change places.
        if op.outputs[0] in graph.outputs and turn.inputs[0] in graph.inputs:
            continue
        middle = unused(f"{op.outputs[0]}/turned", taken)
        values[middle] = replace(values[turn.inputs[0]], name=middle, facts=())
        ops[first] = replace(op, inputs=(turn.inputs[0], *op.inputs[1:]), outputs=(middle,))
        ops[at] = replace(turn, inputs=(middle,), outputs=op.outputs)
        writer[middle], writer[op.outputs[0]] = first, at
    return replace(graph, ops=tuple(ops), values=values)


def _is_pointwise(op: Op, graph: Graph) -> bool:
    if op.type in _POINTWISE:
        return True
    if op.type not in ELEMENTWISE or op.type.endswith("MultiThreshold"):
        return False
    constants = [graph.constants.get(name) for name in op.inputs[1:]]
    return all(c is not None and c.array is not None and c.array.size == 1 for c in constants)


def _cancelled(graph: Graph) -> Graph:
    """Drop pairs of transposes that undo each other."""
    writer = {op.outputs[0]: op for op in graph.ops if op.type == "Transpose"}
    alias: dict[str, str] = {}
    kept = []
    for op in graph.ops:
        op = replace(op, inputs=tuple(alias.get(name, name) for name in op.inputs))  # noqa: PLW2901 - renamed
        before = writer.get(op.inputs[0]) if op.type == "Transpose" else None
        if before is not None and op.outputs[0] not in graph.outputs:
            first, second = before.attributes["perm"], op.attributes["perm"]
            if tuple(first[axis] for axis in second) == tuple(range(len(first))):
                alias[op.outputs[0]] = alias.get(before.inputs[0], before.inputs[0])
                continue
        kept.append(op)
    needed = set(graph.outputs)
    live = []
    for op in reversed(kept):
        if needed.intersection(op.outputs):
            needed.update(op.inputs, op.captures)
            live.append(op)
    return replace(graph, ops=tuple(reversed(live)))
