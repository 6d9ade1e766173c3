"""Layout: a channels-first model with QONNX's channels-last convolutions and pools.

Each such op is put between transposes, which go into quantized weights; those that meet, or that only ops on
elements and Concat keep apart, cancel out. Model inputs and outputs stay as they are. Source: QONNX utility
`to_channels_last`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.conversion.tidy import turn_weights
from planner.formats.onnx.naming import unused, use_counts
from planner.formats.onnx.quantized.dialect import CHANNELS_LAST, ELEMENTWISE, MULTI_THRESHOLD
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import reader_of
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ops import of_form
from planner.ops.forms import Form

_TURNED: Final[Mapping[str, int]] = {"BatchNormalization": 1, "Conv": 2, "MaxPool": 1}
_POINTWISE: Final = of_form(Form.UNARY) | {"Identity"}
_BROADCASTING: Final = ELEMENTWISE | of_form(Form.BINARY, Form.PRODUCT, Form.SUM, Form.VARIADIC)
_PAIRS: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})
_JOINS: Final = of_form(Form.CONCAT)
_SINKING: Final = _POINTWISE | _BROADCASTING | _PAIRS | _JOINS
_LAST_LAYOUTS: Final[Mapping[int, str]] = {3: "NWC", 4: "NHWC"}


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
    turned = turn_weights(draft.finish())
    # Past a value that several ops read a transpose becomes several, which pays where all of them cancel out.
    return infer(min((_settled(turned, forks=forks) for forks in (False, True)), key=_transposes))


def _settled(graph: Graph, *, forks: bool) -> Graph:
    """The graph once no transpose moves or goes any more."""
    while True:
        # Sinking brings a transpose to the next one, which may undo it; that frees the one in front of it.
        once = _cancelled(_sunk(graph, forks=forks))
        if once is graph or once.ops == graph.ops:
            return once
        graph = once


def _transposes(graph: Graph) -> int:
    return sum(op.type == "Transpose" for op in graph.ops)


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


def _sunk(graph: Graph, *, forks: bool) -> Graph:
    """Move transposes behind the op that reads them, where it computes each element for itself.

    Args:
      forks: also one that other ops read, if a transpose may move behind these too.
    """
    counts, reader = use_counts(graph), reader_of(graph)
    if forks:
        stuck = {name for op in graph.ops if op.type not in _SINKING | {"Transpose"} for name in op.inputs}
        stuck.update(graph.outputs)
        counts = Counter({name: count if name in stuck else 1 for name, count in counts.items()})
    values, constants, taken = dict(graph.values), dict(graph.constants), set(graph.values)
    names = {op.name for op in graph.ops}
    ops: list[Op] = []
    for op in graph.ops:
        turns = [reader.op(name, "Transpose") for name in op.inputs]
        found = [turn[1] for turn in turns if turn is not None]
        perm = found[0].attributes["perm"] if found else ()
        last = _turned_operands(op, graph, perm) if _may_sink(op, graph, turns, counts) else None
        if last is None:
            ops.append(op)
            continue
        inputs, attributes = [], dict(op.attributes)
        for name, turn in zip(op.inputs, turns, strict=True):
            array = last.get(name)
            if turn is not None:
                inputs.append(turn[1].inputs[0])
            elif array is None:
                inputs.append(name)
            else:
                inputs.append(unused(f"{name}/turned", taken))
                values[inputs[-1]] = Value(inputs[-1], array.shape, values[name].dtype)
                constants[inputs[-1]] = Constant(array)
        if op.type in _JOINS | _PAIRS:
            attributes["axis"] = perm[attributes.get("axis", 1) % len(perm)]
        elif op.type == MULTI_THRESHOLD:
            attributes["data_layout"] = _LAST_LAYOUTS[len(perm)]
        out = op.outputs[0]
        middle = unused(f"{out}/turned", taken)
        values[middle] = Value(middle, None, values[out].dtype)
        ops.append(replace(op, inputs=tuple(inputs), outputs=(middle,), attributes=attributes))
        turn_name = unused(f"{op.name}/turn", names)
        ops.append(Op(turn_name, "Transpose", (middle,), (out,), {"perm": perm}, scope=op.scope))
    return replace(graph, ops=tuple(ops), values=values, constants=constants)


def _may_sink(
    op: Op, graph: Graph, turns: Sequence[tuple[int, Op] | None], counts: Mapping[str, int]
) -> bool:
    """Whether an op lets transposes pass: all that it computes of are turned alike, or constants."""
    if not any(turns) or op.type not in _SINKING or op.attributes.get("block_size", 0):
        return False
    sides = list(zip(op.inputs, turns, strict=True))
    computed = [(name, turn) for name, turn in sides if name and name not in graph.constants]
    found = [turn[1] for _, turn in computed if turn is not None]
    if len(found) < len(computed) or len({turn.attributes["perm"] for turn in found}) != 1:
        return False
    # Of one operand with other readers a copy would be turned twice; of two at least one transpose goes.
    if len(found) == 1 and counts[computed[0][0]] != 1:
        return False
    # Between an input and an output it would only change places.
    return not (op.outputs[0] in graph.outputs and any(turn.inputs[0] in graph.inputs for turn in found))


def _turned_operands(op: Op, graph: Graph, perm: Sequence[int]) -> dict[str, np.ndarray] | None:
    """The constants of an op that have to be turned with it; None where one cannot be."""
    turned: dict[str, np.ndarray] = {}
    back = _inverse(perm)
    if op.type == MULTI_THRESHOLD:
        to_first = _perms(len(perm))[1] if len(perm) in _LAST_LAYOUTS else ()
        is_first = op.attributes["data_layout"] in ("", "NCHW", "NCW")
        return {} if is_first and tuple(perm) == to_first else None
    if op.type in _PAIRS:
        return {}
    for name in op.inputs:
        constant = graph.constants.get(name)
        if constant is None:
            continue
        array = constant.array
        if array is None or array.ndim > len(perm) or (op.type in _JOINS and array.ndim < len(perm)):
            return None
        if array.size > 1:
            whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
            turned[name] = np.ascontiguousarray(whole.transpose(back))
    return turned


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(perm))


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
