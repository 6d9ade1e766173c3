"""Types with several scales that hold the ranges of slices, per axis or per block, by a port's own wishes.

Source: docs/specification.md, sections 2 and 4; tests/cases, cases 17 to 24.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError
from planner.ir.operators.neighbours import least_scales
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Calibrated, Storage, Uniform
from planner.ir.types.ranges import uniform_columns, uniform_per_axis
from planner.ir.types.scales import TWO_STEPS, held_in
from planner.target.ports.labels import clipped_share, label_for, label_of, typed
from planner.target.records import PortType

Reals = npt.NDArray[np.float64]
HELD: Final = 1 << 10
"""Number of scales from which on a type holds them in arrays."""


class OneSided(QTypeError):
    """Numbers of both signs around a zero point at an end of their storage."""


ONE_SIDED: Final = "around zero point {} {} holds numbers of one sign only"


def one_type(held: Interval, store: Storage, spec: PortType, max_clip: float) -> Uniform:
    """The type with one scale of a constant.

    Raises:
      OneSided: its numbers have both signs, and the port's zero point is an end of its storage.
    """
    kind = typed(label_for(held, replace(spec, storage=store)), store)
    is_end = kind.zero_point in (store.qmin, store.qmax) and spec.zero_point is not None
    if is_end and clipped_share(held, label_of(kind), store) > max_clip:
        raise OneSided(ONE_SIDED.format(kind.zero_point, store))
    return kind


def slices_of_axis(los: Reals, his: Reals, store: Storage, axis: int, spec: PortType) -> Uniform:
    """The per-axis type of a constant: around 0, or in unsigned storage around one number for all slices.

    That is the row's zero point, else the middle: kernels take the same off every channel.

    Raises:
      OneSided: numbers of both signs around an end of the storage.
    """
    if store.signed or store.float_name:
        return uniform_per_axis(los, his, store, axis, power_of_two=spec.power_of_two)
    zero = spec.zero_point if spec.zero_point is not None else 1 << store.bits - 1
    least, most = store.qmin - zero, store.qmax - zero
    if least == 0 and los.min(initial=0.0) >= 0:
        least = -most
    elif most == 0 and his.max(initial=0.0) <= 0:
        most = -least
    if not least < 0 < most:
        raise OneSided(ONE_SIDED.format(zero, store))
    around = Storage(store.bits + 1, True, least, most)
    kind = uniform_per_axis(los, his, around, axis, power_of_two=spec.power_of_two)
    return replace(kind, storage=store, zero_points=(zero,) * len(kind.scales))


def slices_of_blocks(los: Reals, his: Reals, spec: PortType) -> Uniform:
    """The scales and zero points of a constant's blocks, listed along one axis.

    Raises:
      OneSided: numbers beyond a zero point at an end of the storage.
    """
    store = spec.storage
    if not isinstance(store, Storage):
        raise TypeError(f"a port of type {spec} has no blocks of integers")
    zero = spec.zero_point
    if (zero == store.qmin and los.min(initial=0.0) < 0) or (zero == store.qmax and his.max(initial=0.0) > 0):
        raise OneSided(ONE_SIDED.format(zero, store))
    is_free = spec.scale_min is None and spec.scale_max is None
    many = los.size >= HELD or spec.scales != "f32"
    if is_free and many and (spec.symmetric or spec.zero_point is None):
        return uniform_columns(
            los,
            his,
            store,
            symmetric=spec.symmetric,
            power_of_two=spec.power_of_two,
            held=spec.scales,
        )
    if is_free and spec.symmetric:
        return uniform_per_axis(los, his, store, 0, power_of_two=spec.power_of_two)
    labels = [label_for(extent, spec) for extent in zip(los.tolist(), his.tolist(), strict=True)]
    zeros = tuple(zero + store.offset for _, zero in labels)
    wanted, filled = np.asarray([scale for scale, _ in labels]), los < his
    if spec.scales == TWO_STEPS and filled.any():
        # A block of zeros has no say in the factor of all.
        wanted = np.where(filled, wanted, wanted[filled].max())
    return Uniform(store, tuple(held_in(wanted, spec.scales).tolist()), zeros, "f32", 0)


def ends_observed(
    seen: Calibrated | None, los: Reals, his: Reals, *, axis: int | None = None, sliced: bool = True
) -> tuple[Reals, Reals]:
    """Ranges of slices under an observed one: its own where it has them, else the slices' cut to it.

    Args:
      sliced: whether there are slices; else the observed range stands for all.
    """
    if seen is None:
        return los, his
    if not sliced:
        return np.full(1, seen.lo), np.full(1, seen.hi)
    if seen.axis is not None and seen.axis == axis:
        return np.asarray(seen.los), np.asarray(seen.his)
    return np.clip(los, seen.lo, seen.hi), np.clip(his, seen.lo, seen.hi)


def with_pairs(
    ends: tuple[Reals, Reals], pairs: Reals | None, most: int, store: Storage
) -> tuple[Reals, Reals]:
    """Ends of slices, moved out until neighbours in a sum add up to no more steps than a port takes.

    Args:
      pairs: what neighbours add up to at most, of each channel; None where none are added first.
      most: steps that two neighbours may add up to.
    """
    if pairs is None or pairs.size < ends[0].size:
        return ends
    pairs = pairs if ends[0].size == pairs.size else pairs.max(keepdims=True)
    farthest = np.maximum(-ends[0], ends[1])
    out = np.maximum(farthest, least_scales(pairs, farthest, most) * min(-store.qmin, store.qmax))
    return np.where(out > farthest, -out, ends[0]), np.where(out > farthest, out, ends[1])
