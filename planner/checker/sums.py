"""Verify the sums of linear kernels: the bits they need, and that the row's accumulator has them.

Source: docs/specification.md, section 6; tests/cases, cases 17 to 24.
"""

import math
from collections.abc import Mapping

import numpy as np

from planner.checker.kernel_ports import Served, channel_axis, linear_op, refuse
from planner.checker.numbers import Extent, Reals
from planner.ir.graph import Op
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.plans.records import KernelPlan
from planner.target.records import Row


def check_room(kernel: KernelPlan, row: Row) -> None:
    """The accumulator has the bits that the plan says sums need, where it leaves longer ones alone."""
    bits, room = kernel.accumulator_bits, row.accumulator
    if bits is not None and room is not None and row.overflow == "refuse" and bits > room.bits:
        refuse(kernel.name, f"its sums need {bits} bits, {row.source} accepts {room.bits} ({room})", row)


def check_sums(served: Served, extents: Mapping[int, Extent]) -> None:
    """The bits that the plan names are those that the actual weights need; partial sums fit their storage."""
    kernel, claimed = served.kernel, served.kernel.accumulator_bits
    needed = needed_bits(served, extents)
    if claimed != needed:
        refuse(
            kernel.name,
            f"its sums are said to need {_bits(claimed)}; accepted: {_bits(needed)}, from its weights",
            served.row,
        )
    row = served.row
    few = None if row.partial is None else partial_bits(served, row.partial.products)
    if row.partial is not None and few is not None and few > row.partial.storage.bits:
        refuse(
            kernel.name,
            f"sums of {row.partial.products} of its products need {few} bits, {row.source} accepts "
            f"{row.partial.storage.bits} ({row.partial.storage})",
            row,
        )


def _bits(count: int | None) -> str:
    return "no bits" if count is None else f"{count} bits"


def needed_bits(served: Served, extents: Mapping[int, Extent]) -> int | None:
    """Bits of the widest sum of a linear kernel; None where it has none or its numbers are not known."""
    present = [i for i, port in enumerate(served.kernel.inputs) if port.value]
    op = linear_op(served.region)
    if op is None or len(present) < 2:
        return None
    x, w = served.ports[present[0]].type, served.ports[present[1]].type
    if not isinstance(x, Uniform) or not isinstance(w, Uniform):
        return None
    steps = _bias_steps(served, present[2], x, w) if len(present) > 2 and not w.blocks else np.zeros(0)
    if served.ports[present[1]].value not in served.graph.constants:
        terms = _count_terms(op, served.graph.values[op.inputs[1]].shape)
        added = served.patterns[present[2]].name in served.reading.biases if len(present) > 2 else False
        most = int(steps.max(initial=0.0)) if added else 0
        # Two activations: no numbers are known, so every product
        # may be the largest one; the last bit is the sign.
        return None if terms is None else (terms * _farthest(w) * _farthest(x) + most).bit_length() + 1
    if present[1] not in extents:
        return None
    sums = extents[present[1]].sums
    array = served.numbers[served.ports[present[1]].value].array
    # Scales along a summed axis: the sum would mix grids, so its bits mean nothing.
    if array is None or (not w.blocks and w.axis not in (None, channel_axis(op, array.ndim))):
        return None
    if not sums.size:
        return 1
    totals = sums * _farthest(x)
    # Per channel, sum |w| times the farthest x plus |bias|
    # bounds every partial sum, in whatever order it is added.
    return int((totals + steps if steps.size == totals.size else totals).max()).bit_length() + 1


def _bias_steps(served: Served, position: int, x: Uniform, w: Uniform) -> Reals:
    """The bias that is added to each sum, in steps of the products; empty where it is unknown."""
    numbers, kind = served.numbers.get(served.ports[position].value), served.ports[position].type
    if numbers is None or numbers.array is None or not isinstance(kind, Uniform):
        return np.zeros(0)
    reals: Reals = np.abs(numbers.array.reshape(-1))
    if served.patterns[position].name in served.reading.biases:
        return np.asarray(np.rint(reals / np.asarray(kind.scales)))
    # On a grid of its own, a number between two steps needs the room of the farther one.
    return np.asarray(np.ceil(reals / (x.scale * np.asarray(w.scales))))


def _farthest(kind: Uniform) -> int:
    lows = np.array([low for low, _ in kind.slice_ranges])
    highs = np.array([high for _, high in kind.slice_ranges])
    zeros = np.array(kind.zero_points)
    return int(max((highs - zeros).max(), (zeros - lows).max()))


def _count_terms(op: Op, shape: tuple[int | str | None, ...] | None) -> int | None:
    """Products of two activations in one sum: all of the second operand but its output channels."""
    if not shape:
        return None
    if op.type == "MatMul":
        # MatMul sums over the last axis but one; the axes in front are batches, which are not summed.
        counted = {len(shape) - 2} if len(shape) > 1 else {0}
    else:
        counted = set(range(len(shape))) - {channel_axis(op, len(shape))}
    sizes = [size for size in (shape[i] for i in counted) if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(counted) else None


def partial_bits(served: Served, products: int) -> int | None:
    """Bits of the widest sum of so many products, in any order; None where they are not known."""
    op = linear_op(served.region)
    present = [port for port in served.kernel.inputs if port.value]
    if op is None or len(present) < 2:
        return None
    x, w = present[0].type, present[1].type
    if not isinstance(x, Uniform) or not isinstance(w, Uniform) or w.blocks:
        return None
    name = present[1].value
    if name not in served.graph.constants:
        terms = _count_terms(op, served.graph.values[op.inputs[1]].shape)
        count = products if terms is None else min(products, terms)
        return (count * _farthest(w) * _farthest(x)).bit_length() + 1
    array = served.numbers[name].array
    if array is None or not array.size or w.axis not in (None, channel_axis(op, array.ndim)):
        return None
    most = 0
    scales = np.broadcast_to(np.asarray(w.scales, np.float32), array.shape[channel_axis(op, array.ndim)])
    for channel, scale in zip(np.moveaxis(array, channel_axis(op, array.ndim), 0), scales, strict=True):
        stored = np.minimum(np.abs(np.rint(channel / scale)), max(-w.storage.qmin, w.storage.qmax))
        most = max(most, int(np.sort(stored, axis=None)[::-1][:products].sum(dtype=np.float64)))
    let_go(array)
    return (most * _farthest(x)).bit_length() + 1
