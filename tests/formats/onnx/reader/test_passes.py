"""Normal form: what each pass leaves of a small model, which computes the same before and after."""

import numpy as np
import onnx
import onnx.helper
import pytest

from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import Node, write_model
from tests.formats.onnx.reader.runs import assert_same_numbers, model, op_types, read_same

CONV_W = "float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}"
BN = "float[4] s = {1,2,3,4}, float[4] b = {1,-1,2,-2}, float[4] m = {0,1,2,3}, float[4] v = {1,2,3,4}"
CHANNELS = "float[1,4,1,1] k = {1,2,3,4}, float[4,1,1] j = {-1,1,0.5,2}"
BRANCHES = (
    "<then_branch = t () => (float[2] a) { a = Relu(x) }, else_branch = e () => (float[2] a) { a = Exp(x) }>"
)

PASSES = {
    # an Identity before an output: the output keeps its name
    "identity": (
        "g (float[2,3] x) => (float[2,3] y) { a = Identity(x) b = Relu(a) y = Identity(b) }",
        ["Relu"],
    ),
    "identity_of_input": ("g (float[2] x) => (float[2] y) { y = Identity(x) }", ["Identity"]),
    "identity_twice": (
        "g (float[2] x) => (float[2] y, float[2] z) { r = Relu(x) y = Identity(r) z = Identity(r) }",
        ["Relu", "Identity"],
    ),
    "dropout": ("g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Dropout(a) }", ["Relu"]),
    "cast_to_same": ("g (float[2] x) => (float[2] y) { a = Cast<to=1>(x) y = Relu(a) }", ["Relu"]),
    "cast_like": ("g (float[2] x, double[1] t) => (double[2] y) { y = CastLike(x, t) }", ["Cast"]),
    "cast_like_its_own": (
        "g (float[2] x, float[1] t) => (float[2] y) { a = CastLike(x, t) y = Relu(a) }",
        ["Relu"],
    ),
    "power_of_an_integer": (
        "g (float[2] x) => (float[2] y) <int64 n = {3}> { y = Pow(x, n) }",
        ["Pow"],
    ),
    "power_of_integers_that_come": (
        "g (float[2] x, int64[2] n) => (float[2] y) { y = Pow(x, n) }",
        ["Cast", "Pow"],
    ),
    "sum_of_one": ("g (float[2] x) => (float[2] y) { a = Sum(x) y = Relu(a) }", ["Relu"]),
    "sum_of_two": ("g (float[2] x, float[2] z) => (float[2] y) { y = Sum(x, z) }", ["Add"]),
    "sum_of_three": ("g (float[2] x, float[2] z) => (float[2] y) { y = Sum(x, z, x) }", ["Add", "Add"]),
    "constants": (
        (
            "g (float[2,3] x) => (float[2,3] y) "
            "{ c = Constant<value_float=2.0>() d = Constant<value_ints=[1]>() "
            "e = Cast<to=1>(d) f = Mul(c, e) y = Mul(x, f) }"
        ),
        ["Mul"],
    ),
    "moved": (
        (
            "g (float[4,2] x) => (float[4,2] y) <float[2,4] c = {1,2,3,4,5,6,7,8}, int64[2] i = {-1,0}, "
            "int64[2] n = {4,2}> "
            "{ t = Transpose(c) g = Gather<axis=1>(t, i) r = Reshape(c, n) d = Add(x, g) "
            "q = Concat<axis=-1>(g, r) o = Transpose<perm=[1,0]>(q) p = Gather(o, i) w = Transpose(p) "
            "y = Mul(d, w) }"
        ),
        ["Add", "Mul"],
    ),
    "repeated": (
        (
            "g (float[3,2] x) => (float[3,2] y) <float[3,1] c = {1,2,3}, int64[2] n = {1,2}> "
            "{ e = Expand(c, n) y = Mul(x, e) }"
        ),
        ["Mul"],
    ),
    "sliced": (
        (
            "g (float[2,2] x) => (float[2,2] y) <float[3,4] c = {1,2,3,4,5,6,7,8,9,10,11,12}, "
            "int64[2] s = {-2,1}, int64[2] e = {9000000000000000000,-1}> { k = Slice(c, s, e) y = Mul(x, k) }"
        ),
        ["Mul"],
    ),
    "sliced_along_axes": (
        (
            "g (float[3,2] x) => (float[3,2] y) <float[3,4] c = {1,2,3,4,5,6,7,8,9,10,11,12}, "
            "int64[1] s = {-9}, int64[1] e = {4}, int64[1] a = {-1}, int64[1] n = {2}> "
            "{ k = Slice(c, s, e, a, n) y = Mul(x, k) }"
        ),
        ["Mul"],
    ),
    "sliced_backwards": (
        (
            "g (float[3,4] x) => (float[3,4] y) <float[3,4] c = {1,2,3,4,5,6,7,8,9,10,11,12}, "
            "int64[1] s = {-1}, int64[1] e = {-9}, int64[1] a = {1}, int64[1] n = {-1}> "
            "{ k = Slice(c, s, e, a, n) y = Mul(x, k) }"
        ),
        ["Mul"],
    ),
    "fill": (
        (
            "g (float[2,3] x) => (float[2,3] y) <int64[2] n = {2,3}> "
            "{ c = ConstantOfShape<value=float[1] {1.5}>(n) y = Mul(x, c) }"
        ),
        ["Mul"],
    ),
    "shape_chain": (
        (
            "g (float[2,3,4] x) => (float[2,12] y) <int64 i = {0}, int64[1] m = {-1}, int64[1] z = {0}> "
            "{ s = Shape(x) n = Gather(s, i) u = Unsqueeze(n, z) t = Concat<axis=0>(u, m) y = Reshape(x, t) }"
        ),
        ["Reshape"],
    ),
    "shape_chain_of_symbols": (
        (
            "g (float[N,3,4] x) => (float[N,12] y) <int64 i = {0}, int64[1] m = {-1}, int64[1] z = {0}> "
            "{ s = Shape(x) n = Gather(s, i) u = Unsqueeze(n, z) t = Concat<axis=0>(u, m) y = Reshape(x, t) }"
        ),
        ["Shape", "Gather", "Unsqueeze", "Concat", "Reshape"],
    ),
    "conv_batch_norm": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {BN}> "
            "{ c = Conv(x, w) y = BatchNormalization<epsilon=0.01>(c, s, b, m, v) }"
        ),
        ["Conv"],
    ),
    "conv_batch_norm_mul_add_relu": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {BN}, {CHANNELS}> "
            "{ c = Conv(x, w, b) n = BatchNormalization(c, s, b, m, v) "
            "p = Mul(n, k) q = Add(j, p) y = Relu(q) }"
        ),
        ["Conv", "Relu"],
    ),
    # neither is an affine map of the convolution's weights with a factor of one sign
    "conv_from_constant": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {CHANNELS}> "
            "{ c = Conv(x, w) y = Sub(k, c) }"
        ),
        ["Conv", "Sub"],
    ),
    "conv_below_constant": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {CHANNELS}> "
            "{ c = Conv(x, w) y = Div(k, c) }"
        ),
        ["Conv", "Div"],
    ),
    "conv_sub_div": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {CHANNELS}> "
            "{ c = Conv(x, w) p = Sub(c, k) y = Div(p, j) }"
        ),
        ["Conv"],
    ),
    "conv_read_twice": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, {CHANNELS}> "
            "{ c = Conv(x, w) p = Mul(c, k) y = Add(c, p) }"
        ),
        ["Conv", "Mul", "Add"],
    ),
    "conv_is_an_output": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] c, float[1,4,2,2] y) <{CONV_W}, {CHANNELS}> "
            "{ c = Conv(x, w) y = Mul(c, k) }"
        ),
        ["Conv", "Mul"],
    ),
    "conv_times_a_plane": (
        (
            f"g (float[1,3,2,2] x) => (float[1,4,2,2] y) <{CONV_W}, float[2,2] k = {{1,2,3,4}}> "
            "{ c = Conv(x, w) y = Mul(c, k) }"
        ),
        ["Conv", "Mul"],
    ),
    "conv_plus_higher_rank": (
        (
            f"g (float[1,3,2,2] x) => (float[1,1,4,2,2] y) <{CONV_W}, float[1,1,1,1,1] k = {{1}}> "
            "{ c = Conv(x, w) y = Add(c, k) }"
        ),
        ["Conv", "Add"],
    ),
    "convs_share_a_weight": (
        (
            f"g (float[1,3,2,2] x, float[1,3,2,2] z) => (float[1,4,2,2] y) <{CONV_W}, {BN}> "
            "{ c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) d = Conv(z, w) y = Add(n, d) }"
        ),
        ["Conv", "Conv", "Add"],
    ),
    "conv_transpose_batch_norm": (
        (
            "g (float[1,4,2,2] x) => (float[1,4,3,3] y) "
            f"<float[4,2,2,2] w = {{{','.join(str(i) for i in range(32))}}}, {BN}> "
            "{ c = ConvTranspose<group=2>(x, w) y = BatchNormalization(c, s, b, m, v) }"
        ),
        ["ConvTranspose"],
    ),
    "batch_norm_alone": (
        f"g (float[1,4,2,2] x) => (float[1,4,2,2] y) <{BN}> {{ y = BatchNormalization(x, s, b, m, v) }}",
        ["BatchNormalization"],
    ),
    "batch_norm_mul_add": (
        (
            f"g (float[1,4,2,2] x) => (float[1,4,2,2] y) <{BN}, {CHANNELS}> "
            "{ n = BatchNormalization(x, s, b, m, v) p = Mul(n, k) y = Add(p, j) }"
        ),
        ["BatchNormalization"],
    ),
    "gemm_factors": (
        (
            "g (float[2,3] x) => (float[2,2] y) <float[2,3] w = {1,2,3,4,5,6}, float[2] b = {1,2}> "
            "{ y = Gemm<alpha=2.0, beta=0.5, transB=1>(x, w, b) }"
        ),
        ["Gemm"],
    ),
    "gemm_factors_of_inputs": (
        (
            "g (float[2,3] x, float[3,2] w) => (float[2,2] y) <float[2] b = {1,2}> "
            "{ y = Gemm<alpha=2.0, beta=0.5>(x, w, b) }"
        ),
        ["MatMul", "Mul", "Add"],
    ),
    "gemm_of_inputs": (
        ("g (float[3,2] x, float[4,3] w) => (float[2,4] y) { y = Gemm<transA=1, transB=1>(x, w) }"),
        ["Transpose", "Transpose", "MatMul"],
    ),
    "gemm_scalar_bias": (
        (
            "g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}, float b = {2}> "
            "{ y = Gemm(x, w, b) }"
        ),
        ["Gemm"],
    ),
    "gemm_column_bias": (
        (
            "g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}, float[2,1] b = {2,3}> "
            "{ y = Gemm<beta=0.5>(x, w, b) }"
        ),
        ["Gemm", "Add"],
    ),
    "gemm_bias_of_input": (
        (
            "g (float[2,3] x, float[2] b) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}> "
            "{ y = Gemm<beta=0.5>(x, w, b) }"
        ),
        ["Gemm", "Mul", "Add"],
    ),
    "gemm_absent_bias": (
        'g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}> { y = Gemm(x, w, "") }',
        ["Gemm"],
    ),
    "pad_axes": (
        (
            "g (float[2,3] x) => (float[2,6] y) <int64[2] p = {1,2}, int64[1] a = {-1}, float v = {3}> "
            "{ y = Pad(x, p, v, a) }"
        ),
        ["Pad"],
    ),
    "dropout_absent_mask": (
        'g (float[2,3] x) => (float[2,3] y) { d, _ = Dropout(x) c = Clip(d, "", "") y = Relu(c) }',
        ["Clip", "Relu"],
    ),
    "gemm_batch_norm": (
        (
            f"g (float[2,2] x) => (float[2,4] y) <float[4,2] w = {{1,2,3,4,5,6,7,8}}, {BN}> "
            "{ c = Gemm<transB=1>(x, w) y = BatchNormalization(c, s, b, m, v) }"
        ),
        ["Gemm"],
    ),
    "matmul_add": (
        (
            "g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}, float[2] b = {1,2}> "
            "{ c = MatMul(x, w) y = Add(b, c) }"
        ),
        ["Gemm"],
    ),
    "matmul_mul": (
        (
            "g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1,2,3,4,5,6}, float h = {0.5}> "
            "{ c = MatMul(x, w) y = Mul(c, h) }"
        ),
        ["MatMul"],
    ),
    "matmul_add_of_rank_3": (
        (
            "g (float[2,2,3] x) => (float[2,2,2] y) <float[3,2] w = {1,2,3,4,5,6}, float[2] b = {1,2}> "
            "{ c = MatMul(x, w) y = Add(c, b) }"
        ),
        ["MatMul", "Add"],
    ),
    "dead_ops": ("g (float[2] x) => (float[2] y) <float[2] u = {1,2}> { d = Exp(x) y = Relu(x) }", ["Relu"]),
    # Constants of an inlined body, one of them its result
    "known_branch_with_constants": (
        (
            "g (float[2] x) => (float[2] y) <bool c = {1}> { s = If(c) "
            "<then_branch = t () => (float[1] p) { p = Constant<value_floats=[2.0]>() }, "
            "else_branch = e () => (float[1] p) { q = Constant<value_floats=[1.0]>() p = Neg(q) }> "
            "y = Mul(x, s) }"
        ),
        ["Mul"],
    ),
    "known_branch_computes_a_constant": (
        (
            "g (float[2] x) => (float[2] y) <bool c = {0}> { s = If(c) "
            "<then_branch = t () => (float[1] p) { p = Constant<value_floats=[2.0]>() }, "
            "else_branch = e () => (float[1] p) { q = Constant<value_floats=[1.0]>() p = Neg(q) }> "
            "y = Mul(x, s) }"
        ),
        ["Mul"],
    ),
    "known_branch": (
        (f"g (float[2] x) => (float[2] y) <bool c = {{1}}> {{ y = If(c) {BRANCHES} }}"),
        ["Relu"],
    ),
    "captured_values": (
        (
            "g (float[2] x, bool c) => (float[2] y) <float[2] k = {1,2}> "
            "{ a = Identity(x) b = Neg(x) d = Identity(b) "
            "y = If(c) <then_branch = t () => (float[2] p) { p = Add(a, k) }, "
            "else_branch = e () => (float[2] q) { q = Add(d, k) }> }"
        ),
        # An Identity that a body captured is gone too: the body reads what it copies.
        [
            "Identity",
            "Neg",
            "Identity",
            *["qplan::Begin"] * 2,
            "Add",
            *["qplan::Begin"] * 2,
            "Add",
            "qplan::Join",
        ],
    ),
    "zero_size": (
        (
            "g (float[0,3] x) => (float[0,2] y) <float[3,2] w = {1,2,3,4,5,6}, float[2] b = {1,2}> "
            "{ c = MatMul(x, w) y = Add(c, b) }"
        ),
        ["Gemm"],
    ),
    "scalars": ("g (float x) => (float y) <float k = {2}> { a = Mul(x, k) y = Relu(a) }", ["Mul", "Relu"]),
    "no_initializers": ("g (float[N,M] x) => (float[N,M] y) { a = Exp(x) y = Neg(a) }", ["Exp", "Neg"]),
}


@pytest.mark.parametrize("case", PASSES)
def test_pass(case):
    text, left = PASSES[case]
    assert op_types(read_same(model(text))) == left


def test_a_known_branch_with_names_in_use_is_renamed():
    """A body that shadows a name is refused by onnxruntime; files do it all the same."""
    text = (
        f"g (float[2] x) => (float[2] y) <bool c = {{0}}> {{ a = Neg(x) z = If(c) {BRANCHES} y = Add(a, z) }}"
    )
    graph = read_onnx(model(text))
    assert op_types(graph) == ["Neg", "Exp", "Add"]
    plain = model("g (float[2] x) => (float[2] y) { a = Neg(x) z = Exp(x) y = Add(a, z) }")
    assert_same_numbers(plain, graph)


def test_fp16_weights_behind_casts_become_f32():
    nodes = [
        Node("Cast", ("h",), ("w",), attributes={"to": 1}),
        Node("Transpose", ("w",), ("t",), attributes={"perm": (1, 0)}),
        Node("MatMul", ("x", "t"), ("y",)),
    ]
    ports = {"inputs": [("x", "f32", (2, 2))], "outputs": [("y", "f32", (2, 2))]}
    half = np.asarray([[1.5, 2], [3, 4]], dtype=np.float16)
    graph = read_same(write_model(name="m", nodes=nodes, constants={"h": half}, **ports))
    assert [(name, graph.values[name].dtype) for name in graph.constants] == [("t", "f32")]


def test_fp16_models_stay_fp16():
    nodes = [Node("MatMul", ("x", "w"), ("y",))]
    data = write_model(
        name="half",
        nodes=nodes,
        inputs=[("x", "f16", (1, 2))],
        outputs=[("y", "f16", (1, 2))],
        constants={"w": np.eye(2, dtype=np.float16)},
    )
    graph = read_same(data)
    assert {value.dtype for value in graph.values.values()} == {"f16"}


def test_names_are_kept_and_missing_ones_made():
    nodes = [
        Node("Relu", ("a 'b'",), ('c/"d"',), name='first "op"/x y'),
        Node("Relu", ('c/"d"',), ("e",)),
        Node("Relu", ("e",), ("f",), name='first "op"/x y'),
        Node("Relu", ("f",), ("g",), name="Relu_1"),
    ]
    data = write_model(
        name="names", nodes=nodes, inputs=[("a 'b'", "f32", (2,))], outputs=[("g", "f32", (2,))], constants={}
    )
    graph = read_onnx(data)
    assert [op.name for op in graph.ops] == ['first "op"/x y', "Relu_1_1", 'first "op"/x y_2', "Relu_1"]
    assert graph.inputs == ("a 'b'",)


def test_what_is_too_big_is_not_unfolded():
    text = (
        "g (float[1] x) => (float[64,1048576] y) <float[1] k = {2}, int64[2] n = {64,1048576}> "
        "{ c = Expand(k, n) y = Mul(x, c) }"
    )
    assert op_types(read_onnx(model(text))) == ["Expand", "Mul"]


def test_a_fill_takes_no_memory_and_a_huge_one_stays():
    text = (
        "g (float[1] x) => (y) <int64[1] n = {%d}> "
        "{ c = ConstantOfShape<value=float[1] {1}>(n) y = Mul(x, c) }"
    )
    small, huge = read_onnx(model(text % 100_000_000)), read_onnx(model(text % 10_000_000_000))
    assert op_types(small) == ["Mul"]
    assert small.constants["c"].array.strides == (0,)
    assert op_types(huge) == ["ConstantOfShape", "Mul"]


def test_initializers_listed_as_inputs_are_no_inputs():
    text = "g (float[2] x, float[2] k) => (float[2] y) <float[2] k = {1,2}> { y = Add(x, k) }"
    parsed = onnx.ModelProto.FromString(model(text, ir=3, opset=8))
    assert len(parsed.graph.input) == 2
    assert read_onnx(parsed.SerializeToString()).inputs == ("x",)


def test_ops_out_of_order_are_ordered():
    nodes = [Node("Relu", ("a",), ("y",)), Node("Exp", ("x",), ("a",))]
    ports = {"inputs": [("x", "f32", (2,))], "outputs": [("y", "f32", (2,))]}
    assert op_types(read_onnx(write_model(name="m", nodes=nodes, constants={}, **ports))) == ["Exp", "Relu"]


def test_functions_are_inlined_and_noted():
    text = (
        'g (float[2] x) => (float[2] y) { y = local.Twice(x) } <domain: "local", opset_import: ["": 21]> '
        "Twice (a) => (b) { b = Add(a, a) }"
    )
    graph = read_same(model(text, domains=', "local": 1'))
    assert op_types(graph) == ["Add"]
    assert graph.notes == ("function Twice is inlined",)


def test_bodies_are_opened():
    text = f"g (float[2] x, bool c) => (float[2] y) {{ [branch] y = If(c) {BRANCHES} }}"
    graph = read_same(model(text))
    assert not graph.notes
    assert {path: (scope.kind, scope.index) for path, scope in graph.scopes.items()} == {
        "branch/then": ("branch", 0),
        "branch/else": ("branch", 1),
    }
    assert graph.ops[-1].inputs[0] == "c"


def test_unknown_ops_are_kept_and_their_types_guessed():
    text = "g (float[2,3] x) => (float[2,3] y) { a = my.Op<k=3>(x) y = Relu(a) }"
    graph = read_onnx(model(text, domains=', "my": 7'))
    assert [op.type for op in graph.ops] == ["my::Op", "Relu"]
    assert (graph.values["a"].shape, graph.values["a"].dtype) == (None, "f32")
    assert graph.notes == (
        "element types behind my::Op are a guess",
        "no shape is known behind my::Op at 'Op_0': later values count as one element",
    )
    assert graph.opsets == {"": 21, "my": 7}


def test_stored_constants_become_reals_of_a_width():
    text = (
        "g (float[2] x) => (float[2] y) <int8[2] q = {1,2}, float s = {0.5}, int8 z = {0}> "
        "{ w = DequantizeLinear(q, s, z) y = Mul(x, w) }"
    )
    graph = read_same(model(text))
    assert op_types(graph) == ["Mul"]
    assert [str(fact) for fact in graph.values["w"].facts] == ["!quant.any<i8<-127:127>>"]
