"""Files of encodings in the forms that AIMET and QNN publish, written here with names of the digits example.

Each case says where its form is from; numbers are ours.
"""

import numpy as np
import pytest

import planner
from planner.formats.onnx.write import write_graph
from tests.conftest import ROOT
from tests.formats.plans import model as of_ops
from tests.formats.plans import op

DIGITS = ROOT / "examples" / "digits"
VALUE, WEIGHT = "res/relu1_out", "stem/conv_weight"
CHANNELS = 24


@pytest.fixture(scope="module")
def model():
    return planner.load_model(DIGITS / "digits.onnx")


@pytest.fixture(scope="module")
def stats(model):
    return planner.calibrate(model, DIGITS / "calibration.npz")


def of_old(activation=(), param=(), **fields):
    """A file of a version before 1.0.0."""
    return {"activation_encodings": dict(activation), "param_encodings": dict(param), **fields}


ENTRY = {"bitwidth": 8, "is_symmetric": "False", "max": 2.55, "min": -1.28, "offset": -85.0, "scale": 0.015}
SYMMETRIC = {"bitwidth": 8, "dtype": "int", "is_symmetric": "True"}
FORMS = {
    # AIMET, Docs/user_guide/quantization_encoding_specification, section 2: PyTorch's example of 0.4.0.
    "0.4.0": (of_old({VALUE: [ENTRY]}, version="0.4.0"), VALUE, "!quant.uniform<u8:f32, 0.0149999"),
    # The same section: "In case, where versioning information is missing the encoding is assumed to follow
    # version 0.4 format".
    "no version": (of_old({VALUE: [ENTRY]}), VALUE, "!quant.uniform<u8:f32, 0.0149999"),
    # Section 3: `dtype` of 0.5.0.
    "0.5.0": (of_old({VALUE: [{"dtype": "int", **ENTRY}]}, version="0.5.0"), VALUE, ":85>"),
    # Section 4: 0.6.1 with its settings, a list of one entry a channel.
    "0.6.1, channels": (
        of_old(
            param={
                WEIGHT: [SYMMETRIC | {"max": 1.27, "min": -1.28, "offset": -128, "scale": 0.01}] * CHANNELS
            },
            version="0.6.1",
            quantizer_args={"activation_bitwidth": 8, "per_channel_quantization": True},
            excluded_layers=[],
        ),
        WEIGHT,
        "f32:0, {0.00999",
    ),
    # Luxonis, modelconverter, tests of `rvc4.encodings`: one entry with a list a field.
    "lists in an entry": (
        of_old(
            {},
            {
                WEIGHT: [
                    SYMMETRIC
                    | {name: [number] * CHANNELS for name, number in (("max", 0.5), ("min", -0.5))}
                    | {"scale": [0.004] * CHANNELS, "offset": [-128] * CHANNELS}
                ]
            },
        ),
        WEIGHT,
        ":f32:0, {0.0040",
    ),
    # Qualcomm, "Quantization overrides" of the converters: `bitwidth` with the ends alone.
    "ends alone": (
        of_old({VALUE: [{"bitwidth": 8, "max": 2.55, "min": 0.0}]}),
        VALUE,
        "!quant.uniform<u8:f32, 0.0",
    ),
    "symmetric ends alone": (
        of_old(param={WEIGHT: [SYMMETRIC | {"max": 1.27, "min": -1.28}]}),
        WEIGHT,
        "i8:f32, 0.00999",
    ),
    # The same page, and Qualcomm AI Hub's files for language models: a width alone.
    "a width alone": (of_old({VALUE: [{"bitwidth": 16, "dtype": "int"}]}), VALUE, "!quant.any<u16>"),
    "a width alone, of a weight": (
        of_old(param={WEIGHT: [{"bitwidth": 4, "dtype": "int", "is_symmetric": "True"}]}, version="0.6.1"),
        WEIGHT,
        "!quant.any<i4>",
    ),
    # Qualcomm, ai-hub-models, an override of SSD MobileNet V2: 16 bits of a value, among the parameters.
    "a value among parameters": (
        of_old(
            param={
                VALUE: [
                    {"bitwidth": 16, "dtype": "int", "is_symmetric": "False"}
                    | {"max": 1.38, "min": 0.0, "offset": 0, "scale": 2.1058e-05}
                ]
            }
        ),
        VALUE,
        "!quant.uniform<u16:f32, ",
    ),
    # Section 3 again: a float tensor has a type and a width.
    "float weight": (of_old(param={WEIGHT: [{"bitwidth": 16, "dtype": "float"}]}), WEIGHT, "!quant.none"),
    # Section 5: 1.0.0, offsets as floats, as AIMET writes them.
    "1.0.0": (
        {
            "version": "1.0.0",
            "activation_encodings": [],
            "param_encodings": [
                {
                    "name": WEIGHT,
                    "enc_type": "PER_CHANNEL",
                    "dtype": "INT",
                    "bw": 8,
                    "is_sym": True,
                    "scale": [0.01] * CHANNELS,
                    "offset": [-128.0] * CHANNELS,
                }
            ],
            "quantizer_args": {"quant_scheme": "min_max"},
            "excluded_layers": [],
        },
        WEIGHT,
        "f32:0, {0.00999",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read(model, stats, form):
    document, name, text = FORMS[form]
    ready = planner.annotate(model, stats=stats, annotations=document)
    assert text in str(ready.values[name].facts[0])


def test_an_output_of_16_bits_is_one(model, stats):
    """Qualcomm, qidk, Model-Accuracy-Mixed-Precision: 16 bits of a value and YOLO's output, which got 8."""
    entry = {"bitwidth": 16, "dtype": "int", "is_symmetric": "False", "max": 0.996, "min": 0.0, "offset": 0}
    entry["scale"] = entry["max"] / 65535
    document = of_old({"head/gemm_out": [entry], "probabilities": [entry]})
    ready = planner.annotate(model, stats=stats, annotations=document)
    plan = planner.plan(ready, "qnn-htp")
    kind = plan.kernels["head/softmax"].outputs[0].type
    assert (str(kind.storage), kind.scale) == ("u16", np.float32(entry["scale"]))
    assert ("probabilities#0", "dequantize") in [(one.id, one.kind) for one in plan.rescales]


FLOATS = {
    # Section 3 again, section 5 with `FLOAT` as AIMET writes it, and 2.0.0 with a type of ONNX.
    "0.5.0": of_old({VALUE: [{"bitwidth": 16, "dtype": "float"}]}, version="0.5.0"),
    "1.0.0": {
        "version": "1.0.0",
        "activation_encodings": [{"name": VALUE, "enc_type": "PER_TENSOR", "dtype": "FLOAT", "bw": 16}],
        "param_encodings": [],
    },
    "2.0.0": {"version": "2.0.0", "encodings": [{"name": VALUE, "output_dtype": "float16"}]},
}


@pytest.mark.parametrize("version", FLOATS)
def test_what_makes_a_float_tensor_runs_in_float(model, stats, version):
    plan = planner.plan(planner.annotate(model, stats=stats, annotations=FLOATS[version]), "qnn-htp")
    in_float = [kernel.name for kernel in plan.kernels_in_order if kernel.row is None]
    assert in_float == ["res/conv1"]


def test_a_bias_in_float_says_nothing(model, stats):
    """AIMET writes biases as float where it leaves them to the converter."""
    name = "head/gemm_bias"
    document = of_old(param={name: [{"bitwidth": 32, "dtype": "float"}]}, version="0.6.1")
    ready = planner.annotate(model, stats=stats, annotations=document)
    assert ready.values[name].facts == model.values[name].facts


BLOCKS = {
    "PER_BLOCK": {"block_size": 2, "scale": [0.1] * 4, "offset": [-8] * 4},
    "LPBQ": {
        "block_size": 2,
        "scale": [0.1],
        "offset": [-8],
        "compressed_bw": 4,
        "per_block_int_scale": [1, 2],
    },
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_scales_of_blocks_are_refused_by_name(model, kind):
    entry = {
        "name": "head/gemm_weight",
        "enc_type": kind,
        "dtype": "INT",
        "bw": 8,
        "is_sym": True,
        **BLOCKS[kind],
    }
    document = {"version": "1.0.0", "activation_encodings": [], "param_encodings": [entry]}
    with pytest.raises(
        planner.PlannerError, match=f"'head/gemm_weight' is not .* enc_type {kind} is not read here"
    ):
        planner.annotate(model, annotations=document)


def test_lists_of_two_lengths_are_refused(model):
    entry = SYMMETRIC | {"scale": [0.1] * CHANNELS, "offset": [-128] * 3}
    with pytest.raises(
        planner.PlannerError, match=r"'stem/conv_weight' is not .*lists of 24 scale, 3 offset"
    ):
        planner.annotate(model, annotations=of_old(param={WEIGHT: [entry]}))


ONE = {"name": VALUE, "enc_type": "PER_TENSOR", "dtype": "INT", "bw": 8, "is_sym": False}
GRID = {"name": VALUE, "output_dtype": "uint2", "y_scale": 0.1}
LOST = {
    "sections of an older version": (
        {"version": "2.0.0", "activation_encodings": {VALUE: [ENTRY]}},
        "activation_encodings is not read; accepted in version 2.0.0: encodings",
    ),
    "sections of a newer version": (
        {"version": "1.0.0", "encodings": [{"name": VALUE, "output_dtype": "uint8", "y_scale": 0.1}]},
        "encodings is not read; accepted in version 1.0.0: activation_encodings, param_encodings",
    ),
    "another dtype": (
        {"version": "1.0.0", "activation_encodings": [{**ONE, "dtype": "BINT"}]},
        f"'{VALUE}' is not .* dtype 'BINT' is not read here; accepted: INT, FLOAT",
    ),
    "no scale": (
        {"version": "1.0.0", "activation_encodings": [{**ONE, "scale": [], "offset": []}]},
        f"'{VALUE}' is not .*0 offsets for 0 scales",
    ),
    "no y_scale": (
        {"version": "2.0.0", "encodings": [{"name": VALUE, "output_dtype": "uint8", "y_scale": []}]},
        f"'{VALUE}' is not .*y_scale is empty",
    ),
    # AIMET, latest specification of 2.0.0: `y_zero_point` "may be float for 2-bit encodings".
    "a zero point in between": (
        {"version": "2.0.0", "encodings": [GRID | {"y_zero_point": 1.5}]},
        f"'{VALUE}' is not .*y_zero_point 1.5 is not read here; accepted: whole numbers",
    ),
    "an offset in between": (
        {"version": "1.0.0", "activation_encodings": [{**ONE, "scale": [0.1], "offset": [-1.5]}]},
        f"'{VALUE}' is not .*offset -1.5 is not read here",
    ),
    # AIMET, `sim.export`: the file that `load_encodings_to_sim` reads has modules in the place of tensors.
    "modules of PyTorch": (
        of_old({"layer1.0.relu": {"output": {"0": ENTRY}}}, version="0.6.1"),
        "'layer1.0.relu' is not .*as in AIMET's \\*_torch.encodings; accepted: the .encodings file beside it",
    ),
    "one end": (of_old({VALUE: [{"bitwidth": 8, "min": -1.0}]}), f"'{VALUE}' is not .*KeyError: 'max'"),
    "no bits": (of_old({VALUE: [{"bitwidth": 0}]}), f"'{VALUE}' is not .*unknown storage 'u0'"),
}


@pytest.mark.parametrize("case", LOST)
def test_what_is_not_read_is_refused_and_not_lost(model, case):
    """They gave a width alone, or nothing, without a word."""
    document, said = LOST[case]
    with pytest.raises(planner.PlannerError, match=said):
        planner.annotate(model, annotations=document)


def test_dtypes_are_read_in_any_case(model, stats):
    entry = {**ONE, "dtype": "int", "scale": [0.1], "offset": [-128]}
    document = {"version": "1.0.0", "activation_encodings": [entry]}
    ready = planner.annotate(model, stats=stats, annotations=document)
    assert any("0.1" in str(fact) for fact in ready.values[VALUE].facts)


@pytest.mark.parametrize("form", ["encodings", "encodings-0.6.1", "encodings-2.0.0"])
def test_tensors_are_those_of_the_float_model(model, stats, form):
    """A bias of a folded BatchNorm has no name in the file that converters read."""
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, "qnn-htp")
    written = planner.export(ready, plan, form).decode()
    assert [port.value for port in plan.kernels["stem/conv"].inputs][2] == "stem/conv_out/bias"
    assert "/bias" not in written
    assert '"head/gemm_bias"' in written


@pytest.mark.parametrize("form", ["encodings", "encodings-0.6.1", "encodings-2.0.0"])
@pytest.mark.parametrize("name", ["conv/bias", "m/bias", "bias"])
def test_a_bias_of_the_model_is_written_whatever_it_is_called(form, name):
    """A tensor of the file may have the name that folding would give; a folded one beside it is left out."""
    random = np.random.default_rng(3)
    shapes = {"w": (4, 3, 1, 1), "v": (4, 4, 1, 1), name: (4,)}
    shapes |= dict.fromkeys(("scale", "shift", "mean", "var"), (4,))
    constants = {key: random.uniform(0.1, 1, shape).astype(np.float32) for key, shape in shapes.items()}
    ops = [
        op("Conv", f"x w {name}", "m"),
        op("Relu", "m", "r"),
        op("Conv", "r v", "n"),
        op("BatchNormalization", "n scale shift mean var", "y"),
    ]
    ends = {"inputs": {"x": (1, 3, 4, 4)}, "outputs": {"y": (1, 4, 4, 4)}}
    graph = planner.load_model(write_graph(of_ops(ops, **ends, constants=constants)))
    sample = {"x": random.normal(size=(1, 3, 4, 4)).astype(np.float32)}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    plan = planner.plan(ready, "qnn-htp")
    written = planner.export(ready, plan, form).decode()
    assert "n/bias" in {port.value for kernel in plan.kernels_in_order for port in kernel.inputs}
    assert f'"{name}"' in written
    assert '"n/bias"' not in written


MIXED = {
    "one grid": ([-128, -127] * 12, "!quant.uniform<i8:f32:0"),
    "the least left out": ([-127] * CHANNELS, "!quant.uniform<i8<-127:127>:f32:0"),
    "no grid around 0": ([-128, 0] * 12, "!quant.uniform<u8:f32:0"),
    "any other": ([-127, -100] * 12, "!quant.uniform<u8:f32:0"),
}


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
@pytest.mark.parametrize("case", MIXED)
def test_symmetric_channels_keep_their_own_offsets(model, stats, version, case):
    """The first channel's offset was taken for all."""
    offsets, text = MIXED[case]
    scales = [0.01 * (i + 1) for i in range(CHANNELS)]
    if version == "1.0.0":
        entry = {"name": WEIGHT, "enc_type": "PER_CHANNEL", "dtype": "INT", "bw": 8, "is_sym": True}
        document = {"version": version, "param_encodings": [entry | {"scale": scales, "offset": offsets}]}
    else:
        entries = [
            SYMMETRIC | {"scale": scale, "offset": offset, "min": offset * scale, "max": 127 * scale}
            for scale, offset in zip(scales, offsets, strict=True)
        ]
        document = of_old(param={WEIGHT: entries}, version=version)
    kind = planner.annotate(model, stats=stats, annotations=document).values[WEIGHT].facts[0]
    assert str(kind).startswith(text)
    # A stored number that a file counts from 0 means (number + offset) * scale.
    signed = 128 if kind.storage.signed else 0
    least = [(-signed - zero) * scale for zero, scale in zip(kind.zero_points, kind.scales, strict=True)]
    if not signed:
        assert least == pytest.approx([offset * scale for offset, scale in zip(offsets, scales, strict=True)])
    else:
        assert set(kind.zero_points) == {0}
