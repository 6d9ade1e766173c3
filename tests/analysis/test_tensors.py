"""Tensors of small models: datatypes by rule, ranges that hold, what is refused, and the verb."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from planner.analysis.datatypes import datatypes
from planner.analysis.ranges import ranges
from planner.errors import SampleError, UnknownName
from planner.formats.onnx.read import read_written
from planner.interpreter.models import ModelRunner
from tests.conversion.files import file_of, quant_node

RNG = np.random.default_rng(3)
X = {"x": (TensorProto.FLOAT, [1, 4, 6, 6])}


def quantized(**attributes):
    node, arrays = quant_node("y", "x", **{"scale": 1.0, "zero_point": 0.0, "bits": 4, **attributes})
    return datatypes(read_written(file_of([node], X, ["y"], arrays)))["y"]


def test_datatypes_of_quantizers():
    assert quantized() == "INT4"
    assert quantized(signed=0) == "UINT4"
    assert quantized(bits=1) == "BIPOLAR"
    assert quantized(bits=1, signed=0) == "BINARY"
    assert quantized(scale=0.25) == "SCALEDINT<4>"
    assert quantized(zero_point=2.0) == "SCALEDINT<4>"


def chain(*kinds, bits=4, scale=1.0, **attributes):
    """The datatypes behind ops in a row on a quantized input."""
    node, arrays = quant_node("q", "x", scale=scale, zero_point=0.0, bits=bits)
    names = ["q", *(f"v{i}" for i in range(len(kinds)))]
    nodes = [node]
    for i, kind in enumerate(kinds):
        more = attributes if kind in ("MaxPool", "Concat") else {}
        operands = [names[i]] if kind != "Add" else [names[i], names[i]]
        nodes.append(helper.make_node(kind, operands, [names[i + 1]], f"n{i}", **more))
    found = datatypes(read_written(file_of(nodes, X, [names[-1]], arrays)))
    return [found[name] for name in names[1:]]


def test_datatypes_of_what_moves_and_adds():
    assert chain("Transpose", "Relu", "Add", "Sigmoid") == ["INT4", "INT4", "INT32", "FLOAT32"]
    assert chain("Flatten", "Add", scale=0.5) == ["SCALEDINT<4>", "SCALEDINT<32>"]
    assert chain("Relu", "Sign", bits=1) == ["TERNARY", "TERNARY"]
    assert chain("MaxPool", "GlobalAveragePool", kernel_shape=[2, 2]) == ["INT4", "FLOAT32"]


def test_a_concat_of_integers_holds_both():
    first, arrays = quant_node("a", "x", scale=1.0, zero_point=0.0, bits=4)
    second, more = quant_node("b", "x", scale=1.0, zero_point=0.0, bits=4, signed=0)
    nodes = [first, second, helper.make_node("Concat", ["a", "b"], ["y"], "c", axis=1)]
    assert datatypes(read_written(file_of(nodes, X, ["y"], {**arrays, **more})))["y"] == "INT5"


@pytest.mark.parametrize(
    ("kind", "operands", "attributes", "wanted"),
    [
        ("Where", "mask a b", {}, "INT8"),
        ("ScatterElements", "a places b", {"axis": 3}, "INT8"),
        ("ScatterElements", "a places a", {"axis": 3}, "INT4"),
        ("ScatterElements", "a places b", {"axis": 3, "reduction": "add"}, "FLOAT32"),
        ("Clip", "a low", {}, "INT4"),
        ("GatherElements", "a places", {"axis": 3}, "INT4"),
    ],
)
def test_datatypes_of_what_picks_are_those_of_all_data(kind, operands, attributes, wanted):
    """Not of masks, places and bounds."""
    first, arrays = quant_node("a", "x", scale=1.0, zero_point=0.0, bits=4)
    second, more = quant_node("b", "x", scale=1.0, zero_point=0.0, bits=8)
    node = helper.make_node(kind, operands.split(), ["y"], "n", **attributes)
    constants = {
        "mask": np.zeros((1, 4, 6, 6), bool),
        "places": np.zeros((1, 4, 6, 6), np.int64),
        "low": np.float32(-3),
    }
    read = {name: array for name, array in constants.items() if name in operands.split()}
    nodes = [first, *[second] * ("b" in operands.split()), node]
    model = file_of(nodes, X, ["y"], {**arrays, **more, **read})
    assert datatypes(read_written(model))["y"] == wanted


def test_zeros_of_a_triangle_are_a_third_number():
    first, arrays = quant_node("a", "x", scale=1.0, zero_point=0.0, bits=1)
    model = file_of([first, helper.make_node("Trilu", ["a"], ["y"], "n")], X, ["y"], arrays)
    assert datatypes(read_written(model))["y"] == "TERNARY"


def net():
    """A Conv with pads, BatchNormalization, PRelu, pools, both signs everywhere."""
    arrays = {
        "w": RNG.normal(size=(5, 4, 3, 3)), "b": RNG.normal(size=5), "g": RNG.normal(size=5),
        "m": RNG.normal(size=5), "v": RNG.uniform(0.5, 2, 5), "s": RNG.uniform(0, 1, (5, 1, 1)),
        "d": RNG.normal(size=(5, 3)),
    }  # fmt: skip
    quantizer, more = quant_node("q", "p", scale=0.25, zero_point=0.0, bits=3)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], "norm"),
        helper.make_node("PRelu", ["n", "s"], ["p"], "prelu"),
        quantizer,
        helper.make_node("Sub", ["p", "q"], ["e"], "error"),
        helper.make_node("Mul", ["e", "e"], ["e2"], "square"),
        helper.make_node("GlobalAveragePool", ["e2"], ["a"], "pool"),
        helper.make_node("Flatten", ["a"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "d"], ["y"], "dense"),
        helper.make_node("Softmax", ["y"], ["z"], "softmax"),
    ]
    constants = {name: array.astype(np.float32) for name, array in arrays.items()}
    return file_of(nodes, X, ["z"], {**constants, **more})


@pytest.mark.parametrize("ends", [(-2.0, 3.0), (0.5, 0.75), (-1.0, -1.0)])
def test_every_run_lies_within_the_ranges(ends):
    graph = read_written(net())
    found = ranges(graph, {"x": ends})
    runner = ModelRunner(graph, watched=[name for name in found if name != "x"])
    for _ in range(20):
        corners = RNG.choice(np.asarray(ends, np.float32), (1, 4, 6, 6))
        for name, array in runner.run({"x": corners}).items():
            bounds = found[name]
            assert not bounds.why
            far = 1e-5 * (1 + np.abs(array).max())
            assert np.all(bounds.lo - far <= array), name
            assert np.all(array <= bounds.hi + far), name


def test_ranges_of_a_sum_are_met():
    graph = read_written(net())
    found = ranges(graph, {"x": (-2.0, 3.0)})["c"]
    weight = graph.constants["w"].array
    for channel in range(5):
        x = np.full((1, 4, 6, 6), -2.0, np.float32)
        x[:, :, 1:4, 1:4] = np.where(weight[channel] > 0, 3, -2)
        got = ModelRunner(graph, watched=["c"]).run({"x": x})["c"][0, channel, 1, 1]
        assert got == pytest.approx(found.hi[0, channel, 1, 1], rel=1e-5)


@pytest.mark.parametrize("kind", ["Gemm", "MatMul"])
@pytest.mark.parametrize("is_first", [False, True])
def test_ranges_of_a_product_are_met(kind, is_first):
    """By the weights on either side, a bias and its factor beta with them."""
    weight = RNG.normal(size=(3, 4)).astype(np.float32)
    bias = RNG.normal(size=(3, 1) if is_first else (1, 4)).astype(np.float32)
    operands = ["w", "x"] if is_first else ["x", "w"]
    more, attributes = ({"b": bias}, {"beta": -2.0}) if kind == "Gemm" else ({}, {})
    made = helper.make_node(kind, [*operands, *more], ["y"], "n", **attributes)
    graph = read_written(
        file_of(
            [made], {"x": (TensorProto.FLOAT, [4, 2] if is_first else [2, 3])}, ["y"], {"w": weight, **more}
        )
    )
    found = ranges(graph, {"x": (-2.0, 3.0)})["y"]
    assert not found.why
    summed = 1 if is_first else 0
    added = -2.0 * bias if more else 0.0
    for bound, up, down in ((found.hi, 3.0, -2.0), (found.lo, -2.0, 3.0)):
        wanted = np.where(weight > 0, up * weight, down * weight).sum(summed, keepdims=True) + added
        np.testing.assert_allclose(bound, np.broadcast_to(wanted, bound.shape), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.5, -0.5])
def test_a_negative_factor_of_a_product_turns_no_range_around(alpha):
    """Its ends would change places, for which there is no rule."""
    made = helper.make_node("Gemm", ["x", "w"], ["y"], "n", alpha=alpha)
    graph = read_written(
        file_of([made], {"x": (TensorProto.FLOAT, [2, 3])}, ["y"], {"w": np.float32([[1], [2], [-1]])})
    )
    found = ranges(graph, {"x": (-2.0, 3.0)})["y"]
    if alpha < 0:
        assert "Gemm at 'n'" in found.why
    else:
        assert (found.lo.min(), found.hi.max()) == (-4.5, 5.5)


def test_an_input_without_bounds_is_bounded_by_a_quantizer():
    graph = read_written(net())
    found = ranges(graph, {})
    assert np.all(np.isinf(found["c"].lo))
    assert (found["q"].lo.min(), found["q"].hi.max()) == (-1.0, 0.75)


def test_what_is_refused_says_why():
    graph = read_written(net())
    with pytest.raises(UnknownName, match="unknown model input 'X'"):
        ranges(graph, {"X": (0.0, 1.0)})
    with pytest.raises(SampleError, match="its least number is above its largest"):
        ranges(graph, {"x": (1.0, 0.0)})
    with pytest.raises(SampleError, match="does not fit its shape"):
        ranges(graph, {"x": (np.zeros(3), np.ones(3))})
    open_size = {"x": (TensorProto.FLOAT, ["n", 4, "h", "w"])}
    found = ranges(
        read_written(file_of([helper.make_node("Relu", ["x"], ["y"], "r")], open_size, ["y"], {})), {}
    )
    assert found["y"].why == "the input 'x' leaves sizes open: give them with --dim h=SIZE"
    cumsum = [helper.make_node("CumSum", ["x", "axis"], ["y"], "sum")]
    found = ranges(read_written(file_of(cumsum, X, ["y"], {"axis": np.asarray(1)})), {"x": (0.0, 1.0)})
    assert found["y"].why == "CumSum at 'sum' has no rule for ranges"


def test_annotated_inputs_have_the_ends_of_their_datatype():
    model = onnx.load_from_string(
        file_of([helper.make_node("Relu", ["x"], ["y"], "r")], {"x": (TensorProto.FLOAT, [1, 4])}, ["y"], {})
    )
    entry = model.graph.quantization_annotation.add(tensor_name="x")
    entry.quant_parameter_tensor_names.add(key="finn_datatype", value="INT3")
    graph = read_written(model.SerializeToString())
    found = ranges(graph, {})
    assert (found["x"].lo.min(), found["x"].hi.max(), found["y"].lo.min()) == (-4, 3, 0)
    assert datatypes(graph) == {"x": "INT3", "y": "INT3"}
