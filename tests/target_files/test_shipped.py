"""The shipped target files: what each must say, and which kernels real models become."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from planner.formats.onnx.read import read_onnx
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Storage
from planner.target.lint.findings import lint
from planner.target.load import load_target, target_ids
from planner.target.patterns import op_types, parse_pattern
from planner.target.predicates import bits_unsaid, failing

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
NOTHING = Graph("nothing", {}, (), (), ())

# BatchNormalization is folded on import; a running sum has no integer kernel; the last is a contrib op.
NOT_SERVED = {"BatchNormalization", "CumSum", "EmbedLayerNormalization"}


@pytest.mark.parametrize("name", target_ids())
def test_it_lints_clean(name):
    target = load_target(name)
    assert (target.id, target.file) == (name, f"{name}.yaml")
    assert [str(finding) for finding in lint(target)] == []
    assert target.tests


@pytest.mark.parametrize("name", target_ids())
def test_every_predicate_can_be_read(name):
    target = load_target(name)
    for fusion in target.fusions:
        ports = {v.name: "" for text in fusion.patterns for v in parse_pattern(text).variables}
        failing(fusion.where, ports=ports, ops=(), attributes={}, graph=NOTHING)
    for row in (row for rows in target.rows.values() for row in rows):
        ports = {port.name: "" for port in (*row.inputs, *row.outputs)}
        failing(row.when, ports=ports, ops=(), attributes={}, graph=NOTHING, bits=bits_unsaid)


def test_onnxruntime_serves_what_its_own_quantizer_does():
    target = load_target("onnxruntime-cpu")
    fused = {name for fusion in target.fusions for text in fusion.patterns for name in roots(text)}
    wanted = {*QDQRegistry, *QLinearOpsRegistry}
    assert wanted - fused - set(target.rows) == NOT_SERVED


def roots(text):
    pattern = parse_pattern(text)
    return op_types(pattern) - ({"Relu", "Clip"} if pattern.root.optional else set())


def test_onnxruntime_has_one_storage_for_activations():
    """No kernel of it reads u8 and writes i8, or the other way round; its weights may differ."""
    for row in (row for rows in load_target("onnxruntime-cpu").rows.values() for row in rows):
        stores = {port.type.storage for port in (*row.inputs, *row.outputs) if port.name != "w"}
        activations = {s for s in stores if isinstance(s, Storage) and s.bits == 8 and s.is_full}
        assert len(activations) <= 1, row.source


@pytest.mark.parametrize(
    ("name", "kernel", "scale", "zero_point"),
    [
        ("litert-int8", "Softmax", "1/256", -128),
        ("litert-int8", "Sigmoid", "1/256", -128),
        ("litert-int8", "Tanh", "1/128", 0),
        ("litert-int8", "l2_normalization", "1/128", 0),
        ("litert-int8", "LogSoftmax", "16/256", 127),
        ("onnxruntime-cpu", "Softmax", 0.003921568393707275, 0),
        ("teaching-npu", "Softmax", "1/256", -128),
    ],
)
def test_fixed_results(name, kernel, scale, zero_point):
    rule, *asked = load_target(name).rows[kernel][0].rules
    assert {one.kind for one in asked} <= {"requires"}
    assert (rule.kind, rule.args["scale"], rule.args["zero_point"]) == ("fixed_scale", scale, zero_point)


@pytest.mark.parametrize(
    "kernel",
    [
        "AveragePool",
        "Concat",
        "DepthToSpace",
        "Flatten",
        "Gather",
        "Max",
        "MaxPool",
        "Min",
        "Pad",
        "Reshape",
        "Resize",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ],
)
def test_the_same_scale_list_of_litert(kernel):
    for row in load_target("litert-int8").rows[kernel]:
        if row.reads_table:  # dequantized rows have no scale
            continue
        (rule,) = row.rules
        assert rule.kind == "same_scale"
        assert set(rule.args["ports"]) == {port.name for port in (*row.inputs, *row.outputs)}


def test_softmax_of_onnxruntime_has_255_steps():
    """Its kernel multiplies by floor(1 / scale) in float32: one step too few would lose the top."""
    (rule,) = load_target("onnxruntime-cpu").rows["Softmax"][0].rules
    scale = np.float32(rule.args["scale"])
    assert float(scale) == rule.args["scale"]
    assert np.floor(np.float32(1) / scale) == 255


def kernels(path, target):
    fused = fuse(read_onnx(path), load_target(target))
    return dict(Counter(region.kernel for region in fused.regions if region.inputs or region.outputs))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("litert-int8", {"conv2d": 6, "depthwise_conv2d": 1, "add": 1, "fully_connected": 1}),
        ("onnxruntime-cpu", {"conv": 7, "add": 1, "gemm": 1}),
        ("teaching-npu", {"conv": 6, "depthwise": 1, "add": 1, "dense": 1}),
    ],
)
def test_the_example_is_served_whole(target, expected):
    found = kernels(ROOT / "examples" / "digits" / "digits.onnx", target)
    plain = {"Concat": 1, "Flatten": 1, "GlobalAveragePool": 1, "MaxPool": 2, "Softmax": 1}
    assert found == {**expected, **plain}
    assert set(found) <= set(load_target(target).rows)


@pytest.mark.parametrize(
    ("model", "target", "float_kernels"),
    [
        ("mlperf-tiny/ad01_fp32", "litert-int8", {}),
        ("mlperf-tiny/pretrainedResnet", "litert-int8", {}),
        ("mlperf-tiny/vww_96_float", "litert-int8", {}),
        ("mlperf-tiny/ad01_fp32", "onnxruntime-cpu", {}),
        ("mlperf-tiny/pretrainedResnet", "onnxruntime-cpu", {}),
        ("mlperf-tiny/vww_96_float", "onnxruntime-cpu", {}),
        ("vision/mnist", "onnxruntime-cpu", {}),
        ("vision/mobilenetv2_100", "onnxruntime-cpu", {}),
        ("vision/squeezenet_real_fp32", "onnxruntime-cpu", {}),
        ("vision/superres_real", "onnxruntime-cpu", {}),
        ("vision/ultraface_slim320_op13", "onnxruntime-cpu", {}),
        ("vision/unet_b32_128", "onnxruntime-cpu", {}),
        ("sequence/bert_l4_h256", "onnxruntime-cpu", {"Gelu": 4}),
        ("sequence/bilstm_ctc", "onnxruntime-cpu", {"LSTM": 2, "LogSoftmax": 1}),
    ],
)
def test_kernels_without_a_row(model, target, float_kernels):
    path = MODELS / f"{model}.onnx"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    rows = load_target(target).rows
    assert {k: n for k, n in kernels(path, target).items() if k not in rows} == float_kernels
