"""Reductions: averages of pictures as thresholds on a pool's result, and the place of the largest as a TopK.

FINN has layers for GlobalAveragePool, MaxPool, convolutions and the indices of a TopK along the last axis,
and none for a ReduceMean, an AveragePool, a GlobalMaxPool or an ArgMax, which say the same. Source:
`InferGlobalAccPoolLayer`, `InferPool` and `InferLabelSelectLayer` of FINN (`convert_to_hw_layers.py`).
"""

from dataclasses import replace

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import axes_of
from planner.formats.common.linear_operands import largest
from planner.formats.common.thresholds import least_arguments
from planner.formats.onnx.writer.integers.averaging import average_of, divides
from planner.formats.onnx.writer.integers.rescaling import single
from planner.formats.qonnx.channels_last import PICTURE
from planner.formats.qonnx.finn_builder import FinnModelBuilder, datatype_of
from planner.formats.qonnx.windows import window, window_of
from planner.interpreter.calls import FLOAT32_EVEN
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of


def average(streams: FinnModelBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Averages: thresholds half a step of the sum below the averages that reach them."""
    op = block.core[0]
    x = operand_of(block, op, 0)
    shape = None if x is None else streams.graph.values[x.value].shape
    pool = None if shape is None else _pool_of(streams, op, len(shape))
    if x is None or shape is None or pool is None:
        return False
    count = average_of(pool, shape)
    if count is None or streams.values.arithmetic == FLOAT32_EVEN:
        return False
    rounding = single(y, streams.values.arithmetic, x.kind.scale, 0.0, clamp, count)
    rounding = replace(rounding, divides=divides(pool, streams.values.arithmetic, x, y))
    reach = np.asarray([count * largest(x.kind)])
    levels = least_arguments(lambda v: rounding.stored(v) - clamp.low, -reach, reach, clamp.high - clamp.low)
    averages = (levels.least - 0.5) / count
    integers = streams.values.integers(x.value, x.kind)
    if pool.type == "AveragePool":
        sums = _sums(streams, pool, integers, f"{block.result}_total")
        if sums:
            streams.settle(block, sums, levels.least, clamp)
        return bool(sums)
    pooled = streams.emit(pool.type, [integers], f"{block.result}_average", pool.attributes)
    if op.type == "ReduceMean" and not op.attributes.get("keepdims", 1):
        pooled = streams.emit("Flatten", [pooled], f"{block.result}_flat", {"axis": 1})
    streams.settle(block, pooled, averages, clamp)
    return True


def _sums(streams: FinnModelBuilder, pool: Op, integers: str, stem: str) -> str:
    """The sums of windows, a depthwise Conv of ones, as FINN has no AveragePool; "" where sizes are open."""
    said, shape = window_of(streams.graph, pool), streams.graph.values[pool.inputs[0]].shape or ()
    channels = shape[1] if len(shape) > 1 else None
    if not said or not isinstance(channels, int):
        return ""
    ones = streams.constant(f"{stem}_ones", np.ones((channels, 1, *said["kernel_shape"])), datatype_of(-1, 1))
    return streams.emit("Conv", [integers, ones], stem, {**said, "group": channels})


def largest_of_all(streams: FinnModelBuilder, block: Block) -> Op | None:
    """A GlobalMaxPool as the MaxPool that FINN has a layer for; None of another op, and of open sizes."""
    op = block.region.ops[0]
    shape = (streams.graph.values[op.inputs[0]].shape or ()) if op.inputs else ()
    sizes = tuple(size for size in shape[2:] if isinstance(size, int))
    if op.type != "GlobalMaxPool" or len(sizes) != PICTURE - 2 or len(shape) != PICTURE:
        return None
    return Op(op.name, "MaxPool", op.inputs, op.outputs, {**window({}, sizes, sizes), "strides": sizes})


def _pool_of(streams: FinnModelBuilder, op: Op, rank: int) -> Op | None:
    """The pool that an average is; None of one that is no pool of pictures."""
    if op.type == "AveragePool":
        shape = streams.graph.values[op.inputs[0]].shape or ()
        is_whole = tuple(op.attributes["kernel_shape"]) == tuple(shape[2:]) and rank == PICTURE
        if not is_whole or any(op.attributes.get("pads", ())):
            return op
        return Op(op.name, "GlobalAveragePool", op.inputs[:1], op.outputs, {})
    if op.type != "ReduceMean":
        return op
    axes = axes_of(streams.values, op, rank)
    if rank != PICTURE or axes is None or {axis % rank for axis in axes} != {2, 3}:
        return None
    return Op(op.name, "GlobalAveragePool", op.inputs[:1], op.outputs, {})


def place_of_largest(streams: FinnModelBuilder, block: Block) -> bool:
    """ArgMax along the last axis: the indices of a TopK of one, whose first of equals is the first too.

    Nothing for other ops. FINN's indices are floats, which what moves them on as integers would refuse.
    """
    op = block.core[0] if block.core else None
    x = None if op is None else operand_of(block, op, 0)
    if op is None or op.type != "ArgMax" or x is None:
        return False
    rank = len(streams.graph.values[x.value].shape or ())
    keeps, places = op.attributes.get("keepdims", 1), op.outputs[0]
    is_last = rank > 0 and op.attributes.get("axis", 0) % rank == rank - 1
    if not (keeps and is_last) or op.attributes.get("select_last_index"):
        return False
    one = streams.file.constant(f"{places}_count", np.asarray([1]))
    operands = [streams.values.integers(x.value, x.kind), one]
    values, attributes = streams.file.fresh(f"{places}_largest"), {"axis": rank - 1}
    streams.file.emit("TopK", operands, [values, places], name=op.name, attributes=attributes)
    streams.values.define_real(places, places)
    return True
