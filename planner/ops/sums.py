"""Sums: operators as sums of terms; a term is a product of operands, added up along axes or in windows.

Terms that a kernel of integers adds up exactly before its arithmetic rounds. Products of matrices and
convolutions are none of these. No types here, no scales. Source: ONNX operator pages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from planner.ops.geometry.windows import PoolGeometry, pool_geometry, window_counts
from planner.ops.operands import Array, Operands, reduced_axes


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A term that an operator adds.

    Attributes:
      factors: operands that are multiplied.
      sign: -1 of a term that is subtracted.
      axes: along which products are added up.
      keeps_axes: whether these stay, of size 1.
      windows: in which products are added up.
      count: products that a sum is of, at most.
      divisor: of the sum: integers that broadcast with it.
    """

    factors: tuple[int, ...]
    sign: int = 1
    axes: tuple[int, ...] = ()
    keeps_axes: bool = True
    windows: PoolGeometry | None = None
    count: int = 1
    divisor: int | Array = 1


Terms: TypeAlias = tuple[Term, ...]
TermRule: TypeAlias = Callable[[Operands], Terms | None]
"""The terms of an op; None where it is no such sum, or its axes or their sizes come at run time."""


def added(_: Operands) -> Terms:
    """Both operands."""
    return Term((0,)), Term((1,))


def subtracted(_: Operands) -> Terms:
    """The first less the second."""
    return Term((0,)), Term((1,), sign=-1)


def multiplied(_: Operands) -> Terms:
    """One product."""
    return (Term((0, 1)),)


def squared(known: Operands) -> Terms | None:
    """A product of the first operand and itself, where the exponent is 2."""
    exponent = known.array(1)
    return None if exponent is None or np.any(exponent != 2) else (Term((0, 0)),)


def reduced(known: Operands) -> Terms | None:
    """One sum along axes; its share, but for ReduceSum."""
    shape = known.sizes(0)
    axes = None if shape is None else reduced_axes(known, len(shape))
    if shape is None or axes is None:
        return None
    sizes = [size for axis, size in enumerate(shape) if axis in axes and size is not None]
    if len(sizes) < len(axes):
        return None
    count = prod(sizes) or 1
    divisor = 1 if known.op.type == "ReduceSum" else count
    keeps = bool(known.op.attributes.get("keepdims", 1))
    return (Term((0,), axes=axes, keeps_axes=keeps, count=count, divisor=divisor),)


def averaged(known: Operands) -> Terms | None:
    """One sum in each window, over its pixels; windows without gaps."""
    shape, includes = known.sizes(0), bool(known.op.attributes.get("count_include_pad"))
    spatial = [size for size in (shape or ())[2:] if size is not None]
    if shape is None or len(spatial) < len(shape) - 2:
        return None
    windows = pool_geometry(known.op.attributes, spatial)
    if any(step != 1 for step in windows.dilations) or (windows.ceil_mode and includes):
        return None
    counts = np.maximum(window_counts(spatial, windows, includes_padding=includes), 1)
    divisor = int(counts.flat[0]) if np.all(counts == counts.flat[0]) else counts
    return (Term((0,), windows=windows, count=prod(windows.kernel), divisor=divisor),)
