"""Encodings of AIMET and QNN: a plan out and in again, in each version, and what is not read."""

import json

import numpy as np
import pytest

import planner
from planner.exporters.encodings import WRITERS
from tests.conftest import ROOT

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


BAD = {
    "a version": (
        {"version": "3.0.0", "encodings": []},
        "version '3.0.0' is not read; accepted: 0.6.1, 1.0.0",
    ),
    "blocks": (
        {
            "version": "2.0.0",
            "encodings": [
                {"name": "head/gemm_weight", "output_dtype": "int4", "y_scale": [[1.0]], "block_size": 4}
            ],
        },
        "'head/gemm_weight' is no encoding: ValueError: scales of blocks",
    ),
    "a field missing": (
        {"version": "2.0.0", "encodings": [{"name": "image", "output_dtype": "uint8"}]},
        "'image' is no encoding: KeyError: 'y_scale'",
    ),
    "a scale of 0": (
        {"version": "2.0.0", "encodings": [{"name": "image", "output_dtype": "uint8", "y_scale": 0.0}]},
        "'image': ",
    ),
    "no mapping": ({"version": "1.0.0", "activation_encodings": [3]}, "3 is no encoding"),
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
    with pytest.raises(planner.PlannerError, match="encodings have no word for"):
        planner.export(ready, plan, "encodings")
