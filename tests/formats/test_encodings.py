"""Encodings of AIMET and QNN: a plan out and in again, in each version, and what is not read."""

import json

import numpy as np
import pytest

import planner
from planner.formats.encodings import WRITERS
from planner.formats.onnx.write import write_graph
from tests.conftest import ROOT
from tests.formats.plans import model as of_ops
from tests.formats.plans import op

DIGITS = ROOT / "examples" / "digits"
TARGETS = ("litert-int8", "qnn-htp", "hls4ml-fpga", "finn-fpga", "teaching-npu", "tensorrt-int8")


@pytest.fixture(scope="module")
def model():
    return planner.load_model(DIGITS / "digits.onnx")


@pytest.fixture(scope="module")
def stats(model):
    return planner.calibrate(model, DIGITS / "calibration.npz")


def types_of(plan):
    kernels = [(k.name, k.row, [str(p.type) for p in (*k.inputs, *k.outputs)]) for k in plan.kernels_in_order]
    return kernels, [(r.id, r.kind, r.consumers, r.cost) for r in plan.rescales]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_comes_back(model, stats, target, form, tmp_path):
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, target)
    file = tmp_path / f"{form}.encodings"
    file.write_bytes(planner.export(ready, plan, form))
    again = planner.plan(planner.annotate(model, stats=stats, annotations=file), target)
    assert types_of(again) == types_of(plan)
    assert again.warnings == plan.warnings


def test_the_fields_of_each_version(model, stats):
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, "qnn-htp")
    first, second, third = (json.loads(planner.export(ready, plan, form)) for form in sorted(WRITERS))
    assert [one["version"] for one in (first, second, third)] == ["1.0.0", "0.6.1", "2.0.0"]
    (image,) = [one for one in first["activation_encodings"] if one["name"] == "image"]
    scale = plan.kernels["stem/conv"].inputs[0].type.scale
    assert image == {
        "name": "image",
        "enc_type": "PER_TENSOR",
        "dtype": "INT",
        "bw": 8,
        "is_sym": False,
        "scale": [scale],
        "offset": [0],
    }
    (old,) = second["activation_encodings"]["image"]
    assert (old["bitwidth"], old["offset"], old["min"]) == (8, 0, 0.0)
    assert old["max"] == pytest.approx(255 * scale)
    weight = next(one for one in third["encodings"] if one["name"] == "stem/conv_weight")
    assert (weight["output_dtype"], weight["axis"], len(weight["y_scale"])) == ("int8", 0, 24)
    assert "y_zero_point" not in weight


# As AIMET's specification and Qualcomm's converters have them; names of the example.
OF_OTHERS = {
    "0.6.1": {
        "version": "0.6.1",
        "quantizer_args": {"activation_bitwidth": 8},
        "activation_encodings": {
            "res/relu1_out": [
                {
                    "bitwidth": 8,
                    "dtype": "int",
                    "is_symmetric": "False",
                    "max": 5.1,
                    "min": 0.0,
                    "offset": 0,
                    "scale": 0.02,
                }
            ],
            "res/bn2_out": [{"bitwidth": 16, "dtype": "float"}],
        },
        "param_encodings": {},
    },
    "1.0.0": {
        "version": "1.0.0",
        "activation_encodings": [
            {
                "name": "res/relu1_out",
                "enc_type": "PER_TENSOR",
                "dtype": "INT",
                "bw": 8,
                "is_sym": False,
                "scale": [0.02],
                "offset": [0],
            }
        ],
        "param_encodings": [],
    },
    "2.0.0": {
        "version": "2.0.0",
        "encodings": [
            {"name": "res/relu1_out", "output_dtype": "uint8", "y_scale": 0.02},
            {"name": "elsewhere", "output_dtype": "uint8", "y_scale": 0.02},
        ],
    },
}


@pytest.mark.parametrize("version", OF_OTHERS)
def test_a_file_of_others_gives_facts(model, stats, version):
    ready = planner.annotate(model, stats=stats, annotations=OF_OTHERS[version])
    kind = ready.values["res/relu1_out"].facts[0]
    assert str(kind).startswith("!quant.uniform<u8:f32, 0.0199999")
    plan = planner.plan(ready, "qnn-htp")
    assert plan.values["res/relu1_out"].type.scale == np.float32(0.02)


def weight_of(**fields):
    """An encoding of the first weight, 24 channels in version 1.0.0."""
    entry = {"name": "stem/conv_weight", "enc_type": "PER_CHANNEL", "dtype": "INT", "bw": 8, "is_sym": True}
    return {"version": "1.0.0", "activation_encodings": [], "param_encodings": [entry | fields]}


def test_symmetric_numbers_without_a_sign(model, stats):
    """As AIMET reads them too: a symmetric encoding of the offset 0 is unsigned."""
    entry = {"name": "res/relu1_out", "enc_type": "PER_TENSOR", "dtype": "INT", "bw": 8}
    entry |= {"is_sym": True, "scale": [0.02], "offset": [0.0]}
    document = {"version": "1.0.0", "activation_encodings": [entry]}
    ready = planner.annotate(model, stats=stats, annotations=document)
    assert str(ready.values["res/relu1_out"].facts[0]).startswith("!quant.uniform<u8:f32, 0.0199999")


@pytest.mark.parametrize("low", [-127, -7, 0])
def test_a_signed_type_is_written_with_its_sign(model, stats, low):
    kind = f"!quant.uniform<i8<{low}:127>:f32, 0.02>"
    pinned = {"format": "qplan.annotations/1", "values": {"res/relu1_out": kind}}
    ready = planner.annotate(model, stats=stats, annotations=pinned)
    written = json.loads(planner.export(ready, planner.plan(ready, "finn-fpga"), "encodings"))
    (entry,) = (one for one in written["activation_encodings"] if one["name"] == "res/relu1_out")
    assert (entry["is_sym"], entry["offset"]) == (True, [-127 if low == -127 else -128])


def test_an_axis_is_counted_from_the_end_too(model):
    entry = {"name": "stem/conv_weight", "output_dtype": "int8", "y_scale": [0.1] * 24, "axis": -4}
    ready = planner.annotate(model, annotations={"version": "2.0.0", "encodings": [entry]})
    assert ready.values["stem/conv_weight"].facts[0].axis == 0


BAD = {
    "a version": (
        {"version": "3.0.0", "encodings": []},
        "version '3.0.0' is not read; accepted: 0.4.0, 0.5.0, 0.6.0",
    ),
    "blocks": (
        {
            "version": "2.0.0",
            "encodings": [
                {"name": "head/gemm_weight", "output_dtype": "int4", "y_scale": [[1.0]], "block_size": 4}
            ],
        },
        "'head/gemm_weight' is not a valid encoding: ValueError: scales of blocks",
    ),
    "a field missing": (
        {"version": "2.0.0", "encodings": [{"name": "image", "output_dtype": "uint8"}]},
        "'image' is not a valid encoding: KeyError: 'y_scale'",
    ),
    "a scale of 0": (
        {"version": "2.0.0", "encodings": [{"name": "image", "output_dtype": "uint8", "y_scale": 0.0}]},
        "'image': ",
    ),
    "scales of other channels": (
        weight_of(scale=[0.1] * 3, offset=[-128] * 3),
        "does not fit 'stem/conv_weight': 3 scales for axis 0 of size 24",
    ),
    "too few offsets": (
        weight_of(scale=[0.1] * 24, offset=[-128]),
        "'stem/conv_weight' is not a valid encoding: ValueError: 1 offsets for 24 scales",
    ),
    "an endless offset": (
        weight_of(scale=[0.1], offset=[float("inf")]),
        "'stem/conv_weight' is not a valid encoding",
    ),
    "no such axis": (
        {
            "version": "2.0.0",
            "encodings": [
                {"name": "stem/conv_weight", "output_dtype": "int8", "y_scale": [0.1] * 24, "axis": 9}
            ],
        },
        "it has no axis 9",
    ),
    "another storage": (
        {"version": "2.0.0", "encodings": [{"name": "image", "output_dtype": "int0", "y_scale": 0.1}]},
        "'image' is not a valid encoding: QTypeError: unknown storage",
    ),
    "no list": ({"version": "2.0.0", "encodings": None}, "a list or a mapping of tensors is accepted"),
    "another model's": (
        {"version": "2.0.0", "encodings": [{"name": "there", "output_dtype": "uint8", "y_scale": 0.1}]},
        "model 'digits' has none of the tensors of this file, such as 'there'",
    ),
    "no mapping": ({"version": "1.0.0", "activation_encodings": [3]}, "3 is not a valid encoding"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_file_is_refused_with_the_tensor(model, case):
    document, message = BAD[case]
    with pytest.raises(planner.PlannerError, match=message):
        planner.annotate(model, annotations=document)


def test_scales_of_blocks_are_refused(model):
    ready = planner.annotate(model)
    plan = planner.plan(ready, "llm-w4")
    assert any(port.type is not None and port.type.grid for k in plan.kernels_in_order for port in k.inputs)
    with pytest.raises(planner.PlannerError, match="encodings cannot express"):
        planner.export(ready, plan, "encodings")


def test_kernels_that_quantize_while_they_run_are_refused(model, stats):
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, "onnxruntime-dynamic")
    with pytest.raises(
        planner.PlannerError, match=r"cannot express this plan: .* each input has its own scale$"
    ):
        planner.export(ready, plan, "encodings")


@pytest.mark.parametrize("form", WRITERS)
def test_each_tensor_is_written_once(form):
    """A bias of two convolutions has two grids, which no file can say."""
    random = np.random.default_rng(3)
    shapes = {"w": (4, 3, 1, 1), "v": (4, 4, 1, 1), "b": (4,)}
    constants = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    ops = [op("Conv", "x w b", "m"), op("Relu", "m", "r"), op("Conv", "r v b", "y")]
    ends = {"inputs": {"x": (1, 3, 4, 4)}, "outputs": {"y": (1, 4, 4, 4)}}
    graph = planner.load_model(write_graph(of_ops(ops, **ends, constants=constants)))
    sample = {"x": random.normal(size=(1, 3, 4, 4)).astype(np.float32)}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    document = json.loads(planner.export(ready, planner.plan(ready, "litert-int8"), form))
    entries = document["encodings" if form.endswith("2.0.0") else "param_encodings"]
    names = [entry if isinstance(entry, str) else entry["name"] for entry in entries]
    assert {"w", "v"} <= set(names)
    assert len(names) == len(set(names))
    assert "b" not in names
