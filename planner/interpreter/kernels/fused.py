"""Fused multiply-add in float32, exactly as the CPU's VFMADD rounds it.

numpy has no FMA. A product of two float32 is exact in float64, so the sum in float64 has one error; rounding
that sum to odd before rounding it to float32 removes the double rounding. Exact unless the result is a
float32 subnormal. Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Real = float | np.float32 | Float32Array


def fused_multiply_add(a: Real, b: Real, c: Real) -> Float32Array:
    """`a * b + c` rounded to float32 once; arguments are float32, of broadcastable shapes."""
    addend = np.asarray(c, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        total = np.asarray(product + addend)
        back = total - product
        error = (product - (total - back)) + (addend - back)
        return np.asarray(_to_odd(total, error).astype(np.float32))


def _to_odd(total: npt.NDArray[np.float64], error: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Move an inexact sum with an even last bit to its odd neighbour on the side of the error."""
    is_even = (total.view(np.int64) & 1) == 0
    is_inexact = (error != 0) & np.isfinite(total) & np.isfinite(error)
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(is_even & is_inexact, neighbour, total)
