"""Movement: ONNX ops that only move elements, on floats, stored integers and quantized elements alike.

A quantized pad is the zero point, and a maximum starts from the least stored value.
Source: ONNX operator pages; StableHLO specification.
"""

import math
from collections.abc import Mapping
from itertools import groupby

import numpy as np

from planner.formats.stablehlo.writer.calls import Call, Maker
from planner.formats.stablehlo.writer.operations import (
    Window,
    binary,
    concatenate,
    cut,
    pad,
    part,
    reduce,
    reduce_window,
    reshape,
    reverse,
    select,
    spread,
    take,
    transpose,
)
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.ops import find_movements
from planner.ops.geometry.windows import PoolGeometry, pool_geometry, pooled_sizes
from planner.ops.steps import Movement, Pick, PickOfAll, Step, Turn, View

Results = tuple[Tensor, ...]


def moved(call: Call) -> Results:
    """An op by its definition: a reshape, transpose, slice or gather for each of its steps.

    Raises:
      UnsupportedExport: where elements come from is not known before running.
    """
    movements = find_movements(call.operands())
    if movements is None:
        raise call.refusal("where its elements come from is not known before running")
    return tuple(_made(call, movement) for movement in movements)


def _made(call: Call, movement: Movement) -> Tensor:
    xs = [call.tensor_of(i) for i in movement.operands]
    x = xs[0] if movement.joined is None else concatenate(call.p, xs, movement.joined)
    for is_cut, group in groupby(movement.steps, lambda step: _range(step) is not None):
        steps = tuple(group)
        if is_cut:
            x = _cut(call, x, dict(places for step in steps if (places := _range(step)) is not None))
        for step in () if is_cut else steps:
            x = _stepped(call, x, step)
    return x


def _range(step: Step) -> tuple[int, range] | None:
    """The axis and places of a slice."""
    if isinstance(step, Pick) and isinstance(step.places, range):
        return step.axis, step.places
    return None


def _cut(call: Call, x: Tensor, ranges: Mapping[int, range]) -> Tensor:
    """Slices step up; one that steps down is turned around behind it."""
    begin, end, step, turned = [0] * x.rank, list(x.shape), [1] * x.rank, []
    for axis, places in ranges.items():
        begin[axis], end[axis], step[axis] = places.start, max(places.start, places.stop), places.step
        if places.step < 0:
            begin[axis], end[axis] = (places[-1], places[0] + 1) if places else (0, 0)
            step[axis] = -places.step
            turned.append(axis)
    result = cut(call.p, x, begin, end, step)
    return reverse(call.p, result, turned) if turned else result


def _stepped(call: Call, x: Tensor, step: Step) -> Tensor:
    if isinstance(step, Turn):
        return transpose(call.p, x, step.order)
    if isinstance(step, Pick) and step.places is not None:
        return take(call.p, x, call.p.constant(np.asarray(step.places), "i64"), step.axis)
    if isinstance(step, PickOfAll):
        flat = reshape(call.p, x, (math.prod(x.shape),))
        return take(call.p, flat, call.p.constant(step.places, "i64"), 0)
    wanted = step.shape if isinstance(step, View) else None
    if wanted is None or not all(isinstance(size, int) for size in wanted):
        raise call.refusal("where its elements come from is not known before running")
    return reshape(call.p, x, tuple(size for size in wanted if isinstance(size, int)))


def padded(call: Call) -> Results:
    """Places around the operand, with one number, its edge or its reflection.

    Raises:
      UnsupportedExport: another mode or number, or more reflected than there is.
    """
    x, mode = call.x, call.attributes.get("mode", "constant")
    pads, axes = call.integers(1, "pads") or (), call.integers(3) or tuple(range(x.rank))
    value = call.known(2, "value")
    if mode not in ("constant", "edge", "reflect"):
        raise call.refusal(f"mode {mode!r}; constant, edge and reflect are accepted")
    low, high = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        low[axis % x.rank], high[axis % x.rank] = pads[i], pads[i + len(axes)]
    if mode == "reflect" and any(size <= max(ends) for size, *ends in zip(x.shape, low, high, strict=True)):
        raise call.refusal(
            "; ".join(filter(None, (f"reflected by more than {x.shape} has", call.left_open[0])))
        )
    if mode != "constant":
        return moved(call)
    number = 0.0 if value is None else float(value.reshape(()))
    if number and call.kind is not None:
        raise call.refusal("a stored tensor is padded with real zero only")
    return (pad(call.p, x, call.fill(number), low, high),)


def gather(call: Call) -> Results:
    """Entries along an axis, at places known now or when the program runs."""
    x, p = call.x, call.p
    axis = call.attributes.get("axis", 0) % x.rank
    known = call.known_of(1)
    if known is not None:
        places = known % x.shape[axis]
        if known.ndim == 0:
            kept = part(p, x, axis, int(places), int(places) + 1)
            return (reshape(p, kept, (*x.shape[:axis], *x.shape[axis + 1 :])),)
        return (take(p, x, p.constant(places.astype(np.int64), "i64"), axis),)
    # A negative index counts from the end; the operation itself would take it for 0.
    indices = call.tensor_of(1)
    size, zero = p.number(x.shape[axis], indices.element), p.number(0, indices.element)
    moved = binary(p, "add", indices, spread(p, size, indices.shape))
    is_negative = p.emit(
        "compare",
        [indices, spread(p, zero, indices.shape)],
        Tensor("", indices.shape, "i1"),
        attributes={"comparison_direction": "#stablehlo<comparison_direction LT>"},
    )
    return (take(p, x, select(p, is_negative, moved, indices), axis),)


def expand(call: Call) -> Results:
    """Repeat axes of size 1."""
    x = call.x
    shape = tuple(np.broadcast_shapes(x.shape, call.integers(1) or ()))
    return (spread(call.p, x, shape),)


def tile(call: Call) -> Results:
    """Repeat axes by concatenation."""
    x, repeats = call.x, call.integers(1) or ()
    for axis, count in enumerate(repeats):
        x = concatenate(call.p, [x] * count, axis)
    return (x,)


def max_pool(call: Call) -> Results:
    """The maximum of each window.

    Raises:
      UnsupportedExport: indices are read.
    """
    if any(call.op.outputs[1:]):
        raise call.refusal("indices of the maxima")
    x = call.x
    window = pool_window(pool_geometry(call.attributes, x.shape[2:]), x.shape)
    return (reduce_window(call.p, "maximum", x, call.fill(-math.inf), window),)


def pool_window(pool: PoolGeometry, shape: tuple[int, ...]) -> Window:
    """The window of a pooling over a channels-first shape, padded at the end so that all results fit."""
    geometry = pool.filled()
    sizes, pads = pooled_sizes(shape[2:], geometry), []
    for i, size in enumerate(sizes):
        span = (geometry.kernel[i] - 1) * geometry.dilations[i] + 1
        low = geometry.pads[i]
        pads.append((low, max(0, (size - 1) * geometry.strides[i] + span - shape[2 + i] - low)))
    ones = (1, 1)
    return Window(
        (*ones, *geometry.kernel),
        (*ones, *geometry.strides),
        (*ones, *geometry.dilations),
        ((0, 0), (0, 0), *pads),
    )


def global_max_pool(call: Call) -> Results:
    """The maximum of all places."""
    return (combined(call, "maximum", -math.inf, call.axes(), keeps=True),)


def reduce_extreme(kind: str, start: float) -> Maker:
    """The maximum or minimum along axes."""
    return lambda call: (combined(call, kind, start, call.axes(), keeps=keeps_axes(call)),)


def keeps_axes(call: Call) -> bool:
    """Whether reduced axes stay, of size 1."""
    return bool(call.attributes.get("keepdims", 1))


def combined(call: Call, kind: str, start: float, axes: tuple[int, ...], *, keeps: bool) -> Tensor:
    """A maximum or minimum along axes; over one window where elements are quantized."""
    x, p = call.x, call.p
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keeps else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if x.kind is None:
        return reshape(p, reduce(p, kind, x, call.fill(start), axes), shape)
    sizes = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    ones = (1,) * x.rank
    window = Window(sizes, ones, ones, ((0, 0),) * x.rank)
    return reshape(p, reduce_window(p, kind, x, call.fill(start), window), shape)


def extreme(kind: str) -> Maker:
    """The maximum or minimum of all operands."""

    def make(call: Call) -> Results:
        x = call.x
        for i in range(1, len(call.op.inputs)):
            x = binary(call.p, kind, x, call.tensor_of(i), call.kind if x.kind is not None else None)
        return (x,)

    return make


def where(call: Call) -> Results:
    """The second or third operand by a truth value; moves where these have one type."""
    a, b = call.tensor_of(1), call.tensor_of(2)
    return (select(call.p, call.tensor_of(0), a, b, a.kind),)
