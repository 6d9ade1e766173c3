"""Fusion: which ops become which kernel, with which ports, and why others did not."""

import dataclasses

import pytest

from planner.fusion.fuse import fuse
from planner.ir.graph import Op, Region
from planner.ir.topology import topological
from planner.ir.validity import validate
from planner.target.records import Fusion
from tests.fusion.small import graph_of, target_of

CONV = Fusion("conv", ("Relu|Clip?(Conv(x, w, b?))",), {"Conv.group": 1, "w": "constant"})
DEPTHWISE = Fusion("depthwise", ("Relu?(Conv(x, w, b?))",), {"Conv.group": "== x.shape[1]"})
DENSE = Fusion(
    "dense",
    ("Relu?(Gemm(x, w, b?))", "Relu?(Add(MatMul(x, w), b))", "Relu?(MatMul(x, w))"),
    {"w": "constant", "b": "constant"},
)
CONCAT = Fusion("concat", ("Concat(xs*)",))
ADD = Fusion("add", ("Relu?(Add(x, y))",))
SWISH = Fusion("swish", ("Mul(x, Sigmoid(x))",))
SCALED = Fusion("scaled", ("Mul(x, c)",), {"c": "constant"})
SQUARE_NORM = Fusion("norm", ("Div(Sub(x, m), Mul(Sub(x, m), Sub(x, m)))",))
BIASED = Fusion("biased", ("Relu?(Add?(MatMul(x, w), b))",))
GELU = Fusion("gelu", ("function:my.ops.Gelu",))


def kernels(graph):
    return [(r.name, r.kernel, r.inputs, r.outputs, len(r.ops)) for r in graph.regions]


@pytest.mark.parametrize(
    ("text", "outputs", "fusions", "expected"),
    [
        pytest.param(
            "c = Conv(x, W, B)\ny = Relu(c)",
            ["y"],
            [CONV],
            [("c_op", "conv", ("x", "W", "B"), ("y",), 2)],
            id="relu_joins_the_conv",
        ),
        pytest.param(
            "c = Conv(x, W)\ny = Clip(c, LO, HI)",
            ["y"],
            [CONV],
            [("c_op", "conv", ("x", "W", ""), ("y",), 2)],
            id="absent_bias_is_a_port_and_clip_bounds_are_none",
        ),
        pytest.param(
            "c = Conv(x, W)",
            ["c"],
            [CONV],
            [("c_op", "conv", ("x", "W", ""), ("c",), 1)],
            id="optional_op_may_be_missing",
        ),
        pytest.param(
            "c = Conv(x, W)\ny = Relu(c)\nz = Sigmoid(c)",
            ["y", "z"],
            [CONV],
            [
                ("c_op", "conv", ("x", "W", ""), ("c",), 1),
                ("y_op", "Relu", ("c",), ("y",), 1),
                ("z_op", "Sigmoid", ("c",), ("z",), 1),
            ],
            id="a_value_read_elsewhere_stays_outside",
        ),
        pytest.param(
            "c = Conv(x, W)\ny = Relu(c)",
            ["y", "c"],
            [CONV],
            [("c_op", "conv", ("x", "W", ""), ("c",), 1), ("y_op", "Relu", ("c",), ("y",), 1)],
            id="a_model_output_stays_outside",
        ),
        pytest.param(
            "m = MatMul(x, W)\na = Add(B, m)\ny = Relu(a)",
            ["y"],
            [ADD, DENSE],
            [("m_op", "dense", ("x", "W", "B"), ("y",), 3)],
            id="most_ops_first_and_add_in_either_order",
        ),
        pytest.param(
            "m = MatMul(x, W)\na = Add(m, r)",
            ["a"],
            [DENSE, ADD],
            [("m_op", "dense", ("x", "W"), ("m",), 1), ("a_op", "add", ("m", "r"), ("a",), 1)],
            id="where_turns_the_longer_pattern_down",
        ),
        pytest.param(
            "y = Concat(a, b, c) axis=1",
            ["y"],
            [CONCAT],
            [("y_op", "concat", ("a", "b", "c"), ("y",), 1)],
            id="variadic_takes_all",
        ),
        pytest.param(
            "y = Concat(a, a) axis=1",
            ["y"],
            [CONCAT],
            [("y_op", "concat", ("a", "a"), ("y",), 1)],
            id="a_value_used_twice_is_two_ports",
        ),
        pytest.param(
            "s = Sigmoid(x)\ny = Mul(s, x)",
            ["y"],
            [SWISH],
            [("s_op", "swish", ("x",), ("y",), 2)],
            id="a_repeated_variable_is_one_port",
        ),
        pytest.param(
            "s = Sigmoid(x)\ny = Mul(s, z)",
            ["y"],
            [SWISH],
            [("s_op", "Sigmoid", ("x",), ("s",), 1), ("y_op", "Mul", ("s", "z"), ("y",), 1)],
            id="a_repeated_variable_is_one_value",
        ),
        pytest.param(
            "y = Mul(C, x)",
            ["y"],
            [SCALED],
            [("y_op", "scaled", ("x", "C"), ("y",), 1)],
            id="where_chooses_the_order_of_a_commutative_op",
        ),
        pytest.param(
            "d = Sub(x, m)\ns = Mul(d, d)\ny = Div(d, s)",
            ["y"],
            [SQUARE_NORM],
            [("d_op", "norm", ("x", "m"), ("y",), 3)],
            id="a_value_read_twice_inside_is_inner",
        ),
        pytest.param(
            "m = MatMul(x, w)\ny = Relu(m)",
            ["y"],
            [BIASED],
            [("m_op", "biased", ("x", "w", ""), ("y",), 2)],
            id="a_missing_op_leaves_its_port_empty",
        ),
        pytest.param(
            "y = my.ops::Gelu(x, T)",
            ["y"],
            [GELU],
            [("y_op", "gelu", ("x", "T"), ("y",), 1)],
            id="a_function_is_a_kernel",
        ),
        pytest.param(
            "s = Split(x)\ny = Relu(s)",
            ["y"],
            [],
            [("s_op", "Split", ("x",), ("s",), 1), ("y_op", "Relu", ("s",), ("y",), 1)],
            id="no_fusions_at_all",
        ),
        pytest.param(
            "c = Conv(x, W)\nd = Conv(c, W)\ny = Add(c, d)\nz = Relu(y)",
            ["z"],
            [CONV, ADD],
            [
                ("c_op", "conv", ("x", "W", ""), ("c",), 1),
                ("d_op", "conv", ("c", "W", ""), ("d",), 1),
                ("y_op", "add", ("c", "d"), ("z",), 2),
            ],
            id="residual_block",
        ),
    ],
)
def test_fuse(text, outputs, fusions, expected):
    graph = graph_of(text, outputs=outputs)
    fused = fuse(graph, target_of(*fusions))
    assert kernels(fused) == expected
    assert fused.ops == ()
    validate(fused)


def test_file_order_decides_between_patterns_of_one_length():
    graph = graph_of("c = Conv(x, W)", outputs=["c"], shapes={"x": (1, 1, 4, 4)})
    assert fuse(graph, target_of(CONV, DEPTHWISE)).regions[0].kernel == "conv"
    assert fuse(graph, target_of(DEPTHWISE, CONV)).regions[0].kernel == "depthwise"


def test_integer_ops_are_kernels_without_ports():
    graph = graph_of(
        "s = Shape(x)\nt = Gather(s, I)\ny = Reshape(x, t)",
        outputs=["y"],
        dtypes={"s": "i64", "t": "i64", "I": "i64"},
    )
    fused = fuse(graph, target_of())
    assert kernels(fused) == [
        ("s_op", "Shape", (), (), 1),
        ("t_op", "Gather", (), (), 1),
        ("y_op", "Reshape", ("x",), ("y",), 1),
    ]
    assert fused.regions[0].reason == "Shape has no float operand or result"


@pytest.mark.parametrize(
    ("text", "shapes", "name", "reason"),
    [
        (
            "c = Conv(x, W) group=2",
            {"x": (1, 8, 4, 4)},
            "c_op",
            (
                "no fusion of 'toy' takes Conv: Conv.group is 2, must be 1 (conv); "
                "Conv.group is 2, must be == x.shape[1] (8) (depthwise)"
            ),
        ),
        (
            "c = Conv(x, w)",
            {"x": (1, 8, 4, 4)},
            "c_op",
            (
                "no fusion of 'toy' takes Conv: w ('w') is not a constant (conv); "
                "Conv.group is 1, must be == x.shape[1] (8) (depthwise)"
            ),
        ),
        (
            "c = Conv(x, W)\nr = Relu(c)\ny = Tanh(c)",
            {},
            "r_op",
            "no fusion of 'toy' takes Relu: 'c' is read by 'y_op' too (conv, depthwise)",
        ),
        ("r = Relu(x)", {}, "r_op", "no fusion of 'toy' takes Relu of these operands"),
        ("y = Tanh(x)", {}, "y_op", "no fusion of 'toy' names Tanh and no row is called so"),
    ],
)
def test_a_miss_keeps_its_reason(text, shapes, name, reason):
    last = text.splitlines()
    outputs = [line.split(" = ")[0] for line in last if not line.startswith("c") or len(last) == 1]
    fused = fuse(graph_of(text, outputs=outputs, shapes=shapes), target_of(CONV, DEPTHWISE))
    assert {region.name: region.reason for region in fused.regions}[name] == reason


def test_a_body_that_reads_an_inner_value_keeps_it_outside():
    graph = graph_of(
        "c = Conv(x, W)\nr = Relu(c)\nz = If(p)",
        outputs=["r", "z"],
        dtypes={"p": "bool"},
        captures={"z_op": ("c",)},
    )
    fused = fuse(graph, target_of(CONV))
    assert [(r.kernel, r.inputs) for r in fused.regions] == [
        ("conv", ("x", "W", "")),
        ("Relu", ("c",)),
        ("If", ("c",)),
    ]


def test_regions_stand_in_the_order_they_run():
    """The relu of a kernel comes after an op between it and its conv; whoever reads it comes later."""
    graph = graph_of(
        "c = Conv(x, W)\nt = Tanh(x)\nr = Relu(c)\ny = Add(r, t)\ns = Sigmoid(t)", outputs=["y", "s"]
    )
    fused = fuse(graph, target_of(CONV))
    assert [region.name for region in fused.regions] == ["t_op", "c_op", "y_op", "s_op"]
    assert topological(fused.regions) == fused.regions


def test_every_op_is_in_one_region():
    text = "\n".join(
        f"v{i + 1} = {'Relu' if i % 3 else 'Conv'}(v{i}{'' if i % 3 else ', W'})" for i in range(300)
    )
    graph = graph_of(text, outputs=["v300"])
    fused = fuse(graph, target_of(CONV))
    assert sorted(op.name for region in fused.regions for op in region.ops) == sorted(
        op.name for op in graph.ops
    )
    assert [region.kernel for region in fused.regions] == ["conv", "Relu"] * 100


def test_nameless_ops_are_numbered():
    graph = graph_of("a = Tanh(x)\nb = Sin(a)", outputs=["b"])
    nameless = dataclasses.replace(graph, ops=tuple(dataclasses.replace(op, name="") for op in graph.ops))
    assert [region.name for region in fuse(nameless, target_of()).regions] == ["kernel_0", "kernel_1"]


def test_an_annotated_model_is_returned_unchanged():
    graph = dataclasses.replace(
        graph_of("y = Tanh(x)", outputs=["y"]), ops=(), regions=(Region("k", "tanh", ("x",), ("y",)),)
    )
    assert fuse(graph, target_of(CONV)) is graph


def test_a_capturing_op_reads_its_captures_at_ports():
    op = Op("if", "If", ("p",), ("z",), {}, ("c",))
    graph = graph_of("c = Tanh(x)\nz = If(p)", outputs=["z"], dtypes={"p": "bool"})
    graph = dataclasses.replace(graph, ops=(graph.ops[0], op))
    assert fuse(graph, target_of()).regions[1].inputs == ("c",)


def test_an_open_bound_stays_outside():
    """A clip whose bound is computed has nowhere to put it inside a kernel."""
    graph = graph_of("c = Conv(x, W)\ny = Clip(c, lo)", outputs=["y"])
    fused = fuse(graph, target_of(CONV))
    assert [region.kernel for region in fused.regions] == ["conv", "Clip"]
    assert fused.regions[1].reason == "no fusion of 'toy' takes Clip: 'lo' of 'y_op' is not a constant (conv)"
