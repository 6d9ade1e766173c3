"""Verify constants and their sums: the model's own numbers fit the types that a plan gives them.

Weights must not be cut, their scales are no coarser than their numbers ask, biases fit their storage, and the
accumulator has the bits that sums of the actual weights need. Constants are read once, in bands that stay in
the processor's cache. Source: docs/specification.md, sections 2 and 6; tests/cases, cases 17 to 24.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served, refuse
from planner.checker.weights import check_content, first_of, observed
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

PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Extent:
    """Least and greatest real of each slice (0 included), and its sum of |stored|, shape (n_slices,)."""

    lo: Reals
    hi: Reals
    sums: Reals


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
            extent = _cut(extent, needed[name])
        extents[i] = extent
        if served.patterns[i].name in served.reading.biases:
            _check_bias(served, port, kind, extent)
        elif i not in served.reading.ruled and not served.pinned(port):
            check_content(served, i, kind, extent.lo, extent.hi, needed=needed.get(name))
    return extents


def _cut(extent: Extent, to: tuple[float, float]) -> Extent:
    """The extent of numbers that are stored no further than the kernel needs them."""
    lo, hi = np.clip(extent.lo, *to), np.clip(extent.hi, *to)
    return replace(extent, lo=np.minimum(lo, 0.0), hi=np.maximum(hi, 0.0))


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
    array = np.atleast_1d(array)
    steps = _steps(served, position, kind, array)
    if steps is None:
        return None
    if not array.size:
        return Extent(*np.zeros((3, len(kind.scales))))
    cut = (cut and not kind.blocks) or observed(served, served.ports[position]) is not None
    most = max(-kind.storage.qmin, kind.storage.qmax) if cut else None
    scales = _spread(kind, array)
    # Bands of rows stay in the processor's cache; rows of one block are brought together at the end.
    rows = max(1, PIECE * len(array) // max(1, array.size))
    within = [1, *steps[1:]]
    found = [_of_band(array[k : k + rows], scales(k, rows), within, most) for k in range(0, len(array), rows)]
    whole = (np.concatenate(parts) for parts in zip(*found, strict=True))
    reduced = zip((np.minimum, np.maximum, np.add), whole, strict=True)
    lo, hi, sums = (_by_block(reduce, part, [steps[0]]).reshape(-1) for reduce, part in reduced)
    return Extent(np.minimum(lo, 0.0), np.maximum(hi, 0.0), sums)


def _steps(served: Served, position: int, kind: Uniform, array: Reals) -> list[int] | None:
    """How many numbers along each axis lie in one slice; None where the type is of another tensor."""
    if kind.blocks:
        sizes = dict(kind.blocks)
        steps = [max(1, sizes.get(axis, size)) for axis, size in enumerate(array.shape)]
        counts = tuple(-(-size // step) for size, step in zip(array.shape, steps, strict=True))
        return steps if counts == kind.grid and array.size else None
    axis = kind.axis
    if axis is None:
        # A weight of one scale still sums per output channel, and its accumulator is that of the worst one.
        op = linear_op(served.region.ops)
        second = [i for i, port in enumerate(served.kernel.inputs) if port.value][1:2]
        axis = channel_axis(served.region, served.graph) if op is not None and second == [position] else None
    if axis is not None and not 0 <= axis < array.ndim:
        return None
    return [1 if i == axis else max(1, size) for i, size in enumerate(array.shape)]


def _spread(kind: Uniform, array: Reals) -> Callable[[int, int], Reals]:
    """The scales of each band of rows, in a shape that broadcasts with it."""
    grid = kind.grid or tuple(len(kind.scales) if i == kind.axis else 1 for i in range(array.ndim))
    scales, sizes = np.asarray(kind.scales, np.float32).reshape(grid), dict(kind.blocks)
    for axis, step in sizes.items():
        if axis and step > 1 and grid[axis] > 1:
            scales = np.repeat(scales, step, axis)[(slice(None),) * axis + (slice(array.shape[axis]),)]
    step = sizes.get(0, 1)

    def of_rows(begin: int, count: int) -> Reals:
        if grid[0] == 1:
            return scales
        return np.asarray(scales[np.arange(begin, min(begin + count, len(array))) // step])

    return of_rows


def _of_band(band: Reals, scales: Reals, steps: list[int], most: int | None) -> tuple[Reals, Reals, Reals]:
    """Least, greatest and sum of |stored| of each slice within a band; `most`: what is stored ends there."""
    reals = band if band.dtype == np.float64 else band.astype(np.float32, copy=False)
    stored = np.abs(reals)
    with np.errstate(over="ignore"):  # a mask of -3.4e38 is stored no further than it is needed
        stored /= scales
    np.rint(stored, out=stored)
    if most is not None:
        np.minimum(stored, most, out=stored)
    return (
        _by_block(np.minimum, reals, steps).astype(np.float64),
        _by_block(np.maximum, reals, steps).astype(np.float64),
        _by_block(np.add, stored, steps, np.float64),
    )


def _by_block(reduce: np.ufunc, band: Reals, steps: list[int], dtype: type | None = None) -> Reals:
    """Reduce the blocks along every axis to one number; the last block of an axis may be shorter."""
    whole = tuple(axis for axis, step in enumerate(steps) if step >= band.shape[axis])
    band = reduce.reduce(band, axis=whole, keepdims=True, dtype=dtype) if whole else band
    for axis, step in enumerate(steps):
        if axis in whole or step == 1:
            continue
        if band.shape[axis] % step == 0:
            shape = *band.shape[:axis], band.shape[axis] // step, step, *band.shape[axis + 1 :]
            band = reduce.reduce(band.reshape(shape), axis=axis + 1, dtype=dtype)
        else:
            band = reduce.reduceat(band, np.arange(0, band.shape[axis], step), axis, dtype)
    return band


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
