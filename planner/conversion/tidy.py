"""Tidy: QONNX files as its tools want them: cleaned up, or with scales and zero points as ops of their own.

Numbers stay as they are. Source: QONNX utilities `cleanup` and `ExtractQuantScaleZeroPt`.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.naming import unused, use_counts
from planner.formats.onnx.normalise import drop_identities
from planner.formats.onnx.quantized.dialect import BIPOLAR, FLOAT_QUANT, QUANT
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.formats.onnx.quantized.quantizers import reader_of
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph, Op


def cleaned(graph: Graph) -> Graph:
    """Shapes inferred, constants folded, copies gone, quantized weights transposed once and for all."""
    done = infer(fold_constants(drop_identities(graph)))
    return infer(turn_weights(fold_constants(done)))


def extracted(graph: Graph) -> Graph:
    """Each Quant as Div, Add, Quant of scale 1 and zero point 0, Sub, Mul."""
    reader, draft = reader_of(graph), draft_of(graph)
    for op in graph.ops:
        arrays = [reader.array(name) for name in op.inputs[1:4]] if op.type == QUANT else [None]
        if any(array is None for array in arrays):
            draft.ops.append(op)
        else:
            _extract(op, draft, np.asarray(arrays[0]), np.asarray(arrays[1]))
    return draft.finish()


def _extract(op: Op, draft: Draft, scale: np.ndarray, zero: np.ndarray) -> None:
    step, offset = (
        draft.constant(f"{op.outputs[0]}/{name}", array.astype(np.float32))
        for name, array in (("step", scale), ("offset", zero))
    )
    v = op.inputs[0] if np.all(scale == 1) else draft.emit(op, "Div", op.inputs[0], step)
    v = draft.emit(op, "Add", v, offset) if zero.any() else v
    one = draft.constant(f"{op.outputs[0]}/one", np.asarray(1, np.float32))
    none = draft.constant(f"{op.outputs[0]}/none", np.asarray(0, np.float32))
    last = "Mul" if not np.all(scale == 1) else "Sub" if zero.any() else QUANT
    inputs = (v, one, none, op.inputs[3])
    q = draft.emit(op, QUANT, *inputs, out=op.outputs[0] if last == QUANT else "", attributes=op.attributes)
    if zero.any():
        q = draft.emit(op, "Sub", q, offset, out=op.outputs[0] if last == "Sub" else "")
    if last == "Mul":
        draft.emit(op, "Mul", q, step, out=op.outputs[0])


def turn_weights(graph: Graph) -> Graph:
    """Transpose the constant inside a Quant or DequantizeLinear instead of its result."""
    reader, counts = reader_of(graph), use_counts(graph)
    constants, values, taken = dict(graph.constants), dict(graph.values), set(graph.values)
    ops: dict[int, Op] = dict(enumerate(graph.ops))
    for at, op in enumerate(graph.ops):
        made = reader.op(op.inputs[0], *_OF_WEIGHTS) if op.type == "Transpose" else None
        if made is None or counts[op.inputs[0]] != 1 or op.outputs[0] in graph.outputs:
            continue
        first, inner = made
        arrays = [reader.array(name) for name in inner.inputs]
        if any(array is None for array in arrays) or inner.attributes.get("block_size", 0):
            continue
        rank = np.asarray(arrays[0]).ndim
        perm = tuple(op.attributes.get("perm", range(rank)[::-1]))
        inputs, attributes = list(inner.inputs), dict(inner.attributes)
        if inner.type == "DequantizeLinear":
            # Its scales lie along an axis.
            attributes["axis"] = perm.index(attributes.get("axis", 1) % rank) if rank > 1 else 0
            arrays[1:] = [None] * len(arrays[1:])
        for i, array in enumerate(arrays):
            if array is None or array.size == 1:
                continue
            full = array.reshape((1,) * (rank - array.ndim) + array.shape)
            turned = np.ascontiguousarray(full.transpose(perm))
            old, inputs[i] = values[inputs[i]], unused(f"{inputs[i]}/turned", taken)
            constants[inputs[i]] = Constant(turned)
            values[inputs[i]] = replace(old, name=inputs[i], shape=turned.shape, facts=())
        ops[first] = replace(inner, inputs=tuple(inputs), outputs=op.outputs, attributes=attributes)
        del ops[at]
    return replace(graph, ops=tuple(ops.values()), constants=constants, values=values)


_OF_WEIGHTS: Final = (BIPOLAR, FLOAT_QUANT, QUANT, "DequantizeLinear")
