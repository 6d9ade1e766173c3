"""Fixed types as ops: a model that rounds where they stand gives the numbers of their formula."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.conversion.pins import with_rounding
from planner.errors import ModelError
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.interpreter.models import run_model
from planner.ir.graph import Region
from planner.ir.types.typetext import parse_type
from tests.conversion.files import file_of

SHAPE = (2, 3, 4)
TYPES = {
    "x": "!quant.uniform<i8:f32, 0.05:3>",
    "w": "!quant.uniform<u4<1:14>:f32:1, {0.25:7,0.5:1,0.125:14}>",
    "s": "!quant.uniform<i8:f32:2, {0.03,0.1,0.5:-100,0.01}>",
    "y": "!quant.uniform<u8:f32, 0.25:128>",
}


@pytest.fixture(scope="module")
def model():
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["s"], "product"),
        helper.make_node("Neg", ["s"], ["y"], "last"),
    ]
    arrays = {"w": np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)}
    return read_onnx(file_of(nodes, {"x": (TensorProto.FLOAT, SHAPE)}, ["y"], arrays))


def pinned(model, names):
    facts = {name: (parse_type(TYPES[name]),) for name in names}
    return replace(
        model,
        values={name: replace(value, facts=facts.get(name, ())) for name, value in model.values.items()},
    )


def rounded(array, kind):
    shape = [1] * array.ndim
    if kind.axis is not None:
        shape[kind.axis] = -1
    scale, zero = (np.float32(each).reshape(shape) for each in (kind.scales, kind.zero_points))
    stored = np.rint(np.clip(array / scale + zero, kind.storage.qmin, kind.storage.qmax))
    return (stored - zero) * scale


@pytest.mark.parametrize("names", ["", "x", "w", "s", "y", "xwsy"])
def test_each_value_is_rounded_to_its_type(model, names):
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32) * 3
    found = with_rounding(pinned(model, names))
    assert all(not value.facts for value in found.values.values())
    each = {name: parse_type(TYPES[name]) for name in names}

    def at(name, array):
        return rounded(array, each[name]) if name in each else array

    product = at("s", at("x", x) * at("w", model.constants["w"].array))
    assert np.array_equal(run_model(write_graph(found), {"x": x})[found.outputs[0]], at("y", -product))
    assert len(found.ops) == 2 + 6 * len(names)


@pytest.mark.parametrize(
    "text",
    ["!quant.uniform<i8:f32:{1:1}, {{0.5,1.0,2.0}}>", "!quant.uniform<f8E4M3FN:f32, 0.5>"],
)
def test_a_type_without_a_formula_is_refused(model, text):
    values = {**model.values, "s": replace(model.values["s"], facts=(parse_type(text),))}
    with pytest.raises(ModelError, match=r"'s' has the fixed type .* a type per tensor or per axis"):
        with_rounding(replace(model, values=values))


def test_other_floats_and_kernels_without_ops_are_refused(model):
    half = replace(pinned(model, "s").values["s"], dtype="f16")
    with pytest.raises(ModelError, match="'s' has the fixed type"):
        with_rounding(replace(model, values={**model.values, "s": half}))
    region = Region("k", "conv", ("x",), ("y",))
    with pytest.raises(ModelError, match="kernel 'k' has no ops of its own"):
        with_rounding(replace(model, regions=(region,), ops=()))
