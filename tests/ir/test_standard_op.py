"""Standard operators: each computes what the ops of its spelling compute, and no other ops have its name."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import planner
from planner.fusion.fuse import fuse
from planner.ir.operators.standard_op import (
    SPELLED,
    SPELLS,
    misses_its_name,
    ops_to_run,
    spelling_of,
    standard_op,
)
from planner.target.load import load_target
from tests.blocks.spellings import BLOCKS, NO_GAIN, SHAPE, model_of

TARGET = load_target("litert-int8")
CASES = [(kernel, name) for kernel in SPELLED for name in BLOCKS[kernel]]


def region_of(text, kernel):
    graph = fuse(planner.load_model(model_of(text)), TARGET)
    (region,) = [region for region in graph.regions if region.kernel == kernel]
    return graph, region


def run(graph, region, ops, x):
    held = {name: graph.constants[name].array for op in ops for name in op.inputs if name in graph.constants}
    (out,) = region.outputs
    described = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)]
        for name in (region.inputs[0], out)
    ]
    nodes = [helper.make_node(op.type, op.inputs, op.outputs, **op.attributes) for op in ops]
    constants = [numpy_helper.from_array(array, name) for name, array in held.items()]
    made = helper.make_model(
        helper.make_graph(nodes, "g", *described, constants),
        opset_imports=[helper.make_opsetid("", 21 if ops[0].type != "Gelu" else 22)],
        ir_version=10,
    )
    return ReferenceEvaluator(made).run(None, {region.inputs[0]: x})[0]


@pytest.mark.parametrize(("kernel", "name"), CASES)
def test_the_operator_computes_what_its_ops_compute(kernel, name):
    graph, region = region_of(BLOCKS[kernel][name], kernel)
    op = standard_op(region)
    assert (op.type, op.outputs, op.name) == (kernel, region.outputs, region.ops[-1].name)
    assert op.inputs == tuple(name for name in region.inputs if name)
    assert ops_to_run(region) == (op,)
    assert not misses_its_name(region)
    x = np.random.default_rng(4).normal(0, 2, SHAPE).astype(np.float32)
    found, wanted = run(graph, region, [op], x), run(graph, region, region.ops, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert SPELLS not in op.attributes
    assert standard_op(replace(region, ops=())) is None
    plain = replace(region, attributes={})
    assert standard_op(plain) is None
    assert ops_to_run(plain) == region.ops


def changed(text, *pairs):
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after)
    return text


TORCH = BLOCKS["LayerNormalization"]["torch"]
OTHERS = {
    "norm without gain": ("LayerNormalization", NO_GAIN),
    "norm of two axes": ("LayerNormalization", changed(TORCH, ("[-1]", "[-2,-1]"))),
    "norm of a middle axis": ("LayerNormalization", changed(TORCH, ("[-1]", "[1]"))),
    "norm of two different axes": (
        "LayerNormalization",
        changed(TORCH, ("v = ReduceMean<axes=[-1]>", "v = ReduceMean<axes=[1]>")),
    ),
    "norm with one offset": ("LayerNormalization", changed(TORCH, ("(g, b)", "(g, one)"))),
    "norm with one gain": ("LayerNormalization", changed(TORCH, ("(q, w)", "(q, two)"))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_block_near_an_operator_is_none(name):
    kernel, text = OTHERS[name]
    graph = fuse(planner.load_model(model_of(text)), TARGET)
    (region,) = [region for region in graph.regions if region.kernel == kernel]
    assert misses_its_name(region)
    assert standard_op(region) is None
    assert ops_to_run(region) == region.ops


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_a_softmax_is_along_the_axis_of_its_reductions(axis):
    text = changed(BLOCKS["Softmax"]["jax"], ("[-1]", f"[{axis}]"))
    data = onnx.load_from_string(model_of(text))
    (last,) = [one for one in data.graph.initializer if one.name == "last"]
    last.CopyFrom(numpy_helper.from_array(np.array([axis]), "last"))
    graph = fuse(planner.load_model(data.SerializeToString()), TARGET)
    (region,) = [region for region in graph.regions if region.kernel == "Softmax"]
    op = standard_op(region)
    assert op.attributes == {"axis": axis % 3}
    x = np.random.default_rng(5).normal(size=SHAPE).astype(np.float32)
    np.testing.assert_allclose(run(graph, region, [op], x), run(graph, region, region.ops, x), rtol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 1e-3])
@pytest.mark.parametrize("name", BLOCKS["LayerNormalization"])
def test_a_norm_adds_the_epsilon_of_its_ops(name, epsilon):
    data = onnx.load_from_string(model_of(BLOCKS["LayerNormalization"][name]))
    (eps,) = [one for one in data.graph.initializer if one.name == "eps"]
    eps.CopyFrom(numpy_helper.from_array(np.float32(epsilon), "eps"))
    graph = fuse(planner.load_model(data.SerializeToString()), TARGET)
    (region,) = [region for region in graph.regions if region.kernel == "LayerNormalization"]
    assert standard_op(region).attributes == {"axis": -1, "epsilon": float(np.float32(epsilon))}


def test_types_of_several_floats_spell_no_operator():
    """An operator has one element type, a cast among its ops another."""
    graph, region = region_of(BLOCKS["Gelu"][next(iter(BLOCKS["Gelu"]))], "Gelu")
    for name in (region.inputs[0], region.outputs[0]):
        values = {**graph.values, name: replace(graph.values[name], dtype="f16")}
        assert spelling_of(region, replace(graph, values=values)) == {SPELLS: ""}
    assert spelling_of(region, graph)[SPELLS] == "Gelu"
    assert spelling_of(replace(region, outputs=(*region.outputs, region.inputs[0])), graph) == {SPELLS: ""}
    assert spelling_of(replace(region, kernel="conv"), graph) == {}
