"""Kernels that move data, as ranges see them: what they cut off, and what infinities stand for beside them.

Source: docs/specification.md, sections 4, 5 and 10.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Graph, Op, Region
from planner.ir.types.intervals import ALL, Interval

FAR: Final = float(np.finfo(np.float32).max)
"""How far a mask goes: as far as a float32."""
INFINITE: Final = float(np.nextafter(np.float32(FAR), np.float32(0)))
"""How far a computed mask goes of which calibration saw minus infinity; finite masks end at `FAR`."""
MASKED: Final = frozenset({"Add", "Sub", "Where"})
"""Ops through which a constant masks another operand."""


def cut_of(graph: Graph, region: Region) -> Interval | None:
    """Return the reals that relus and clamps of a kernel leave of what passes it; None: all."""
    low, high = ALL
    for op in region.ops:
        if op.type == "Relu":
            low = max(low, 0.0)
        elif op.type == "Clip":
            low, high = max(low, _bound(graph, op, 1, low)), min(high, _bound(graph, op, 2, high))
            # The upper bound wins over the lower one: below one that is computed there is no floor.
            is_computed = len(op.inputs) > 2 and bool(op.inputs[2]) and op.inputs[2] not in graph.constants
            low = ALL[0] if is_computed else min(low, high)
    return None if (low, high) == ALL else (low, high)


def _bound(graph: Graph, op: Op, index: int, default: float) -> float:
    constant = graph.constants.get(op.inputs[index]) if index < len(op.inputs) else None
    if constant is None or constant.array is None:
        return default
    return float(constant.array.reshape(-1)[0])


def tells_places(graph: Graph, region: Region) -> bool:
    """Whether data movement also returns indices, which depend on all its operands: TopK, MaxPool."""
    made = (name for op in region.ops for name in op.outputs if name)
    return any(not graph.values[name].is_float for name in made)


def reads_infinity(region: Region, extents: Iterable[Interval | None]) -> bool:
    """Whether a kernel masks with infinities, which the statistics of its result leave out.

    Args:
      extents: the ranges of what it reads.
    """
    if MASKED.isdisjoint(op.type for op in region.ops):
        return False
    ends = (end for extent in extents if extent is not None for end in (-extent[0], extent[1]))
    return any(end in (FAR, INFINITE) for end in ends)


def finite_range(
    array: npt.NDArray[Any], readers: Collection[tuple[Region, bool]]
) -> tuple[Interval | None, bool]:
    """Return the range of integers for numbers with infinities, and whether an end of their storage is one.

    It is their finite part where all consumers are data movement that saturates. A mask that sums or choices
    read reaches as far as a float32 goes; only the needed part of it counts.

    Args:
      readers: kernels that read the numbers, with whether each moves data.
    """
    if np.isnan(array).any():
        return None, False
    if not all(moves and _saturates(region, array) for region, moves in readers):
        masks = all({op.type for op in region.ops} <= MASKED for region, _ in readers)
        # In Python's floats: in half precision the ends themselves would be infinite.
        ends = max(float(array.min()), -FAR), min(float(array.max()), FAR)
        return (ends if masks else None), False
    numbers = array[np.isfinite(array)]
    return ((float(numbers.min()), float(numbers.max())) if numbers.size else None), True


def _saturates(region: Region, array: npt.NDArray[Any]) -> bool:
    """Whether the end of the storage does for an infinity: it is never more (or less) than what it meets."""
    types = {op.type for op in region.ops}
    beyond = np.inf if types <= {"Max", "Pad"} else -np.inf if types == {"Min"} else None
    return beyond is not None and not np.any((array == beyond) | np.isnan(array))
