"""Old opsets: read as opset 21, they compute what onnxruntime computes of the old file."""

import numpy as np
import pytest
from onnx import helper

from planner.errors import ModelError
from planner.formats.onnx.opsets import ADAPTERS
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import Node, write_graph, write_model
from planner.ir.operators.axes import axes_of
from tests.formats.onnx.reader.runs import model, op_types, outputs, read_same

OLD = [
    (7, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }"),
    (7, "g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }"),
    (7, "g (float[2,3,1,1] x) => (float[2,3,1,1] y) { y = LogSoftmax<axis=1>(x) }"),
    (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis=-2>(x) }"),
    (11, "g (float[N,M,4] x) => (float[N,M,4] y) { y = Softmax<axis=1>(x) }"),
    (7, "g (float[2,3] x) => (float[2,3] y) { y = Clip<min=-0.5, max=0.25>(x) }"),
    (7, "g (float[2,3] x) => (float[2,3] y) { y = Clip<max=0.25>(x) }"),
    (7, "g (float[2,3] x) => (float[2,3] y) { y = Clip<min=-0.25>(x) }"),
    (7, "g (float[2,3] x) => (float[3,5] y) { y = Pad<pads=[1,1,0,1], value=2.0>(x) }"),
    (7, 'g (float[2,3] x) => (float[4,3] y) { y = Pad<pads=[1,0,1,0], mode="reflect">(x) }'),
    (7, "g (float[2,3] x) => (float[1,2] y) { y = Slice<starts=[0,1], ends=[1,9]>(x) }"),
    (7, "g (float[2,3] x) => (float[2,1] y) { y = Slice<starts=[-1], ends=[9], axes=[1]>(x) }"),
    (7, "g (float[2,1,3] x) => (float[2,3] y) { y = Squeeze<axes=[1]>(x) }"),
    (11, "g (float[2,3] x) => (float[2,1,3] y) { y = Unsqueeze<axes=[1]>(x) }"),
    (7, "g (float[4,3] x) => (float[1,3] y, float[3,3] z) { y, z = Split<axis=0, split=[1,3]>(x) }"),
    (11, "g (float[4,3] x) => (float[2,3] y, float[2,3] z) { y, z = Split<axis=0>(x) }"),
    (17, "g (float[4,3] x) => (float[2,3] y, float[2,3] z) { y, z = Split<axis=0>(x) }"),
    (7, "g (float[4,5] x) => (float[4,2] y, int64[4,2] i) { y, i = TopK<k=2>(x) }"),
    (7, "g (float[2,3] x) => (float[2,1] y) { y = ReduceMean<axes=[1]>(x) }"),
    (12, "g (float[2,3] x) => (float[3] y) { y = ReduceSum<axes=[0], keepdims=0>(x) }"),
    (17, "g (float[2,3] x) => (float[3] y) { y = ReduceMax<axes=[0], keepdims=0>(x) }"),
    (17, "g (float[2,3] x) => (float[1,1] y) { y = ReduceL2(x) }"),
    (7, 'g (float[1,1,2,2] x) => (y) { y = Upsample<mode="nearest", scales=[1.0,1.0,2.0,3.0]>(x) }'),
    (9, 'g (float[1,1,2,2] x) => (y) <float[4] s = {1,1,2,2}> { y = Upsample<mode="linear">(x, s) }'),
    (10, 'g (float[1,1,3,3] x) => (y) <float[4] s = {1,1,1.5,2}> { y = Resize<mode="nearest">(x, s) }'),
    (7, "g (float[2,3] x) => (float[2,3] y) { a, m = Dropout<ratio=0.3>(x) y = Relu(a) }"),
    (10, "g (float[2,3] x) => (y) <int64[1,2] i = {0,1}, float[1,2] u = {7,8}> { y = Scatter(x, i, u) }"),
    (8, "g (float[2,3] x, float[3] z) => (float[2,3] y) { a = Sum(x, z) y = Max(a, z, x) }"),
    (16, 'g (float[1,1,3,3] x, float[1,2,2,2] z) => (y) { y = GridSample<mode="bilinear">(x, z) }'),
    (17, "g (float[1,4,1] x) => (y) { y = DFT<axis=1>(x) }"),
    (10, ("g (float[1,1,4,4] x) => (y) <float[1,4] r = {0,0,3,3}, int64[1] i = {0}> "
         "{ y = RoiAlign<output_height=2, output_width=2>(x, r, i) }")),
    (13, ("g (float[2,3] x, bool c) => (y) { y = If(c) <then_branch = t () => (float[2,1] a) "
         "{ a = ReduceMean<axes=[1]>(x) }, else_branch = e () => (float[2,1] b, float[2,2] d) "
         "{ k = Constant<value_ints=[1,2]>() b, d = Split<axis=1>(x, k) }> }")),
    (8, ("g (float[3,2,2] x, float[2,2] s, float[2,2] b, float[2,2] m) => (y) "
         "{ v = Abs(b) y = BatchNormalization<spatial=0, epsilon=0.5>(x, s, b, m, v) }")),
    (7, ("g (float[1,2,2,2] x) => (y) <float[2] s={1,2},float[2] b={3,4},float[2] m={0,1},float[2] v={1,2}>"
        "{ y = BatchNormalization(x, s, b, m, v) }")),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [2, -1])
def test_a_row_of_one_axis_needs_no_flatten_though_the_file_says_no_shape(kind, axis):
    text = f"g (float[N,4,M] x) => (y) {{ t = Transpose<perm=[0,2,1]>(x) y = {kind}<axis={axis}>(t) }}"
    graph = read_onnx(model(text, opset=11))
    assert op_types(graph) == ["Transpose", kind]
    assert graph.ops[-1].attributes["axis"] % 3 == 2
    assert axes_of(graph)["y"].kinds[2] == ("class" if kind == "Softmax" else "")
    read_same(model(text.replace("N,4,M", "2,4,3"), opset=11))


def test_a_row_of_several_axes_keeps_its_flatten():
    text = "g (float[N,4,M] x) => (y) { t = Transpose<perm=[0,2,1]>(x) y = Softmax<axis=1>(t) }"
    assert op_types(read_onnx(model(text, opset=11))) == [
        "Transpose",
        "Flatten",
        "Softmax",
        "Shape",
        "Reshape",
    ]


@pytest.mark.parametrize(
    ("shape", "flatten", "axis"),
    [((3, 4), 1, 0), ((3, 4), -1, -2), ((3,), 1, -1), ((2, 3, 4), 3, -1)],
    ids=["columns", "columns_from_the_end", "behind_the_only_axis", "behind_the_last_axis"],
)
def test_a_file_s_own_flatten_of_other_rows_stays(shape, flatten, axis):
    sizes = ",".join(map(str, shape))
    text = f"g (float[{sizes}] x) => (float[{sizes}] y) {{"
    text += f" f = Flatten<axis={flatten}>(x) p = Softmax<axis={axis}>(f) s = Shape(x) y = Reshape(p, s) }}"
    names = ",".join("ABC"[: len(shape)])
    source = model(text.replace(sizes, names), opset=21)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert "Flatten" in op_types(read_same(source, {"x": x}))


@pytest.mark.parametrize(("opset", "text"), OLD, ids=[f"{i}_opset_{case[0]}" for i, case in enumerate(OLD)])
def test_old_opsets_mean_the_same(opset, text):
    graph = read_same(model(text.replace(", float[2,2] d)", ")"), opset=opset))
    assert graph.opsets[""] == 21


RELICS = [
    (
        Node("ImageScaler", ("x",), ("y",), attributes={"scale": 2.0, "bias": (1.0, -1.0)}),
        lambda x: x * np.float32(2) + np.array([1, -1], np.float32).reshape(1, 2, 1, 1),
    ),
    (Node("Crop", ("x",), ("y",), attributes={"border": (1, 0, 0, 2)}), lambda x: x[:, :, 0:-2, 1:]),
    (
        Node("Crop", ("x",), ("y",), attributes={"border": (1, 2, 0, 0), "scale": (2, 3)}),
        lambda x: x[:, :, 2:4, 1:4],
    ),
]


@pytest.mark.parametrize(("node", "wanted"), RELICS)
def test_relics_become_plain_ops(node, wanted):
    data = write_model(
        name="relic",
        nodes=[node],
        inputs=[("x", "f32", (1, 2, 5, 5))],
        outputs=[("y", "f32", None)],
        constants={},
        opset=8,
        ir_version=3,
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 5)).astype(np.float32)
    graph = read_onnx(data)
    np.testing.assert_allclose(outputs(write_graph(graph), {"x": x})["y"], wanted(x), rtol=1e-6)
    assert graph.values["y"].shape == wanted(x).shape


def test_newer_opsets_come_down_where_they_can():
    text = "g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"
    assert read_onnx(model(text, opset=24)).opsets[""] == 21


def test_newer_ops_keep_their_opset():
    text = "g (float[2,4] x, int64 i) => (float[2,4] y) { [up] y = CumProd(x, i) }"
    graph = read_onnx(model(text, opset=26))
    assert (graph.opsets[""], op_types(graph)) == (26, ["CumProd"])
    assert graph.notes == ("opset 26 is kept: CumProd at 'up' is newer than opset 21",)


@pytest.mark.parametrize(
    ("opset", "text", "message"),
    [
        (0, "g (float[2] x) => (float[2] y) { y = Relu(x) }",
         "the model is of opset 0, which is too old (1 to 28 can be read)"),
        (99, "g (float[2] x) => (float[2] y) { y = Relu(x) }",
         "the model is of opset 99, which is too new (1 to 28 can be read)"),
    ],
)  # fmt: skip
def test_what_no_opset_can_say_is_refused(opset, text, message):
    with pytest.raises(ModelError) as caught:
        read_onnx(model(text, opset=opset))
    assert str(caught.value) == message


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("shape", ["n,6,3,2", "2,6,5", "2,6"])
def test_gains_of_groups(opset, shape):
    """Before opset 21 GroupNormalization has a gain for each group, by the schema's formula."""
    text = (
        f"g (float[{shape}] x, float[3] s, float[3] c) => (y) "
        "{ y = GroupNormalization<num_groups=3, epsilon=0.25>(x, s, c) }"
    )
    read = read_onnx(model(text, opset=opset))
    assert op_types(read) == ["Reshape", "InstanceNormalization", "Shape", "Reshape"] or "n" not in shape
    rng = np.random.default_rng(18)
    x = rng.normal(2, 3, [int(dim) if dim != "n" else 4 for dim in shape.split(",")]).astype(np.float32)
    s, c = rng.normal(size=(2, 3)).astype(np.float32)
    groups = x.reshape(len(x), 3, -1).astype(np.float64)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 0.25)
    wanted = (normal * s[:, None] + c[:, None]).reshape(x.shape)
    found = outputs(write_graph(read), {"x": x, "s": s, "c": c})["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


def test_gains_of_channels_in_an_old_opset():
    text = "g (float[1,6,2] x, float[6] s) => (y) { [gn] y = GroupNormalization<num_groups=3>(x, s, s) }"
    with pytest.raises(ModelError, match=r"'gn': a scale of shape \[6\] for 3 groups"):
        read_onnx(model(text, opset=18))


def test_every_adapter_is_tested():
    texts = " ".join(text for _, text in OLD) + " ".join(node.op_type for node, _ in RELICS)
    texts += " GroupNormalization Scan "
    untested = {kind for kind in ADAPTERS if kind not in texts and not kind.startswith("Reduce")}
    assert untested == set()


def test_a_function_of_an_older_opset_than_its_model():
    """Its nodes are converted when it is inlined, which takes the types of what they read."""
    older = helper.make_node("ReduceMean", ["a"], ["b"], axes=[1], keepdims=1)
    mean = helper.make_function("local", "Mean", ["a"], ["b"], [older], [helper.make_opsetid("", 13)])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Mean", ["r"], ["m"], domain="local"),
        helper.make_node("Neg", ["m"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [2, 3]), ("y", [2, 1]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    mixed = helper.make_model(graph, functions=[mean], opset_imports=opsets, ir_version=8)
    read = read_onnx(mixed.SerializeToString())
    x = np.array([[-1, 2, 4], [3, 3, 0]], np.float32)
    assert outputs(write_graph(read), {"x": x})["y"].tolist() == [[-2.0], [-2.0]]
