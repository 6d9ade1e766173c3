"""Sizes for the dimensions that a model leaves open."""

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from planner.errors import InputError, UnknownName
from planner.formats.annotated.document import write_annotated
from planner.formats.mlir.module import write_mlir

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


def convolved(*names):
    """A convolution of 3 channels over an image whose sizes have these names."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    weight = onnx.numpy_helper.from_array(np.ones((1, 3, 1, 1), np.float32), "w")
    inputs = [helper.make_tensor_value_info("x", FLOAT, [1, 3, *names])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, [1, 1, *names])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.mark.parametrize("word", ["?", "", "-1", "unk__7", "None", "*", " ? ", "??"])
def test_a_word_that_is_no_name_is_two_dimensions_where_it_stands_twice(word):
    model = planner.load_model(convolved(word, word), dims={"x[2]": 8, "x[3]": 24})
    assert model.values["x"].shape == (1, 3, 8, 24)
    assert model.values["y"].shape == (1, 1, 8, 24)
    with pytest.raises(UnknownName, match="unknown open dimension"):
        planner.load_model(convolved(word, word), dims={word: 8})


def test_a_word_that_is_no_name_is_none_in_an_annotated_model_too():
    model = planner.load_model(convolved("height", "width"))
    for name in (".json", ".mlir"):
        text = write_annotated(model) if name == ".json" else write_mlir(model)
        text = text.replace('"height"', '"?"').replace('"width"', '"?"')
        read = planner.load_model(text.encode(), format=name[1:], dims={"x[2]": 8, "x[3]": 24})
        assert read.values["x"].shape == (1, 3, 8, 24)


@pytest.mark.parametrize("dims", [{"x[2]": 8, "x[3]": 24}, {"side": 8, "x[3]": 24}, {"x[3]": 24, "x[2]": 8}])
def test_two_sizes_for_one_dimension_are_refused(dims):
    with pytest.raises(InputError, match="dimension 'side' cannot be") as caught:
        planner.load_model(convolved("side", "side"), dims=dims)
    assert caught.value.hint == "the model says that these are one dimension: x[2], x[3]"
    assert planner.load_model(convolved("side", "side"), dims={"x[2]": 8}).values["x"].shape == (1, 3, 8, 8)
