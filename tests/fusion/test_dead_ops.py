"""Ops whose results nothing uses change nothing: no kernel, no type, no number of a file."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from benchmarks.quantized_sources import model_of, samples_of
from planner.fusion.fuse import fuse
from planner.ir.graph import Op, Value
from planner.ir.types.qtypes import Storage, uniform
from planner.target.records import Fusion
from tests.fusion.small import graph_of, target_of

FEW, MANY = 12, 400
SEEDS = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.soak)]


def decided(plan):
    """What a plan decides of its kernels, by their results."""
    return {
        port.value: (kernel.kernel, kernel.row, str(port.type), [str(one.type) for one in kernel.inputs])
        for kernel in plan.kernels_in_order
        for port in kernel.outputs
        if port.value
    }


def test_a_dead_consumer_of_an_inner_value_keeps_no_kernel_apart():
    text = "c = Conv(x, w)\ny = Relu(c)\nd = Neg(c)\ne = Exp(d)"
    graph = graph_of(text, outputs=["y"])
    target = target_of(Fusion("conv", ("Relu?(Conv(x, w))",)))
    fused = fuse(graph, target)
    assert [(region.kernel, region.name) for region in fused.regions][:1] == [("conv", "c_op")]
    assert {region.reason for region in fused.regions[1:]} == {"none of its results is used"}


@pytest.mark.parametrize("count", SEEDS)
def test_dead_ops_of_a_quantized_source_change_neither_plan_nor_file(count):
    """Chains, quantizers, consumers of weights and of inner values, in files of random quantizers."""
    targets = planner.target_ids()
    for seed in range(count):
        models = [planner.load_model(model_of(seed, dead=dead).SerializeToString()) for dead in (True, False)]
        found = []
        for model in models:
            ready = planner.annotate(model, stats=planner.calibrate(model, samples_of(seed)))
            plan = planner.plan(ready, targets[seed % len(targets)])
            planner.check(plan, ready)
            found.append((decided(plan), plan.cost, plan.warnings))
        assert found[0] == found[1], seed


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "tensorrt-int8", "qnn-htp"])
def test_dead_ops_of_a_graph_change_neither_plan_nor_file(target):
    """Put into the graph itself, behind all rewriting: at every value, one after the other."""
    model = planner.load_model(model_of(8, dead=False).SerializeToString())
    samples = samples_of(8)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    plain = planner.plan(ready, target)
    file = planner.export(ready, plain, "onnx-qdq")
    for name in [name for name, value in ready.values.items() if value.is_float]:
        ops = (Op("dead1", "Neg", (name,), ("dead1",)), Op("dead2", "Exp", ("dead1",), ("dead2",)))
        fact = (uniform(Storage(8, True, -128, 127), 0.5),)
        values = {
            **ready.values,
            "dead1": Value("dead1", ready.values[name].shape, "f32", fact),
            "dead2": Value("dead2", ready.values[name].shape),
        }
        other = replace(ready, ops=(*ready.ops, *ops), values=values)
        plan = planner.plan(other, target)
        planner.check(plan, other, target)
        assert (decided(plan), plan.cost) == (decided(plain), plain.cost), name
        assert [text for text in plan.warnings if text not in plain.warnings] == [
            "!quant.uniform<i8:f32, 0.5> on 'dead1' has no effect: no port of a kernel carries it"
        ]
        assert nodes(planner.export(other, plan, "onnx-qdq")) == nodes(file), name


def nodes(data):
    """The ops of a file."""
    return [(node.op_type, [*node.output]) for node in onnx.load_from_string(data).graph.node]


def test_contradictions_at_dead_kernels_are_none():
    model = planner.load_model(model_of(8, dead=False).SerializeToString())
    ready = planner.annotate(model, stats=planner.calibrate(model, samples_of(8)))
    kinds = tuple(uniform(Storage(8, True, -128, 127), scale) for scale in (0.5, 0.25))
    shape = ready.values[ready.inputs[0]].shape
    values = {**ready.values, "d": Value("d", shape, "f32", kinds)}
    dead = replace(ready, ops=(*ready.ops, Op("d", "Neg", (ready.inputs[0],), ("d",))), values=values)
    plan = planner.plan(dead, "litert-int8")
    assert len([text for text in plan.warnings if "'d' has no effect" in text]) == len(kinds)


def test_dead_ops_in_a_body_change_nothing():
    """A branch with an op that nothing uses, behind the Conv of a Conv and its Relu."""
    found = []
    for dead in (False, True):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
        ]
        nodes += [helper.make_node("Exp", ["c"], ["gone"], name="gone")] if dead else []
        weight = np.random.default_rng(1).normal(size=(4, 4, 1, 1)).astype(np.float32)
        port = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 3, 3])
        taken = helper.make_graph(nodes, "then", [], [helper.make_tensor_value_info("r", 1, [1, 4, 3, 3])])
        other = helper.make_graph(
            [helper.make_node("Neg", ["x"], ["n"], name="neg")],
            "else",
            [],
            [helper.make_tensor_value_info("n", 1, [1, 4, 3, 3])],
        )
        choice = helper.make_node("If", ["b"], ["y"], name="if", then_branch=taken, else_branch=other)
        graph = helper.make_graph(
            [choice],
            "g",
            [port, helper.make_tensor_value_info("b", onnx.TensorProto.BOOL, [])],
            [helper.make_tensor_value_info("y", 1, [1, 4, 3, 3])],
            [onnx.numpy_helper.from_array(weight, "w")],
        )
        file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        model = planner.load_model(file.SerializeToString())
        sample = {"x": np.ones((1, 4, 3, 3), np.float32), "b": np.asarray(True)}
        ready = planner.annotate(model, stats=planner.calibrate(model, [sample]))
        plan = planner.plan(ready, "litert-int8")
        found.append((decided(plan), plan.cost))
    assert found[0] == found[1]
    assert any(kind == "conv2d" for kind, *_ in found[0][0].values())
