"""Operations: one function per StableHLO operation, result shapes computed, on any element type.

Operands broadcast as in numpy where said. Source: StableHLO specification, "Ops".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.formats.mlir.generic import Block, Operation, array_text, dense_text, tensor_text
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.tensors import Tensor, plain, quantized
from planner.ir.types.qtypes import Uniform

Shape = tuple[int, ...]
_I64: Final = "i64"


def like(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A result of the same elements and another shape."""
    return Tensor("", tuple(shape), x.element, x.kind)


def unary(p: Program, kind: str, x: Tensor, result: Uniform | None = None) -> Tensor:
    """`exponential`, `tanh`, ...; of a quantized tensor to another quantized type."""
    return p.emit(kind, [x], x if result is None else quantized(x.shape, result))


def binary(p: Program, kind: str, a: Tensor, b: Tensor, result: Uniform | None = None) -> Tensor:
    """`add`, `maximum`, ... with numpy's broadcasting."""
    if a.shape != b.shape:
        shape = joined(a.shape, b.shape)
        a, b = spread(p, a, shape), spread(p, b, shape)
    return p.emit(kind, [a, b], a if result is None else quantized(a.shape, result))


def joined(*shapes: Shape) -> Shape:
    """The shape that shapes broadcast to."""
    some = {shape for shape in shapes if shape}
    return some.pop() if len(some) == 1 else tuple(np.broadcast_shapes(*shapes))


def spread(p: Program, x: Tensor, shape: Shape) -> Tensor:
    """Broadcast to a shape as numpy does."""
    if x.shape == shape:
        return x
    return broadcast(p, x, shape, tuple(range(len(shape) - x.rank, len(shape))))


def along(p: Program, x: Tensor, shape: Shape, axis: int) -> Tensor:
    """Broadcast a vector (or scalar) along one axis of a shape."""
    return broadcast(p, x, shape, () if x.rank == 0 else (axis,))


def broadcast(p: Program, x: Tensor, shape: Shape, dims: Shape) -> Tensor:
    """broadcast_in_dim; a quantization dimension moves along."""
    if x.shape == shape and dims == tuple(range(len(shape))):
        return x
    full = p.splat(x, shape) if x.rank == 0 else None
    if full is not None:
        return full
    result = like(x, shape)
    if x.kind is not None and x.kind.axis is not None:
        result = quantized(shape, replace(x.kind, axis=dims[x.kind.axis]))
    return p.emit("broadcast_in_dim", [x], result, numbers={"broadcast_dimensions": dims})


def reshape(p: Program, x: Tensor, shape: Shape) -> Tensor:
    """Another shape of as many elements; per-tensor types only."""
    return x if x.shape == shape else p.emit("reshape", [x], like(x, shape))


def transpose(p: Program, x: Tensor, order: Sequence[int]) -> Tensor:
    """Result axis i is operand axis `order[i]`."""
    if tuple(order) == tuple(range(x.rank)):
        return x
    result = like(x, [x.shape[axis] for axis in order])
    if x.kind is not None and x.kind.axis is not None:
        result = quantized(result.shape, replace(x.kind, axis=list(order).index(x.kind.axis)))
    return p.emit("transpose", [x], result, numbers={"permutation": tuple(order)})


def cut(p: Program, x: Tensor, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Tensor:
    """Slice with positive steps."""
    shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, stops, steps, strict=True)]
    if tuple(shape) == x.shape:
        return x
    numbers = {"start_indices": starts, "limit_indices": stops, "strides": steps}
    return p.emit("slice", [x], like(x, shape), numbers=numbers)


def part(p: Program, x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Slice along one axis."""
    starts, stops = [0] * x.rank, list(x.shape)
    starts[axis], stops[axis] = start, stop
    return cut(p, x, starts, stops, [1] * x.rank)


def pad(p: Program, x: Tensor, fill: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
    """Pad (or cut, where negative) with a scalar."""
    if not any(low) and not any(high):
        return x
    shape = [a + size + b for a, size, b in zip(low, x.shape, high, strict=True)]
    numbers = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": (0,) * x.rank}
    return p.emit("pad", [x, fill], like(x, shape), numbers=numbers)


def concatenate(p: Program, xs: Sequence[Tensor], axis: int) -> Tensor:
    """Join along an axis."""
    if len(xs) == 1:
        return xs[0]
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return p.emit("concatenate", xs, like(xs[0], shape), attributes={"dimension": f"{axis} : i64"})


def convert(p: Program, x: Tensor, element: str) -> Tensor:
    """Another plain element type."""
    return x if x.element == element else p.emit("convert", [x], plain(x.shape, element))


def compare(p: Program, a: Tensor, b: Tensor, direction: str) -> Tensor:
    """`EQ`, `NE`, `GE`, `GT`, `LE` or `LT`, with numpy's broadcasting."""
    shape = joined(a.shape, b.shape)
    attributes = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}
    sides = [spread(p, a, shape), spread(p, b, shape)]
    return p.emit("compare", sides, plain(shape, "i1"), attributes=attributes)


def select(p: Program, mask: Tensor, a: Tensor, b: Tensor, result: Uniform | None = None) -> Tensor:
    """Elements of a where the mask holds, else of b, with numpy's broadcasting."""
    shape = joined(mask.shape, a.shape, b.shape)
    operands = [spread(p, x, shape) for x in (mask, a, b)]
    return p.emit("select", operands, operands[1] if result is None else quantized(shape, result))


def clamp(p: Program, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """Between two scalars."""
    return p.emit("clamp", [low, x, high], x)


def body(kind: str, element: str) -> Block:
    """A region that combines two scalars."""
    scalar = tensor_text((), element)
    inner = (
        Operation(f"stablehlo.{kind}", ("l", "r"), (("o", scalar),)),
        Operation("stablehlo.return", ("o",)),
    )
    return Block((("l", scalar), ("r", scalar)), inner)


def reduce(p: Program, kind: str, x: Tensor, start: Tensor, axes: Sequence[int]) -> Tensor:
    """Combine along axes, which go."""
    shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
    numbers = {"dimensions": tuple(sorted(axes))}
    return p.emit("reduce", [x, start], like(x, shape), numbers=numbers, regions=(body(kind, x.element),))


@dataclass(frozen=True, slots=True)
class Window:
    """A window over all axes of a tensor.

    Attributes:
      pads: (low, high) per axis.
    """

    sizes: Shape
    strides: Shape
    dilations: Shape
    pads: tuple[tuple[int, int], ...]

    def shape_over(self, shape: Shape) -> Shape:
        """How many windows fit along each axis."""
        found = []
        for i, size in enumerate(shape):
            span = (self.sizes[i] - 1) * self.dilations[i] + 1
            found.append((size + sum(self.pads[i]) - span) // self.strides[i] + 1)
        return tuple(found)


def reduce_window(p: Program, kind: str, x: Tensor, start: Tensor, window: Window) -> Tensor:
    """Combine each window; padding counts as `start`."""
    numbers = {
        "window_dimensions": window.sizes,
        "window_strides": window.strides,
        "window_dilations": window.dilations,
    }
    attributes = {"padding": dense_text(np.asarray(window.pads, np.int64).reshape(-1, 2), _I64)}
    result = like(x, window.shape_over(x.shape))
    regions = (body(kind, x.element),)
    return p.emit(
        "reduce_window", [x, start], result, numbers=numbers, attributes=attributes, regions=regions
    )


@dataclass(frozen=True, slots=True)
class Dots:
    """Which axes a dot_general pairs."""

    lhs_batch: Shape
    rhs_batch: Shape
    lhs_contracting: Shape
    rhs_contracting: Shape


def dot_general(p: Program, a: Tensor, b: Tensor, dots: Dots, result: Uniform | None = None) -> Tensor:
    """Sums of products; the result has the batch axes, then those left of a, then those of b."""
    left = [n for i, n in enumerate(a.shape) if i not in (*dots.lhs_batch, *dots.lhs_contracting)]
    right = [n for i, n in enumerate(b.shape) if i not in (*dots.rhs_batch, *dots.rhs_contracting)]
    shape = (*(a.shape[i] for i in dots.lhs_batch), *left, *right)
    pairs = {
        "lhs_batching_dimensions": dots.lhs_batch,
        "rhs_batching_dimensions": dots.rhs_batch,
        "lhs_contracting_dimensions": dots.lhs_contracting,
        "rhs_contracting_dimensions": dots.rhs_contracting,
    }
    inner = ", ".join(f"{key} = {list(axes)}" for key, axes in pairs.items() if axes)
    return p.emit(
        "dot_general",
        [a, b],
        plain(shape, a.element) if result is None else quantized(shape, result),
        attributes={"dot_dimension_numbers": f"#stablehlo.dot<{inner}>"},
        numbers={"_rhs_contracting": dots.rhs_contracting},
    )


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution of a tensor with its channels first.

    Attributes:
      kernel: axes of the kernel: `oi` (out, in, *rest), `io` (in, out, *rest), `last` (*rest, in, out).
      is_last: whether the result has its channels last, instead of first.
    """

    strides: Shape
    pads: tuple[tuple[int, int], ...]
    lhs_dilations: Shape
    rhs_dilations: Shape
    groups: int = 1
    kernel: str = "oi"
    is_last: bool = False

    def kernel_axes(self) -> tuple[int, int]:
        """Output features and first spatial axis of the kernel."""
        rank = len(self.strides)
        return {"oi": (0, 2), "io": (1, 2), "last": (rank + 1, 0)}[self.kernel]


def convolution(
    p: Program, x: Tensor, w: Tensor, geometry: Geometry, result: Uniform | None = None
) -> Tensor:
    """A convolution over the spatial axes."""
    rank = x.rank - 2
    if _skips(w, geometry):
        # IREE's compiler refuses it with strides for its stack; what they leave out is left out first.
        x = cut(p, x, [0] * x.rank, x.shape, [1, 1, *geometry.strides])
        geometry = replace(geometry, strides=(1,) * rank)
    features, first = geometry.kernel_axes()
    spatial = []
    for i in range(rank):
        size = (x.shape[2 + i] - 1) * geometry.lhs_dilations[i] + 1 + sum(geometry.pads[i])
        span = (w.shape[first + i] - 1) * geometry.rhs_dilations[i] + 1
        spatial.append((size - span) // geometry.strides[i] + 1)
    channels = w.shape[features]
    shape = (x.shape[0], *spatial, channels) if geometry.is_last else (x.shape[0], channels, *spatial)
    axes = [str(i) for i in range(rank)]
    lhs = ", ".join(["b", "f", *axes])
    kernels = {"oi": ["o", "i", *axes], "io": ["i", "o", *axes], "last": [*axes, "i", "o"]}
    rhs = ", ".join(kernels[geometry.kernel])
    out = ", ".join(["b", *axes, "f"]) if geometry.is_last else lhs
    numbers = {
        "window_strides": geometry.strides,
        "lhs_dilation": geometry.lhs_dilations,
        "rhs_dilation": geometry.rhs_dilations,
        "_kernel_output_feature": (features,),
        "_output_feature": (rank + 1 if geometry.is_last else 1,),
    }
    attributes = {
        "padding": dense_text(np.asarray(geometry.pads, np.int64).reshape(-1, 2), _I64),
        "dimension_numbers": f"#stablehlo.conv<[{lhs}]x[{rhs}]->[{out}]>",
        "feature_group_count": f"{geometry.groups} : i64",
        "batch_group_count": "1 : i64",
    }
    held = plain(shape, x.element) if result is None else quantized(shape, result)
    return p.emit("convolution", [x, w], held, numbers=numbers, attributes=attributes)


def _skips(w: Tensor, geometry: Geometry) -> bool:
    """Whether a convolution of points leaves points out."""
    _, first = geometry.kernel_axes()
    rank = len(geometry.strides)
    plain = set(geometry.lhs_dilations) == {1} and not any(map(any, geometry.pads))
    return plain and set(w.shape[first : first + rank]) == {1} and max(geometry.strides) > 1


def take(p: Program, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Slices of x along an axis by indices of any shape, which take the axis' place."""
    rank = indices.rank
    offsets = [*range(axis), *range(axis + rank, axis + rank + x.rank - axis - 1)]
    sizes = [1 if i == axis else size for i, size in enumerate(x.shape)]
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    inner = (
        f"offset_dims = {offsets}, collapsed_slice_dims = [{axis}], "
        f"start_index_map = [{axis}], index_vector_dim = {rank}"
    )
    attributes = {
        "dimension_numbers": f"#stablehlo.gather<{inner}>",
        "slice_sizes": array_text(sizes),
        "indices_are_sorted": "false",
    }
    return p.emit("gather", [x, indices], like(x, shape), attributes=attributes)


def reverse(p: Program, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The order along axes turned round."""
    return p.emit("reverse", [x], x, numbers={"dimensions": tuple(axes)})


def full(p: Program, value: float, x: Tensor) -> Tensor:
    """A scalar of the elements of another (plain) tensor."""
    return p.number(value, x.element)


def quantize(p: Program, x: Tensor, kind: Uniform) -> Tensor:
    """uniform_quantize: of floats, or of quantized elements of another type."""
    return p.emit("uniform_quantize", [x], quantized(x.shape, kind))


def dequantize(p: Program, x: Tensor) -> Tensor:
    """uniform_dequantize to f32."""
    return p.emit("uniform_dequantize", [x], plain(x.shape, "f32"))
