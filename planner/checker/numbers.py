"""Verify constants and their sums: the model's own numbers fit the types that a plan gives them.

Weights must not be cut, their scales are no coarser than their numbers ask, biases fit their storage, and the
accumulator has the bits that sums of the actual weights need. Constants are read once, in bands that stay in
the processor's cache. Source: docs/specification.md, sections 2 and 6; tests/cases, cases 17 to 24.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served, refuse
from planner.checker.weights import check_content, first_of, observed
from planner.errors import quantity
from planner.ir.arithmetic.slices import Extent, slice_extents
from planner.ir.graph import Constant
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.ir.types.ranges import farthest
from planner.ir.types.typetext import brief
from planner.plans.records import KernelPlan, Port
from planner.target.ports.axes import channel_axis, linear_op, summed_terms, too_dense
from planner.target.records import Row

Reals = npt.NDArray[Any]

Known = tuple[int, int, int, tuple[float, ...], tuple[float, ...], bool]
"""A type and a row (which the plan keeps alive), a port, and the range of a constant at it."""


def check_constants(
    served: Served, known: set[Known], needed: Mapping[str, tuple[float, float]]
) -> dict[int, Extent]:
    """Verify the constants of one kernel by the model's numbers; return their extents by port position.

    Args:
      known: constants of which only a range is known, seen before; grows.
      needed: by name, what the kernel needs of a constant, where that is not everything.
    """
    extents: dict[int, Extent] = {}
    for i, port in enumerate(served.ports):
        kind, name = port.type, port.value
        if name not in served.graph.constants or not isinstance(kind, Uniform):
            continue
        constant = served.numbers[name]
        dense = too_dense(served.graph, served.region, served.row, served.patterns[i], name)
        if dense is not None:
            refuse(port.address, dense, served.row)
        if constant.array is None:
            seen = (id(kind), id(served.row), i, constant.lo, constant.hi, served.pinned(port))
            # Thousands of generated constants share one type,
            # row and range; a bias or a stated range differs.
            if seen in known and not served.reading.has_bias and observed(served, port) is None:
                continue
            known.add(seen)
        extent = extent_of(served, i, kind, constant, cut=name in needed)
        let_go(constant.array)
        if extent is None:
            continue
        if name in needed:
            lo, hi = np.clip(extent.lo, *needed[name]), np.clip(extent.hi, *needed[name])
            extent = replace(extent, lo=np.minimum(lo, 0.0), hi=np.maximum(hi, 0.0))
        extents[i] = extent
        if served.patterns[i].name in served.reading.biases:
            _check_bias(served, port, kind, extent)
        elif i not in served.reading.ruled and not served.pinned(port):
            check_content(served, i, kind, extent.lo, extent.hi, needed=needed.get(name))
    return extents


def extent_of(
    served: Served, position: int, kind: Uniform, constant: Constant, *, cut: bool = False
) -> Extent | None:
    """The extent of a constant's slices, as its type has them; `cut`: it is stored no further than needed."""
    array = constant.array
    if array is None:
        # Only ranges are known: those of slices say nothing of one scale for a tensor, and sums stay unknown.
        if kind.blocks or not constant.lo or (kind.axis is None and len(constant.lo) > 1):
            return None
        return Extent(np.minimum(constant.lo, 0.0), np.maximum(constant.hi, 0.0), np.zeros(0))
    # A weight of one scale still sums per output channel, and its accumulator is that of the worst one.
    second = [i for i, port in enumerate(served.kernel.inputs) if port.value][1:2]
    is_weight = second == [position] and linear_op(served.region.ops) is not None
    axis = channel_axis(served.region, served.graph) if is_weight else None
    is_cut = (cut and not kind.blocks) or observed(served, served.ports[position]) is not None
    return slice_extents(array, kind, axis, cut=is_cut)


def _check_bias(served: Served, port: Port, kind: Uniform, extent: Extent) -> None:
    scales = np.asarray(kind.scales)
    low, high = (extent.lo, extent.hi) if kind.axis is not None else (extent.lo.min(), extent.hi.max())
    i = first_of((low / scales < kind.storage.qmin) | (high / scales > kind.storage.qmax))
    if i is not None:
        refuse(
            port.address,
            f"is {brief(kind)}, its number in slice {i} does not fit; accepted: {kind.storage.qmin} to "
            f"{kind.storage.qmax} times the scale",
            served.row,
        )


def check_room(kernel: KernelPlan, row: Row) -> None:
    """The accumulator has the bits that the plan says sums need, where it leaves longer ones alone."""
    bits, room = kernel.accumulator_bits, row.accumulator
    if bits is not None and room is not None and row.overflow == "refuse" and bits > room.bits:
        told = f"its sums need {quantity(bits, 'bit')}, {row.source} accepts {room.bits} ({room})"
        refuse(kernel.name, told, row)


def check_sums(served: Served, extents: Mapping[int, Extent]) -> None:
    """The bits that the plan names are those that the actual weights need; partial sums fit their storage."""
    kernel, claimed = served.kernel, served.kernel.accumulator_bits
    needed = needed_bits(served, extents)
    if claimed != needed:
        right = f"accepted: {quantity(needed, 'bit') if needed else 'no bits'}, from its weights"
        refuse(
            kernel.name,
            f"its sums are said to need {quantity(claimed, 'bit') if claimed else 'no bits'}; {right}",
            served.row,
        )
    row = served.row
    few = None if row.partial is None else partial_bits(served, row.partial.products)
    if row.partial is not None and few is not None and few > row.partial.storage.bits:
        told = f"sums of {row.partial.products} of its products need {quantity(few, 'bit')}"
        room = f"{row.partial.storage.bits} ({row.partial.storage})"
        refuse(kernel.name, f"{told}, {row.source} accepts {room}", row)


def _factors(served: Served) -> tuple[list[int], Uniform, Uniform] | None:
    """Positions of a linear kernel's inputs, and the types of its factors; None where it adds nothing."""
    present = [i for i, port in enumerate(served.kernel.inputs) if port.value]
    if linear_op(served.region.ops) is None or len(present) < 2:
        return None
    x, w = (served.ports[i].type for i in present[:2])
    return (present, x, w) if isinstance(x, Uniform) and isinstance(w, Uniform) else None


def needed_bits(served: Served, extents: Mapping[int, Extent]) -> int | None:
    """Bits of the widest sum of a linear kernel; None where it has none or its numbers are not known."""
    found, op = _factors(served), linear_op(served.region.ops)
    if found is None or op is None:
        return None
    present, x, w = found
    steps = _bias_steps(served, present[2], x, w) if len(present) > 2 and not w.blocks else np.zeros(0)
    weight = served.numbers.get(served.ports[present[1]].value)
    if weight is None:
        terms = summed_terms(served.graph, op)
        added = len(present) > 2 and served.patterns[present[2]].name in served.reading.biases
        most = int(steps.max(initial=0.0)) if added else 0
        # Two activations: no numbers are known, so every product
        # may be the largest one; the last bit is the sign.
        return None if terms is None else (terms * farthest(w) * farthest(x) + most).bit_length() + 1
    axis = channel_axis(served.region, served.graph)
    # Scales along a summed axis: the sum would mix grids, so its bits mean nothing.
    if present[1] not in extents or weight.array is None or not (w.blocks or w.axis in (None, axis)):
        return None
    sums = extents[present[1]].sums
    if not sums.size:
        return 1
    totals = sums * farthest(x)
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


def partial_bits(served: Served, products: int) -> int | None:
    """Bits of the widest sum of so many products, in any order; None where they are not known."""
    found, op = _factors(served), linear_op(served.region.ops)
    if found is None or op is None or found[2].blocks:
        return None
    present, x, w = found
    name = served.ports[present[1]].value
    if name not in served.graph.constants:
        terms = summed_terms(served.graph, op)
        count = products if terms is None else min(products, terms)
        return (count * farthest(w) * farthest(x)).bit_length() + 1
    array, axis = served.numbers[name].array, channel_axis(served.region, served.graph)
    if array is None or not array.size or w.axis not in (None, axis):
        return None
    most = 0
    scales = np.broadcast_to(np.asarray(w.scales, np.float32), array.shape[axis])
    for channel, scale in zip(np.moveaxis(array, axis, 0), scales, strict=True):
        stored = np.minimum(np.abs(np.rint(channel / scale)), max(-w.storage.qmin, w.storage.qmax))
        most = max(most, int(np.sort(stored, axis=None)[::-1][:products].sum(dtype=np.float64)))
    let_go(array)
    return (most * farthest(x)).bit_length() + 1
