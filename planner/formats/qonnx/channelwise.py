"""Channelwise: ops on one stream with constants per channel, as thresholds per channel.

The interpreter says what the row makes of each stored integer. A channel that rises with its operand is
thresholds as it is, and one that falls is negated first; one that does both has no such form.
Source: FINN documentation, "Streamlining" and ChannelwiseOp.
"""

from typing import Final

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.pointwise import only_stored, varying_axis
from planner.formats.common.thresholds import Integers
from planner.formats.qonnx.finn_builder import FinnModelBuilder, layout_of
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand
from planner.ops import defined

_NORMALISED: Final = "BatchNormalization"
"""Its constants are per channel whatever their shape: channels are axis 1."""


def channelwise(streams: FinnModelBuilder, block: Block, _y: Uniform, clamp: Clamp) -> bool:
    """Pointwise ops and BatchNormalization on one stream, its constants along one axis at most."""
    x = only_stored(streams.values, block)
    shape = None if x is None else streams.graph.values[x.value].shape
    if x is None or shape is None:
        return False
    is_normalised = [op.type for op in block.core] == [_NORMALISED]
    if not is_normalised and not all(defined(op.type).is_pointwise for op in block.core):
        return False
    axis = 1 if is_normalised else varying_axis(streams.values, block, len(shape))
    channels = shape[axis] if axis is not None and axis >= 0 else 1
    if axis is None or not isinstance(channels, int):
        return False
    levels = _levels(streams, block, x, axis, channels)
    if levels is None:
        return False
    count = clamp.high - clamp.low
    levels = np.clip(levels.astype(np.int64) - clamp.low, 0, count)
    change = np.diff(levels, axis=1)
    rises, falls = np.all(change >= 0, axis=1), np.all(change <= 0, axis=1)
    if not np.all(rises | falls):
        return False
    first = np.where(rises, x.kind.storage.qmin - x.kind.zero_point, x.kind.zero_point - x.kind.storage.qmax)
    levels = np.where(rises[:, None], levels, levels[:, ::-1])
    least = first[:, None] + np.sum(levels[:, :, None] < np.arange(1, count + 1), axis=1)
    tensor = streams.values.integers(x.value, x.kind)
    if not np.all(rises):
        sizes = [channels if i == axis else 1 for i in range(len(shape))]
        signs = np.where(rises, 1, -1).reshape(sizes if axis >= 0 else ())
        name = streams.constant(f"{block.result}_signs", signs, "BIPOLAR")
        tensor = streams.emit("Mul", [tensor, name], f"{block.result}_turned")
    streams.settle(block, tensor, least, clamp, layout_of(axis, len(shape)))
    return True


def _levels(streams: FinnModelBuilder, block: Block, x: Operand, axis: int, channels: int) -> Integers | None:
    """The result of each stored integer, ascending, in each channel: (channels, integers)."""
    rank, store = len(streams.graph.values[x.value].shape or ()), x.kind.storage
    ramp = np.arange(store.qmin, store.qmax + 1)
    sizes = [channels if i == axis else 1 for i in range(rank)]
    # Constants broadcast from the last axis, so integers go along a new first one; a normalisation has the
    # batch there.
    if block.core[0].type == _NORMALISED:
        sizes = sizes[1:]
    wide = np.broadcast_to(ramp.reshape(-1, *(1 for _ in sizes)), (len(ramp), *sizes))
    found = streams.interpreter.run_kernel(block.kernel.name, x.value, x.kind, wide)
    return None if found is None else found.reshape(len(ramp), -1).T
