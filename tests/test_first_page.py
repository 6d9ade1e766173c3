"""The table of the README: it is the recorded one, and rescales are counted as the device would do them."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.first_page import MODELS, OTHER, README, RESULTS, TARGETS, cell, quoted, rescales


def recorded():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_readme_has_the_recorded_table():
    text = README.read_text(encoding="utf-8")
    assert quoted(text, recorded()) == text
    assert all(f"| {title} | " in text for title in MODELS.values())


def test_four_models_on_four_devices_and_the_other_quantizer():
    found = recorded()["models"]
    assert [one["model"] for one in found] == list(MODELS)
    assert all(list(one["files"]) == [*TARGETS, OTHER] for one in found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"coverage": 0.914, "sqnr": 30.26, "size": 403_320, "rescales": 2}, "91 %, 30.3 dB, 0.40 MB, 2"),
        ({"coverage": 0.9999, "sqnr": 9.0, "size": 1e6, "rescales": 0}, "over 99 %, 9.0 dB, 1.00 MB, 0"),
        ({"said": "static: exit code 1"}, "fails"),
    ],
)
def test_a_cell(found, said):
    assert cell(found) == said


def pair(name, given, scale):
    """Nodes that quantize `given` at a scale and give it back as `name`."""
    return [
        helper.make_node("QuantizeLinear", [given, scale, "zero"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", scale, "zero"], [name]),
    ]


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        (("fine", "fine", "fine"), 0),
        (("fine", "coarse", "coarse"), 1),  # one operand of the Concat is on another grid
        (("fine", "fine", "coarse"), 2),
    ],
)
def test_rescales_in_front_of_a_concat_count(scales, expected):
    nodes = [*pair("a", "x", scales[0]), *pair("b", "y", scales[1])]
    nodes += [helper.make_node("Concat", ["a", "b"], ["c"], axis=1), *pair("z", "c", scales[2])]
    shapes = {"x": [1, 2], "y": [1, 2], "z": [1, 4]}
    info = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()
    }
    held = {"fine": np.float32(0.1), "coarse": np.float32(0.2), "zero": np.int8(0)}
    stored = [numpy_helper.from_array(np.array(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", [info["x"], info["y"]], [info["z"]], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    assert rescales(model) == expected
