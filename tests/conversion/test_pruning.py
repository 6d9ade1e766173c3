"""Channels taken out of models, and other batches: what is left computes what it did."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import ModelError, UnknownName, UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import file_of, quant_node

RNG = np.random.default_rng(8)
X = {"x": (TensorProto.FLOAT, [1, 3, 8, 8])}


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def net():
    """Two convolutions with a quantized weight, a residual Add, a Concat, Flatten and a Gemm."""
    quantizer, arrays = quant_node("wq", "w1", scale=0.1, zero_point=0.0, bits=4)
    arrays |= {"w1": normal(4, 3, 3, 3), "b1": normal(4), "w2": normal(4, 1, 3, 3), "w3": normal(7, 8 * 64)}
    arrays |= {"b3": normal(7), "m": normal(4, 1, 1)}
    nodes = [
        quantizer,
        helper.make_node("Conv", ["x", "wq", "b1"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["d"], "depthwise", pads=[1, 1, 1, 1], group=4),
        helper.make_node("Mul", ["d", "m"], ["e"], "scaled"),
        helper.make_node("Add", ["a", "e"], ["s"], "sum"),
        helper.make_node("Concat", ["s", "d"], ["c"], "cat", axis=1),
        helper.make_node("Flatten", ["c"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "dense", transB=1),
    ]
    return file_of(nodes, X, ["y"], arrays)


def test_channels_go_with_all_that_belongs_to_them():
    data = net()
    done = convert(data, "cleaned", prune={"a": [1, 3]})
    graph = read_written(done)
    shapes = {name: graph.values[name].shape for name in ("a", "d", "c", "f", "y")}
    assert shapes == {"a": (1, 2, 8, 8), "d": (1, 2, 8, 8), "c": (1, 4, 8, 8), "f": (1, 256), "y": (1, 7)}
    (depthwise,) = (op for op in graph.ops if op.name == "depthwise")
    assert depthwise.attributes["group"] == 2
    x = normal(1, 3, 8, 8)
    model = read_written(data)
    kept = [0, 2]
    seen = run_model(convert(data, "cleaned", outputs=["a", "f"]), {"x": x})
    assert np.array_equal(
        run_model(convert(done, "cleaned", outputs=["a"]), {"x": x})["a"], seen["a"][:, kept]
    )
    blocks = np.concatenate([np.arange(64) + 64 * c for c in (0, 2, 4, 6)])
    wanted = seen["f"][:, blocks] @ model.constants["w3"].array[:, blocks].T + model.constants["b3"].array
    assert np.allclose(run_model(done, {"x": x})["y"], wanted, atol=1e-4)


def test_channels_may_be_named_behind_a_flatten_as_whole_blocks():
    data = net()
    by_block = {"f": {1: [*range(64, 128), *range(5 * 64, 6 * 64)]}}
    assert convert(data, "cleaned", prune=by_block) == convert(data, "cleaned", prune={"d": [1]})


def test_channels_pass_ops_that_take_parts_of_other_axes():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Slice", ["a", "one", "five", "two"], ["s"], "slice"),
        helper.make_node("Split", ["s"], ["l", "r"], "split", axis=3, num_outputs=2),
        helper.make_node("Transpose", ["l"], ["y"], "turn", perm=[0, 2, 3, 1]),
    ]
    numbers = {name: np.asarray([i], np.int64) for name, i in (("one", 1), ("five", 5), ("two", 2))}
    data = file_of(nodes, X, ["y", "r"], {"w": normal(4, 3, 1, 1), **numbers})
    x = normal(1, 3, 8, 8)
    whole, less = (run_model(file, {"x": x}) for file in (data, convert(data, "cleaned", prune={"a": [1]})))
    assert np.array_equal(less["y"], whole["y"][..., [0, 2, 3]])
    assert np.array_equal(less["r"], whole["r"][:, [0, 2, 3]])
    with pytest.raises(UnsupportedExport, match="slice': channels of axis 2 of 's' cannot be followed"):
        convert(data, "cleaned", prune={"s": {2: [0]}})


def node(kind, *operands, outputs=("y",), **attributes):
    domain = "qonnx.custom_op.general" if kind == "MultiThreshold" else ""
    return helper.make_node(kind, ["x", *operands], list(outputs), "op", domain=domain, **attributes)


NUMBERS = {name: np.asarray(value, np.int64) for name, value in {
    "pads": [0, 0, 1, 0, 0, 0, 0, 2], "shape": [0, 120], "rest": [6, -1],
}.items()}  # fmt: skip
FLOATS = {
    "b": normal(6), "c": normal(6, 1, 1), "one": normal(1), "m": normal(1), "v": np.abs(normal(6)) + 0.5,
    "s": np.float32([1, 2, 3, 4, 5, 6]) / 32, "scales": np.float32([1, 1, 2, 2]), "w": normal(6, 2, 3, 3),
    "g": normal(6, 1, 3, 3), "t": np.sort(normal(6, 4)), "u": np.sort(normal(1, 4)), "d": normal(2, 6, 3, 3),
    "k": normal(6, 7), "kt": normal(7, 6), "b7": normal(7), "a": normal(3, 6), "l": normal(1, 3, 6),
    "many": normal(4, 6, 5), "stack": normal(6, 5, 3), "two": normal(2, 5, 3),
}  # fmt: skip
IMAGE = (1, 6, 4, 5)
SMALLER = [
    # the op, the shape of its first operand, the axis that loses channels, that of the result or None
    (node("Relu"), IMAGE, 1, 1),
    (node("Relu"), IMAGE, 2, 2),
    (node("Mul", "c"), IMAGE, 1, 1),
    (node("Add", "one"), IMAGE, 1, 1),
    (node("Add", "b"), (6,), 0, 0),
    (node("Mul", "many"), (6, 1), 0, 1),
    (node("BatchNormalization", "s", "b", "b", "v"), IMAGE, 1, 1),
    (node("MaxPool", kernel_shape=[2, 2]), IMAGE, 1, 1),
    (node("AveragePool", kernel_shape=[2, 2], strides=[2, 2]), (6, 2, 4, 5), 0, 0),
    (node("GlobalAveragePool"), IMAGE, 1, 1),
    (node("Resize", "", "scales", mode="nearest"), IMAGE, 1, 1),
    (node("Conv", "d"), IMAGE, 1, None),
    (node("Conv", "g", group=6), IMAGE, 1, 1),
    (node("Conv", "d"), (6, 6, 4, 5), 0, 0),
    (node("ConvTranspose", "w"), IMAGE, 1, None),
    (node("MatMul", "k"), (2, 3, 6), 2, None),
    (node("MatMul", "k"), (6, 3, 6), 0, 0),
    (node("MatMul", "k"), (2, 6, 6), 1, 1),
    (node("MatMul", "stack"), (6, 4, 5), 0, 0),
    (node("MatMul", "two"), (2, 4, 5), 0, 0),
    (helper.make_node("MatMul", ["a", "x"], ["y"], "op"), (6, 5), 0, None),
    (helper.make_node("MatMul", ["a", "x"], ["y"], "op"), (2, 6, 6), 2, 2),
    (helper.make_node("MatMul", ["l", "x"], ["y"], "op"), (6, 6, 5), 0, 0),
    (node("Gemm", "k", "b7"), (3, 6), 1, None),
    (node("Gemm", "kt", transB=1), (6, 6), 0, 0),
    (node("Gemm", "k", "b7", transA=1), (6, 3), 0, None),
    (node("Gemm", "k", transA=1), (6, 6), 1, 0),
    (helper.make_node("Gemm", ["a", "x", "b"], ["y"], "op"), (6, 6), 1, 1),
    (node("MultiThreshold", "t", data_layout="NCHW"), IMAGE, 1, 1),
    (node("MultiThreshold", "t", data_layout="NHWC"), (1, 4, 5, 6), 3, 3),
    (node("MultiThreshold", "u", data_layout="NCHW"), IMAGE, 1, 1),
    (node("Reshape", "shape"), IMAGE, 1, 1),
    (node("Reshape", "rest"), (6, 6, 4), 1, 1),
    (node("Reshape", "rest"), (6, 6, 4), 0, 0),
    (node("Transpose", perm=[2, 0, 3, 1]), IMAGE, 1, 3),
    (node("Transpose", perm=[2, 0, 3, 1]), (1, 6, 4, 5), 3, 2),
    (node("Pad", "pads"), IMAGE, 1, 1),
    (node("Flatten", axis=1), (6, 3, 4), 0, 0),
    (node("Concat", "x", axis=2), IMAGE, 1, 1),
    (node("Split", axis=2, num_outputs=2, outputs=("y", "z")), IMAGE, 1, 1),
    (node("Clip", "", ""), IMAGE, 1, 1),
]


@pytest.mark.parametrize(
    ("op", "shape", "axis", "result"),
    SMALLER,
    ids=[f"{op.op_type}-{n}" for n, (op, *_) in enumerate(SMALLER)],
)
def test_what_is_left_computes_what_the_whole_does_on_zeros(op, shape, axis, result):
    """Asked from either side; a product over channels gets nothing from those that are zero."""
    gone = [0, shape[axis] - 2]
    arrays = {name: array for name, array in {**FLOATS, **NUMBERS}.items() if name in op.input}
    data = file_of([op], {"x": (TensorProto.FLOAT, list(shape))}, ["y"], arrays)
    done = convert(data, "cleaned", prune={"x": {axis: gone}})
    x = normal(*shape)
    kept = np.delete(x, gone, axis=axis)
    np.moveaxis(x, axis, 0)[gone] = 0
    whole, less = run_model(data, {"x": x})["y"], run_model(done, {"x": kept})["y"]
    if result is not None:  # A channel of a view is a block.
        block = whole.shape[result] // shape[axis]
        lost = [channel * block + k for channel in gone for k in range(block)]
        whole = np.delete(whole, lost, axis=result)
        assert convert(data, "cleaned", prune={"y": {result - whole.ndim: lost}}) == done
    assert np.allclose(less, whole, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "error", "said"),
    [
        ({"A": [1]}, UnknownName, "unknown tensor 'A'"),
        ({"a": [4]}, ModelError, "'a' has channels 0 to 3 on axis 1, asked is \\[4\\]"),
        ({"a": {7: [0]}}, ModelError, "'a' has no axis 7 of known size"),
        ({"a": [0, 1, 2, 3]}, UnsupportedExport, "pruning leaves nothing of axis"),
        ({"f": [3]}, UnsupportedExport, "'f' would lose a part of a channel of 'c'"),
        ({"a": {2: [0]}}, UnsupportedExport, "first': channels of axis 2 of 'a' cannot be followed"),
    ],
)
def test_what_cannot_be_followed_is_refused(channels, error, said):
    with pytest.raises(error, match=said):
        convert(net(), "cleaned", prune=channels)


@pytest.mark.parametrize(
    ("op", "shape", "axis"),
    [
        (node("Conv", "w", group=3), IMAGE, 1),
        (node("ConvTranspose", "w", group=2), IMAGE, 1),
        (node("MatMul", "b"), (2, 6), 1),
        (node("MatMul", "k"), (6,), 0),
        (node("Resize", "", "", "sizes"), IMAGE, 1),
        (node("Reshape", "rows"), IMAGE, 1),
        (node("Softmax", axis=1), IMAGE, 1),
        (node("Flatten", axis=2), (2, 6, 3, 4), 1),
        (node("MaxPool", kernel_shape=[2, 2]), IMAGE, 2),
    ],
)
def test_channels_that_would_lose_a_part_are_refused(op, shape, axis):
    more = {"sizes": np.int64([1, 6, 8, 10]), "rows": np.int64([1, 3, 40])}
    arrays = {name: array for name, array in {**FLOATS, **more}.items() if name in op.input}
    data = file_of([op], {"x": (TensorProto.FLOAT, list(shape))}, ["y"], arrays)
    with pytest.raises(UnsupportedExport, match=f"op': channels of axis {axis} of 'x' cannot be followed"):
        convert(data, "cleaned", prune={"x": {axis: [1]}})


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (node("Relu"), (2, 6)),
        (node("Reshape", "sizes"), (2, 3, 4)),
        (node("Expand", "sizes"), (2, 1)),
        (node("Reshape", "open"), (2, 3, 4)),
        (node("MatMul", "k"), (2, 6)),
    ],
)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_samples_of_another_batch_compute_the_same(op, shape, batch):
    more = {"sizes": np.int64([2, 12]), "open": np.int64([0, 12])}
    arrays = {name: array for name, array in {**FLOATS, **more}.items() if name in op.input}
    data = file_of([op], {"x": (TensorProto.FLOAT, list(shape))}, ["y"], arrays)
    x = normal(2 * batch, *shape[1:])
    done = convert(data, "cleaned", batch=batch)
    assert read_written(done).values["x"].shape == (batch, *shape[1:])
    parts = [run_model(done, {"x": x[k : k + batch]})["y"] for k in range(0, 2 * batch, batch)]
    wanted = [run_model(data, {"x": x[k : k + 2]})["y"] for k in range(0, 2 * batch, 2)]
    assert np.allclose(np.concatenate(parts), np.concatenate(wanted), atol=1e-6)


def test_other_batches_are_refused():
    total = helper.make_node("ReduceSum", ["x", "first"], ["y"], "total")
    data = file_of([total], {"x": (TensorProto.FLOAT, [1, 4])}, ["y"], {"first": np.int64([0])})
    with pytest.raises(UnsupportedExport, match="the output 'y' does not follow a batch of 3"):
        convert(data, "cleaned", batch=3)
    with pytest.raises(ModelError, match="a batch has one sample or more, not 0"):
        convert(data, "cleaned", batch=0)
    two = {name: (TensorProto.FLOAT, [size, 4]) for name, size in (("x", 1), ("z", 2))}
    data = file_of([node("Add", "z")], two, ["y"], {})
    with pytest.raises(ModelError, match="the inputs' first axes differ: 1, 2"):
        convert(data, "cleaned", batch=3)


def test_a_batch_that_contradicts_a_shape_is_refused():
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"], "r")
    data = file_of([reshape], {"x": (TensorProto.FLOAT, [1, 4])}, ["y"], {"shape": np.asarray([2, 2])})
    with pytest.raises(UnsupportedExport, match="no form for a batch of 3"):
        convert(data, "cleaned", batch=3)
