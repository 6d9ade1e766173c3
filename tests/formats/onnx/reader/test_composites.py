"""Composites: what is taken apart computes what onnxruntime computes for the operator whole."""

from functools import cache

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from planner.formats.onnx.composites.take_apart import BODIES
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from tests.formats.onnx.reader.runs import check_each, every_node_case, kind_of

MS = "com.microsoft"
B, S, N, H = 2, 5, 4, 16
"""Batch, rows, heads, numbers of a head."""
D = N * H


def f32(*shape):
    return ("f32", shape)


def node(kind, inputs, *, domain="", outputs=("y",), **attributes):
    return helper.make_node(kind, inputs, outputs, name="op", domain=domain, **attributes)


def model(made, inputs, constants=(), opset=21):
    """A file of one node; `inputs` by name: element type and shape."""
    kinds = {
        "f32": TensorProto.FLOAT,
        "i64": TensorProto.INT64,
        "i32": TensorProto.INT32,
        "bool": TensorProto.BOOL,
        "f16": TensorProto.FLOAT16,
    }
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info(name, kinds[kind], shape) for name, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(out) for out in made.output if out],
        [numpy_helper.from_array(array, name) for name, array in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def fed(inputs, rng):
    found = {}
    for name, (kind, shape) in inputs.items():
        sizes = [{"b": B, "s": S, "p": 3, "t": S}.get(dim, dim) for dim in shape]
        if kind in ("f32", "f16"):
            found[name] = rng.standard_normal(sizes).astype(np.float32 if kind == "f32" else np.float16)
        elif kind == "bool":
            found[name] = rng.integers(0, 2, sizes).astype(bool) | np.eye(sizes[-2], sizes[-1], dtype=bool)
        else:
            low, high = (1, S) if len(shape) == 1 else (0, 2)
            found[name] = rng.integers(low, high, sizes).astype(np.int64 if kind == "i64" else np.int32)
    return found


def run(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options)
    return session.run(None, feeds)


def weight(rng, *shape):
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


RNG = np.random.default_rng(3)
COS, SIN = (
    np.cos(np.outer(np.arange(32), 0.3 ** np.arange(H // 2))),
    np.sin(np.outer(np.arange(32), 0.3 ** np.arange(H // 2))),
)
CACHES = {"cos": COS.astype(np.float32), "sin": SIN.astype(np.float32)}
X3, X4 = f32("b", "s", D), f32("b", N, "s", H)
KV = f32("b", 2, "p", H)
QKV = {"q": X3, "k": X3, "v": X3}
PRESENT = ("y", "present_k", "present_v")

CASES = {
    # ONNX 23 and 24
    "attention of three": (node("Attention", ["q", "k", "v"], q_num_heads=N, kv_num_heads=N), QKV, {}, 23),
    "attention of four, causal": (
        node("Attention", ["q", "k", "v"], is_causal=1),
        {"q": X4, "k": X4, "v": X4},
        {},
        23,
    ),
    "attention, groups, scale, cap": (
        node("Attention", ["q", "k", "v"], q_num_heads=N, kv_num_heads=2, scale=0.2, softcap=3.0),
        {"q": X3, "k": f32("b", "s", 2 * H), "v": f32("b", "s", 2 * H)},
        {},
        23,
    ),
    "attention, a mask of booleans": (
        node("Attention", ["q", "k", "v", "m"], q_num_heads=N, kv_num_heads=N),
        {**QKV, "m": ("bool", ("s", "t"))},
        {},
        23,
    ),
    "attention, a mask to add": (
        node("Attention", ["q", "k", "v", "m"], q_num_heads=N, kv_num_heads=N),
        {**QKV, "m": f32("b", 1, "s", "t")},
        {},
        23,
    ),
    "attention, a cache, causal": (
        node(
            "Attention",
            ["q", "k", "v", "", "pk", "pv"],
            q_num_heads=N,
            kv_num_heads=2,
            is_causal=1,
            outputs=PRESENT,
        ),
        {"q": X3, "k": f32("b", "s", 2 * H), "v": f32("b", "s", 2 * H), "pk": KV, "pv": KV},
        {},
        23,
    ),
    "attention, scores shown": (
        node("Attention", ["q", "k", "v"], q_num_heads=N, kv_num_heads=N, outputs=("y", "", "", "qk")),
        QKV,
        {},
        23,
    ),
    "attention 24": (
        node("Attention", ["q", "k", "v"], q_num_heads=N, kv_num_heads=N, is_causal=1),
        QKV,
        {},
        24,
    ),
    "rotary": (
        node("RotaryEmbedding", ["x", "cos", "sin", "ids"], num_heads=N),
        {"x": X3, "ids": ("i64", ("b", "s"))},
        CACHES,
        23,
    ),
    "rotary, interleaved, by head": (
        node("RotaryEmbedding", ["x", "cos", "sin", "ids"], interleaved=1),
        {"x": X4, "ids": ("i64", ("b", "s"))},
        CACHES,
        23,
    ),
    "rotary, a part": (
        node("RotaryEmbedding", ["x", "cos", "sin", "ids"], num_heads=N, rotary_embedding_dim=4),
        {"x": X3, "ids": ("i64", ("b", "s"))},
        {name: array[:, :2].copy() for name, array in CACHES.items()},
        23,
    ),
    "rms": (node("RMSNormalization", ["x", "g"]), {"x": X3}, {"g": weight(RNG, D)}, 23),
    "rms of two axes": (
        node("RMSNormalization", ["x", "g"], axis=-2, epsilon=0.1),
        {"x": f32(2, 5, 6)},
        {"g": weight(RNG, 5, 6)},
        23,
    ),
    "rms in half": (
        node("RMSNormalization", ["x", "g"]),
        {"x": ("f16", (2, 5, 6))},
        {"g": weight(RNG, 6).astype(np.float16)},
        23,
    ),
    "groups": (
        node("GroupNormalization", ["x", "g", "c"], num_groups=3, epsilon=1e-3),
        {"x": f32("b", 6, 4, 4)},
        {"g": weight(RNG, 6), "c": weight(RNG, 6)},
        21,
    ),
    "groups, rows alone": (
        node("GroupNormalization", ["x", "g", "c"], num_groups=2),
        {"x": f32("b", 6)},
        {"g": weight(RNG, 6), "c": weight(RNG, 6)},
        22,
    ),
    "rows put into a cache": (
        node("TensorScatter", ["x", "u", "i"], axis=2),
        {"x": f32("b", N, 12, H), "u": f32("b", N, 3, H), "i": ("i64", ("b",))},
        {},
        24,
    ),
    "rows put around the end of a cache": (
        node("TensorScatter", ["x", "u", "i"], axis=1, mode="circular"),
        {"x": f32("b", 5, H), "u": f32("b", 3, H), "i": ("i64", ("b",))},
        {},
        24,
    ),
    "rows put in front": (
        node("TensorScatter", ["x", "u"]),
        {"x": f32("b", N, 12, H), "u": f32("b", N, "p", H)},
        {},
        24,
    ),
    "swish": (node("Swish", ["x"], alpha=1.3), {"x": X3}, {}, 24),
    "einsum, scores": (
        node("Einsum", ["a", "b"], equation="bqhd,bkhd->bhqk"),
        {"a": f32("b", "s", N, H), "b": f32("b", "t", N, H)},
        {},
        21,
    ),
    "einsum, a projection": (
        node("Einsum", ["a", "w"], equation="bsd,dh->bsh"),
        {"a": X3},
        {"w": weight(RNG, D, 6)},
        21,
    ),
    "einsum, two sums": (
        node("Einsum", ["a", "w"], equation="bshd,hdo->bso"),
        {"a": f32("b", "s", N, H)},
        {"w": weight(RNG, N, H, 6)},
        21,
    ),
    "einsum, two columns": (
        node("Einsum", ["a", "w"], equation="bsd,dhe->bshe"),
        {"a": f32(2, "s", D)},
        {"w": weight(RNG, D, N, H)},
        21,
    ),
    "einsum, rows in a batch": (
        node("Einsum", ["a", "b"], equation="gbsd,gdh->bgsh"),
        {"a": f32(3, 2, 5, 6), "b": f32(3, 6, 4)},
        {},
        21,
    ),
    "einsum, a vector": (
        node("Einsum", ["a", "b"], equation="bd,bd->b"),
        {"a": f32(3, 6), "b": f32(3, 6)},
        {},
        21,
    ),
    "einsum, all is summed": (
        node("Einsum", ["a", "b"], equation="d,d->"),
        {"a": f32(6), "b": f32(6)},
        {},
        21,
    ),
    "einsum, an ellipsis": (
        node("Einsum", ["a", "w"], equation="...i, ij -> ...j"),
        {"a": f32("b", "s", 6)},
        {"w": weight(RNG, 6, 4)},
        21,
    ),
    "einsum, two ellipses, no result told": (
        node("Einsum", ["a", "b"], equation="...ki,...kj"),
        {"a": f32("b", N, "s", 6), "b": f32("b", N, "s", 4)},
        {},
        21,
    ),
    "einsum, turned": (
        node("Einsum", ["a", "b"], equation="ki,kj->ji"),
        {"a": f32("s", 6), "b": f32("s", 4)},
        {},
        21,
    ),
    "einsum, one open size of two sums": (
        node("Einsum", ["a", "c"], equation="bsd,sdo->bo"),
        {"a": f32(2, "s", 3), "c": f32("s", 3, 4)},
        {},
        21,
    ),
    "einsum, outer is whole": (
        node("Einsum", ["a", "c"], equation="i,j->ij"),
        {"a": f32(3), "c": f32(4)},
        {},
        21,
    ),
    # onnxruntime
    "simplified": (node("SimplifiedLayerNormalization", ["x", "g"]), {"x": X3}, {"g": weight(RNG, D)}, 21),
    "skip": (
        node(
            "SkipLayerNormalization",
            ["x", "s", "g", "c", "d"],
            domain=MS,
            outputs=("y", "", "", "sum"),
            epsilon=1e-3,
        ),
        {"x": X3, "s": X3},
        {"g": weight(RNG, D), "c": weight(RNG, D), "d": weight(RNG, D)},
        21,
    ),
    "skip, plain": (
        node("SkipLayerNormalization", ["x", "s", "g"], domain=MS),
        {"x": X3, "s": X3},
        {"g": weight(RNG, D)},
        21,
    ),
    "skip simplified": (
        node("SkipSimplifiedLayerNormalization", ["x", "s", "g"], domain=MS, outputs=("y", "", "", "sum")),
        {"x": X3, "s": X3},
        {"g": weight(RNG, D)},
        21,
    ),
    "gelu": (node("Gelu", ["x"], domain=MS), {"x": X3}, {}, 21),
    "quick gelu": (node("QuickGelu", ["x"], domain=MS), {"x": X3}, {}, 21),
    "fast gelu": (node("FastGelu", ["x", "c"], domain=MS), {"x": X3}, {"c": weight(RNG, D)}, 21),
    "bias gelu": (node("BiasGelu", ["x", "c"], domain=MS), {"x": X3}, {"c": weight(RNG, D)}, 21),
    "fused product": (
        node("FusedMatMul", ["a", "c"], domain=MS, transA=1, transB=1, alpha=0.3),
        {"a": f32(2, 6, 5)},
        {"c": weight(RNG, 4, 6)},
        21,
    ),
    "rotary of onnxruntime": (
        node("RotaryEmbedding", ["x", "ids", "cos", "sin"], domain=MS),
        {"x": X3, "ids": ("i64", ("b", "s"))},
        CACHES,
        21,
    ),
    "rotary of onnxruntime, one position": (
        node("RotaryEmbedding", ["x", "ids", "cos", "sin"], domain=MS, interleaved=1),
        {"x": X4, "ids": ("i64", (1,))},
        CACHES,
        21,
    ),
    "heads": (node("MultiHeadAttention", ["q", "k", "v"], domain=MS, num_heads=N), QKV, {}, 21),
    "heads, bias, mask": (
        node("MultiHeadAttention", ["q", "k", "v", "c", "m", "d"], domain=MS, num_heads=N, scale=0.5),
        {**QKV, "m": ("i32", ("b", "t")), "d": f32(1, N, "s", "t")},
        {"c": weight(RNG, 3 * D)},
        21,
    ),
    "heads, causal, a cache": (
        node(
            "MultiHeadAttention",
            ["q", "k", "v", "", "", "", "pk", "pv"],
            domain=MS,
            num_heads=N,
            unidirectional=1,
            outputs=PRESENT,
        ),
        {**QKV, "pk": f32("b", N, "p", H), "pv": f32("b", N, "p", H)},
        {},
        21,
    ),
    "heads of an encoder": (
        node("MultiHeadAttention", ["q", "k", "v"], domain=MS, num_heads=N),
        {"q": X3, "k": X4, "v": X4},
        {},
        21,
    ),
    "attention of onnxruntime": (
        node("Attention", ["x", "w", "c", "m"], domain=MS, num_heads=N),
        {"x": f32("b", "s", 6), "m": ("i32", ("b", "t"))},
        {"w": weight(RNG, 6, 3 * D), "c": weight(RNG, 3 * D)},
        21,
    ),
    "attention of onnxruntime, lengths": (
        node("Attention", ["x", "w", "c", "m"], domain=MS, num_heads=N),
        {"x": f32("b", "s", 6), "m": ("i32", ("b",))},
        {"w": weight(RNG, 6, 3 * D), "c": weight(RNG, 3 * D)},
        21,
    ),
    "attention of onnxruntime, causal, a cache": (
        node(
            "Attention",
            ["x", "w", "c", "", "p"],
            domain=MS,
            num_heads=N,
            unidirectional=1,
            outputs=("y", "present"),
        ),
        {"x": f32("b", "s", 6), "p": f32(2, "b", N, "p", H)},
        {"w": weight(RNG, 6, 3 * D), "c": weight(RNG, 3 * D)},
        21,
    ),
    "attention of onnxruntime, other sizes": (
        node("Attention", ["x", "w", "c"], domain=MS, num_heads=N, qkv_hidden_sizes=[D, D, 2 * D]),
        {"x": f32("b", "s", 6)},
        {"w": weight(RNG, 6, 4 * D), "c": weight(RNG, 4 * D)},
        21,
    ),
}

GQA_INPUTS = {
    "q": X3,
    "k": f32("b", "s", 2 * H),
    "v": f32("b", "s", 2 * H),
    "pk": KV,
    "pv": KV,
    "last": ("i32", ("b",)),
    "total": ("i32", ()),
}
GQA = ["q", "k", "v", "pk", "pv", "last", "total"]


def compare(made, inputs, constants, opset, *, feeds=None, used=None):
    """`used`: rows of a cache that hold something."""
    data = model(made, inputs, constants, opset)
    feeds = feeds or fed(inputs, np.random.default_rng(5))
    read = read_onnx(data)
    assert all(op.type != f"{made.domain}::{made.op_type}" for op in read.ops)
    expected = run(data, feeds)
    found = run(write_graph(read), feeds)
    for want, have in zip(expected, found, strict=True):
        want, have = (array[:, :, :used] if array.ndim == 4 else array for array in (want, have))  # noqa: PLW2901
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        scale = np.abs(want.astype(np.float64)).max()
        tolerance = 4e-3 if want.dtype == np.float16 else 2e-6
        np.testing.assert_allclose(have, want, rtol=0, atol=tolerance * scale)
    return read


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_operator_computes(name):
    made, inputs, constants, opset = CASES[name]
    if "whole" not in name:
        read = compare(made, inputs, constants, opset)
        assert not {op.type for op in read.ops} & set(BODIES)
        assert not read.notes
    else:
        read = read_onnx(model(made, inputs, constants, opset))
        assert [op.type for op in read.ops] == ["Einsum"]
        assert "stays whole" in read.notes[0]


@pytest.mark.parametrize("room", [3, 12])
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"do_rotary": 1},
        {"local_window_size": 2, "softcap": 2.0},
        {"do_rotary": 1, "rotary_interleaved": 1},
    ],
)
def test_group_query_attention_with_a_cache_of_any_room(room, extra):
    made = node(
        "GroupQueryAttention",
        [*GQA, *(("cos", "sin") if "do_rotary" in extra else ())],
        domain=MS,
        num_heads=N,
        kv_num_heads=2,
        outputs=PRESENT,
        **extra,
    )
    rng = np.random.default_rng(7)
    feeds = {
        "q": weight(rng, B, 1, D),
        "k": weight(rng, B, 1, 2 * H),
        "v": weight(rng, B, 1, 2 * H),
        "pk": weight(rng, B, 2, room, H),
        "pv": weight(rng, B, 2, room, H),
        "last": np.asarray([3, 3], np.int32),
        "total": np.asarray(4, np.int32),
    }
    compare(made, GQA_INPUTS, CACHES if "do_rotary" in extra else {}, 21, feeds=feeds, used=4)


@pytest.mark.parametrize("packed", [3, 2])
def test_packed_heads_are_those_that_come_apart(packed):
    """Onnxruntime has packed heads on GPUs alone, so what it computes of them apart is compared with."""
    rng = np.random.default_rng(11)
    feeds = {"q": weight(rng, B, S, D), "k": weight(rng, B, S, N, packed, H)}
    if packed == 3:
        made = node("MultiHeadAttention", ["k"], domain=MS, num_heads=N)
        own = {name: feeds["k"][:, :, :, i].reshape(B, S, D) for i, name in enumerate("qkv")}
        read = read_onnx(model(made, {"k": f32("b", "s", N, 3, H)}))
    else:
        made = node("MultiHeadAttention", ["q", "k"], domain=MS, num_heads=N)
        own = {
            "q": feeds["q"],
            **{name: feeds["k"][:, :, :, i].reshape(B, S, D) for i, name in enumerate("kv")},
        }
        read = read_onnx(model(made, {"q": X3, "k": f32("b", "s", N, 2, H)}))
    apart = node("MultiHeadAttention", ["q", "k", "v"], domain=MS, num_heads=N)
    (expected,) = run(model(apart, QKV), own)
    (found,) = run(write_graph(read), {name: feeds[name] for name in made.input})
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("inner", [64, 40])
def test_weights_in_blocks_become_pinned_weights(bits, zeros, inner):
    """K of 40 has a last block that is shorter: blocks of 8 hold the same numbers."""
    rng, outer, block = np.random.default_rng(2), 6, 32
    blocks = -(-inner // block)
    constants = {
        "b": rng.integers(0, 256, (outer, blocks, block * bits // 8)).astype(np.uint8),
        "s": rng.random((outer * blocks,)).astype(np.float32),
    }
    if zeros:
        constants["z"] = rng.integers(0, 256, (outer * -(-blocks * bits // 8),)).astype(np.uint8)
    made = node("MatMulNBits", ["x", *constants], domain=MS, K=inner, N=outer, bits=bits, block_size=block)
    read = compare(made, {"x": f32("b", inner)}, constants, 21)
    (op,) = read.ops
    assert op.type == "MatMul"
    (fact,) = read.values[op.inputs[1]].facts
    assert str(fact).startswith(f"!quant.uniform<u{bits}:f32:{{0:")


def test_a_table_in_blocks_becomes_a_pinned_table():
    rng = np.random.default_rng(2)
    data = rng.integers(0, 16, (7, 64)).astype(ml_dtypes.uint4)
    table = helper.make_tensor("t", TensorProto.UINT4, (7, 64), pack_4bit(data), raw=True)
    made = node("GatherBlockQuantized", ["t", "i", "s"], domain=MS, block_size=32, quantize_axis=1)
    constants = {"s": rng.random((7, 2)).astype(np.float32)}
    data = onnx.load_from_string(model(made, {"i": ("i64", ("b", 3))}, constants))
    data.graph.initializer.append(table)
    read = read_onnx(data.SerializeToString())
    feeds = {"i": rng.integers(0, 7, (2, 3))}
    np.testing.assert_array_equal(run(write_graph(read), feeds)[0], run(data.SerializeToString(), feeds)[0])
    assert [op.type for op in read.ops] == ["Gather"]
    assert read.values[read.ops[0].inputs[0]].facts


def pack_4bit(array):
    flat = array.reshape(-1).astype(np.uint8)
    return (flat[::2] | flat[1::2] << 4).tobytes()


@pytest.mark.parametrize(
    ("made", "inputs", "constants", "reason"),
    [
        (
            node("Attention", ["x", "w"], domain=MS, num_heads=N),
            {"x": f32(2, 5, 6), "w": f32(6, 3 * D)},
            {},
            "'w' is computed",
        ),
        (
            node("MultiHeadAttention", ["q", "k", "v", "", "m"], domain=MS, num_heads=N),
            {**QKV, "m": ("i32", (3 * B + 2,))},
            {},
            "a mask of 1 dimensions, (8,)",
        ),
        (
            node("RotaryEmbedding", ["x", "ids", "cos", "sin"], domain=MS, rotary_embedding_dim=4),
            {"x": X3, "ids": ("i64", (1,))},
            CACHES,
            "it says no number of heads",
        ),
        (node("Einsum", ["a"], equation="ij->ji"), {"a": f32(2, 3)}, {}, "its equation is 'ij->ji'"),
        (
            node("Einsum", ["a", "c"], equation="xbs,bso->xo"),
            {"a": f32(3, "b", "s"), "c": f32("b", "s", 4)},
            {},
            "sizes are open that are joined",
        ),
        (
            node("Einsum", ["a", "c"], equation="xtbs,bsxo->to"),
            {"a": f32(3, 2, "b", "s"), "c": f32("b", "s", 3, 4)},
            {},
            "sizes are open that are joined",
        ),
        (
            node("Einsum", ["a", "b"], equation="ii,ij->j"),
            {"a": f32(3, 3), "b": f32(3, 4)},
            {},
            "its equation is 'ii,ij->j'",
        ),
    ],
)
def test_another_form_stays_whole_and_a_note_says_why(made, inputs, constants, reason):
    read = read_onnx(model(made, inputs, constants))
    kind = f"{made.domain}::{made.op_type}" if made.domain else made.op_type
    assert [op.type for op in read.ops] == [kind]
    assert f"{made.op_type} at 'op' stays whole: {reason}" in read.notes


@cache
def node_cases():
    """The onnx package's own node tests of operators that have bodies; those called "expanded" have none."""
    return [
        case
        for case in every_node_case()
        if any(node.op_type in BODIES and not node.domain for node in case.model.graph.node)
    ]


@pytest.mark.parametrize("kind", [kind for kind in BODIES if onnx.defs.has(kind)])
def test_node_cases_of_onnx_are_computed(kind):
    check_each([case for case in node_cases() if kind_of(case, BODIES) == kind], is_computed)


def is_computed(case):
    name, read = case.name, read_onnx(case.model.SerializeToString())
    if any(op.type in BODIES for op in read.ops):
        assert name in WHOLE
        assert any("stays whole" in note for note in read.notes)
        return
    file, names = write_graph(read), [info.name for info in case.model.graph.input]
    # onnxruntime has few kernels in bf16, onnx's own evaluator all.
    compute = run if "bf16" not in name and "bfloat16" not in name else evaluated
    for given, wanted in case.data_sets:
        feeds = {
            name: array_of(item) for name, item in zip(names, given, strict=False) if name in read.inputs
        }
        for have, want in zip(compute(file, feeds), map(array_of, wanted), strict=True):
            assert have.dtype == want.dtype
            found, expected = have.astype(np.float64), want.astype(np.float64)
            if name in MASKED_ROWS:
                masked = np.broadcast_to(~expected.any(axis=-1, keepdims=True), found.shape)
                assert masked.any()
                found = np.where(masked, 0, found)
            # A step of bf16 is 2^-7 of a number.
            rtol = case.rtol if compute is run else 2e-2
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=max(case.atol, 1e-6))


def array_of(item):
    return numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item)


def evaluated(data, feeds):
    return ReferenceEvaluator(onnx.load_from_string(data)).run(None, feeds)


WHOLE = frozenset(
    {
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
        "test_einsum_batch_diagonal",
        "test_einsum_scalar",
        "test_einsum_sum",
        "test_einsum_sum_bfloat16",
        "test_einsum_transpose",
        "test_einsum_transpose_bfloat16",
    }
)
MASKED_ROWS = frozenset(
    {
        "test_attention_23_boolmask_fullymasked_row_nan_robustness",
        "test_attention_23_fullymasked_qk_matmul_output_mode3_zero",
        "test_attention_24_fullymasked_qk_matmul_output_mode3_zero",
        "test_attention_24_qk_matmul_output_mode3_softmax_precision",
        "test_attention_4d_causal_padded_kv_bf16",
        "test_attention_4d_causal_nonpad_negative_offset_structural_empty",
        "test_attention_causal_boolmask_nan_robustness",
        "test_attention_local_window_gqa_rank4_mask",
    }
)
"""Rows that are masked whole are 0 in ONNX since Attention 24 was amended; ours are a mean of values."""
