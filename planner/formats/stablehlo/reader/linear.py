"""StableHLO's dot_general and convolution as ONNX's MatMul, Conv and ConvTranspose.

ONNX wants the matrices last and channels first: other layouts are transposed, constants at once. ONNX sums in
the element type of the operands, StableHLO in that of the result, so operands are cast to it.
A convolution of a dilated input is a ConvTranspose with the kernel turned round. Source: StableHLO
specification, `dot_general`, `convolution`; ONNX operators, opset 21.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from xdsl.ir import Operation, SSAValue

from planner.formats.mlir.attributes import value_of
from planner.formats.mlir.passes.quant_to_math_dots import dot_dimensions
from planner.formats.mlir.stablehlo_ops import items_of, name_of
from planner.formats.onnx.dtypes import enum_of
from planner.formats.stablehlo.reader.elementwise import Reader
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.reader.movement import number, numbers, sizes_of

_NUMBERS: Final = re.compile(r"\[(.*?)\]\s*x\s*\[(.*?)\]\s*->\s*\[(.*?)\]")
_DYNAMIC: Final = "its shapes are not known"
_REALS: Final = frozenset({"bf16", "f16", "f32", "f64"})
_SUMS: Final = frozenset({*_REALS, "i32", "i64", "u32", "u64"})
"""Element types that ONNX's MatMul has."""


def dot(draft: GraphBuilder, op: Operation) -> str:
    """Read a dot product as MatMul: batch axes first, one axis of rows, one of columns."""
    shapes = [sizes_of(value.type) for value in op.operands]
    result = sizes_of(op.results[0].type)
    left, right = shapes
    if left is None or right is None or result is None:
        return _DYNAMIC
    if name_of(op) == "stablehlo.dot":
        lists = {
            "lhs_batching": (),
            "rhs_batching": (),
            "lhs_contracting": (len(left) - 1,),
            "rhs_contracting": (0,),
        }
    else:
        lists = dot_dimensions(str(items_of(op).get("dot_dimension_numbers")))
    rows = _free(left, lists["lhs_batching"], lists["lhs_contracting"])
    columns = _free(right, lists["rhs_batching"], lists["rhs_contracting"])
    batch = [left[axis] for axis in lists["lhs_batching"]]
    depth = math.prod(left[axis] for axis in lists["lhs_contracting"])
    x = draft.transposed(
        draft.name(op.operands[0]), (*lists["lhs_batching"], *rows, *lists["lhs_contracting"])
    )
    y = draft.transposed(
        draft.name(op.operands[1]), (*lists["rhs_batching"], *lists["rhs_contracting"], *columns)
    )
    heights, widths = [left[axis] for axis in rows], [right[axis] for axis in columns]
    y = draft.reshaped(y, [*batch, depth, math.prod(widths)])
    if batch or not rows or len(lists["lhs_contracting"]) != 1:
        x = draft.reshaped(x, [*batch, math.prod(heights), depth])
        heights = [math.prod(heights)]
    made = [*batch, *heights, math.prod(widths)]
    kind = _dtype(op.results[0])
    # Sums modulo 2^32 are sums modulo 2^8 too.
    summed = kind if kind in _SUMS else "i32"
    x, y = (draft.cast(name, summed) for name in (x, y))
    if tuple(made) == result and summed == kind:
        draft.result("MatMul", [x, y], op.results[0])
        return ""
    product = draft.between("MatMul", [x, y], made)
    if summed != kind:
        product = draft.between("Cast", [product], made, {"to": enum_of(kind)}, kind)
    draft.result("Reshape", [product, draft.integers(result)], op.results[0])
    return ""


def _dtype(value: SSAValue) -> str:
    found = value_of("", value.type)
    return found.dtype if found is not None else ""


def _free(shape: Sequence[int], *taken: Sequence[int]) -> tuple[int, ...]:
    used = {axis for axes in taken for axis in axes}
    return tuple([axis for axis in range(len(shape)) if axis not in used])


def convolution(draft: GraphBuilder, op: Operation) -> str:
    """Read a convolution; channels first, whatever its own layout is."""
    match = _NUMBERS.search(str(items_of(op).get("dimension_numbers")))
    shapes = [sizes_of(value.type) for value in (*op.operands, op.results[0])]
    if match is None or any(shape is None for shape in shapes):
        return _DYNAMIC
    data, kernel, out = ([item.strip() for item in text.split(",")] for text in match.groups())
    count = len(data) - 2
    spatial = [str(i) for i in range(count)]
    wide = numbers(op, "lhs_dilation") or (1,) * count
    kinds = [_dtype(value) for value in (*op.operands, op.results[0])]
    if not set(kinds) <= _REALS:
        return f"ONNX convolves no {kinds[0]} and {kinds[1]} into {kinds[2]}"
    pads = pads_of(op, count)
    x = draft.transposed(draft.name(op.operands[0]), [data.index(item) for item in ("b", "f", *spatial)])
    w = draft.transposed(draft.name(op.operands[1]), [kernel.index(item) for item in ("o", "i", *spatial)])
    x, w = (draft.cast(name, kinds[2]) for name in (x, w))
    w = _reversed(draft, w, [axis for axis, turned in enumerate(numbers(op, "window_reversal")) if turned])
    groups = max(number(op, "batch_group_count"), 1)
    if groups > 1:
        x = _batch_in_groups(draft, x, groups)
    attributes: dict[str, Any] = {
        "dilations": numbers(op, "rhs_dilation") or (1,) * count,
        "group": max(number(op, "feature_group_count"), groups, 1),
        "kernel_shape": tuple(draft.shape(w) or ())[2:],
        "strides": numbers(op, "window_strides") or (1,) * count,
    }
    kind = "Conv"
    if any(step != 1 for step in wide):
        sizes = zip(attributes["dilations"], attributes["kernel_shape"], strict=True)
        reach = [step * (size - 1) for step, size in sizes]
        # A convolution over a dilated input is the transpose of a strided one: pad p of the one is
        # reach - p of the other, and the kernel is mirrored with its channels swapped. ONNX has no transpose
        # with less than no pad, so wider pads stand around data that is spread.
        crops = tuple([edge - given for edge, given in zip((*reach, *reach), pads, strict=True)])
        turned = _turned(draft, w, attributes["strides"], attributes["group"]) if min(crops) >= 0 else None
        if turned is None:
            x = _spread(draft, x, wide)
        else:
            kind, w, pads = "ConvTranspose", turned, crops
            attributes["strides"] = wide
    if not _leaves_some(draft.shape(x) or (), pads):  # what a pad takes is zeros of the other side, too
        x = _zeros_around(draft, x, [0, 0, *pads[:count], 0, 0, *pads[count:]])
        pads = tuple([min(pad, 0) for pad in pads])
    if min(pads, default=0) < 0:
        x, pads = _cropped(draft, x, pads)
    _finish(draft, op, (kind, [x, w], {**attributes, "pads": pads}), out, spatial)
    return ""


def _reversed(draft: GraphBuilder, w: str, axes: Sequence[int]) -> str:
    """Weights, channels first, turned round along some axes of space."""
    array, places = draft.array(w), tuple([axis + 2 for axis in axes])
    if not axes:
        return w
    if array is not None:
        flipped = np.ascontiguousarray(np.flip(array, places))
        return draft.constant(flipped, w, draft.read.stated.get(w, ()))
    back = [[-1] * len(axes), [-(1 << 31)] * len(axes), places, [-1] * len(axes)]
    return draft.between("Slice", [w, *map(draft.integers, back)], draft.shape(w) or ())


def _batch_in_groups(draft: GraphBuilder, x: str, groups: int) -> str:
    """Groups of the batch as groups of channels, which the kernel's outputs are split among alike."""
    batch, channels, *space = draft.shape(x) or ()
    x = draft.reshaped(x, [groups, batch // groups, channels, *space])
    x = draft.transposed(x, [1, 0, *range(2, len(space) + 3)])
    return draft.reshaped(x, [batch // groups, groups * channels, *space])


def _spread(draft: GraphBuilder, x: str, steps: Sequence[int]) -> str:
    """Data with `step - 1` zeros between neighbours along each axis of space."""
    batch, channels, *space = draft.shape(x) or ()
    apart = [size for length in space for size in (length, 1)]
    x = draft.reshaped(x, [batch, channels, *apart])
    ends = [0, 0, *(more for step in steps for more in (0, step - 1))]
    x = _zeros_around(draft, x, [0] * len(ends) + ends)
    x = draft.reshaped(x, [batch, channels, *(a * b for a, b in zip(space, steps, strict=True))])
    behind = tuple([1 - step for step in steps])
    return _cropped(draft, x, (*(0,) * len(steps), *behind))[0]


def _zeros_around(draft: GraphBuilder, x: str, pads: Sequence[int]) -> str:
    """Data with zeros around it; negative pads take nothing away."""
    pads = [max(pad, 0) for pad in pads]
    lows, highs = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    wide = [low + size + high for low, size, high in zip(lows, draft.shape(x) or (), highs, strict=True)]
    fill = draft.cast(draft.constant(np.array(0, np.float32), "zero"), draft.read.values[x].dtype)
    return draft.between("Pad", [x, draft.integers(pads), fill], wide, {"mode": "constant"})


def _cropped(draft: GraphBuilder, x: str, pads: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """Data without what negative pads take away, and the pads that are left."""
    shape = draft.shape(x) or ()
    count = len(pads) // 2
    cuts = [max(-pad, 0) for pad in pads]
    ends = [size - cut for size, cut in zip(shape[2:], cuts[count:], strict=True)]
    if any(cuts):
        axes = range(2, count + 2)
        made = [*shape[:2], *(end - start for start, end in zip(cuts[:count], ends, strict=True))]
        parts = [cuts[:count], ends, axes, [1] * count]
        x = draft.between("Slice", [x, *map(draft.integers, parts)], made)
    return x, tuple([max(pad, 0) for pad in pads])


def _leaves_some(shape: Sequence[int], pads: Sequence[int]) -> bool:
    """Whether negative pads leave some of the data of each axis."""
    lows, highs = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    return all(size + min(a, 0) + min(b, 0) > 0 for size, a, b in zip(shape[2:], lows, highs, strict=True))


def _finish(
    draft: GraphBuilder,
    op: Operation,
    made: tuple[str, list[str], dict[str, object]],
    out: Sequence[str],
    spatial: Sequence[str],
) -> None:
    """Add the op, and a transpose to the layout of the result where that is another."""
    kind, inputs, attributes = made
    plain = ["b", "f", *spatial]
    if list(out) == plain:
        draft.result(kind, inputs, op.results[0], attributes)
        return
    shape = sizes_of(op.results[0].type) or ()
    channels_first = draft.between(kind, inputs, [shape[out.index(item)] for item in plain], attributes)
    order = tuple([plain.index(item) for item in out])
    draft.result("Transpose", [channels_first], op.results[0], {"perm": order})


def pads_of(op: Operation, count: int) -> tuple[int, ...]:
    """All low paddings, then all high ones, as ONNX lists them."""
    given = numbers(op, "padding")
    if len(given) == 1:
        given = given * (2 * count)
    given = given or (0,) * (2 * count)
    # StableHLO lists (low, high) per axis, ONNX all lows and then all highs.
    return (*given[::2], *given[1::2])


def _turned(draft: GraphBuilder, w: str, strides: Sequence[int], group: int) -> str | None:
    """Weights of a ConvTranspose: input channels first, turned round in space; None where it cannot be."""
    array = draft.array(w)
    if array is None or group != 1 or any(step != 1 for step in strides):
        return None
    flipped = np.flip(array, tuple(range(2, array.ndim)))
    name = draft.constant(np.ascontiguousarray(flipped), w, draft.read.stated.get(w, ()))
    return draft.transposed(name, (1, 0, *range(2, array.ndim)))


LINEAR: Final[Mapping[str, Reader]] = {
    "stablehlo.convolution": convolution,
    "stablehlo.dot": dot,
    "stablehlo.dot_general": dot,
}
