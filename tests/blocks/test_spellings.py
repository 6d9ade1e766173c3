"""Each spelling of a block is one kernel, planned, evaluated, written, and equal in onnxruntime."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import planner
from planner.fusion.fuse import fuse
from planner.ir.types.qtypes import Uniform
from planner.target.load import load_target
from tests.blocks.spellings import BLOCKS, CASES, NO_GAIN, SWISH, model_of, samples

PRODUCTS = {"add", "gemm", "matmul"}


def planned(source, target):
    model = planner.load_model(source)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples(4)))
    plan = planner.plan(ready, target)
    planner.check(plan, ready, target)
    return ready, plan


def run(file, sample, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return session.run(None, sample)[0]


SHARING = (
    "edgetpu",
    "ethos-u55",
    "litert-int8",
    "onnxruntime-cpu",
    "qnn-htp",
    "stablehlo",
    "tensorrt-int8",
    "tosa-int8",
)


@pytest.mark.parametrize("target", SHARING)
def test_shipped_targets_share_their_blocks(target):
    """One file has them: none of the targets writes its own."""
    sources = {block.source.partition(":")[0] for block in load_target(target).blocks}
    assert sources == {"_blocks.yaml"}


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "litert-int8"])
@pytest.mark.parametrize(("kernel", "name"), CASES)
def test_all_ops_of_a_spelling_are_one_kernel(kernel, name, target):
    graph = fuse(planner.load_model(model_of(BLOCKS[kernel][name])), load_target(target))
    made = [region.kernel for region in graph.regions if region.outputs]
    assert [one for one in made if one not in PRODUCTS | {"batch_matmul", "fully_connected"}] == [kernel]


@pytest.mark.parametrize(("kernel", "name"), CASES)
def test_a_plan_of_a_spelling_runs_in_onnxruntime(kernel, name):
    """A block is one kernel, in integers at its ports or in float; or all of its ops are in integers."""
    ready, plan = planned(model_of(BLOCKS[kernel][name]), "onnxruntime-cpu")
    inside = [one for one in plan.kernels.values() if one.kernel not in PRODUCTS]
    assert [one.kernel for one in inside] == [kernel] or all(one.row for one in inside)
    (sample,) = samples(1, seed=9)
    found = planner.evaluate(ready, plan, sample).outputs["output"]
    file = planner.export(ready, plan, "onnx-qdq")
    np.testing.assert_allclose(run(file, sample), found, atol=1e-5)
    # Its integer products saturate on processors without VNNI, so at the defaults it has only to run.
    assert run(file, sample, ort.GraphOptimizationLevel.ORT_ENABLE_ALL).shape == found.shape


def test_a_norm_with_a_row_has_integers_on_both_sides():
    """The row of LayerNormalization serves a norm of small ops as it serves the operator."""
    ready, plan = planned(model_of(BLOCKS["LayerNormalization"]["torch"]), "onnxruntime-cpu")
    (norm,) = [one for one in plan.kernels.values() if one.kernel == "LayerNormalization"]
    kinds = [port.type for port in (*norm.inputs, *norm.outputs)]
    assert all(isinstance(kind, Uniform) for kind in kinds)
    file = onnx.load_from_string(planner.export(ready, plan, "onnx-qdq"))
    types = {node.op_type for node in file.graph.node}
    assert "LayerNormalization" in types
    assert types.isdisjoint({"ReduceMean", "Sqrt", "Pow"})


def test_a_norm_without_a_row_is_float_as_a_whole():
    """Nothing of a variance is in 8 bits, and the plan has one kernel of it."""
    _, plan = planned(model_of(NO_GAIN), "onnxruntime-cpu")
    (norm,) = [one for one in plan.kernels.values() if one.kernel not in PRODUCTS]
    assert (norm.kernel, norm.row) == ("LayerNormalization", None)


def test_an_inner_value_that_is_read_elsewhere_keeps_a_block_apart():
    lines = BLOCKS["LayerNormalization"]["torch"].replace("y = Add(g, b)", "z = Add(g, b)\n y = Add(z, s)")
    graph = fuse(planner.load_model(model_of(lines)), load_target("onnxruntime-cpu"))
    assert "LayerNormalization" not in {region.kernel for region in graph.regions if len(region.ops) > 3}


def test_other_numbers_are_no_block():
    lines = BLOCKS["Gelu"]["torch"].replace("half", "three")
    graph = fuse(planner.load_model(model_of(lines)), load_target("onnxruntime-cpu"))
    assert "Gelu" not in {region.kernel for region in graph.regions}


def test_a_norm_between_two_precisions_is_no_operator():
    """One that reads float16 and hands on float32 is a block in float."""
    lines = BLOCKS["LayerNormalization"]["torch"].replace("(x", "(wide").replace("Sub(x", "Sub(wide")
    source = model_of("half16 = Cast<to=10>(x)\n wide = Cast<to=1>(half16)\n" + lines)
    graph = fuse(planner.load_model(source), load_target("onnxruntime-cpu"))
    (norm,) = [region for region in graph.regions if region.kernel == "LayerNormalization"]
    assert norm.attributes["spells"] == ""


def test_swish_is_served_by_rows_of_its_ops():
    _, plan = planned(model_of(SWISH["torch"]), "onnxruntime-cpu")
    assert {one.kernel for one in plan.kernels.values() if one.row} == {"matmul", "Sigmoid", "Mul"}
