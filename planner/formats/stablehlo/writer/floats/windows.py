"""Windows and products: Conv, ConvTranspose, pooling, Gemm and MatMul on floats, and their geometry.

A transposed convolution is one with dilated input and a kernel turned round. Source: ONNX operator pages;
StableHLO convolution, dot_general, reduce_window.
"""

import numpy as np

from planner.formats.stablehlo.writer.calls import Call
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.movement import pool_window
from planner.formats.stablehlo.writer.operations import (
    Dots,
    Geometry,
    along,
    binary,
    convolution,
    dot_general,
    full,
    reduce,
    reduce_window,
    reshape,
    reverse,
    spread,
)
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ops.geometry.windows import conv_geometry, pool_geometry, window_counts

Results = tuple[Tensor, ...]


def conv_shape(op: Op, x: tuple[int, ...], w: tuple[int, ...]) -> Geometry:
    """Geometry of a Conv over shapes (N, C, *spatial) and (M, C / groups, *spatial)."""
    rank = len(x) - 2
    found = conv_geometry(op.attributes, x[2:], w[2:]).filled(rank)
    pads = tuple(zip(found.pads[:rank], found.pads[rank:], strict=True))
    return Geometry(found.strides, pads, (1,) * rank, found.dilations, found.group)


def transposed_shape(op: Op, x: tuple[int, ...], w: tuple[int, ...]) -> Geometry:
    """Geometry of a ConvTranspose whose kernel has been turned (`turned`)."""
    rank = len(x) - 2
    found = conv_geometry(op.attributes, x[2:], w[2:]).filled(rank)
    pads = []
    sizes = op.attributes.get("output_shape")
    for i in range(rank):
        reach = (w[2 + i] - 1) * found.dilations[i]
        low, high = found.pads[i], found.pads[rank + i]
        if sizes:
            total = (x[2 + i] - 1) * found.strides[i] + found.output_padding[i] + reach + 1 - sizes[-rank + i]
            is_upper = op.attributes.get("auto_pad", "NOTSET") == "SAME_UPPER"
            low = total // 2 if is_upper else total - total // 2
            high = total - low
        pads.append((reach - low, reach - high + found.output_padding[i]))
    ones = (1,) * rank
    return Geometry(ones, tuple(pads), found.strides, found.dilations, found.group, "io")


def turned(w: Array, groups: int) -> Array:
    """A ConvTranspose's kernel (C, M / groups, *rest) as (C / groups, M, *rest), the rest reversed."""
    flipped = w[(slice(None), slice(None), *(slice(None, None, -1) for _ in w.shape[2:]))]
    c, m = w.shape[:2]
    parts = flipped.reshape(groups, c // groups, m, *w.shape[2:])
    return np.ascontiguousarray(np.moveaxis(parts, 0, 1).reshape(c // groups, groups * m, *w.shape[2:]))


def conv(call: Call) -> Results:
    """A convolution with a bias."""
    x, w = call.x, call.tensor_of(1)
    return (_biased(call, convolution(call.p, x, w, conv_shape(call.op, x.shape, w.shape))),)


def conv_transpose(call: Call) -> Results:
    """A transposed convolution with a bias.

    Raises:
      UnsupportedExport: padding by name, or groups whose weights come at run time.
    """
    x, w, groups = call.x, call.tensor_of(1), call.attributes.get("group", 1)
    if call.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise call.refusal("auto_pad SAME of a transposed convolution; explicit pads are accepted")
    geometry = transposed_shape(call.op, x.shape, w.shape)
    known = call.known_of(1) if w.is_float else None
    if known is not None and groups > 1:
        return (
            _biased(
                call, convolution(call.p, x, call.p.constant(turned(known, groups), w.element), geometry)
            ),
        )
    if groups > 1:
        raise call.refusal("groups of a transposed convolution with weights known only at run time")
    flipped = reverse(call.p, w, tuple(range(2, w.rank)))
    return (_biased(call, convolution(call.p, x, flipped, geometry)),)


def completed(call: Call, products: Tensor) -> Tensor:
    """A Conv, Gemm or MatMul from its products: alpha, beta and bias."""
    if call.op.type == "Gemm":
        return _gemm_sum(call, products)
    return _biased(call, products) if call.op.type == "Conv" else products


def _biased(call: Call, y: Tensor) -> Tensor:
    if not call.has(2):
        return y
    return binary(call.p, "add", y, along(call.p, call.tensor_of(2), y.shape, 1))


def matmul_product(a: tuple[int, ...], b: tuple[int, ...]) -> Dots:
    """Axes of MatMul for equal batch axes, or a matrix on the right."""
    if len(b) <= 2:
        return Dots((), (), (len(a) - 1,), (max(0, len(b) - 2),))
    batch = tuple(range(len(a) - 2))
    return Dots(batch, batch, (len(a) - 1,), (len(b) - 2,))


def multiplied(p: Program, a: Tensor, b: Tensor, result: Uniform | None = None) -> Tensor:
    """MatMul: numpy's broadcasting of stacks; vectors too."""
    if a.rank == 1 or b.rank <= 2:
        if a.rank == 1 and b.rank > 2:
            row = multiplied(p, reshape(p, a, (1, *a.shape)), b, result)
            return reshape(p, row, (*row.shape[:-2], row.shape[-1]))
        return dot_general(p, a, b, matmul_product(a.shape, b.shape), result)
    stack = tuple(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    a, b = spread(p, a, (*stack, *a.shape[-2:])), spread(p, b, (*stack, *b.shape[-2:]))
    return dot_general(p, a, b, matmul_product(a.shape, b.shape), result)


def matmul(call: Call) -> Results:
    """A product of matrices, or of stacks of them."""
    return (multiplied(call.p, call.x, call.tensor_of(1)),)


def gemm_dots(op: Op) -> Dots:
    """Axes of Gemm."""
    return Dots(
        (), (), (0 if op.attributes.get("transA") else 1,), (1 if op.attributes.get("transB") else 0,)
    )


def gemm(call: Call) -> Results:
    """A product of matrices with factors and an addend."""
    return (_gemm_sum(call, dot_general(call.p, call.x, call.tensor_of(1), gemm_dots(call.op))),)


def _gemm_sum(call: Call, y: Tensor) -> Tensor:
    p, attributes = call.p, call.attributes
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    if alpha != 1.0:
        y = binary(p, "multiply", y, full(p, alpha, y))
    if not call.has(2):
        return y
    c = call.tensor_of(2)
    if beta != 1.0:
        c = binary(p, "multiply", c, full(p, beta, c))
    return binary(p, "add", y, c)


def average_pool(call: Call) -> Results:
    """The mean of each window."""
    p, x = call.p, call.x
    pool, includes = (
        pool_geometry(call.attributes, x.shape[2:]),
        bool(call.attributes.get("count_include_pad")),
    )
    total = reduce_window(p, "add", x, full(p, 0.0, x), pool_window(pool, x.shape))
    pixels = window_counts(x.shape[2:], pool, includes_padding=includes)
    counts = np.maximum(pixels, 1)[None, None].astype(np.float32)
    divisor = p.constant(counts.reshape(-1)[0].reshape(()), x.element)
    if np.unique(counts).size > 1:
        divisor = p.constant(counts, x.element)
    return (binary(p, "divide", total, divisor),)


def global_average_pool(call: Call) -> Results:
    """The mean of all places."""
    return (mean(call.p, call.x, call.axes()),)


def mean(p: Program, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Average along axes, which stay with size 1."""
    count = int(np.prod([x.shape[axis] for axis in axes]))
    total = summed(p, x, axes)
    return binary(p, "divide", total, full(p, count, x))


def summed(p: Program, x: Tensor, axes: tuple[int, ...], kind: str = "add", start: float = 0.0) -> Tensor:
    """Sum (or `maximum`, ...) along axes, which stay with size 1."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return reshape(p, reduce(p, kind, x, full(p, start, x), axes), kept)
