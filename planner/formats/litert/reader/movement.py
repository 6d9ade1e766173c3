"""Movement: operators whose results are elements of their operands, as ONNX ops.

Source: TensorFlow Lite, builtin operators and reference kernels; ONNX operators, opset 21.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from planner.formats.litert.reader.builder import FIRST, LAST, Builder, Unread
from planner.formats.litert.reader.file import Operator
from planner.formats.litert.reader.linear import Reader
from planner.formats.litert.vocabulary import BLOCKS

_BEFORE: Final = -(1 << 31)
_MOST_PLACES: Final = 1 << 20
"""An end of a slice that lies in front of the first element, as ONNX writes it."""


def reshape(builder: Builder, op: Operator) -> None:
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the shape is that of the result."""
    name, place = builder.value(op, 0), op.outputs[0]
    shape = builder.file.tensors[place].shape
    if np.prod(shape, dtype=np.int64) != np.prod(builder.tensor(op, 0).shape, dtype=np.int64):
        raise Unread(f"its result has shape {list(shape)}")
    builder.result(op, "Reshape", [name, builder.integers(shape)])


def transpose(builder: Builder, op: Operator) -> None:
    """TRANSPOSE."""
    order, rank = builder.numbers(op, 1), len(builder.tensor(op, 0).shape)
    if sorted(order) != list(range(rank)):
        raise Unread(f"its order is {list(order)} of {rank} axes")
    builder.result(op, "Transpose", [builder.value(op, 0)], {"perm": order})


def concatenation(builder: Builder, op: Operator) -> None:
    """CONCATENATION."""
    options = builder.options(op, "ConcatenationOptions")
    rank = len(builder.tensor(op, 0).shape)
    if not -rank <= options.Axis() < rank:
        raise Unread(f"its axis is {options.Axis()} of {rank}")
    names = [builder.value(op, i) for i in range(len(op.inputs))]
    activation = options.FusedActivationFunction()
    builder.result(op, "Concat", names, {"axis": options.Axis() % rank}, activation=activation)


def joined(builder: Builder, op: Operator, names: Sequence[str], *, order: Sequence[int]) -> None:
    """A result made of parts along its first axis, in front of a transpose."""
    builder.result(op, "Concat", names, {"axis": 0}, order=order)


def pack(builder: Builder, op: Operator) -> None:
    """PACK: a new axis, along which the operands are joined."""
    axis = builder.options(op, "PackOptions").Axis()
    shape = builder.file.tensors[op.outputs[0]].shape
    if not -len(shape) <= axis < len(shape):
        raise Unread(f"its axis is {axis} of {len(shape)}")
    axis %= len(shape)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    names = [builder.shaped(builder.value(op, i), one) for i in range(len(op.inputs))]
    builder.result(op, "Concat", names, {"axis": axis})


def unpack(builder: Builder, op: Operator) -> None:
    """UNPACK: slices of one along an axis, without it."""
    x, axis = builder.tensor(op, 0), builder.options(op, "UnpackOptions").Axis()
    rank = len(x.shape)
    if not -rank <= axis < rank or len(op.outputs) != x.shape[axis % rank]:
        raise Unread(f"its axis is {axis} of {rank}, its results are {len(op.outputs)}")
    axis %= rank
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    for i in range(len(op.outputs)):
        part = _cut(builder, builder.value(op, 0), (i, i + 1, axis, 1), one)
        builder.result(op, "Reshape", [part, builder.integers(one[:axis] + one[axis + 1 :])], index=i)


def split(builder: Builder, op: Operator) -> None:
    """SPLIT and SPLIT_V, each part a slice."""
    data, at = (1, 0) if op.name == "SPLIT" else (0, 2)
    x, axes = builder.tensor(op, data), builder.numbers(op, at)
    rank = len(x.shape)
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise Unread(f"its axes are {list(axes)} of {rank}")
    axis, start = axes[0] % rank, 0
    sizes = [builder.file.tensors[place].shape for place in op.outputs]
    if any(len(shape) != rank for shape in sizes) or sum(s[axis] for s in sizes) != x.shape[axis]:
        raise Unread("its parts are not the whole")
    name = builder.value(op, data)
    for i, shape in enumerate(sizes):
        end = start + shape[axis]
        parts = [builder.integers([number]) for number in (start, end, axis, 1)]
        builder.result(op, "Slice", [name, *parts], index=i)
        start = end


def _cut(builder: Builder, name: str, parts: Sequence[int], shape: Sequence[int]) -> str:
    """A slice by start, end, axis and step, its type with it."""
    found = builder.between("Slice", [name, *(builder.integers([number]) for number in parts)], shape)
    if name in builder.read.stated:
        builder.read.stated[found] = builder.read.stated[name]
    return found


def slices(builder: Builder, op: Operator) -> None:
    """SLICE by constant begins and sizes."""
    begins, sizes, shape = builder.numbers(op, 1), builder.numbers(op, 2), builder.tensor(op, 0).shape
    if not len(begins) == len(sizes) == len(shape):
        raise Unread(f"it has {len(begins)} begins and {len(sizes)} sizes for {len(shape)} axes")
    ends = [
        whole if size == -1 else begin + size for begin, size, whole in zip(begins, sizes, shape, strict=True)
    ]
    axes = range(len(shape))
    parts = [builder.integers(list(part)) for part in (begins, ends, axes, (1,) * len(shape))]
    builder.result(op, "Slice", [builder.value(op, 0), *parts])


def strided_slice(builder: Builder, op: Operator) -> None:
    """STRIDED_SLICE by constant numbers; masks of begins, ends and axes that go."""
    options = builder.options(op, "StridedSliceOptions")
    x, result = builder.tensor(op, 0), builder.file.tensors[op.outputs[0]]
    begins, ends, steps = (list(builder.numbers(op, i)) for i in (1, 2, 3))
    is_offset = bool(getattr(options, "Offset", bool)())
    if (
        options.EllipsisMask()
        or options.NewAxisMask()
        or is_offset
        or not len(begins) == len(ends) == len(steps)
    ):
        raise Unread("it has an ellipsis, a new axis or ends that are offsets")
    if len(begins) > len(x.shape) or 0 in steps:
        raise Unread(f"it has {len(begins)} begins for {len(x.shape)} axes, or steps of 0")
    shape = list(x.shape)
    for axis, step in enumerate(steps):
        size = x.shape[axis]
        if options.ShrinkAxisMask() >> axis & 1:
            begins[axis] += size if begins[axis] < 0 else 0
            ends[axis], steps[axis] = begins[axis] + 1, 1
        else:
            if options.BeginMask() >> axis & 1:
                begins[axis] = 0 if step > 0 else size - 1
            if options.EndMask() >> axis & 1:
                ends[axis] = size if step > 0 else _BEFORE
    for axis, taken in enumerate(zip(begins, ends, steps, strict=True)):
        shape[axis] = len(range(x.shape[axis])[_slice(*taken, x.shape[axis])])
    parts = [builder.integers(list(part)) for part in (begins, ends, range(len(begins)), steps)]
    name = builder.value(op, 0)
    if tuple(shape) == result.shape:
        builder.result(op, "Slice", [name, *parts])
        return
    if np.prod(shape, dtype=np.int64) != np.prod(result.shape, dtype=np.int64):
        raise Unread(f"its result has shape {list(result.shape)}")
    part = builder.between("Slice", [name, *parts], shape)
    if name in builder.read.stated:
        builder.read.stated[part] = builder.read.stated[name]
    builder.result(op, "Reshape", [part, builder.integers(result.shape)])


def _slice(begin: int, end: int, step: int, size: int) -> slice:
    """Python's slice of the same elements."""
    return slice(begin, None if end <= -size - 1 and step < 0 else end, step)


def pad(builder: Builder, op: Operator) -> None:
    """PAD and PADV2 by constant amounts, MIRROR_PAD by those of its mode."""
    shape, amounts = builder.tensor(op, 0).shape, builder.numbers(op, 1)
    if len(amounts) != 2 * len(shape):
        raise Unread(f"it has {len(amounts)} amounts for {len(shape)} axes")
    names = [builder.value(op, 0), builder.integers((*amounts[::2], *amounts[1::2]))]
    mode = "constant"
    if op.name == "MIRROR_PAD":
        if builder.options(op, "MirrorPadOptions").Mode():
            _mirror(builder, op, amounts)
            return
        mode = "reflect"
    if op.name == "PADV2":
        names.append(_filling(builder, op))
    builder.result(op, "Pad", names, {"mode": mode})


def _mirror(builder: Builder, op: Operator, amounts: Sequence[int]) -> None:
    """MIRROR_PAD that repeats the edge, which ONNX's Pad has no mode for: elements by index, axis by axis."""
    name, shape = builder.value(op, 0), builder.tensor(op, 0).shape
    facts = builder.read.stated.get(name)
    ends = list(zip(amounts[::2], amounts[1::2], strict=True))
    if any(not 0 <= end <= size for pair, size in zip(ends, shape, strict=True) for end in pair):
        raise Unread("it mirrors more than there is")
    sizes = list(shape)
    for axis in [axis for axis, pair in enumerate(ends) if any(pair)]:
        indices = np.pad(np.arange(shape[axis]), ends[axis], "symmetric")
        sizes[axis] = len(indices)
        name = builder.between("Gather", [name, builder.constant(indices, "mirrored")], sizes, {"axis": axis})
        if facts:
            builder.read.stated[name] = facts
    builder.result(op, "Identity", [name])


def _filling(builder: Builder, op: Operator) -> str:
    name = builder.value(op, 2)
    array = builder.array(name)
    if array is None or array.size != 1:
        raise Unread("its filling is no constant of one number")
    return builder.constant(array.reshape(()), "fill")


def gather(builder: Builder, op: Operator) -> None:
    """GATHER along one axis."""
    options, rank = builder.options(op, "GatherOptions"), len(builder.tensor(op, 0).shape)
    if options.BatchDims() or not -rank <= options.Axis() < rank:
        raise Unread(f"it has batch axes, or its axis is {options.Axis()} of {rank}")
    names = [builder.value(op, 0), builder.value(op, 1)]
    builder.result(op, "Gather", names, {"axis": options.Axis() % rank})


def embedding(builder: Builder, op: Operator) -> None:
    """EMBEDDING_LOOKUP: rows by number."""
    builder.result(op, "Gather", [builder.value(op, 1), builder.value(op, 0)], {"axis": 0})


def update(builder: Builder, op: Operator) -> None:
    """DYNAMIC_UPDATE_SLICE: a slice written at places that the program knows, moved to lie inside."""
    whole, part, at = (builder.tensor(op, i) for i in range(3))
    rank = len(whole.shape)
    if len(part.shape) != rank or at.shape != (rank,) or at.element not in ("i32", "i64"):
        raise Unread(f"its slice has shape {list(part.shape)}, its starts {list(at.shape)} are {at.element}")
    if int(np.prod(part.shape, dtype=np.int64)) * rank > _MOST_PLACES:
        raise Unread(f"its slice has shape {list(part.shape)}, a place for each element is too many")
    room = [size - own for size, own in zip(whole.shape, part.shape, strict=True)]
    starts = builder.cast(builder.value(op, 2), "i64")
    least, most = builder.integers([0] * rank), builder.integers(room)
    starts = builder.between("Min", [builder.between("Max", [starts, least], (rank,)), most], (rank,))
    grid = np.stack(np.meshgrid(*map(np.arange, part.shape), indexing="ij"), axis=-1)
    places = builder.between("Add", [builder.constant(grid, "places"), starts], grid.shape)
    builder.result(op, "ScatterND", [builder.value(op, 0), places, builder.value(op, 1)])


def gather_nd(builder: Builder, op: Operator) -> None:
    """GATHER_ND, its indices in 64 bits."""
    element = builder.tensor(op, 1).element
    if element not in ("i16", "i32", "i64"):
        raise Unread(f"its indices are {element or 'of an element type without a name'}")
    at = builder.cast(builder.value(op, 1), "i64")
    builder.result(op, "GatherND", [builder.value(op, 0), at])


def repeated(builder: Builder, op: Operator) -> None:
    """TILE by constant counts and BROADCAST_TO."""
    if op.name == "TILE":
        counts = builder.integers(builder.numbers(op, 1))
        builder.result(op, "Tile", [builder.value(op, 0), counts])
        return
    shape = builder.integers(builder.file.tensors[op.outputs[0]].shape)
    builder.result(op, "Expand", [builder.value(op, 0), shape])


def depth(builder: Builder, op: Operator) -> None:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH: depth is ordered by place and then channel, as DCR."""
    kind = _DEPTH[op.name]
    attributes = {**builder.attributes(op, BLOCKS[kind]), **BLOCKS[kind].only}
    if int(str(attributes["blocksize"])) < 1:
        raise Unread(f"its blocks have size {attributes['blocksize']}")
    builder.result(op, kind, [builder.image(op)], attributes, order=LAST)


def resize(builder: Builder, op: Operator) -> None:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""
    is_linear = op.name == "RESIZE_BILINEAR"
    options = builder.options(op, "ResizeBilinearOptions" if is_linear else "ResizeNearestNeighborOptions")
    shape = builder.file.tensors[op.outputs[0]].shape
    if len(shape) != 4:
        raise Unread(f"its result has shape {list(shape)}")
    where = "asymmetric"
    if options.AlignCorners():
        where = "align_corners"
    elif options.HalfPixelCenters():
        where = "half_pixel"
    attributes: dict[str, object] = {"coordinate_transformation_mode": where}
    attributes["mode"] = "linear" if is_linear else "nearest"
    if not is_linear:
        # The runtime rounds places of corners, and of centers as it adds the half, up from the middle.
        attributes["nearest_mode"] = "floor" if where == "asymmetric" else "round_prefer_ceil"
    sizes = builder.integers([shape[axis] for axis in FIRST])
    builder.result(op, "Resize", [builder.image(op), "", "", sizes], attributes, order=LAST)


def sizes(builder: Builder, op: Operator) -> None:
    """SHAPE: numbers, as every size is known."""
    place = op.outputs[0]
    dtype = np.int64 if builder.file.tensors[place].element == "i64" else np.int32
    builder.names[place] = builder.constant(np.array(builder.tensor(op, 0).shape, dtype), "sizes")


_DEPTH: Final = {builtin.operator: ours for ours, builtin in BLOCKS.items()}
MOVEMENT: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("BROADCAST_TO", "TILE"), repeated),
    **dict.fromkeys(_DEPTH, depth),
    **dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), reshape),
    **dict.fromkeys(("MIRROR_PAD", "PAD", "PADV2"), pad),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), resize),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), split),
    "CONCATENATION": concatenation,
    "DYNAMIC_UPDATE_SLICE": update,
    "EMBEDDING_LOOKUP": embedding,
    "GATHER": gather,
    "GATHER_ND": gather_nd,
    "PACK": pack,
    "SHAPE": sizes,
    "SLICE": slices,
    "STRIDED_SLICE": strided_slice,
    "TRANSPOSE": transpose,
    "UNPACK": unpack,
}
