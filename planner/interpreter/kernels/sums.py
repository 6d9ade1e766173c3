"""Sums: kernels on stored integers as sums of terms, which an arithmetic rounds once onto the result's grid.

A term is a product of integers less their zero points, added up along axes or in windows; an addition has two
of them. The interpreter computes them, and formats write them. Convolutions and products of matrices are
`linear`'s. Source: docs/specification.md, section 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.interpreter.fixed_point import Array, ratios
from planner.interpreter.kernels.geometry import pool_geometry
from planner.interpreter.kernels.pooling import PoolGeometry, window_counts
from planner.ir.types.qtypes import Uniform
from planner.ops.operands import Operands, reduced_axes

Kinds: TypeAlias = Sequence[Uniform]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Integers that a kernel adds.

    Attributes:
      factors: operands whose stored integers, less their zero points, are multiplied.
      ratio: steps of the result that one integer is worth, Fractions that broadcast with the sum.
      sign: -1 of a term that is subtracted.
      count: integers that each sum is of, at most.
      axes: along which they are added up.
      keeps_axes: whether these stay, of size 1.
      windows: in which they are added up.
    """

    factors: tuple[int, ...]
    ratio: Array
    sign: int = 1
    count: int = 1
    axes: tuple[int, ...] = ()
    keeps_axes: bool = True
    windows: PoolGeometry | None = None


Terms: TypeAlias = tuple[Term, ...]
Maker: TypeAlias = Callable[[Operands, Kinds, Uniform], Terms | None]


def terms_of(known: Operands, kinds: Sequence[Uniform | None], y: Uniform) -> Terms | None:
    """The terms of an op; None where it is no sum of integers that have one scale each.

    Args:
      known: its operands; numbers that come at run time may raise.
      kinds: types of its operands, None of one that is not stored.
      y: type of the result.
    """
    stored = [kind for kind in kinds if kind is not None]
    if known.op.type not in MAKERS or not y.is_per_tensor or not all(kind.is_per_tensor for kind in stored):
        return None
    count, maker = MAKERS[known.op.type]
    return maker(known, stored, y) if stored == [*kinds[:count]] else None


def _added(known: Operands, kinds: Kinds, y: Uniform) -> Terms:
    last = -1 if known.op.type == "Sub" else 1
    signs = zip((1, last), kinds, strict=True)
    return tuple(Term((i,), _ratio(kind, 1.0, y), sign) for i, (sign, kind) in enumerate(signs))


def _multiplied(_: Operands, kinds: Kinds, y: Uniform) -> Terms:
    return (Term((0, 1), _ratio(kinds[0], kinds[1].scale, y)),)


def _squared(known: Operands, kinds: Kinds, y: Uniform) -> Terms | None:
    exponent = known.array(1)
    if exponent is None or np.any(exponent != 2):
        return None
    return (Term((0, 0), _ratio(kinds[0], kinds[0].scale, y)),)


def _reduced(known: Operands, kinds: Kinds, y: Uniform) -> Terms | None:
    shape = known.shape() or ()
    axes = reduced_axes(known, len(shape))
    if axes is None:
        return None
    count = prod(size for axis, size in enumerate(shape) if axis in axes and isinstance(size, int))
    ratio = _ratio(kinds[0], 1.0, y) / (1 if known.op.type == "ReduceSum" else count)
    keeps = bool(known.op.attributes.get("keepdims", 1))
    return (Term((0,), np.asarray(ratio, object), count=count, axes=axes, keeps_axes=keeps),)


def _averaged(known: Operands, kinds: Kinds, y: Uniform) -> Terms | None:
    spatial = [size for size in (known.shape() or ())[2:] if isinstance(size, int)]
    includes = bool(known.op.attributes.get("count_include_pad"))
    windows = pool_geometry(known.op.attributes, spatial)
    if any(step != 1 for step in windows.dilations) or (windows.ceil_mode and includes):
        return None
    counts = np.maximum(window_counts(spatial, windows, includes_padding=includes), 1)
    distinct, places = np.unique(counts, return_inverse=True)
    ratio = np.empty(len(distinct), object)
    ratio[:] = [_ratio(kinds[0], 1.0, y) / int(count) for count in distinct]
    each = ratio.reshape(()) if len(ratio) == 1 else ratio[places.reshape(counts.shape)]
    return (Term((0,), each, count=prod(windows.kernel), windows=windows),)


def _ratio(kind: Uniform, factor: float, y: Uniform) -> Array:
    return ratios((kind.scale,), factor, y.scale).reshape(())


MAKERS: Final[Mapping[str, tuple[int, Maker]]] = {
    "Add": (2, _added),
    "AveragePool": (1, _averaged),
    "GlobalAveragePool": (1, _reduced),
    "Mul": (2, _multiplied),
    "Pow": (1, _squared),
    "ReduceMean": (1, _reduced),
    "ReduceSum": (1, _reduced),
    "Sub": (2, _added),
}
"""How many operands each has that are stored, and its terms."""
