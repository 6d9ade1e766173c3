"""Lookup tables: a function as a device computes it from a few entries, nearest or interpolated.

Entries are the function at equal distances over a range of its input, rounded onto the result's type. The
place of an input between two is exact: ratios of float32 scales, no floats. No kernels, no graph. Source:
TOSA 1.0, TABLE (513 entries, 7 bits between two).
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from planner.constants.quantize import quantize_array
from planner.interpreter.requantize import Array
from planner.ir.types.qtypes import Uniform
from planner.target.records import LookupTable


def entry_inputs(table: LookupTable, x: Uniform) -> Array:
    """The inputs at which a table has entries, ascending, (entries,) float32."""
    low, high = _ends(table, x)
    steps = [low + (high - low) * Fraction(i, table.entries - 1) for i in range(table.entries)]
    return np.asarray([float(step) for step in steps], np.float32)


def stored_results(table: LookupTable, x: Uniform, y: Uniform, function: Callable[[Array], Array]) -> Array:
    """Return the stored result of a table for each integer of the input's storage, ascending from qmin.

    Args:
      x, y: per-tensor types of the input, of at most 16 bits, and of the result.
      function: reals for float32 reals, (entries,).

    Returns:
      (qmax - qmin + 1,) int64, before a fused activation.
    """
    entries = quantize_array(np.asarray(function(entry_inputs(table, x)), np.float32), y).astype(np.int64)
    low, high = _ends(table, x)
    # The place among the entries, in units of 2^-bits: a * q + b exactly, rounded half up.
    per_real = Fraction(table.entries - 1) / (high - low) * (1 << table.interpolate)
    a, b = per_real * Fraction(x.scale), -per_real * low - per_real * Fraction(x.scale) * x.zero_point
    down = a.denominator * b.denominator * 2
    slope, start = int(a * down), int(b * down) + down // 2
    last = (table.entries - 1) << table.interpolate
    places = [
        min(max((slope * q + start) // down, 0), last) for q in range(x.storage.qmin, x.storage.qmax + 1)
    ]
    at = np.asarray(places, np.int64)
    index, part = at >> table.interpolate, at & ((1 << table.interpolate) - 1)
    if not table.interpolate:
        return np.asarray(entries[index])
    after = entries[np.minimum(index + 1, table.entries - 1)]
    total = entries[index] * ((1 << table.interpolate) - part) + after * part
    return np.asarray((total + (1 << (table.interpolate - 1))) >> table.interpolate)


def _ends(table: LookupTable, x: Uniform) -> tuple[Fraction, Fraction]:
    if table.low is not None and table.high is not None:
        return Fraction(table.low), Fraction(table.high)
    scale = Fraction(x.scale)
    return (x.storage.qmin - x.zero_point) * scale, (x.storage.qmax - x.zero_point) * scale
