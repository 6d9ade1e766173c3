"""The small text form of models: what each line makes, and what it refuses, word for word."""

import numpy as np
import pytest

from planner.errors import TargetError
from planner.ir.types.qtypes import AnyType, Calibrated
from planner.target.modeltext import read_model_text

TEXT = """
x : f32[1,8,N,?] {-1, 1}                 # a comment
w = constant : f32[8,8,3,3] {-0.5, 0.5}
s = constant [2, 6] : i64[2]
t = constant 3 : f32[4]
y = Conv(x, w, _) [pads=[1,1,1,1], auto_pad=NOTSET, alpha=0.5] : f32[1,8,4,4] {-2, 2} !quant.any<i16>
a, b = Split(y, s) [axis=1] : f32[1,2,4,4], f32[1,6,4,4]
c = com.microsoft::Gelu(a) : f32
d = Add(b, other) : f32[1,6,4,4] {-3, 3}
"""


def test_a_whole_model():
    graph = read_model_text(TEXT, "whole")
    assert (graph.inputs, graph.outputs) == (("x", "other"), ("c", "d"))
    assert [(op.name, op.type, op.inputs, op.outputs) for op in graph.ops] == [
        ("y", "Conv", ("x", "w", ""), ("y",)),
        ("a", "Split", ("y", "s"), ("a", "b")),
        ("c", "com.microsoft::Gelu", ("a",), ("c",)),
        ("d", "Add", ("b", "other"), ("d",)),
    ]
    assert graph.ops[0].attributes == {"pads": (1, 1, 1, 1), "auto_pad": "NOTSET", "alpha": 0.5}
    assert graph.values["x"].shape == (1, 8, "N", None)
    assert graph.values["c"].shape is None
    facts = graph.values["y"].facts
    assert [type(fact) for fact in facts] == [Calibrated, AnyType]
    assert (graph.constants["w"].array, graph.constants["w"].lo, graph.constants["w"].hi) == (
        None,
        (-0.5,),
        (0.5,),
    )
    np.testing.assert_array_equal(graph.constants["s"].array, np.array([2, 6], np.int64))
    np.testing.assert_array_equal(graph.constants["t"].array, np.full(4, 3, np.float32))


def test_an_undefined_name_is_an_input_like_the_first_result_that_reads_it():
    graph = read_model_text(
        "a = Relu(in0) : f32[2] {0, 3}\nb = Relu(in1) : f32[4]\nc = Add(a, in0) : f32[2]", "m"
    )
    assert (graph.values["in0"].shape, graph.values["in0"].facts) == ((2,), (Calibrated((0.0,), (3.0,)),))
    assert (graph.values["in1"].shape, graph.values["in1"].facts) == ((4,), (Calibrated((-1.0,), (1.0,)),))


def test_numbers_as_operands_are_constants():
    graph = read_model_text(
        "y = Pad(x, [0, -1], 2.5, _) : f32[4]\n"
        "z = Resize(y, _, [1.0, 2e0]) : f32[4]\n"
        "u = Reshape(z, []) : f32[]\n"
        "v = Gather(u, 3) : f32[]",
        "numbers",
    )
    assert [op.inputs for op in graph.ops] == [
        ("x", "y.operand1", "y.operand2", ""),
        ("y", "", "z.operand2"),
        ("z", "u.operand1"),
        ("u", "v.operand1"),
    ]
    found = {name: constant.array for name, constant in graph.constants.items()}
    wanted = {
        "y.operand1": np.array([0, -1], np.int64),
        "y.operand2": np.array(2.5, np.float32),
        "z.operand2": np.array([1, 2], np.float32),
        "u.operand1": np.array([], np.int64),
        "v.operand1": np.array(3, np.int64),
    }
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_return_names_the_outputs():
    graph = read_model_text("a = Relu(x) : f32[2] {0, 1}\nb = Relu(a) : f32[2]\nreturn a, b", "m")
    assert graph.outputs == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "y == Relu(x)",
            "line 1: cannot read 'y == Relu(x)'; write 'y = Op(x, w) [axis=1] : f32[1,8] {-1, 1}'",
        ),
        ("\ny = Relu(x) : g32[1]", "line 2: cannot read the type 'g32[1]'; write 'f32[1,8] {-1, 1}'"),
        ("y, z = Split(x) : f32", "line 1: 2 results and 1 types; each result has one"),
        ("y = Relu(x) : f32 {1}", "line 1: {1} is no range; write {lo, hi}, such as {-1, 1}"),
        ("y = Relu(x) : f32 {2, 1}", "line 1: range 2.0:1.0 has min > max"),
        ("y = Relu(x) : f32[0x8]", "line 1: dimension '0x8' is no size, no name and no '?'"),
        ("y = Relu(x) [axis] : f32", "line 1: attribute 'axis'; write [axis=1, mode=linear, pads=[1,1,1,1]]"),
        ("y = Relu(x,) : f32", "line 1: nothing between two commas of 'x,'"),
        ("y = Relu(x) : f32\ny = Relu(x) : f32", "line 2: 'y' is already defined in line 1"),
        ("w = constant : f32[2]", "line 1: constant 'w' has neither a range {lo, hi} nor numbers"),
        ("w = constant [1, 2] : f32[3]", "line 1: '[1, 2]' is no number or list of f32 of shape [3]"),
        ("w = constant 1 : f32[9999, 9999]", "line 1: 99980001 numbers; at most 1048576"),
        ("a = Relu(b) : f32\nb = Relu(a) : f32", "these depend on each other in a cycle: 'a' -> 'b'"),
        (
            "y = Relu(x) : f32[2] !quant.uniform<i8:f32:1, {0.5, 0.25}>",
            "type !quant.uniform<i8:f32:1, {0.5,0.25}> does not fit 'y': it has no axis 1, its shape is [2]",
        ),
    ],
)
def test_refusals(text, message):
    with pytest.raises(TargetError) as caught:
        read_model_text(text, "m")
    assert str(caught.value) == message
