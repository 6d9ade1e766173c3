"""Pooling and reductions: AVERAGE_POOL_2D, MAX_POOL_2D, MEAN, SUM, REDUCE_MAX, REDUCE_MIN.

AVERAGE_POOL_2D divides by what is there. Padding that counts is a PAD in front of it; padding of another kind
than SAME's has operators in float alone, where a MUL takes the zeros out of the count.
Source: TensorFlow Lite's reference kernels.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from planner.formats.common.layouts import axes_of, channels_last, plain
from planner.formats.litert.vocabulary import POOLS, REDUCTIONS
from planner.formats.litert.writer.calls import Call
from planner.formats.litert.writer.geometry import VALID, Windows, lowest, padded, padded_with, windows_over
from planner.formats.litert.writer.operations import Tensor
from planner.ir.types.qtypes import Uniform
from planner.ops.geometry.windows import pool_geometry, pooled_sizes, window_counts

_SPATIAL: Final = (2, 3)
"""Height and width, in the order of the model."""
_GLOBAL: Final = {"GlobalAveragePool": "MEAN", "GlobalMaxPool": "REDUCE_MAX"}


def average_pool(call: Call) -> Sequence[Tensor] | None:
    """AveragePool over one or two axes; of integers in windows of SAME or VALID, or of pads that count."""
    own, includes = call.last().sizes[2:], bool(call.op.attributes.get("count_include_pad"))
    x, windows = _opened(call)
    if windows.dilations != (1, 1):
        return None
    spatial, padding, geometry = (
        x.sizes[2:],
        windows.padding(x.sizes[2:]),
        pool_geometry(call.op.attributes, own),
    )
    inside, counted = (
        window_counts(own, geometry, includes_padding=pads).reshape(windows.count)
        for pads in (False, includes)
    )
    if padding is not None and np.array_equal(counted, inside):
        return [_back(call, _pooled(call, x, windows, padding))]
    more = prod(windows.kernel) / counted
    if call.y is not None and not np.all(more == 1):
        raise call.builder.refuse(
            f"AveragePool pads by {list(windows.pads)}; AVERAGE_POOL_2D accepts no padding, or that of SAME: "
            f"{list(_same(windows, spatial))} here, or one that counts"
        )
    top, left, bottom, right = windows.missing(spatial)
    x = padded(call.builder.program, x, {1: (top, bottom), 2: (left, right)}, call.stem)
    result = _pooled(call, x, windows, VALID)
    if not np.all(more == 1):
        factor = more.astype(np.float32)[None, None]
        factors = call.builder.program.constant(factor, "f32", f"{call.stem}_more", order=channels_last(4))
        result = call.emit("MUL", (result, factors), result, "MulOptions", {})
    return [_back(call, result)]


def max_pool(call: Call) -> Sequence[Tensor] | None:
    """MaxPool over one or two spatial axes, without dilations."""
    if len(call.op.outputs) > 1 and call.op.outputs[1]:
        return None
    x, windows = _opened(call)
    if windows.dilations != (1, 1):
        return None
    padding = windows.padding(x.sizes[2:])
    if padding is None:
        top, left, bottom, right = windows.missing(x.sizes[2:])
        amounts = {1: (top, bottom), 2: (left, right)}
        x = padded_with(call.builder.program, x, amounts, lowest(call.y), call.stem)
        padding = VALID
    return [_back(call, _pooled(call, x, windows, padding))]


def global_pool(call: Call) -> Sequence[Tensor] | None:
    """GlobalAveragePool and GlobalMaxPool: reductions over the spatial axes."""
    x = call.last()
    return [_reduced(call, _GLOBAL[call.op.type], x, range(2, len(x.shape)), keeps=True)]


def reduction(call: Call) -> Sequence[Tensor] | None:
    """ReduceMax, ReduceMean, ReduceMin and ReduceSum over constant axes."""
    x = call.tensor(0)
    axes = axes_of(call.builder.values, call.op, len(x.shape))
    if axes is None:
        return None
    if tuple(axes) == _SPATIAL and len(x.shape) == 4:
        # As a pool over the whole image: an NPU reduces over height and width of NHWC, not over its depth.
        x = call.last()
    keeps = bool(call.op.attributes.get("keepdims", 1))
    if call.op.type == "ReduceSum" and call.y is not None:
        return [_summed(call, x, axes, keeps=keeps)]
    return [_reduced(call, REDUCTIONS[call.op.type].operator, x, axes, keeps=keeps)]


def _summed(call: Call, x: Tensor, axes: Sequence[int], *, keeps: bool) -> Tensor:
    """A sum of stored integers: a MEAN, whose result has the same integers in finer steps, times the count.

    SUM's reference kernel leaves the zero point of its result out, and where both types are one, or 16 bits,
    SUM leaves scales and zero points in.
    """
    y, count = _stored_result(call), prod(x.sizes[axis] for axis in axes)
    fine = replace(y, scales=(float(np.float32(y.scale / count)),))
    mean = _reduced(replace(call, y=fine), "MEAN", x, axes, keeps=keeps)
    one = Uniform(y.storage, (float(count),), (0,))
    number = np.ones((1,) * len(mean.shape))
    times = call.builder.program.constant(number, mean.element, f"{call.stem}_count", kind=one)
    return call.emit("MUL", (mean, times), replace(mean, kind=y), "MulOptions", {})


def _stored_result(call: Call) -> Uniform:
    if call.y is None:
        raise TypeError(f"{call.stem!r} is float")
    return call.y


def _reduced(call: Call, operator: str, x: Tensor, axes: Sequence[int], *, keeps: bool) -> Tensor:
    places = call.builder.program.numbers(sorted(x.at(axis) for axis in axes), "axes")
    shape = [1 if x.order[i] in axes else size for i, size in enumerate(x.shape)]
    order = x.order
    if not keeps:
        shape = [size for i, size in enumerate(x.shape) if x.order[i] not in axes]
        order = tuple(axis - sum(gone < axis for gone in axes) for axis in x.order if axis not in axes)
    like = call.like(shape, order, "" if x.element in ("f32", "i8", "i16") else x.element)
    return call.emit(operator, (x, places), like, "ReducerOptions", {"KeepDims": keeps})


def _opened(call: Call) -> tuple[Tensor, Windows]:
    """The input with its channels last and two spatial axes, and the windows over it."""
    x = call.last()
    spatial = x.sizes[2:]
    if len(spatial) not in (1, 2):
        raise call.builder.refuse(
            f"{call.op.type} over {len(spatial)} spatial axes; litert accepts windows over one or two"
        )
    geometry = pool_geometry(call.op.attributes, spatial).filled()
    count = pooled_sizes(spatial, geometry)
    windows = windows_over(geometry.kernel, geometry.strides, geometry.dilations, geometry.pads, count)
    return call.image(), windows


def _pooled(call: Call, x: Tensor, windows: Windows, padding: int) -> Tensor:
    like = call.like((x.shape[0], *windows.count, x.shape[3]), x.order)
    options = {**windows.pool_options(padding), "FusedActivationFunction": call.activation}
    return call.emit(POOLS[call.op.type], [x], like, "Pool2DOptions", options)


def _back(call: Call, result: Tensor) -> Tensor:
    """A pool's result with the spatial axes that its model has."""
    return call.builder.program.out_of_image(result, len(call.builder.sizes(call.op.inputs[0])))


def _same(windows: Windows, spatial: Sequence[int]) -> tuple[int, ...]:
    """The padding of SAME: begins, then ends."""
    count = [-(-size // stride) for size, stride in zip(spatial, windows.strides, strict=True)]
    totals = [
        max(0, (count[i] - 1) * windows.strides[i] + windows.reach[i] - size)
        for i, size in enumerate(spatial)
    ]
    return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))


def argmax(call: Call) -> Sequence[Tensor] | None:
    """ArgMax: the first of equal ones; its indices are i64, as the model's are."""
    op, x = call.op, call.tensor(0)
    if op.attributes.get("select_last_index"):
        return None
    axis = op.attributes.get("axis", 0) % len(x.shape)
    # The axis last, as others have it: an NPU goes through no other.
    rest = [i for i in x.order if i != axis]
    x = call.builder.program.ordered(x, (*rest, axis))
    at = x.at(axis)
    order = tuple(i - (i > axis) for i in x.order if i != axis)
    like = replace(call.like((*x.shape[:at], *x.shape[at + 1 :]), order, "i64"), kind=None)
    operands = (x, call.builder.program.numbers([at], "axis"))
    found = call.emit("ARG_MAX", operands, like, "ArgMaxOptions", {"OutputType": _INT64})
    if not op.attributes.get("keepdims", 1):
        return [found]
    found = call.builder.program.ordered(found, plain(len(order)))
    kept = [1 if i == axis else size for i, size in enumerate(x.sizes)]
    return [call.builder.program.reshaped(found, kept)]


_INT64: Final = 4
