"""An exported file that does not run at defaults of onnxruntime: the node, the optimisation, what is kept."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import EngineError, ModelError, SampleError
from planner.interpreter.as_used import compare_as_used
from planner.interpreter.at_defaults import reason
from planner.target.records import Files

RNG = np.random.default_rng(0)
TOLD = "the exported file does not run at onnxruntime's defaults: "
SAMPLES = [{"x": RNG.normal(size=(2, 3, 4)).astype(np.float32)}]
TURN = helper.make_node("Transpose", ["r"], ["t"], "turn", perm=[1, 0, 2])
ENDS = [helper.make_node("Relu", ["x"], ["r"], "first"), helper.make_node("Sigmoid", ["t"], ["y"], "last")]


def model(nodes, arrays, shape=(2, 3, 4)):
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


def float_file():
    return model([ENDS[0], TURN, ENDS[1]], {})


def pair_in_i8():
    """Opset 21 and a pair of i8 in front of an op that moves data, without the guard of our files."""
    pair = [
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], "turn", perm=[1, 0, 2]),
    ]
    return model([ENDS[0], *pair, ENDS[1]], {"s": np.float32(0.1), "z": np.int8(3)})


def wrong_reshape():
    reshape = helper.make_node("Reshape", ["r", "sizes"], ["t"], "flat")
    return model([ENDS[0], reshape, ENDS[1]], {"sizes": np.array([5, 5])})


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            pair_in_i8(),
            "QuantizeLinear 't_q' fails with optimisations of level extended, by QDQS8ToU8Transformer, ",
        ),
        (wrong_reshape(), "Reshape 'flat' fails with and without optimisations: "),
        (b"no model", "it fails with and without optimisations: "),
    ],
)
def test_the_node_and_the_optimisation_are_named(data, told):
    assert reason(planner.load_model(float_file()), data, SAMPLES).startswith(TOLD + told)


def test_a_file_that_runs_has_no_reason():
    assert reason(planner.load_model(float_file()), float_file(), SAMPLES) == ""


def test_a_file_that_does_not_run_is_at_fault_and_not_the_sample():
    graph = planner.load_model(float_file())
    with pytest.raises(EngineError, match=r"^sample 0: onnxruntime cannot run the exported file: ") as caught:
        planner.compare(graph, wrong_reshape(), SAMPLES)
    assert isinstance(caught.value, ModelError)


def test_a_sample_of_a_size_that_the_file_has_not_is_at_fault():
    graph = planner.load_model(model([ENDS[0], TURN, ENDS[1]], {}, ("n", 3, 4)))
    with pytest.raises(SampleError, match="Got invalid dimensions"):
        planner.compare(graph, float_file(), [{"x": np.ones((5, 3, 4), np.float32)}])


@pytest.mark.parametrize("device", [Files(), Files(runtime="onnxruntime")])
@pytest.mark.parametrize(("data", "figures"), [(pair_in_i8(), 1), (wrong_reshape(), 0)])
def test_figures_are_those_of_the_file_as_written_if_that_runs(data, figures, device):
    graph = planner.load_model(float_file())
    found = compare_as_used(graph, "onnx-qdq", data, SAMPLES, device=device)
    assert len(found.outputs) == figures
    assert found.verdict.level == "poor"
    assert found.verdict.reason == found.failure
    assert found.failure.startswith(TOLD)


def whole_numbers():
    """A Resize of int32 with `axes` between Transposes: it runs in no other layout, and has no guard."""
    weights = {name: (RNG.normal(size=(8, 8, 3, 3)) * 0.1).astype(np.float32) for name in "vw"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["a"], ["i"], "whole", to=TensorProto.INT32),
        helper.make_node("Transpose", ["i"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Resize", ["t", "", "", "sizes"], ["r"], "up", mode="nearest", axes=[1, 2]),
        helper.make_node("Transpose", ["r"], ["u"], "back", perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["u"], ["f"], "float", to=TensorProto.FLOAT),
        helper.make_node("Conv", ["f", "w"], ["y"], "last", pads=[1, 1, 1, 1]),
    ]
    data = model(nodes, {**weights, "sizes": np.array([16, 16])}, (1, 8, 8, 8))
    return data, {"x": (RNG.normal(size=(4, 1, 8, 8, 8)) * 9).astype(np.float32)}


def test_quantize_keeps_everything_and_says_so():
    data, arrays = whole_numbers()
    found = planner.quantize(data, [{"x": x} for x in arrays["x"]])
    assert found.verdict.level == "poor"
    assert found.verdict.reason.startswith(f"{TOLD}Resize 'up' fails with optimisations of level extended, ")
    assert found.comparison.worst_sqnr > 15
    assert "optimisations off" in found.comparison.measured_on
