"""Sizes for the dimensions that a model leaves open."""

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from planner.errors import InputError, UnknownName

FLOAT = onnx.TensorProto.FLOAT


def written(*, named=True):
    """Y = x + mean of x over its second axis; three open dimensions, one of them in the result too."""
    batch, steps = ("batch", "steps") if named else (None, None)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [batch, steps, 4])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, [batch, steps, 4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_names_are_sized_wherever_they_stand():
    model = planner.load_model(written(), dims={"batch": 2, "steps": 7})
    assert {name: model.values[name].shape for name in "xmy"} == {
        "x": (2, 7, 4),
        "m": (2, 1, 4),
        "y": (2, 7, 4),
    }


def test_places_are_sized_and_what_follows_is_inferred():
    model = planner.load_model(written(named=False), dims={"x[0]": 2, "x[1]": 7})
    assert model.values["x"].shape == (2, 7, 4)
    assert model.values["m"].shape == (2, 1, 4)


def test_others_stay_open():
    assert planner.load_model(written(), dims={"batch": 2}).values["x"].shape == (2, "steps", 4)


@pytest.mark.parametrize("dims", [{"bach": 1}, {"x[2]": 4}, {"y[0]": 1}])
def test_a_dimension_that_is_not_open(dims):
    with pytest.raises(UnknownName, match="unknown open dimension"):
        planner.load_model(written(), dims=dims)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_a_size_that_is_none(size):
    with pytest.raises(InputError, match="accepted: a whole number of at least 1"):
        planner.load_model(written(), dims={"batch": size})


def test_convert_writes_them():
    fixed = onnx.load_from_string(planner.convert(written(), "onnx", dims={"batch": 2, "steps": 7}))
    assert [dim.dim_value for dim in fixed.graph.input[0].type.tensor_type.shape.dim] == [2, 7, 4]


def test_a_program_has_these_sizes():
    model = planner.load_model(written(), dims={"batch": 2, "steps": 7})
    sample = {"x": np.linspace(-1, 1, 56, dtype=np.float32).reshape(2, 7, 4)}
    ready = planner.annotate(model, stats=planner.calibrate(model, [sample]))
    text = planner.export(ready, planner.plan(ready, "stablehlo"), "stablehlo").decode()
    assert "tensor<2x7x4xf32>" in text
    assert "left open" not in text


@pytest.mark.parametrize("dims", [{"batch": 2}, {"x[0]": 2}])
def test_bodies_have_the_sizes_too(dims):
    """Of what no inference knows the file alone says the shape."""
    then, other = (
        f"b{k} () => (float[batch, 4] r{k}) <float[batch, 4] o{k}> "
        f"{{ o{k} = custom.Odd(x) r{k} = Relu(o{k}) }}"
        for k in range(2)
    )
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]> '
        "g (float[batch, 4] x, bool c) => (float[batch, 4] y) "
        f"{{ y = If (c) <then_branch = {then}, else_branch = {other}> }}"
    )
    model = planner.load_model(onnx.parser.parse_model(text).SerializeToString(), dims=dims)
    shapes = {name: value.shape for name, value in model.values.items() if value.is_float}
    assert shapes == dict.fromkeys(shapes, (2, 4))
    assert any(name.endswith("o1") for name in shapes)
