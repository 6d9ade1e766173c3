"""Operators that older converters write and our exporter does not: numpy's result, in floats and stored."""

import numpy as np
import pytest

import planner
from planner.interpreter.models import run_model
from tests.formats.litert.reader.by_hand import Hand


def i32(*numbers):
    return np.asarray(numbers, np.int32)


def depth_to_space(x, size):
    n, h, w, c = x.shape
    parts = x.reshape(n, h, w, size, size, c // size**2)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * size, w * size, -1)


def space_to_depth(x, size):
    n, h, w, _ = x.shape
    return (
        x.reshape(n, h // size, size, w // size, size, -1)
        .transpose(0, 1, 3, 2, 4, 5)
        .reshape(n, h // size, w // size, -1)
    )


def padded(x):
    """With zeros, which are stored as the zero point."""
    return np.pad(x, [(1, 0), (2, 3)], constant_values=-3 if x.dtype == np.int8 else 0)


SLICE = "StridedSliceOptions"
# Operator; operands, of which a shape is data and an array a constant; options; what numpy makes of them.
MOVEMENTS = {
    "RESHAPE": ([(2, 6), i32(3, 4)], "", {}, lambda x: [x.reshape(3, 4)]),
    "SQUEEZE": ([(2, 1, 3)], "", {}, lambda x: [x.reshape(2, 3)]),
    "EXPAND_DIMS": ([(2, 3), i32(1)], "", {}, lambda x: [x.reshape(2, 1, 3)]),
    "TRANSPOSE": ([(2, 3, 4), i32(2, 0, 1)], "", {}, lambda x: [x.transpose(2, 0, 1)]),
    "CONCATENATION": (
        *([(2, 3, 4), (2, 1, 4)], "ConcatenationOptions", {"Axis": -2}),
        lambda x, y: [np.concatenate([x, y], 1)],
    ),
    "PACK first": ([(2, 3), (2, 3)], "PackOptions", {"Axis": 0}, lambda x, y: [np.stack([x, y], 0)]),
    "PACK": ([(2, 3), (2, 3)], "PackOptions", {"Axis": 1}, lambda x, y: [np.stack([x, y], 1)]),
    "PACK last": ([(2, 3), (2, 3)], "PackOptions", {"Axis": -1}, lambda x, y: [np.stack([x, y], 2)]),
    "PACK one": ([(2, 3)], "PackOptions", {"Axis": 2}, lambda x: [np.stack([x], 2)]),
    "UNPACK": ([(2, 3, 4)], "UnpackOptions", {"Axis": 1}, lambda x: [x[:, k] for k in range(3)]),
    "UNPACK last": ([(2, 3, 4)], "UnpackOptions", {"Axis": -1}, lambda x: [x[..., k] for k in range(4)]),
    "UNPACK first": ([(2, 3)], "UnpackOptions", {"Axis": -2}, list),
    "SPLIT": ([i32(1), (2, 6)], "SplitOptions", {"NumSplits": 3}, lambda x: np.split(x, 3, 1)),
    "SPLIT first": ([i32(-2), (4, 3)], "SplitOptions", {"NumSplits": 2}, lambda x: np.split(x, 2, 0)),
    "SPLIT_V": (
        *([(2, 6), i32(1, 3, 2), i32(-1)], "SplitVOptions", {"NumSplits": 3}),
        lambda x: [x[:, :1], x[:, 1:4], x[:, 4:]],
    ),
    "SLICE": ([(4, 5, 6), i32(1, 0, 2), i32(2, -1, 3)], "", {}, lambda x: [x[1:3, :, 2:5]]),
    "STRIDED_SLICE": ([(4, 6), i32(1, 5), i32(3, 0), i32(1, -2)], SLICE, {}, lambda x: [x[1:3, 5:0:-2]]),
    "STRIDED_SLICE few": ([(4, 6), i32(-3), i32(-1), i32(1)], SLICE, {}, lambda x: [x[-3:-1]]),
    "STRIDED_SLICE begins": (
        *([(4, 6), i32(2, 2), i32(3, 0), i32(1, -1)], SLICE, {"BeginMask": 3}),
        lambda x: [x[:3, :0:-1]],
    ),
    "STRIDED_SLICE ends": (
        *([(4, 6), i32(2, 3), i32(1, 1), i32(1, -1)], SLICE, {"EndMask": 3}),
        lambda x: [x[2:, 3::-1]],
    ),
    "STRIDED_SLICE one end": (
        *([(4, 6), i32(2, 3), i32(3, 5), i32(1, 1)], SLICE, {"EndMask": 2, "BeginMask": 1}),
        lambda x: [x[:3, 3:]],
    ),
    "STRIDED_SLICE shrunk": (
        *([(4, 6), i32(2, 1), i32(9, 6), i32(1, 2)], SLICE, {"ShrinkAxisMask": 1}),
        lambda x: [x[2, 1:6:2]],
    ),
    "STRIDED_SLICE shrunk from behind": (
        *([(4, 6), i32(0, -2), i32(4, 0), i32(3, 1)], SLICE, {"ShrinkAxisMask": 2}),
        lambda x: [x[::3, -2]],
    ),
    "PAD": ([(2, 3), np.int32([[1, 0], [2, 3]])], "", {}, lambda x: [padded(x)]),
    "MIRROR_PAD": (
        *([(3, 4), np.int32([[2, 1], [0, 3]])], "MirrorPadOptions", {"Mode": 0}),
        lambda x: [np.pad(x, [(2, 1), (0, 3)], "reflect")],
    ),
    "MIRROR_PAD edges": (
        *([(3, 4), np.int32([[3, 1], [0, 4]])], "MirrorPadOptions", {"Mode": 1}),
        lambda x: [np.pad(x, [(3, 1), (0, 4)], "symmetric")],
    ),
    "GATHER": ([(3, 4), i32(3, 0, 0)], "GatherOptions", {"Axis": 1}, lambda x: [x[:, [3, 0, 0]]]),
    "GATHER last": ([(3, 4), i32(3, 0)], "GatherOptions", {"Axis": -1}, lambda x: [x[:, [3, 0]]]),
    "GATHER_ND": ([(3, 4), np.int32([[2, 1], [0, 3]])], "", {}, lambda x: [x[[2, 0], [1, 3]]]),
    "REVERSE_V2": ([(2, 3, 4), i32(1)], "", {}, lambda x: [x[:, ::-1]]),
    "REVERSE_V2 last": ([(2, 3), i32(-1, 0)], "", {}, lambda x: [x[::-1, ::-1]]),
    "TILE": ([(2, 3), i32(2, 1)], "", {}, lambda x: [np.tile(x, (2, 1))]),
    "BROADCAST_TO": ([(2, 1), i32(4, 2, 3)], "", {}, lambda x: [np.broadcast_to(x, (4, 2, 3))]),
    "DEPTH_TO_SPACE": (
        *([(1, 2, 3, 8)], "DepthToSpaceOptions", {"BlockSize": 2}),
        lambda x: [depth_to_space(x, 2)],
    ),
    "SPACE_TO_DEPTH": (
        *([(1, 4, 6, 3)], "SpaceToDepthOptions", {"BlockSize": 2}),
        lambda x: [space_to_depth(x, 2)],
    ),
}
COMPUTED = {
    "PADV2": ([(2, 3), np.int32([[1, 0], [2, 3]]), np.float32([7])], "", {}, lambda x: [
        np.pad(x, [(1, 0), (2, 3)], constant_values=7)]),
    "SQUARED_DIFFERENCE": ([(2, 3), (2, 1)], "", {}, lambda x, y: [(x - y) ** 2]),
    "SQUARE": ([(2, 3)], "", {}, lambda x: [x * x]),
    "RSQRT": ([(2, 3)], "", {}, lambda x: [1 / np.sqrt(x)]),
    "RELU_0_TO_1": ([(4, 9)], "", {}, lambda x: [np.clip(x, 0, 1)]),
    "RELU_N1_TO_1": ([(4, 9)], "", {}, lambda x: [np.clip(x, -1, 1)]),
    "RELU6": ([(4, 9)], "", {}, lambda x: [np.clip(x, 0, 6)]),
    "PRELU": ([(4, 9), np.float32([[0.5] * 9])], "", {}, lambda x: [np.where(x < 0, x / 2, x)]),
}  # fmt: skip


def read(case, name, *, stored):
    """A file of one operator, what it is fed, and numpy's results."""
    operands, table, options, computed = case
    kind = ("INT8", None, (0.5,), (-3,)) if stored else ("FLOAT32",)
    rng, hand, feeds = np.random.default_rng(3), Hand(), {}
    for item in operands:
        if isinstance(item, tuple):
            array = rng.integers(-128, 128, item).astype(np.int8) if stored else rng.normal(size=item) * 3
            array = array if stored else array.astype(np.float32)
            feeds[f"t{hand.tensor(item, *kind)}"] = np.abs(array) if name == "RSQRT" else array
        else:
            element = "INT32" if item.dtype == np.int32 else "FLOAT32"
            hand.tensor(item.shape, element, item.tobytes())
    given = [int(key[1:]) for key in feeds]
    results = computed(*feeds.values())
    places = [hand.tensor(array.shape, *kind) for array in results]
    hand.operator(name.partition(" ")[0], 1, range(len(operands)), places, table, options)
    return hand.file(given, places), feeds, dict(zip([f"t{k}" for k in places], results, strict=True))


@pytest.mark.parametrize("name", [*MOVEMENTS, *COMPUTED])
def test_an_operator_computes_what_numpy_does(name):
    data, feeds, wanted = read({**MOVEMENTS, **COMPUTED}[name], name, stored=False)
    assert planner.load_model(data).notes == ()
    got = run_model(data, feeds)
    for key, array in wanted.items():
        np.testing.assert_allclose(got[key], array, rtol=1e-5)


@pytest.mark.parametrize("name", MOVEMENTS)
def test_stored_integers_move_as_they_are(name):
    """Results have the operand's type, and so do the values in between."""
    data, feeds, wanted = read(MOVEMENTS[name], name, stored=True)
    model = planner.load_model(data)
    assert model.notes == ()
    plan = planner.plan(model, "litert-int8")
    assert not plan.rescales
    got = planner.evaluate(model, plan, feeds).outputs
    for key, array in wanted.items():
        np.testing.assert_array_equal(got[key], array)


BROKEN = {
    "RESHAPE": ([(2, 6), i32(3, 4)], "", {}, (3, 5), "its result has shape [3, 5]"),
    "TRANSPOSE": ([(2, 3), i32(0, 0)], "", {}, (2, 3), "its order is [0, 0] of 2 axes"),
    "TRANSPOSE short": ([(2, 3), i32(0)], "", {}, (2, 3), "its order is [0] of 2 axes"),
    "CONCATENATION": ([(2, 3), (2, 3)], "ConcatenationOptions", {"Axis": 2}, (2, 6), "its axis is 2 of 2"),
    "CONCATENATION low": (
        [(2, 3), (2, 3)],
        "ConcatenationOptions",
        {"Axis": -3},
        (2, 6),
        "its axis is -3 of 2",
    ),
    "PACK": ([(2, 3)], "PackOptions", {"Axis": 3}, (2, 3, 1), "its axis is 3 of 3"),
    "PACK low": ([(2, 3)], "PackOptions", {"Axis": -4}, (1, 2, 3), "its axis is -4 of 3"),
    "UNPACK": ([(1, 3)], "UnpackOptions", {"Axis": 2}, (3,), "its axis is 2 of 2, its results are 1"),
    "UNPACK many": ([(2, 3)], "UnpackOptions", {"Axis": 0}, (3,), "its axis is 0 of 2, its results are 1"),
    "SPLIT": ([i32(2), (2, 6)], "SplitOptions", {}, (2, 6), "its axes are [2] of 2"),
    "SPLIT axes": ([i32(0, 1), (2, 6)], "SplitOptions", {}, (2, 6), "its axes are [0, 1] of 2"),
    "SPLIT part": ([i32(1), (2, 6)], "SplitOptions", {}, (2, 5), "its parts are not the whole"),
    "SPLIT rank": ([i32(1), (2, 6)], "SplitOptions", {}, (12,), "its parts are not the whole"),
    "SLICE": ([(4, 5), i32(1), i32(2)], "", {}, (2, 5), "it has 1 begins and 1 sizes for 2 axes"),
    "SLICE sizes": ([(4, 5), i32(1, 1), i32(2)], "", {}, (2, 5), "it has 2 begins and 1 sizes for 2 axes"),
    **{
        f"STRIDED_SLICE {key}": (
            *([(4, 6), i32(0, 0), i32(1, 1), i32(1, 1)], SLICE, {key: 1}, (1, 1)),
            "it has an ellipsis, a new axis or ends that are offsets",
        )
        for key in ("EllipsisMask", "NewAxisMask", "Offset")
    },
    "STRIDED_SLICE": (
        *([(4, 6), i32(0, 0, 0), i32(1, 1, 1), i32(1, 1, 1)], SLICE, {}, (1, 1)),
        "it has 3 begins for 2 axes, or steps of 0",
    ),
    "STRIDED_SLICE steps": (
        *([(4, 6), i32(0, 0), i32(1, 1), i32(1, 0)], SLICE, {}, (1, 1)),
        "it has 2 begins for 2 axes, or steps of 0",
    ),
    "STRIDED_SLICE uneven": ([(4, 6), i32(0, 0), i32(1), i32(1, 1)], SLICE, {}, (1, 1), "an ellipsis"),
    "STRIDED_SLICE other": (
        *([(4, 6), i32(0, 0), i32(2, 2), i32(1, 1)], SLICE, {}, (2, 3)),
        "its result has shape [2, 3]",
    ),
    "PAD": ([(2, 3), np.int32([[1, 0]])], "", {}, (3, 3), "it has 2 amounts for 2 axes"),
    "PADV2": ([(2, 3), np.int32([[1, 0], [0, 0]]), (1,)], "", {}, (3, 3), "its filling is no constant"),
    "PADV2 two": (
        *([(2, 3), np.int32([[1, 0], [0, 0]]), np.float32([1, 2])], "", {}, (3, 3)),
        "its filling is no constant of one number",
    ),
    "MIRROR_PAD": (
        *([(3, 4), np.int32([[4, 0], [0, 0]])], "MirrorPadOptions", {"Mode": 1}, (7, 4)),
        "it mirrors more than there is",
    ),
    "GATHER": ([(3, 4), i32(0)], "GatherOptions", {"Axis": 2}, (1, 4), "or its axis is 2 of 2"),
    "GATHER low": ([(3, 4), i32(0)], "GatherOptions", {"Axis": -3}, (1, 4), "or its axis is -3 of 2"),
    "GATHER batch": ([(3, 4), i32(0)], "GatherOptions", {"BatchDims": 1}, (1, 4), "it has batch axes"),
    "DEPTH_TO_SPACE": (
        [(1, 2, 3, 8)],
        "DepthToSpaceOptions",
        {"BlockSize": 0},
        (1, 2, 3, 8),
        "blocks have size 0",
    ),
    "RESIZE_BILINEAR": (
        [(1, 2, 3, 8), i32(4, 6)],
        "ResizeBilinearOptions",
        {},
        (4, 6),
        "its result has shape [4, 6]",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_named(name):
    operands, table, options, result, said = BROKEN[name]
    data, *_ = read((operands, table, options, lambda *_: [np.zeros(result)]), name, stored=False)
    (note,) = planner.load_model(data).notes
    assert said in note
