"""Narrow: scales below that of a slice's range, where clipping the largest weights costs less than it saves.

Each slice is evaluated by itself, by the squares of its weights' errors. Zero points stay: both ends of a
range shrink alike. Nothing here reads samples. Source: docs/accuracy.md, "Ranges" (`mse` below 8 bits);
Banner et al. 2019, "Post training 4-bit quantization of convolutional networks", section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.scales import round_scales
from planner.weight_conditioning.layers import as_rows
from planner.weight_conditioning.operands import Key, numbers_of, with_operands
from planner.weight_conditioning.second_order import Grid

Reals = npt.NDArray[Any]
SHARES: Final = tuple((np.arange(20, 5, -1) / 20).tolist())
"""Of each slice's range: 1 to 0.3, tried for each slice by itself."""
WIDE: Final = 8
"""Bits from which on a narrower range gains nothing."""
PIECE: Final = 1 << 18
"""Weights that are tried together."""


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Grid of a weight, as slices that share a scale.

    Attributes:
      of: slice of each weight, shape `(groups, n_out, n_in)`.
      scales, zeros: of each slice.
      store: their integers.
      kind: the type that says all this; None where none can, for a convolution's rows in blocks.
    """

    of: npt.NDArray[np.int64]
    scales: Reals
    zeros: Reals
    store: Storage
    kind: Uniform | None

    def grid(self, group: int) -> Grid:
        """Of the weights of one group."""
        of = self.of[group]
        return Grid(self.scales[of], self.zeros[of], self.store.qmin, self.store.qmax)

    def rescaled(self, scales: Reals) -> "Slices":
        """The grid with other scales, each a value that a type can have; 1 for a slice of nothing but 0."""
        stored = round_scales(np.where(scales > 0, scales, 1.0).tolist(), "f32")
        kind = None if self.kind is None else replace(self.kind, scales=stored)
        return replace(self, scales=np.asarray(stored), kind=kind)

    @property
    def may_narrow(self) -> bool:
        """Whether other scales are to be tried: below 8 bits, but for powers of two."""
        return self.store.bits < WIDE and not np.all(np.frexp(self.scales)[0] == 0.5)


def narrowed(rows: Reals, own: Slices, weights: Reals | None = None) -> Reals:
    """Each slice's scale that loses least by itself.

    Args:
      rows: the weights, `(groups, n_out, n_in)`.
      own: their grid.
      weights: of the squares of errors, shape `(groups, n_in)`; None: all alike.
    """
    best, chosen = np.full(own.scales.size, np.inf), np.ones(own.scales.size)
    lost = np.zeros((len(SHARES), own.scales.size))
    high = max(1, PIECE // max(1, int(rows.shape[2])))
    for group, begin in np.ndindex(rows.shape[0], -(-rows.shape[1] // high)):
        part = slice(begin * high, (begin + 1) * high)
        of, weighing = own.of[group, part], None if weights is None else np.sqrt(weights[group])
        _add_lost(lost, rows[group, part], own, of, weighing)
    for share, one in zip(SHARES, lost, strict=True):
        chosen = np.where(one < best, share, chosen)
        best = np.minimum(best, one)
    return own.scales * chosen


def _add_lost(
    lost: Reals, rows: Reals, own: Slices, of: npt.NDArray[np.int64], weighing: Reals | None
) -> None:
    """Add what slices lose in some rows at each share, in units of their scales' squares."""
    reals = (rows / own.scales[of]).astype(np.float32)
    zeros = own.zeros[of].astype(np.float32) if own.zeros.any() else np.float32(0)
    low, top = own.store.qmin - zeros, own.store.qmax - zeros
    flat = of.reshape(-1)
    # Neighbours of a slice are summed first: there are far fewer such runs than weights.
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    slices = flat[starts]
    errors = np.empty_like(reals)
    for k, share in enumerate(np.asarray(SHARES, np.float32)):
        np.divide(reals, share, out=errors)
        np.rint(errors, out=errors)
        np.maximum(errors, low, out=errors)
        np.minimum(errors, top, out=errors)
        errors *= share
        errors -= reals
        if weighing is not None:
            errors *= weighing
        errors *= errors
        sums = np.add.reduceat(errors.reshape(-1), starts)
        lost[k] += np.bincount(slices, sums, minlength=lost.shape[1])


def clipped(graph: Graph, slices: Mapping[str, Slices]) -> tuple[Graph, tuple[str, ...]]:
    """Fix the types of linear ops' weights to the grids of `narrowed`; the numbers themselves stay.

    Args:
      slices: the grid of each layer's weight, by op.

    Returns:
      The model, and the names of the constants whose type was fixed.
    """
    kinds: dict[str, Uniform] = {}
    arrays: dict[Key, Reals] = {}
    for op in graph.ops:
        own, weight = slices.get(op.name), numbers_of(graph, op, 1)
        if own is None or weight is None or own.kind is None or not own.may_narrow:
            continue
        own = own.rescaled(narrowed(as_rows(op, weight).astype(np.float64), own))
        if own.kind is not None:
            kinds[op.name], arrays[op.name, 1] = own.kind, weight
    return pinned(with_operands(graph, arrays), kinds)


def pinned(graph: Graph, kinds: Mapping[str, Uniform]) -> tuple[Graph, tuple[str, ...]]:
    """The model with the types of weights as facts, by op, and the names of these weights."""
    values = dict(graph.values)
    found = [op for op in graph.ops if op.name in kinds]
    for op in found:
        values[op.inputs[1]] = replace(values[op.inputs[1]], facts=(kinds[op.name],))
    return replace(graph, values=values), tuple(_weight(op) for op in found)


def _weight(op: Op) -> str:
    return op.inputs[1]
