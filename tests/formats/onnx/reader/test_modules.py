"""Modules of PyTorch: read from metadata of nodes, kept with the plan, folded by on the page; no more."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.ir.graph import model_digest, modules_of_steps
from planner.report.view import view_of

SCOPES, SPACE = "pkg.torch.onnx.name_scopes", "namespace"
LAYERS = 8


def node(kind, inputs, output, metadata=None, **attributes):
    made = helper.make_node(kind, inputs, [output], f"node_{output}", **attributes)
    for key, value in (metadata or {}).items():
        made.metadata_props.add(key=key, value=value)
    return made


def model_of(nodes, output, weights=()):
    """A model of one input `x` of four numbers."""
    shape = [1, 4]
    graph = helper.make_graph(
        nodes, "main_graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], list(weights),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def transformer(layers=LAYERS):
    """Equal layers, each a product, a sigmoid and a sum, with metadata as torch.onnx writes it."""
    nodes, x = [], "x"
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")]
    for i in range(layers):
        for part, kind, inputs in (
            ("q", "MatMul", [x, "w"]),
            ("act", "Sigmoid", ["%q"]),
            ("", "Add", [x, "%act"]),
        ):
            out = f"{part or 'add'}_{i}"
            path = [f"layers.{i}", *([f"layers.{i}.{part}"] if part else [])]
            told = {SCOPES: str(["", *path, out]), SPACE: ": M/nothing: here/aten"}
            nodes.append(
                node(
                    kind,
                    [name.replace("%q", f"q_{i}").replace("%act", f"act_{i}") for name in inputs],
                    out,
                    told,
                )
            )
        x = f"add_{i}"
    return model_of(nodes, x, weights)


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({SCOPES: "['', 'layers.0', 'layers.0.mlp', 'linear']"}, "layers.0/mlp"),
        ({SCOPES: "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']"}, "layer1/layer1.0/conv1"),
        ({SPACE: ": m.Net/enc: torch.nn.Sequential/enc.1: torch.nn.Linear/linear: aten.linear"}, "enc/enc.1"),
        ({SPACE: ": m.Net/relu: aten.relu"}, ""),
        ({SCOPES: "['', 'conv2d']"}, ""),
        ({SCOPES: "[1, {"}, ""),
        ({SPACE: "encoder"}, ""),
        ({SCOPES: f"['', {', '.join(repr('a') for _ in range(90))}, 'x']"}, "/".join("a" * 32)),
        ({}, ""),
    ],
)  # fmt: skip
def test_the_module_of_a_node(metadata, path):
    model = planner.load_model(model_of([node("Relu", ["x"], "y", metadata)], "y"))
    assert dict(model.modules) == ({"node_y": path} if path else {})


def test_ops_that_the_reader_makes_are_of_the_module_of_theirs():
    told = {SCOPES: "['', 'block', 'block.fc', 'linear']"}
    model = planner.load_model(model_of([node("Sum", ["x", "x", "x"], "y", told)], "y"))
    assert len(model.ops) > 1
    assert {model.modules[op.name] for op in model.ops} == {"block/fc"}


def test_modules_decide_nothing():
    bare = planner.load_model(transformer())
    told = planner.load_model(transformer().replace(b"layers.", b"stacks."))
    assert told.modules != bare.modules
    assert model_digest(told) == model_digest(bare)
    assert (
        planner.plan(told, "litert-int8", best_effort=True).key
        == planner.plan(bare, "litert-int8", best_effort=True).key
    )


def test_eight_layers_are_eight_groups_of_the_page_also_from_a_file():
    model = planner.load_model(transformer())
    stats = planner.calibrate(model, {"x": np.ones((1, 4), np.float32)})
    plan = planner.plan(planner.annotate(model, stats=stats), "litert-int8")
    again = planner.plan_from_json(plan.to_json())
    assert modules_of_steps(again.graph) == modules_of_steps(plan.graph)
    for one in (plan, again):
        view = view_of(one)
        names = [view["texts"][name] for name in view["groups"]["name"]]
        outer = [name for name, parent in zip(names, view["groups"]["parent"], strict=True) if parent < 0]
        assert outer == [f"layers.{i}" for i in range(LAYERS)]
