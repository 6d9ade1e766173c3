"""Picks: operators whose result has elements of its operand at some places, axis by axis or of all.

Places that are constants are followed; those computed at run time are not.
Source: ONNX Slice, Split, Pad, Expand, Tile, Gather, GatherND, GatherElements, Concat.
"""

from math import prod

import numpy as np

from planner.ir.graph import Dim
from planner.ops.operands import Operands
from planner.ops.steps import FILLED, Array, Movement, Pick, PickOfAll, Places, Step, View


def joined(known: Operands) -> tuple[Movement, ...] | None:
    """All operands along an axis."""
    shape = known.shape()
    if shape is None or "axis" not in known.op.attributes:
        return None
    operands = tuple(range(len(known.op.inputs)))
    return (Movement((), operands, int(known.op.attributes["axis"]) % len(shape)),)


def sliced(known: Operands) -> tuple[Movement, ...] | None:
    """Ranges along axes."""
    shape = known.shape()
    starts, ends = known.integers(1, "starts"), known.integers(2, "ends")
    if shape is None or starts is None or ends is None:
        return None
    axes = known.integers(3, "axes", list(range(len(starts))))
    steps = known.integers(4, "steps", [1] * len(starts))
    if axes is None or steps is None:
        return None
    picks = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis % len(shape)]
        places = _sliced(size, start, end, step) if isinstance(size, int) else None
        picks.append(Pick(axis % len(shape), places))
    return (Movement(tuple(picks)),)


def _sliced(size: int, start: int, end: int, step: int) -> range:
    """Places of a slice; unlike Python's, one that steps down from before the first element has that one."""
    first, last = (at + size if at < 0 else at for at in (start, end))
    low, high = (0, size) if step > 0 else (-1, size - 1)
    return range(min(max(first, 0), high), min(max(last, low), high), step)


def split(known: Operands) -> tuple[Movement, ...] | None:
    """Parts along an axis, of the sizes given or alike, the last one shorter."""
    shape, count = known.shape(), len(known.op.outputs)
    if shape is None:
        return None
    axis = int(known.op.attributes.get("axis", 0)) % len(shape)
    size, sizes = shape[axis], known.integers(1, "split")
    if known.is_given(1) and sizes is None:
        return None
    if sizes is None:
        if not isinstance(size, int):
            return tuple(Movement((Pick(axis, None),)) for _ in range(count))
        each = -(-size // count)
        sizes = [min(each, size - i * each) for i in range(count)]
    ends = np.cumsum(sizes).tolist()
    return tuple(
        Movement((Pick(axis, range(end - part, end)),)) for end, part in zip(ends, sizes, strict=True)
    )


def padded(known: Operands) -> tuple[Movement, ...] | None:
    """Places around the operand, and fewer of it where a pad is negative."""
    shape, pads = known.shape(), known.integers(1, "pads")
    axes = known.integers(3, "", list(range(len(shape or ()))))
    mode = known.op.attributes.get("mode", "constant")
    if shape is None or pads is None or axes is None:
        return None
    picks = []
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        if before or after:
            places = _around(shape[axis % len(shape)], before, after, mode)
            picks.append(Pick(axis % len(shape), places))
    return (Movement(tuple(picks)),)


def _around(size: Dim, before: int, after: int, mode: str) -> Places | None:
    if not isinstance(size, int):
        return None
    widths = max(0, before), max(0, after)
    if mode == "constant":
        places = np.pad(np.arange(size), widths, constant_values=FILLED)
        return places[max(0, -before) : len(places) - max(0, -after)]
    # What is cut off is no more there to be repeated.
    places = np.arange(size)[max(0, -before) : max(0, size + min(0, after))]
    if not places.size or (mode == "reflect" and max(widths) >= places.size):
        # Nothing lies there to be reflected; numpy would go back and forth.
        return None
    return np.asarray(np.pad(places, widths, mode=mode))  # type: ignore[call-overload]


def expanded(known: Operands) -> tuple[Movement, ...] | None:
    """Repeat axes of size 1 up to the given shape, with new axes in front."""
    shape, asked = known.shape(), known.integers(1)
    if shape is None or asked is None:
        return None
    rank = max(len(shape), len(asked))
    wide, wanted = (1,) * (rank - len(shape)) + shape, [1] * (rank - len(asked)) + asked
    steps: list[Step] = [] if len(shape) == rank else [View(wide)]
    for axis, (size, times) in enumerate(zip(wide, wanted, strict=True)):
        if times != 1 and size == 1:
            steps.append(Pick(axis, np.zeros(times, np.int64)))
        elif not isinstance(size, int) and times != 1:
            return None
    return (Movement(tuple(steps)),)


def tiled(known: Operands) -> tuple[Movement, ...] | None:
    """Repeat every axis the given number of times."""
    shape, repeats = known.shape(), known.integers(1)
    if shape is None or repeats is None:
        return None
    picks = []
    for axis, (size, times) in enumerate(zip(shape, repeats, strict=True)):
        if times != 1:
            picks.append(Pick(axis, np.tile(np.arange(size), times) if isinstance(size, int) else None))
    return (Movement(tuple(picks)),)


def gathered(known: Operands) -> tuple[Movement, ...] | None:
    """Entries along an axis, in the shape of the indices."""
    shape, indices = known.shape(), known.array(1)
    if shape is None or indices is None:
        return None
    axis = int(known.op.attributes.get("axis", 0)) % len(shape)
    places = _counted(indices, shape[axis])
    pick = Pick(axis, None if places is None else places.reshape(-1))
    if indices.ndim == 1:
        return (Movement((pick,)),)
    return (Movement((pick, View((*shape[:axis], *indices.shape, *shape[axis + 1 :])))),)


def _counted(indices: Array, size: Dim) -> Array | None:
    """Indices from the front; None where the size is open, or one lies outside."""
    if not isinstance(size, int) or (indices < -size).any() or (indices >= size).any():
        return None
    return np.where(indices < 0, indices + size, indices).astype(np.int64)


def gathered_by_tuples(known: Operands) -> tuple[Movement, ...] | None:
    """Slices at tuples of indices into the first axes."""
    sizes, indices = _whole(known), known.array(1)
    if sizes is None or indices is None or known.op.attributes.get("batch_dims", 0):
        return None
    depth = indices.shape[-1]
    found = [_counted(indices[..., i], sizes[i]) for i in range(depth)]
    at = [part for part in found if part is not None]
    if len(at) < depth:
        return None
    places = np.ravel_multi_index(at, sizes[:depth]).reshape(-1).astype(np.int64)
    steps = View((prod(sizes[:depth]), *sizes[depth:])), Pick(0, places)
    return (Movement((*steps, View((*indices.shape[:-1], *sizes[depth:])))),)


def gathered_by_elements(known: Operands) -> tuple[Movement, ...] | None:
    """At each place, the entry along an axis that the index there names."""
    sizes, indices = _whole(known), known.array(1)
    if sizes is None or indices is None:
        return None
    axis = int(known.op.attributes.get("axis", 0)) % len(sizes)
    along = _counted(indices, sizes[axis])
    if along is None:
        return None
    at: list[Array] = list(np.indices(indices.shape, sparse=True))
    at[axis] = along
    return (Movement((PickOfAll(np.ravel_multi_index(at, sizes).astype(np.int64)),)),)


def reversed_sequences(known: Operands) -> tuple[Movement, ...] | None:
    """Each sequence of a batch turned around up to its length."""
    sizes, lengths = _whole(known), known.array(1)
    if sizes is None or lengths is None:
        return None
    time, batch = (
        int(known.op.attributes.get(f"{word}_axis", i)) for i, word in enumerate(("time", "batch"))
    )
    steps = np.arange(sizes[time])
    if lengths.shape != (sizes[batch],) or (lengths < 0).any() or (lengths > sizes[time]).any():
        return None
    if np.unique(lengths).size == 1:
        return (Movement((Pick(time, _reversed(steps, lengths.reshape(-1)[0])),)),)
    at: list[Array] = list(np.indices(sizes, sparse=True))
    at[time] = _reversed(at[time], lengths[at[batch]])
    return (Movement((PickOfAll(np.ravel_multi_index(at, sizes).astype(np.int64)),)),)


def _reversed(steps: Array, length: Array) -> Array:
    return np.where(steps < length, length - 1 - steps, steps).astype(np.int64)


def _whole(known: Operands) -> tuple[int, ...] | None:
    """Sizes of the first operand; None where one is open."""
    shape = known.shape()
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return None if shape is None or len(sizes) < len(shape) else sizes
