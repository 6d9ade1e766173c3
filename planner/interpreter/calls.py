"""Calls: one planned region as a kernel of the reference interpreter sees it, and its last step.

A call holds the region's ops, the stored operands of its integer ports, and the type and arithmetic of its
result. Nothing here walks plans. Source: docs/specification.md, section 8.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.fixed_point import HEADROOM, WORD_HEADROOM, Term, ratios, scaled_sum
from planner.interpreter.requantize import Array, Grid
from planner.ir.graph import Op, Shape
from planner.ir.types.qtypes import Uniform
from planner.lowering.products import Product
from planner.ops import defined, sums
from planner.ops.operands import Operands
from planner.target.records import Row

FLOAT32_SPEC: Final = "float32_spec"
FLOAT32_EVEN: Final = "float32_even"
FLOAT32_QDQ: Final = "float32_qdq"
HTP: Final = "htp"
"""Of products, Add, Sub, Mul and LayerNormalization on Qualcomm's HTP (`kernels.htp`); else `float32_even`.

`x * Sigmoid(x)` is one operator there (`blocks`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A stored tensor at a port.

    Attributes:
      stored: the integers, in their type's numpy dtype.
      kind: the port's type.
      shape: as the model declares it, None where unknown.
      is_constant: whether it is known before running.
    """

    stored: Array
    kind: Uniform
    shape: Shape | None = None
    is_constant: bool = False

    @property
    def grid(self) -> Grid:
        """Scale, zero point and the bounds of the whole integer type."""
        return grid_of(self.kind)

    def shifted(self) -> Array:
        """`stored - zero_point` of a per-tensor type, int64."""
        return self.stored.astype(np.int64) - self.kind.zero_point


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One region to compute on stored integers.

    Attributes:
      ops: the region's, without a fused activation.
      operands: the integer ports, by (op name, operand index).
      kind: type of the result; None: float32, which sums of products can be handed on as.
      arithmetic: `float32_even`, `htp`, a key of `fixed_point.ARITHMETICS` or the text of a `Multiplier`.
      other: arrays of operands that are no ports, by name.
      row: of the target, whose accumulator sums of products are kept in; None: sums are exact.
      shape: that the model declares for the main op's result; sizes may be open, None: the rank is.
      product: the ops as a sum of products; None: they are none.
    """

    ops: tuple[Op, ...]
    operands: Mapping[tuple[str, int], Operand]
    kind: Uniform | None
    arithmetic: str
    other: Callable[[str], Array]
    row: Row | None = None
    shape: Shape | None = None
    product: Product | None = None

    @property
    def op(self) -> Op:
        """The main op."""
        return self.ops[0]

    @property
    def y(self) -> Uniform:
        """Type of a stored result."""
        if self.kind is None:
            raise TypeError(f"{self.op.name!r} has a float result, which only sums of products have")
        return self.kind

    @property
    def is_onnxruntime(self) -> bool:
        """Whether it computes as onnxruntime does, in the types onnxruntime has kernels for."""
        return self.arithmetic == FLOAT32_EVEN

    def operand(self, index: int, op: Op | None = None) -> Operand | None:
        """A quantized operand; None where it is float, computed inside, or absent."""
        return self.operands.get(((op or self.op).name, index))

    def known(self) -> Operands:
        """The operands of the main op, as its definition reads them."""
        shapes = {self.op.inputs[i]: x.stored.shape for i in range(2) if (x := self.operand(i)) is not None}
        return Operands(self.op, shapes.get, self.other)

    def all_operands(self) -> tuple[Operand, ...] | None:
        """The main op's operands, if all are quantized per tensor."""
        found = [self.operand(i) for i in range(len(self.op.inputs))]
        kept = tuple(item for item in found if item is not None and item.kind.is_per_tensor)
        return kept if len(kept) == len(found) else None


def terms_of(
    known: Operands, kinds: Sequence[Uniform | None], y: Uniform
) -> tuple[tuple[sums.Term, Array], ...] | None:
    """The terms that a kernel of stored integers adds up, each with the value of one in steps of the result.

    Args:
      known: operands of its op.
      kinds: types of these, None of one that is not stored.
      y: type of the result.

    Returns:
      Ratios are Fractions that broadcast with the sum; None where the op is no sum of its stored operands.
    """
    stored = {i: kind for i, kind in enumerate(kinds) if kind is not None}
    is_plain = y.is_per_tensor and all(kind.is_per_tensor for kind in stored.values())
    rule = defined(known.op.type).terms if is_plain else None
    terms = None if rule is None else rule(known)
    if terms is None or stored.keys() != {i for term in terms for i in term.factors}:
        return None
    return tuple((term, _ratio(term, [stored[i].scale for i in term.factors], y)) for term in terms)


def _ratio(term: sums.Term, scales: Sequence[float], y: Uniform) -> Array:
    whole = ratios(scales[:1], math.prod(scales[1:]), y.scale)[0]
    counts, places = np.unique(term.divisor, return_inverse=True)
    shares = np.asarray([whole / int(count) for count in counts], object)
    return np.asarray(shares[places.reshape(np.shape(term.divisor))], object)


def grid_of(kind: Uniform) -> Grid:
    """A per-tensor type as a grid with the bounds of the whole integer type; ranges are cut afterwards."""
    bounds = np.iinfo(stored_dtype(kind.storage))
    return Grid(kind.scale, kind.zero_point, int(bounds.min), int(bounds.max))


def onto(terms: Sequence[Term], y: Uniform, arithmetic: str) -> Array:
    """A sum of scaled integers on the grid of `y`: rounded by the arithmetic, moved, saturated."""
    headroom = HEADROOM if y.storage.bits <= 8 else WORD_HEADROOM
    return saturated(scaled_sum(terms, arithmetic, headroom=headroom), y)


def saturated(steps: Array, y: Uniform) -> Array:
    """Steps from zero on the grid of `y`: moved, and cut at the ends of its integer type."""
    grid = grid_of(y)
    return np.asarray(np.clip(steps + y.zero_point, grid.qmin, grid.qmax).astype(stored_dtype(y.storage)))


def is_byte(kind: Uniform) -> bool:
    """Whether a type is held in bytes, per tensor."""
    return kind.is_per_tensor and kind.storage.bits <= 8


def is_like(kind: Uniform, y: Uniform) -> bool:
    """Whether onnxruntime has kernels from one type to the other: bytes per tensor, equal signs."""
    return is_byte(kind) and is_byte(y) and kind.storage.signed == y.storage.signed
