"""What onnx or every engine refuses is refused when it is read, with the op; what engines run is not."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.errors import ModelError
from planner.formats.onnx.read import read_onnx, read_written
from tests.formats.onnx.reader.runs import model, session

X = [1, 3, 8, 8]
W = np.ones((4, 3, 3, 3), np.float32)
FAR = 1 << 62


def port(name, shape, kind=TensorProto.FLOAT):
    info = onnx.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = kind
    if shape is not None:
        info.type.CopyFrom(helper.make_tensor_type_proto(kind, shape))
    return info


def one(kind, *operands, opset=21, shape=None, dtype=TensorProto.FLOAT, x=X, **attributes) -> bytes:
    """A model of one op `it` on `x` and constants ("": absent); an array in place of `x` is a constant."""
    names = ["" if isinstance(item, str) else f"k{i}" for i, item in enumerate(operands)]
    node = helper.make_node(kind, ["x", *names], ["y"], "it", **attributes)
    tensors = [
        numpy_helper.from_array(np.asarray(item), name)
        for name, item in zip(names, operands, strict=True)
        if name
    ]
    graph = helper.make_graph([node], "g", [port("x", x)], [port("y", shape, dtype)], tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    ).SerializeToString()


def ints(*numbers):
    return np.asarray(numbers, np.int64)


def floats(*shape):
    return np.ones(shape, np.float32)


def page(kind):
    return f" (accepted is what https://onnx.ai/onnx/operators/onnx__{kind}.html says)"


WHOLE = " (accepted: whole numbers of {} to 2147483647)"
COUNTED = " (accepted: the number of a dimension, from the end where it is negative)"
REFUSED = {
    "no groups": (one("Conv", W, group=0), "its attribute 'group' is 0" + WHOLE.format(1)),
    "no groups, turned": (
        one("ConvTranspose", floats(3, 4, 3, 3), group=0),
        "its attribute 'group' is 0" + WHOLE.format(1),
    ),
    "groups": (
        one("Conv", W, group=2),
        "its input has 3 channels, its weight [4, 3, 3, 3] takes 6 in 2 groups",
    ),
    "groups that do not divide": (
        one("Conv", floats(4, 1, 3, 3), group=3),
        "3 groups of 4 channels, which they do not divide",
    ),
    "steps of none": (one("Conv", W, strides=[0, 0]), "its attribute 'strides' is [0, 0]" + WHOLE.format(1)),
    "dilation": (one("Conv", W, dilations=[1, -1]), "its attribute 'dilations' is [1, -1]" + WHOLE.format(1)),
    "pads below none": (
        one("Conv", W, pads=[-9] * 4),
        "its attribute 'pads' is [-9, -9, -9, -9]" + WHOLE.format(0),
    ),
    "kernel": (one("Conv", W, kernel_shape=[5, 5]), "kernel_shape [5, 5] of a weight [4, 3, 3, 3]"),
    "bias": (one("Conv", W, floats(3)), "a bias of 3 numbers for 4 channels"),
    "wide": (one("Conv", W, dilations=[9, 9]), "a window 19 wide over dimension 2, which is 8 wide"),
    "one step": (
        one("Conv", W, strides=[1]),
        "is refused by onnx: Attribute strides has incorrect size" + page("Conv"),
    ),
    "empty window": (
        one("MaxPool", kernel_shape=[0, 0]),
        "its attribute 'kernel_shape' is [0, 0]" + WHOLE.format(1),
    ),
    "two open sizes": (
        one("Reshape", ints(-1, -1)),
        "is refused by onnx: Target shape may not have multiple -1 dimensions" + page("Reshape"),
    ),
    "sizes": (one("Reshape", ints(7, 7)), "[1, 3, 8, 8] has 192 elements, the shape [7, 7] holds 49"),
    "axis": (one("Softmax", axis=FAR), f"its attribute 'axis' is {FAR}" + COUNTED),
    "axis of a concat": (
        one("Concat", floats(1, 3, 8, 8), axis=-FAR),
        f"its attribute 'axis' is {-FAR}" + COUNTED,
    ),
    "axis near": (one("Gather", ints(0), axis=4), "axis 4 of an operand of 4 dimensions"),
    "axis of a norm": (one("LayerNormalization", floats(8), axis=9), "axis 9 of an operand of 4 dimensions"),
    "axes": (
        one("Squeeze", ints(FAR)),
        f"is refused by onnx: Unexpected axis value: {FAR}. Expected range [-4, 4)" + page("Squeeze"),
    ),
    "turned twice": (
        one("Transpose", perm=[0, 1, 2, 2]),
        "is refused by onnx: Attribute perm for Transpose has repeated value: 2" + page("Transpose"),
    ),
    "index": (one("Gather", ints(0, 7), axis=1), "index 7 into dimension 1, which has 3 entries"),
    "index below": (one("Gather", ints(-4), axis=1), "index -4 into dimension 1, which has 3 entries"),
    "index of elements": (
        one("GatherElements", np.full((1, 1, 1, 1), 9), axis=1),
        "index 9 into dimension 1, which has 3 entries",
    ),
    "index of tuples": (one("GatherND", np.full((1, 2), 1)), "index 1 into dimension 0, which has 1 entries"),
    "blocks": (one("DepthToSpace", blocksize=2), "blocks of 2 x 2 do not divide [1, 3, 8, 8]"),
    "blocks of none": (one("SpaceToDepth", blocksize=0), "its attribute 'blocksize' is 0" + WHOLE.format(1)),
    "cut off": (
        one("Pad", ints(0, 0, 0, 0, 0, -5, 0, 0)),
        "pads [0, 0, 0, 0, 0, -5, 0, 0] leave -2 of dimension 1, which has 3 entries",
    ),
    "slope": (one("PRelu", floats(5)), "a slope of shape [5] does not broadcast to [1, 3, 8, 8]"),
    "channels": (
        one("InstanceNormalization", floats(5), floats(3)),
        "a scale of shape [5] for 3 channels",
    ),
    "groups of a norm": (
        one("GroupNormalization", floats(3), floats(3), num_groups=2),
        "2 groups of 3 channels, which they do not divide",
    ),
    "sizes of a resize": (
        one("Resize", "", np.asarray([1, 1, 0, 2], np.float32)),
        "its scales are [1.0, 1.0, 0.0, 2.0]; accepted: finite numbers above 0",
    ),
    "states": (
        one("LSTM", floats(1, 16, 8), floats(1, 16, 4), x=[1, 3, 8], hidden_size=5),
        "W is [1, 16, 8]; 5 states in 1 directions take [1, 20, 8]",
    ),
    "broadcast": (one("Add", floats(5)), "is refused by onnx: Incompatible dimensions" + page("Add")),
    "type": (
        one("Add", np.ones(1)),
        "is refused by onnx: B has inconsistent type tensor(double)" + page("Add"),
    ),
    "no attribute": (
        one("Concat", floats(1, 3, 8, 8)),
        "is refused by onnx: Required attribute 'axis' is missing" + page("Concat"),
    ),
    "an attribute more": (
        one("Relu", foo=1),
        "is refused by onnx: Unrecognized attribute: foo for operator Relu" + page("Relu"),
    ),
    "another attribute": (
        one("Softmax", axis=1.5),
        "is refused by onnx: Mismatched attribute type in 'it : axis'. Expected: 'INT', actual: 'FLOAT'"
        + page("Softmax"),
    ),
    "an operand more": (
        one("Relu", floats(1)),
        "is refused by onnx: Node(it) with schema(::Relu:14) has input size 2 not in range [min=1, max=1]"
        + page("Relu"),
    ),
    "too new": (
        one("Gelu", opset=13),
        "is no operator of opset 13, which the model imports (ONNX has it from opset 20 on)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("read", [read_onnx, read_written])
def test_an_op_is_refused(case, read):
    data, why = REFUSED[case]
    kind = onnx.ModelProto.FromString(data).graph.node[0].op_type
    with pytest.raises(ModelError) as caught:
        read(data)
    colon = " " if why.startswith("is ") else ": "
    assert str(caught.value) == f"{kind} at 'it'{colon}{why}"


def test_an_output_that_is_declared_otherwise():
    for data, what in (
        (one("Relu", shape=[1, 4]), "shape [1, 4], and is computed by Relu at 'it' with [1, 3, 8, 8]"),
        (
            one("Relu", shape=[1, 3, 8, 7]),
            "shape [1, 3, 8, 7], and is computed by Relu at 'it' with [1, 3, 8, 8]",
        ),
        (
            one("Relu", dtype=TensorProto.FLOAT16),
            "element type f16, and is computed by Relu at 'it' with f32",
        ),
    ):
        with pytest.raises(ModelError, match="output 'y' is declared with the ") as caught:
            read_onnx(data)
        assert what in caught.value.message
        assert caught.value.hint.startswith("declare ")


def body(node) -> bytes:
    """An If whose branches hold one node."""
    inner = helper.make_graph([node], "body", [], [port("z", None)])
    branches = {"then_branch": inner, "else_branch": inner}
    outer = helper.make_node("If", ["c"], ["y"], "choice", **branches)
    tensors = [numpy_helper.from_array(floats(3, 4, 3, 3), "w")]
    ports = [port("c", [], TensorProto.BOOL), port("x", X)]
    graph = helper.make_graph([outer], "g", ports, [port("y", None)], tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


def test_an_op_in_a_body_is_refused_before_onnx_divides_by_zero():
    with pytest.raises(ModelError, match="ConvTranspose at 'in': its attribute 'group' is 0"):
        read_onnx(body(helper.make_node("ConvTranspose", ["x", "w"], ["z"], "in", group=0)))


def test_a_body_that_onnx_refuses():
    with pytest.raises(
        ModelError, match=r"If at 'choice' is refused by onnx: .*Transpose.* repeated value: 2"
    ):
        read_onnx(body(helper.make_node("Transpose", ["x"], ["z"], "in", perm=[0, 1, 2, 2])))


def test_an_operand_in_a_body_that_does_not_fit():
    with pytest.raises(ModelError, match="Conv at 'in': its input has 3 channels, its weight"):
        read_onnx(body(helper.make_node("Conv", ["x", "w"], ["z"], "in")))


def unsorted_model() -> bytes:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    graph = helper.make_graph(nodes, "g", [port("x", X)], [port("y", X)])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


def stale_inner() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [port("x", X)], [port("y", X)], value_info=[port("a", [2, 3, 8, 8])]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


RUN = {
    "nodes out of order": unsorted_model(),
    "an inner shape of another batch": stale_inner(),
    "an output without a shape": one("Relu"),
    "an operator of onnxruntime": one("LayerNormalization", floats(8), axis=-1, opset=11),
    "axis behind the last, of old": one("Flatten", axis=4),
    "negative pads": one("Pad", ints(0, 0, -1, 0, 0, 0, -1, 0)),
    "an operator whose body onnx refuses": one("MeanVarianceNormalization"),
    "negative index": one("Gather", ints(-3), axis=1),
}


@pytest.mark.parametrize("case", RUN)
def test_what_an_engine_runs_is_read(case):
    session(RUN[case]).run(None, {"x": np.ones(X, np.float32)})
    read_onnx(RUN[case])


def test_a_plug_in_of_the_standard_domain_stays_opaque():
    assert [op.type for op in read_onnx(one("EfficientNMS_TRT")).ops] == ["EfficientNMS_TRT"]


@pytest.mark.parametrize(
    "node",
    [
        "GatherElements(k, j)",
        "GatherElements(s, z)",
        'Pad<mode="odd">(v, i)',
        'Resize<nearest_mode="odd">(v, , n)',
        "ReverseSequence(k, i)",
        "ReverseSequence<time_axis=5>(k, i)",
    ],
)
def test_constants_that_no_engine_can_move_stay_with_their_op(node):
    """They are not folded, and running says what is wrong."""
    constants = "float[3,2] k = {1,2,3,4,5,6}, float[3] v = {1,2,3}, float s = {1}, float[1] n = {2}"
    constants += ", int64[2] i = {9,9}, int64[2] j = {0,1}, int64 z = {0}"
    text = f"g (float[1] x) => (y) <{constants}> {{ c = {node} y = Add(x, c) }}"
    assert [op.type for op in read_onnx(model(text)).ops] == [node.split("(")[0].split("<")[0], "Add"]
