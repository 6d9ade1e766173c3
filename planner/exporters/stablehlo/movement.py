"""Movement: ONNX ops that only move elements, on floats, stored integers and quantized elements alike.

A quantized pad is the zero point, and a maximum starts from the least stored value.
Source: ONNX operator pages; StableHLO specification.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.exporters.stablehlo.calls import Call, Maker
from planner.exporters.stablehlo.floats.resizing import nearest_places
from planner.exporters.stablehlo.operations import (
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
from planner.exporters.stablehlo.tensors import Tensor
from planner.interpreter.kernels.geometry import pool_geometry
from planner.interpreter.kernels.pooling import pooled_sizes

Results = tuple[Tensor, ...]


def _identity(call: Call) -> Results:
    return (call.x,)


def _reshape(call: Call) -> Results:
    wanted, x = list(call.integers(1) or ()), call.x
    if not call.attributes.get("allowzero"):
        wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    if -1 in wanted:
        rest = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = math.prod(x.shape) // max(1, rest)
    return (reshape(call.p, x, tuple(wanted)),)


def _flatten(call: Call) -> Results:
    x, axis = call.x, call.attributes.get("axis", 1)
    axis += x.rank if axis < 0 else 0
    return (reshape(call.p, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))),)


def _squeeze(call: Call) -> Results:
    x, axes = call.x, call.integers(1, "axes")
    gone = {a % x.rank for a in axes} if axes is not None else {i for i, n in enumerate(x.shape) if n == 1}
    return (reshape(call.p, x, tuple(n for i, n in enumerate(x.shape) if i not in gone)),)


def _unsqueeze(call: Call) -> Results:
    x, axes = call.x, call.integers(1, "axes") or ()
    rank = x.rank + len(axes)
    new, sizes = {a % rank for a in axes}, iter(x.shape)
    return (reshape(call.p, x, tuple(1 if i in new else next(sizes) for i in range(rank))),)


def _transpose(call: Call) -> Results:
    x = call.x
    return (transpose(call.p, x, call.attributes.get("perm") or tuple(reversed(range(x.rank)))),)


def _slice(call: Call) -> Results:
    x = call.x
    starts, stops = call.integers(1, "starts") or (), call.integers(2, "ends") or ()
    axes = call.integers(3, "axes") or tuple(range(len(starts)))
    steps = call.integers(4, "steps") or (1,) * len(starts)
    begin, end, step, turned = [0] * x.rank, list(x.shape), [1] * x.rank, []
    for start, stop, axis, stride in zip(starts, stops, axes, steps, strict=True):
        at = axis % x.rank
        first, last, by = slice(start, stop, stride).indices(x.shape[at])
        if by < 0:
            count = max(0, -(-(first - last) // -by))
            first, last, by = first + (count - 1) * by, first + 1, -by
            turned.append(at)
        begin[at], end[at], step[at] = first, max(first, last), by
    result = cut(call.p, x, begin, end, step)
    return (reverse(call.p, result, turned) if turned else result,)


def _split(call: Call) -> Results:
    x, axis = call.x, call.attributes.get("axis", 0) % call.x.rank
    sizes, count = call.integers(1, "split"), len(call.op.outputs)
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = tuple(min(each, x.shape[axis] - i * each) for i in range(count))
    ends = np.cumsum(sizes).tolist()
    return tuple(part(call.p, x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True))


def _pad(call: Call) -> Results:
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
        return (_padded_by_places(call, x, low, high, mode),)
    number = 0.0 if value is None else float(value.reshape(()))
    if number and call.kind is not None:
        raise call.refusal("a stored tensor is padded with real zero only")
    return (pad(call.p, x, call.fill(number), low, high),)


def _padded_by_places(call: Call, x: Tensor, low: Sequence[int], high: Sequence[int], mode: str) -> Tensor:
    for axis in range(x.rank):
        if low[axis] or high[axis]:
            places = np.pad(np.arange(x.shape[axis]), (low[axis], high[axis]), mode=mode)  # type: ignore[call-overload]
            x = take(call.p, x, call.p.constant(places, "i64"), axis)
    return x


def _gather(call: Call) -> Results:
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


def _expand(call: Call) -> Results:
    x = call.x
    shape = tuple(np.broadcast_shapes(x.shape, call.integers(1) or ()))
    return (spread(call.p, x, shape),)


def _tile(call: Call) -> Results:
    x, repeats = call.x, call.integers(1) or ()
    for axis, count in enumerate(repeats):
        x = concatenate(call.p, [x] * count, axis)
    return (x,)


def _concat(call: Call) -> Results:
    xs = [call.tensor_of(i) for i in range(len(call.op.inputs))]
    return (concatenate(call.p, xs, call.attributes["axis"] % xs[0].rank),)


def _depth_to_space(call: Call) -> Results:
    x, block = call.x, call.attributes["blocksize"]
    n, c, h, w = x.shape
    if call.attributes.get("mode", "DCR") == "DCR":
        split, order = (n, block, block, c // block**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, c // block**2, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = transpose(call.p, reshape(call.p, x, split), order)
    return (reshape(call.p, moved, (n, c // block**2, h * block, w * block)),)


def _space_to_depth(call: Call) -> Results:
    x, block = call.x, call.attributes["blocksize"]
    n, c, h, w = x.shape
    split = reshape(call.p, x, (n, c, h // block, block, w // block, block))
    moved = transpose(call.p, split, (0, 3, 5, 1, 2, 4))
    return (reshape(call.p, moved, (n, c * block**2, h // block, w // block)),)


def _max_pool(call: Call) -> Results:
    if any(call.op.outputs[1:]):
        raise call.refusal("indices of the maxima")
    x = call.x
    return (reduce_window(call.p, "maximum", x, call.fill(-math.inf), pool_window(call, x.shape)),)


def pool_window(call: Call, shape: tuple[int, ...]) -> Window:
    """The window of a pooling over a channels-first shape, padded at the end so that all results fit."""
    geometry = pool_geometry(call.attributes, shape[2:]).filled()
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


def _global_max_pool(call: Call) -> Results:
    return (combined(call, "maximum", -math.inf, tuple(range(2, call.x.rank)), keeps=True),)


def _reduce_max(call: Call) -> Results:
    return (combined(call, "maximum", -math.inf, reduced_axes(call), keeps=keeps_axes(call)),)


def _reduce_min(call: Call) -> Results:
    return (combined(call, "minimum", math.inf, reduced_axes(call), keeps=keeps_axes(call)),)


def reduced_axes(call: Call) -> tuple[int, ...]:
    """Axes of a reduction; all of them by default."""
    axes, rank = call.integers(1, "axes"), call.x.rank
    if not axes:
        return () if call.attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in axes))


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


def _resize(call: Call) -> Results:
    x = call.x
    for axis, places in nearest_places(call, x.shape).items():
        x = take(call.p, x, call.p.constant(places, "i64"), axis)
    return (x,)


def _extreme(kind: str) -> Maker:
    def make(call: Call) -> Results:
        x = call.x
        for i in range(1, len(call.op.inputs)):
            x = binary(call.p, kind, x, call.tensor_of(i), call.kind if x.kind is not None else None)
        return (x,)

    return make


def _where(call: Call) -> Results:
    a, b = call.tensor_of(1), call.tensor_of(2)
    return (select(call.p, call.tensor_of(0), a, b, a.kind),)


MOVEMENT: Final[Mapping[str, Maker]] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Dropout": _identity,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GlobalMaxPool": _global_max_pool,
    "Identity": _identity,
    "Max": _extreme("maximum"),
    "MaxPool": _max_pool,
    "Min": _extreme("minimum"),
    "Pad": _pad,
    "ReduceMax": _reduce_max,
    "ReduceMin": _reduce_min,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
    "Where": _where,
}
"""Makers by ONNX op type; `Where` moves where its branches have one type."""
