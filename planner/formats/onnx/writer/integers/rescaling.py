"""Rescaling: stored integers of one type as those of another, and the last step of every integer kernel.

Source: docs/specification.md, section 3; interpreter `memory.rescaled`, which says what they become.
"""

import numpy as np

from planner.formats.common.blocks import Clamp, clamp_of
from planner.formats.common.roundings import Rounding
from planner.formats.common.thresholds import Integers, Steps, fit, least_arguments
from planner.formats.onnx.writer.integers.rounding_steps import write_steps
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.storage_types import held_dtype
from planner.interpreter.memory import rescaled
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block


def rescale(builder: ModelBuilder, tensor: str, source: Uniform, wanted: Uniform, result: str) -> bool:
    """Append a rescale by the arithmetic of the row being written; False for types it does not know."""
    steps = rescale_steps(source, wanted, builder.values.arithmetic)
    if steps is None:
        return False
    write_steps(builder, tensor, steps, low=wanted.storage.qmin, kind=wanted, result=result)
    return True


def rescale_steps(source: Uniform, wanted: Uniform, arithmetic: str) -> Steps | None:
    """Integer steps from the stored values of one type to those of another, tried on all of them."""
    if (
        not (source.is_per_tensor and wanted.is_per_tensor)
        or max(source.storage.bits, wanted.storage.bits) > 8
    ):
        return None
    low, store = wanted.storage.qmin, held_dtype(source)

    def levels_of(v: Integers) -> Integers:
        return rescaled(v.astype(store), source, wanted, arithmetic).astype(np.int64) - low

    ends = [np.asarray([end]) for end in (source.storage.qmin, source.storage.qmax)]
    levels = least_arguments(levels_of, ends[0], ends[1], wanted.storage.qmax - low)
    return fit(levels, np.asarray([source.scale / wanted.scale]))


def settle_steps(
    builder: ModelBuilder, block: Block, v: str, steps: Steps, *, low: int, trailing: int = 0
) -> None:
    """Append the last step of a kernel with one stored result, and define its value."""
    port = block.kernel.outputs[0]
    if isinstance(port.type, Uniform):
        result = builder.stored_name(port.value, port.type)
        write_steps(builder, v, steps, low=low, kind=port.type, result=result, trailing=trailing)
        builder.define_stored(port.value, port.type, result)


def bounds_of(builder: ModelBuilder, block: Block, y: Uniform) -> Clamp | None:
    """Stored ends of a result of at most 8 bits; None where they are known only at run time, or equal."""
    clamp = clamp_of(builder.values, block.activation, y)
    if clamp is None or y.storage.bits > 8 or clamp.low >= clamp.high:
        return None
    return clamp


def single(  # noqa: PLR0917
    y: Uniform, arithmetic: str, numerator: float, multiplier: float, clamp: Clamp, count: int = 1
) -> Rounding:
    """The rounding of one integer for all channels, `count` of which are worth `numerator`."""
    factor = np.asarray([multiplier], np.float32)
    return Rounding(y, arithmetic, (numerator,), 1.0, factor, clamp.low, clamp.high, count=count)
