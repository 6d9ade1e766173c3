"""Rounding: weights of a model as points of the grids that a plan gives them, with their types fixed.

A fixed type (a Uniform fact on the constant) keeps planning on the very grid: ranges of rounded weights would
give another scale. Below 8 bits scales are narrower than the range where a row's output then loses less.
Without a target a grid is given: bits, and a block of inputs that share a scale.
Source: docs/accuracy.md, "Conditioning"; `second_order` for the method.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import dequantize_array, stored_dtype
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Storage, Uniform, storage, sub_channel, uniform
from planner.ops import LINEAR
from planner.propagation.propagate import operand_types
from planner.target.ports.axes import linear_op
from planner.target.records import Target
from planner.weight_conditioning.layers import Patches, as_rows, from_rows
from planner.weight_conditioning.narrow import Slices, narrowed, pinned
from planner.weight_conditioning.operands import Key, numbers_of, with_operands
from planner.weight_conditioning.second_order import Grid, factored, second_order

Reals = npt.NDArray[Any]
SHARES: Final = (0.95, 0.9, 0.8, 0.7, 0.6)
"""Of each slice's range: what is tried as the range of all scales of a row."""
AT_ONCE: Final = 1 << 22
"""Weights, over all grids that are tried together."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A model with rounded weights; `meant` are the weights as they were, by the names they have now."""

    model: Graph
    meant: Mapping[str, np.ndarray]
    left: tuple[str, ...]


def planned_slices(graph: Graph, target: Target) -> dict[str, Slices]:
    """Grids of the weights of linear ops, by op, as a plan of an annotated model types them."""
    fused, kinds = operand_types(fuse(graph, target), target, fuses=not graph.regions)
    known = {op.name: op for op in graph.ops}
    found: dict[str, Slices] = {}
    for region in fused.regions:
        op = linear_op(region.ops)
        if op is None or known.get(op.name) != op:
            continue
        kind = kinds.get(region.name, {}).get(op.inputs[1])
        weight = numbers_of(graph, op, 1)
        if weight is None or not isinstance(kind, Uniform) or kind.storage.float_name:
            continue
        if _is_laid(op, weight):
            found[op.name] = slices_of(op, weight, kind)
    return found


def given_slices(graph: Graph, bits: int, block: int) -> dict[str, Slices]:
    """Grids of so many bits for the weights of all linear ops, by op, symmetric.

    Args:
      block: inputs of a row that share a scale, the last ones maybe fewer; 0: the whole row does.
    """
    store = storage(f"i{bits}")
    found: dict[str, Slices] = {}
    for op in graph.ops:
        weight = numbers_of(graph, op, 1) if op.type in LINEAR else None
        if weight is None or not _is_laid(op, weight):
            continue
        kind = _kind(op, weight, store, block)
        rows = np.abs(as_rows(op, weight).astype(np.float64))
        of = _numbered(rows.shape, block) if kind is None else slices_of(op, weight, kind).of
        greatest = np.zeros(int(of.max(initial=0)) + 1)
        np.maximum.at(greatest, of.reshape(-1), rows.reshape(-1))
        plain = Slices(of, greatest, np.zeros(greatest.size), store, kind)
        found[op.name] = plain.rescaled(greatest / store.qmax)
    return found


def _is_laid(op: Op, weight: Reals) -> bool:
    """Whether a weight can be laid out in rows."""
    return op.type == "Conv" or (op.type in ("Gemm", "MatMul") and weight.ndim == 2)


def _numbered(shape: tuple[int, ...], block: int) -> npt.NDArray[np.int64]:
    """Slices of rows cut into blocks, the last maybe shorter; `shape` is (groups, n_out, n_in)."""
    groups, n_out, n_in = shape
    counts = -(-n_in // block)
    first = np.arange(groups * n_out).reshape(groups, n_out, 1) * counts
    numbers: npt.NDArray[np.int64] = first + np.arange(n_in) // block
    return numbers


def _kind(op: Op, weight: Reals, store: Storage, block: int) -> Uniform | None:
    """The type of a grid of rows or of blocks of them, its scales all 1; None where it has none."""
    out_axis = 0 if op.type == "Conv" or op.attributes.get("transB", 0) else 1
    if not block:
        return uniform(store, [1.0] * weight.shape[out_axis], axis=out_axis)
    if op.type == "Conv":
        return None
    blocks = {out_axis: 1, 1 - out_axis: block}
    grid = tuple(-(-size // blocks[axis]) for axis, size in enumerate(weight.shape))
    return sub_channel(store, [1.0] * (grid[0] * grid[1]), blocks=blocks, grid=grid)


def slices_of(op: Op, weight: Reals, kind: Uniform) -> Slices:
    """The slices of a weight under a type."""
    count = len(kind.scales)
    # Its own dequantization says which slice a weight is in: scales that count, of ones.
    numbered = replace(kind, scales=tuple(float(k + 1) for k in range(count)), zero_points=(0,) * count)
    ones = np.ones(weight.shape, stored_dtype(kind.storage))
    of = as_rows(op, dequantize_array(ones, numbered)).astype(np.int64) - 1
    return Slices(of, np.asarray(kind.scales), np.asarray(kind.zero_points, np.float64), kind.storage, kind)


def rounded(
    graph: Graph, slices: Mapping[str, Slices], met: Mapping[str, Patches], grams: Mapping[Patches, Reals]
) -> Rounded:
    """Round weights onto their grids so that the layers' outputs move least, and fix their types.

    Args:
      slices: the grid of each layer's weight, by op.
      met: what each layer's rows meet, by op.
      grams: H of that, `(groups, n_in, n_in)`; a layer without any stays.
    """
    arrays: dict[Key, Reals] = {}
    kinds: dict[str, Uniform] = {}
    left = [
        f"{name!r}: its input was not observed, or was not a number"
        for name in slices
        if name not in met or met[name] not in grams
    ]
    known: dict[Patches, list[tuple[Reals, Reals]]] = {}
    for op in graph.ops:
        patches = met.get(op.name)
        gram = None if patches is None else grams.get(patches)
        if patches is None or gram is None or op.name not in slices:
            continue
        # Layers that read the same have the same factors.
        if patches not in known:
            known[patches] = [factored(part) for part in gram]
        arrays[op.name, 1], kind = _on_grid(graph, op, slices[op.name], gram, known[patches])
        if kind is not None:
            kinds[op.name] = kind
    model, _ = pinned(with_operands(graph, arrays), kinds)
    before = {op.name: op for op in graph.ops}
    meant = {
        op.inputs[1]: np.asarray(graph.constants[before[op.name].inputs[1]].array)
        for op in model.ops
        if (op.name, 1) in arrays
    }
    return Rounded(model, meant, tuple(left))


def _on_grid(
    graph: Graph, op: Op, own: Slices, gram: Reals, factors: Sequence[tuple[Reals, Reals]]
) -> tuple[Reals, Uniform | None]:
    """A layer's weights on its grid, float32, and the type of that."""
    weight = np.asarray(graph.constants[op.inputs[1]].array)
    own, stored = _least(as_rows(op, weight).astype(np.float64), own, gram, factors)
    if own.kind is not None:
        integers = from_rows(op, stored, weight.shape).astype(stored_dtype(own.store))
        return dequantize_array(integers, own.kind), own.kind
    reals = (stored - own.zeros[own.of]).astype(np.float32) * own.scales[own.of].astype(np.float32)
    return from_rows(op, reals, weight.shape), None


def _least(
    rows: Reals, own: Slices, gram: Reals, factors: Sequence[tuple[Reals, Reals]]
) -> tuple[Slices, Reals]:
    """The grid, of those to be tried, and the stored integers that move each row's output least.

    Clipping by a narrower range affects all samples alike, which no sum over single weights shows: so rows
    are compared by their output's error, of all their weights together.
    """
    best, chosen, kept = np.full(rows.shape[:2], np.inf), own.scales.copy(), np.zeros_like(rows)
    is_shared = not _is_one_row_each(own.of)
    for tried, stored in _rounded_onto(list(_tried(rows, own, gram)), rows, factors):
        errors = (stored - own.zeros[own.of]) * tried.scales[own.of] - rows
        lost = np.einsum("goi,goi->go", errors @ gram, errors)
        is_better = np.broadcast_to(lost.sum() < best.sum(), lost.shape) if is_shared else lost < best
        best = np.where(is_better, lost, best)
        kept = np.where(is_better[..., None], stored, kept)
        slices = own.of[is_better]
        chosen[slices] = tried.scales[slices]
    return (own if np.array_equal(chosen, own.scales) else own.rescaled(chosen)), kept


def _rounded_onto(
    grids: Sequence[Slices], rows: Reals, factors: Sequence[tuple[Reals, Reals]]
) -> Iterator[tuple[Slices, Reals]]:
    """Rows rounded onto each of the grids; a row knows nothing of another, so several grids go at once."""
    at_once = max(1, AT_ONCE // max(1, rows.size))
    for begin in range(0, len(grids), at_once):
        part = grids[begin : begin + at_once]
        done = np.empty((len(part), *rows.shape))
        for group, known in enumerate(factors):
            wide = [tried.grid(group) for tried in part]
            scales, zeros = (
                np.concatenate([getattr(grid, name) for grid in wide]) for name in ("scales", "zeros")
            )
            whole = Grid(scales, zeros, wide[0].qmin, wide[0].qmax)
            stored = second_order(np.tile(rows[group], (len(part), 1)), whole, *known)
            done[:, group] = stored.reshape(len(part), *rows[group].shape)
        yield from zip(part, done, strict=True)


def _is_one_row_each(of: npt.NDArray[np.int64]) -> bool:
    """Whether every slice lies within one row."""
    rows = np.broadcast_to(np.arange(of.shape[0] * of.shape[1]).reshape(*of.shape[:2], 1), of.shape)
    first = np.full(int(of.max(initial=0)) + 1, -1)
    first[of.reshape(-1)] = rows.reshape(-1)
    return bool(np.all(first[of] == rows))


def _tried(rows: Reals, own: Slices, gram: Reals) -> Iterator[Slices]:
    """Grids to round onto: the range's own; below 8 bits narrower ones too, but for powers of two."""
    yield own
    if not own.may_narrow:
        return
    for share in SHARES:
        yield own.rescaled(own.scales * share)
    weights = np.maximum(np.diagonal(gram, axis1=1, axis2=2), 0)
    yield own.rescaled(narrowed(rows, own, weights))
