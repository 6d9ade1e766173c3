"""Parameters from a range: scale and zero point that hold the reals of [lo, hi].

Ranges are widened to contain 0; a range of zero width gives scale 1.0, zero point 0. The zero point is
computed from the rounded scale. Source: design 01, section 2.
"""

import math

import numpy as np

from planner.errors import QTypeError
from planner.ir.qtypes import F32_TINY, Storage, Uniform, round_scale, round_scales


def uniform_from_range(
    lo: float,
    hi: float,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> Uniform:
    """Choose the per-tensor type whose range covers the reals [lo, hi].

    Raises:
      QTypeError: NaN, infinity, lo > hi, or a symmetric type on unsigned storage.
    """
    scale, zero_point = affine(
        lo, hi, store, symmetric=symmetric, power_of_two=power_of_two, expressed=expressed
    )
    return Uniform(store, (scale,), (zero_point,), expressed)


def affine(
    lo: float,
    hi: float,
    store: Storage,
    *,
    symmetric: bool = False,
    power_of_two: bool = False,
    expressed: str = "f32",
) -> tuple[float, int]:
    """Scale (real) and zero point (stored units) for the reals [lo, hi]; see `uniform_from_range`."""
    check_range(lo, hi)
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if lo == hi:
        return 1.0, 0 if store.qmin <= 0 <= store.qmax else store.qmin
    exact = max(-lo, hi) / symmetric_steps(store) if symmetric else (hi - lo) / store.steps
    exact = max(exact, F32_TINY)
    if power_of_two:
        exact = math.ldexp(1.0, math.ceil(math.log2(exact)))
    if not math.isfinite(exact):
        raise QTypeError(f"range {lo}:{hi} needs a scale beyond {expressed}")
    scale = round_scale(exact, expressed)
    if symmetric:
        return scale, 0
    # Python rounds half to even, as the formula asks.
    zero_point = round(store.qmin - lo / scale)
    return scale, min(max(zero_point, store.qmin), store.qmax)


def uniform_per_axis(
    los: np.ndarray, his: np.ndarray, store: Storage, axis: int, *, power_of_two: bool = False
) -> Uniform:
    """Choose the symmetric per-axis f32 type of weights; `los`, `his`: reals, shape (n_slices,)."""
    top = np.maximum(np.maximum(-los, his), 0.0).astype(np.float64)
    if not np.all(np.isfinite(top)):
        raise QTypeError("a range must be finite")
    exact = np.where(top > 0, top / symmetric_steps(store), 1.0)
    if power_of_two:
        exact = np.ldexp(1.0, np.ceil(np.log2(exact)).astype(int))
    return Uniform(store, round_scales(exact.tolist(), "f32"), (0,) * len(exact), "f32", axis)


def symmetric_steps(store: Storage) -> int:
    """Steps from 0 to the nearer end of a storage.

    Raises:
      QTypeError: unsigned, or a range that does not reach both ways.
    """
    steps = min(-store.qmin, store.qmax) if store.signed else 0
    if steps <= 0:
        raise QTypeError(f"a symmetric type needs signed storage around 0, {store} is not")
    return steps


def check_range(lo: float, hi: float) -> None:
    """Refuse a range that is none.

    Raises:
      QTypeError: NaN, infinity or lo > hi.
    """
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise QTypeError(f"range {lo}:{hi} must be finite")
    if lo > hi:
        raise QTypeError(f"range {lo}:{hi} has min > max")
