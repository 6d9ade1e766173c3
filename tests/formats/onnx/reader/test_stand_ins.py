"""Shapes behind ops that onnx infers nothing of: stand-ins, the file's own types, and who is named else."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

from planner.formats.onnx.operators.stand_ins import STAND_INS, is_inferred
from planner.formats.onnx.read import read_onnx, read_written
from planner.formats.onnx.write import Node, write_model
from planner.fusion.fuse import fuse
from planner.propagation.selection.rows import choose_rows
from planner.target.load import load_target
from tests.formats.onnx.reader.runs import model, session

MS = "com.microsoft"
X, HEADS = (2, 5, 8), {"num_heads": 2}


def one(kind, inputs, outputs=("y",), *, domain=MS, constants=None, dtypes=None, **attributes) -> bytes:
    """A model of one node; an input is its shape, or a name "" that is absent."""
    names = ["" if shape is None else f"x{i}" for i, shape in enumerate(inputs)]
    dtypes = dtypes or {}
    ports = [(n, dtypes.get(i, "f32"), s) for i, (n, s) in enumerate(zip(names, inputs, strict=True)) if n]
    constants = constants or {}
    ports = [port for port in ports if port[0] not in constants]
    return write_model(
        name="one",
        nodes=[Node(kind, tuple(names), outputs, "it", domain, attributes)],
        inputs=ports,
        outputs=[(outputs[0], "f32", None)],
        constants=constants,
        opset=21,
        domains={MS: 1},
    )


CASES = {
    "BiasGelu": one("BiasGelu", [X, (8,)]),
    "FastGelu": one("FastGelu", [X, None]),
    "Gelu": one("Gelu", [X]),
    "QuickGelu": one("QuickGelu", [X]),
    "Inverse": one("Inverse", [(2, 4, 4)]),
    "Trilu": one("Trilu", [X]),
    "FusedConv": one(
        "FusedConv", [(1, 3, 9, 9), (4, 3, 3, 3), (4,)], activation="Relu", strides=(2, 2), pads=(1, 1, 1, 1)
    ),
    "FusedGemm": one("FusedGemm", [(2, 3), (4, 3), (4,)], transB=1, activation="Relu"),
    "FusedMatMul": one("FusedMatMul", [(7, 8, 5), (7, 8, 3)], transA=1),
    "FusedMatMul, both turned": one("FusedMatMul", [(7, 8, 5), (3, 8)], transA=1, transB=1),
    "FusedMatMul, plain": one("FusedMatMul", [(7, 5, 8), (8, 3)], alpha=0.5),
    "TransposeMatMul": one("TransposeMatMul", [(7, 5, 8), (7, 3, 8)], transB=1),
    "SkipLayerNormalization": one("SkipLayerNormalization", [X, X, (8,)], ("y", "", "", "sum")),
    "SkipSimplifiedLayerNormalization": one("SkipSimplifiedLayerNormalization", [X, X, (8,)]),
    "SimplifiedLayerNormalization": one("SimplifiedLayerNormalization", [X, (8,)], domain="", axis=-1),
    "LayerNormalization": one("LayerNormalization", [X, (8,)], domain="", axis=-1),
    "EmbedLayerNormalization": one(
        "EmbedLayerNormalization",
        [(2, 5), None, (9, 8), (5, 8), None, (8,), (8,)],
        ("y", "mask"),
        dtypes={0: "i32"},
    ),
    "Attention": one("Attention", [X, (8, 24), (24,)], **HEADS),
    "Attention, other widths": one("Attention", [X, (8, 20), (20,)], **HEADS, qkv_hidden_sizes=(8, 8, 4)),
    "MultiHeadAttention": one("MultiHeadAttention", [X, X, X], **HEADS),
    "MultiHeadAttention, a narrow value": one("MultiHeadAttention", [X, (2, 7, 8), (2, 7, 4)], **HEADS),
    "MultiHeadAttention, packed keys": one("MultiHeadAttention", [X, (2, 7, 2, 2, 4)], **HEADS),
    "MultiHeadAttention, all packed": one("MultiHeadAttention", [(2, 5, 2, 3, 4)], **HEADS),
    "GroupQueryAttention": one(
        "GroupQueryAttention",
        [(2, 5, 32), (2, 5, 16), (2, 5, 16), (2, 1, 9, 16), (2, 1, 9, 16), (2, 1), ()],
        ("y", "k", "v"),
        dtypes={5: "i32", 6: "i32"},
        num_heads=2,
        kv_num_heads=1,
    ),
    "GroupQueryAttention, packed": one(
        "GroupQueryAttention",
        [(2, 5, 64), None, None, (2, 1, 9, 16), (2, 1, 9, 16), (2, 1), ()],
        ("y", "k", "v"),
        dtypes={5: "i32", 6: "i32"},
        num_heads=2,
        kv_num_heads=1,
    ),
    "RotaryEmbedding": one(
        "RotaryEmbedding", [(2, 5, 8), (1,), (9, 2), (9, 2)], dtypes={1: "i64"}, num_heads=2
    ),
    "MatMulNBits": one(
        "MatMulNBits",
        [(2, 5, 32), (6, 1, 16), (6,)],
        constants={"x1": np.zeros((6, 1, 16), np.uint8), "x2": np.ones(6, np.float32)},
        K=32,
        N=6,
        bits=4,
        block_size=32,
    ),
    "MatMulIntegerToFloat": one(
        "MatMulIntegerToFloat", [(2, 5, 8), (8, 3), (), (3,)], dtypes={0: "u8", 1: "u8"}
    ),
    "DynamicQuantizeMatMul": one("DynamicQuantizeMatMul", [X, (8, 3), ()], dtypes={1: "u8"}),
    "QAttention": one("QAttention", [X, (8, 24), (24,), (), ()], dtypes={0: "u8", 1: "u8"}, **HEADS),
}


@pytest.mark.parametrize("case", CASES)
def test_the_shapes_are_those_that_onnxruntime_infers(case):
    (wanted,) = session(CASES[case]).get_outputs()
    found = read_written(CASES[case]).values[wanted.name]
    assert (found.shape, found.dtype) == (tuple(wanted.shape), "f32")


@pytest.mark.parametrize(
    ("kind", "inputs", "wanted"),
    [
        ("BiasSplitGelu", [X, (8,)], (2, 5, 4)),
        ("BiasAdd", [X, (8,), X], X),
        ("GemmFastGelu", [X, (8, 3)], (2, 5, 3)),
    ],
)
def test_shapes_of_what_runs_on_no_processor_here(kind, inputs, wanted):
    """They are for graphics processors alone, and onnxruntime opens no session of them here."""
    assert read_written(one(kind, inputs)).values["y"].shape == wanted


def chain(middle: Node, *, inner=(), domains=None, constants=None, x=(1, 4, 8, 8)) -> bytes:
    """Conv, some op, Relu, Conv."""
    weight = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32)
    pads = {"pads": (1, 1, 1, 1)}
    return write_model(
        name="chain",
        nodes=[
            Node("Conv", ("x", "w"), ("a",), "first", "", pads),
            middle,
            Node("Relu", ("g",), ("r",), "relu"),
            Node("Conv", ("r", "w"), ("y",), "last", "", pads),
        ],
        inputs=[("x", "f32", x)],
        outputs=[("y", "f32", None)],
        constants={"w": weight, "k": np.ones(4, np.float32), **(constants or {})},
        domains=domains,
        inner=inner,
    )


def shapes(graph):
    return {name: graph.values[name].shape for name in ("g", "r", "y")}


WHOLE = dict.fromkeys(("g", "r", "y"), (1, 4, 8, 8))
GROUPS = Node("GroupNormalization", ("a", "k", "k"), ("g",), "norm", "", {"num_groups": 2})
FOREIGN = Node("Strange", ("a",), ("g",), "odd", "some.where")


def test_a_group_normalization_leaves_shapes_behind_it():
    graph = read_onnx(chain(GROUPS))
    assert shapes(graph) == WHOLE
    assert graph.values["r"].dtype == "f32"


def test_what_the_file_says_of_a_strange_result_counts_behind_it():
    graph = read_onnx(chain(FOREIGN, inner=[("g", "f32", (1, 4, 8, 8))], domains={"some.where": 1}))
    assert shapes(graph) == WHOLE
    assert not graph.notes


def test_what_the_file_says_of_an_inferred_result_does_not_count():
    relu = Node("Relu", ("a",), ("g",), "other")
    assert shapes(read_onnx(chain(relu, inner=[("g", "f32", (1, 4, 7, 7))]))) == WHOLE


def test_an_op_behind_which_nothing_is_known_is_named():
    strange = Node("Strange", ("i",), ("g",), "odd", "some.where")
    data = chain(strange, domains={"some.where": 1}, constants={"i": np.ones(3, np.int64)})
    graph = read_onnx(data)
    (note,) = (note for note in graph.notes if "no shape" in note)
    assert note == "no shape is known behind some.where::Strange at 'odd': later values count as one element"
    fused = fuse(graph, load_target("onnxruntime-cpu"))
    choices = choose_rows(fused, fused.regions, load_target("onnxruntime-cpu"))
    reasons = {choice.region.name: choice.reason for choice in choices}
    why = (
        "the element type of 'g' is unknown from some.where::Strange at 'odd' on: nothing infers it, and the "
        "file has no value_info of it"
    )
    assert reasons["relu"] == reasons["odd"] == why
    assert reasons["last"] == why.replace("'g'", "'r'")


def test_a_size_that_is_computed_at_run_time_is_the_one_in_the_file():
    data = model(
        """g (float[1,4,8,8] x, int64[4] s) => (float[a,b,c,d] y)
        <float[1,4,6,6] a> { a = Resize(x, , , s)
                             y = Relu(a) }"""
    )
    assert read_onnx(data).values["a"].shape == (1, 4, 6, 6)


def test_bodies_have_stand_ins_too():
    body = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["inside"], "gelu", domain=MS)],
        "body",
        [],
        [onnx.ValueInfoProto(name="inside")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["z"], "if", then_branch=body, else_branch=body),
        helper.make_node("Relu", ["z"], ["y"], "relu"),
    ]
    ports = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
    ]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    read = read_written(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    assert (read.values["y"].shape, read.values["y"].dtype) == ((2, 3), "f32")


def test_every_standard_operator_has_rules_or_a_stand_in():
    schemas = [schema for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated]
    lacking = {schema.name for schema in schemas if not is_inferred(schema.name, schema.since_version)}
    assert lacking <= STAND_INS.keys()
