"""Movement: ops whose results are elements of their operands, on stored integers, floats and indices alike.

A TRANSPOSE of the model is no operator, only another order of the same tensor. An op that picks elements axis
by axis (slices, tiles, nearest resizes, reflecting pads) is SLICE where they are contiguous, STRIDED_SLICE
where they are evenly spaced, TILE where the axis repeats, else GATHER along that axis.
Source: TensorFlow Lite, builtin operators; ONNX.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.layouts import channels_last, cut_and_grown, filling_of, pads_of, plain
from planner.formats.common.moves import Lowering, movements_of
from planner.formats.common.values import Array
from planner.formats.litert.vocabulary import BLOCKS
from planner.formats.litert.writer.calls import Call
from planner.formats.litert.writer.elementwise import aligned, onto
from planner.formats.litert.writer.geometry import padded, padded_with
from planner.formats.litert.writer.operations import Options, Tensor
from planner.ops.geometry.resizing import follows_sizes
from planner.ops.operands import Operands
from planner.ops.steps import Pick, View

_LAST: Final = channels_last(4)


def moved(call: Call) -> Sequence[Tensor] | None:
    """An op by its definition."""
    builder = call.builder
    lowering = Lowering(builder.program, builder.values, builder.sizes, partial(picked, call))
    return lowering.moved(call.op, call.tensor(0))


def concat(call: Call) -> Sequence[Tensor] | None:
    """Concat: CONCATENATION takes one type, so operands of others are requantized in front of it."""
    tensors = aligned(call, range(len(call.op.inputs)))
    tensors = [onto(call, i, tensor) for i, tensor in enumerate(tensors)]
    first = tensors[0]
    at = first.at(call.op.attributes["axis"] % len(first.shape))
    shape = list(first.shape)
    shape[at] = sum(tensor.shape[at] for tensor in tensors)
    like = replace(first, shape=tuple(shape), kind=call.y)
    options = {"Axis": at, "FusedActivationFunction": call.activation}
    return [call.emit("CONCATENATION", tensors, like, "ConcatenationOptions", options)]


def gather(call: Call) -> Sequence[Tensor] | None:
    """Gather by constant indices, or by indices computed or given (not below 0, as GATHER has them)."""
    x, op, program = call.tensor(0), call.op, call.builder.program
    axis = op.attributes.get("axis", 0) % len(x.shape)
    x = program.ordered(x, plain(len(x.shape)))
    if call.builder.values.is_constant(op.inputs[1]):
        given = call.builder.values.array(op.inputs[1])
        at = program.constant(np.where(given < 0, given + x.sizes[axis], given), "i32", op.inputs[1])
    else:
        at = program.ordered(call.tensor(1), plain(len(call.builder.sizes(op.inputs[1]))))
    shape = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
    like = replace(x, shape=shape, order=plain(len(shape)))
    return [call.emit("GATHER", (x, at), like, "GatherOptions", {"Axis": axis})]


def gather_nd(call: Call) -> Sequence[Tensor] | None:
    """GatherND without batch axes."""
    op, program = call.op, call.builder.program
    if op.attributes.get("batch_dims", 0):
        return None
    x = program.ordered(call.tensor(0), plain(len(call.builder.sizes(op.inputs[0]))))
    at = call.tensor(1)
    at = program.ordered(at, plain(len(at.shape)))
    if call.builder.values.is_constant(op.inputs[1]):
        given = call.builder.values.array(op.inputs[1])
        sizes = np.asarray(x.shape[: given.shape[-1]])
        at = program.constant(np.where(given < 0, given + sizes, given), "i32", op.inputs[1])
    shape = (*at.shape[:-1], *x.shape[at.shape[-1] :])
    like = replace(x, shape=shape, order=plain(len(shape)))
    return [call.emit("GATHER_ND", (x, at), like, "GatherNdOptions", {})]


def pad(call: Call) -> Sequence[Tensor] | None:
    """PAD with real zero, PADV2 with another number; negative pads cut first. Other modes pick along axes."""
    x, op = call.tensor(0), call.op
    if op.attributes.get("mode", "constant") != "constant":
        return moved(call)
    pads, filling = pads_of(call.builder.values, op, len(x.shape)), filling_of(call.builder.values, op)
    if pads is None or filling is None or (call.y is not None and not _keeps_type(call)):
        return None
    cut, ends = cut_and_grown(pads, x.sizes)
    x = picked(call, x, cut)
    grown = {x.at(axis): pair for axis, pair in ends.items()}
    if not filling:
        return [padded(call.builder.program, x, grown, call.stem)]
    number = np.float32(filling)
    stored = number if call.y is None else quantize_array(np.asarray(number), call.y)
    return [padded_with(call.builder.program, x, grown, float(stored), call.stem)]


def _keeps_type(call: Call) -> bool:
    """Whether an op reads and writes integers of one type, as PAD does."""
    return call.builder.values.is_same(call.kind(0), call.y)


def blocks(call: Call) -> Sequence[Tensor] | None:
    """DEPTH_TO_SPACE has the block in front of the channels (DCR), as SPACE_TO_DEPTH; else by transposes."""
    x, op, program, form = call.last(), call.op, call.builder.program, BLOCKS[call.op.type]
    movements = movements_of(call.builder.values, op, x.sizes)
    view = None if movements is None else movements[0].steps[-1]
    if not isinstance(view, View) or view.shape is None:
        return None
    stored = tuple(int(view.shape[axis] or 1) for axis in _LAST)
    if op.attributes.get("mode", "DCR") == "DCR":
        options = form.options(op.attributes)
        return [call.emit(form.operator, [x], replace(x, shape=stored), form.table, options)]
    block = op.attributes["blocksize"]
    if op.type == "SpaceToDepth":
        # The stored axes n h b1 w b2 d in the order n h w d b1 b2, of five axes: the batch joins the rows.
        sizes = (x.shape[0] * x.shape[1] // block, block, x.shape[2] // block, block, x.shape[3])
        turned = program.ordered(program.reshaped(x, sizes), (0, 2, 4, 1, 3))
        return [program.reshaped(turned, stored, _LAST)]
    # The stored axes n h w d b1 b2 in the order n h b1 w b2 d.
    wide = program.reshaped(x, (x.shape[0] * x.shape[1], x.shape[2], stored[3], block, block))
    turned = program.ordered(wide, (0, 3, 1, 4, 2))
    return [program.reshaped(turned, stored, _LAST)]


def resize(call: Call) -> Sequence[Tensor] | None:
    """RESIZE_BILINEAR, and nearest: RESIZE_NEAREST_NEIGHBOR where it reads the same pixels, else GATHERs."""
    mode, x = call.op.attributes.get("mode", "nearest"), call.tensor(0)
    if mode == "linear":
        return _bilinear(call)
    if mode != "nearest":
        return None
    movements = movements_of(call.builder.values, call.op, x.sizes)
    steps = movements[0].steps if movements is not None else ()
    places = {step.axis: np.asarray(step.places) for step in steps if isinstance(step, Pick)}
    if not places or len(x.shape) != 4 or min(places) < 2:
        return moved(call)
    x = call.last()
    sizes = [(x.sizes[axis], places.get(axis, np.arange(x.sizes[axis]))) for axis in (2, 3)]
    for options in ({}, {"HalfPixelCenters": True}, {"AlignCorners": True}):
        if all(_reads(size, pick, options) for size, pick in sizes):
            return [_resized(call, "RESIZE_NEAREST_NEIGHBOR", x, [len(pick) for _, pick in sizes], options)]
    return moved(call)


def _bilinear(call: Call) -> Sequence[Tensor] | None:
    op, wanted = call.op, call.builder.sizes(call.op.outputs[0])
    sizes = call.builder.sizes(op.inputs[0])
    options = bilinear_options(Operands(op, {op.inputs[0]: sizes}.get, call.builder.values.known), wanted)
    return None if options is None else [_resized(call, "RESIZE_BILINEAR", call.last(), wanted[2:], options)]


def bilinear_options(known: Operands, wanted: Sequence[object]) -> Options | None:
    """Options with which RESIZE_BILINEAR is a linear Resize; None where it is no such, or sizes are unknown.

    Args:
      wanted: sizes of the result.
    """
    attributes, sizes = known.op.attributes, known.shape()
    if sizes is None or len(sizes) != len(_LAST) or attributes.get("mode") != "linear":
        return None
    scaled = {"asymmetric": {}, "align_corners": {"AlignCorners": True}}
    halves = {"half_pixel": {"HalfPixelCenters": True}, "pytorch_half_pixel": {"HalfPixelCenters": True}}
    options: Options | None = {**scaled, **halves}.get(
        attributes.get("coordinate_transformation_mode", "half_pixel")
    )
    is_plain = "axes" not in attributes and follows_sizes(known)
    if tuple(wanted[:2]) != tuple(sizes[:2]) or not is_plain or 1 in wanted[2:]:
        return None
    return options


def _resized(call: Call, operator: str, x: Tensor, spatial: Sequence[int], options: Options) -> Tensor:
    like = call.like((x.shape[0], *spatial, x.shape[3]), _LAST)
    if 0 in like.shape:
        raise _no_elements(call)
    table = "ResizeBilinearOptions" if operator == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    return call.emit(operator, (x, call.builder.program.numbers(spatial)), like, table, options)


def _reads(size: int, pick: Array, options: Options) -> bool:
    """Whether RESIZE_NEAREST_NEIGHBOR reads these pixels of an axis; float32, as the runtime computes it."""
    count = len(pick)
    is_aligned = bool(options.get("AlignCorners")) and count > 1
    scale = np.float32((size - 1) / (count - 1)) if is_aligned else np.float32(size) / np.float32(count)
    offset = np.float32(0.5 if options.get("HalfPixelCenters") else 0.0)
    places = (np.arange(count, dtype=np.float32) + offset) * scale
    whole = np.floor(places + np.float32(0.5)) if options.get("AlignCorners") else np.floor(places)
    return bool((np.clip(whole, 0, size - 1).astype(np.int64) == pick).all())


def picked(call: Call, tensor: Tensor, picks: Mapping[int, Array], stem: str = "") -> Tensor:
    """The elements at the indices given, axis by axis of the model; other axes whole."""
    whole = {axis: np.asarray(indices, np.int64).reshape(-1) for axis, indices in picks.items()}
    empty = next((axis for axis, indices in whole.items() if not len(indices)), None)
    if empty is not None:
        raise _no_elements(call)
    rows = {axis: _row(indices) for axis, indices in whole.items()}
    slices = {tensor.at(axis): row for axis, row in rows.items() if row is not None}
    tensor = _sliced(call, tensor, slices, stem or call.stem)
    for axis, indices in whole.items():
        if rows[axis] is None:
            tensor = _pick(call, tensor, tensor.at(axis), indices, stem or call.stem)
    return tensor


def _no_elements(call: Call) -> UnsupportedExport:
    return call.builder.refuse(f"{call.stem!r} has no elements; litert accepts no empty tensor")


def _row(indices: Array) -> tuple[int, int, int] | None:
    """Start, count and step of indices that ascend evenly."""
    if len(indices) == 1:
        return int(indices[0]), 1, 1
    step = int(indices[1] - indices[0])
    is_even = step > 0 and bool((np.diff(indices) == step).all())
    return (int(indices[0]), len(indices), step) if is_even else None


def _sliced(call: Call, tensor: Tensor, rows: Mapping[int, tuple[int, int, int]], stem: str) -> Tensor:
    program, rank = call.builder.program, len(tensor.shape)
    parts = [rows.get(i, (0, tensor.shape[i], 1)) for i in range(rank)]
    shape = tuple(count for _, count, _ in parts)
    if shape == tensor.shape:
        return tensor
    like, starts = replace(tensor, shape=shape), program.numbers([start for start, _, _ in parts], "begin")
    if all(step == 1 for _, _, step in parts):
        operands = (tensor, starts, program.numbers(shape, "size"))
        return program.emit("SLICE", operands, like, stem, ("SliceOptions", {}))
    ends = program.numbers([start + (count - 1) * step + 1 for start, count, step in parts], "end")
    steps = program.numbers([step for _, _, step in parts], "strides")
    return program.emit(
        "STRIDED_SLICE", (tensor, starts, ends, steps), like, stem, ("StridedSliceOptions", {})
    )


def _pick(call: Call, tensor: Tensor, at: int, indices: Array, stem: str) -> Tensor:
    program, size = call.builder.program, tensor.shape[at]
    shape = (*tensor.shape[:at], len(indices), *tensor.shape[at + 1 :])
    like = replace(tensor, shape=shape)
    times, rest = divmod(len(indices), size)
    if not rest and (indices == np.tile(np.arange(size), times)).all():
        multiples = program.numbers([times if i == at else 1 for i in range(len(shape))], "multiples")
        return program.emit("TILE", (tensor, multiples), like, stem, ("TileOptions", {}))
    where = program.numbers(indices.tolist(), "indices")
    return program.emit("GATHER", (tensor, where), like, stem, ("GatherOptions", {"Axis": at}))
