"""What the files of other projects say, retyped as facts: the same keys and values, put together here.

AIMET: default_config.json, default_config_per_channel.json (quantsim_config), the per-channel one of its
Keras examples; NNCF: hardware/configs/{cpu,gpu,npu}.json of 2.17 and vpu.json of 2.8; QNN: op packages of
ExecuTorch's examples. The files themselves are not kept here; `QPLAN_CONFIGS` names a folder of them
(test_real_files).
"""

from collections.abc import Mapping, Sequence
from typing import Any

OFF = {"is_output_quantized": "False"}


def aimet_default(*, per_channel: bool = False) -> dict[str, Any]:
    """AIMET's two default configurations."""
    ops: dict[str, Any] = {
        op: dict(OFF) for op in ("Cast", "Dropout", "Expand", "Squeeze", "Pad", "Mean", "Gather")
    }
    if per_channel:
        ops |= {op: {"per_channel_quantization": "False"} for op in ("Gemm", "MatMul", "LayerNorm")}
    chains = ["Conv Relu", "ConvTranspose Relu", "Conv Clip", "Add Relu", "Gemm Relu"]
    return {
        "defaults": {
            "ops": {"is_output_quantized": "True"},
            "params": {"is_quantized": "True", "is_symmetric": "True"},
            "strict_symmetric": "False",
            "per_channel_quantization": str(per_channel),
        },
        "params": {"bias": {"is_quantized": "False"}},
        "op_type": ops,
        "supergroups": [{"op_list": chain.split()} for chain in chains],
        "model_input": {"is_input_quantized": "True"},
        "model_output": {},
    }


def aimet_keras() -> dict[str, Any]:
    """The configuration of AIMET's Keras examples: inputs of five operators are quantized, no results."""
    off = {"is_quantized": "False"}
    chains = [
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization",
        "Conv Relu",
        "Conv Clip",
        "Add Relu",
        "Gemm Relu",
    ]
    return {
        "defaults": {
            "ops": {},
            "params": {"is_quantized": "True", "is_symmetric": "True"},
            "strict_symmetric": "True",
            "unsigned_symmetric": "False",
            "per_channel_quantization": "True",
        },
        "params": dict.fromkeys(("bias", "C", "scale", "mean", "var"), off),
        "op_type": {
            op: {"is_input_quantized": "True"}
            for op in ("Conv", "ConvTranspose", "Gemm", "MatMul", "AveragePool")
        },
        "supergroups": [{"op_list": chain.split()} for chain in chains],
        "model_input": {},
        "model_output": {},
    }


_ACTIVATION = {
    "bits": 8,
    "mode": ["symmetric", "asymmetric"],
    "granularity": "pertensor",
    "narrow_range": False,
}
_WEIGHT = {
    "bits": 8,
    "mode": "symmetric",
    "signedness_to_force": True,
    "granularity": ["perchannel", "pertensor"],
    "narrow_range": True,
}
ALIASES: Mapping[str, Any] = {
    "q8_a_sym": {**_ACTIVATION, "mode": ["symmetric"]},
    "q8_a": _ACTIVATION,
    "q8_a_ch": {**_ACTIVATION, "granularity": ["perchannel", "pertensor"]},
    "q8_w_sym": _WEIGHT,
    "q8_w_sym_any_nr": {**_WEIGHT, "narrow_range": [True, False]},
    "q8_w_asym": {
        "bits": 8,
        "mode": "asymmetric",
        "granularity": ["perchannel", "pertensor"],
        "narrow_range": False,
    },
    "q4_tn": {"bits": 4, "mode": "symmetric", "granularity": "pertensor", "narrow_range": False},
    "q4_w": {
        "bits": 4,
        "mode": "symmetric",
        "granularity": ["perchannel", "pertensor"],
        "narrow_range": False,
    },
    "q2_w": {
        "bits": 2,
        "mode": "symmetric",
        "granularity": ["perchannel", "pertensor"],
        "narrow_range": False,
    },
}
_BINARY = [
    "Add",
    "Multiply",
    "Maximum",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
    "Divide",
    "Minimum",
    "Equal",
    "Subtract",
    "NotEqual",
    "FloorMod",
]
_LOGICAL = ["LogicalOr", "LogicalXor", "LogicalAnd", "LogicalNot"]
_UNARY = [
    "Power",
    "AvgPool",
    "NormalizeL2",
    "ReduceL2",
    "ReduceMean",
    "MVN",
    "ReduceSum",
    "GroupNormalization",
]
_PASSING = [
    "MaxPool",
    "ReduceMax",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Split",
    "VariadicSplit",
    "Crop",
    "Transpose",
    "Tile",
    "StridedSlice",
    "Slice",
    "ShuffleChannels",
    "Broadcast",
    "Pad",
    "ConvertLike",
]


def nncf_cpu() -> dict[str, Any]:
    """NNCF's cpu.json: 8 bits."""
    weights = ["q8_w_sym", "q8_w_asym"]
    both = {"activations": "q8_a", "weights": weights}
    return _nncf(
        "CPU",
        {
            "Convolution": both,
            "DepthWiseConvolution": {"activations": ["q8_a_ch", "q8_a"], "weights": weights},
            "MatMul": both,
            **dict.fromkeys((*_BINARY, *_LOGICAL), both),
            "Interpolate": {"activations": "q8_a"},
        },
        unified=["Concat"],
    )


def nncf_npu() -> dict[str, Any]:
    """NNCF's npu.json: 8, 4 and 2 bits, one scale for the operands of elementwise operations."""
    weights = ["q8_w_sym", "q8_w_asym", "q4_w", "q2_w"]
    narrow = {"activations": ["q8_a", "q4_tn"], "weights": ["q8_w_sym", "q8_w_asym", "q4_tn"]}
    wide = {"activations": "q8_a", "weights": ["q8_w_sym", "q8_w_asym"]}
    both = {"activations": ["q8_a", "q4_tn"], "weights": weights}
    joined = ("Add", "Multiply", "Maximum", "Minimum", "Subtract")
    made = _nncf(
        "NPU",
        {
            "Convolution": both,
            "DepthWiseConvolution": {"activations": ["q8_a_ch", "q8_a"], "weights": weights},
            "MatMul": both,
            **{kind: narrow if kind in joined else wide for kind in _BINARY},
            **dict.fromkeys(_LOGICAL, wide),
        },
        unified=["Concat", *_BINARY, *_LOGICAL[:3]],
    )
    made["operations"][0]["attributes"] = {"adjust_padding": True}
    made["operations"] += [
        {"type": "Interpolate", "attributes": {"mode": "linear"}, "quantization": {"activations": "q8_a"}},
        {"type": "Interpolate", "attributes": {"mode": "nearest"}},
    ]
    return made


def _nncf(device: str, quantized: Mapping[str, Any], unified: Sequence[str]) -> dict[str, Any]:
    said = {
        **quantized,
        **{kind: {"activations": "q8_a"} for kind in _UNARY},
        "LSTMSequence": {"activations": "q8_a", "weights": "q8_w_sym"},
        "GRUSequence": {"activations": "q8_a", "weights": "q8_w_sym"},
        "ScaledDotProductAttention": {"activations": "q8_a_sym"},
        "Embedding": {"weights": ["q8_w_sym_any_nr", "q8_w_asym"]},
    }
    operations: list[dict[str, Any]] = []
    for kind in dict.fromkeys([*said, *_PASSING, *unified, "EmbeddingBag"]):
        entry: dict[str, Any] = {"type": kind}
        if kind in unified:
            entry["attributes"] = {"scales": "unified"}
        if kind in said:
            entry["quantization"] = said[kind]
        operations.append(entry)
    return {"target_device": device, "config": {"quantization": dict(ALIASES)}, "operations": operations}


def tensor(name: str, *datatypes: str, rank: str = "ND", more: str = "") -> str:
    """A tensor of a QNN definition, without its tag."""
    words = "".join(f"<Datatype>{word}</Datatype>" for word in datatypes)
    return f"<Name>{name}</Name><Mandatory>true</Mandatory>{words}<Shape><Rank>{rank}</Rank></Shape>{more}"


def qnn_package(*definitions: str, domain: str = "aisw", supplement: str = "") -> str:
    """An op package of these definitions."""
    below = f'<SupplementalOpDefList Backend="HTP">{supplement}</SupplementalOpDefList>' if supplement else ""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<OpDefCollection PackageName="MyPackage" Domain="{domain}" '
        f'Version="1.0">\n<OpDefList>\n{"".join(definitions)}</OpDefList>\n{below}</OpDefCollection>\n'
    )


EITHER = ("QNN_DATATYPE_FLOAT_32", "QNN_DATATYPE_UFIXED_POINT_8")
FAST_GELU = (
    f"<OpDef><Name>FastGelu</Name><Input>{tensor('x', *EITHER)}</Input>"
    f"<Output>{tensor('y', *EITHER)}</Output>"
    "<SupportedBackend>HTP</SupportedBackend></OpDef>"
)
SPLIT = (
    f"<OpDef><Name>SplitCustomOp</Name><Input>{tensor('input', *EITHER, rank='4D')}</Input>"
    f"<Output>{tensor('first_half', *EITHER)}</Output>"
    f"<Output>{tensor('second_half', *EITHER)}</Output></OpDef>"
)
EMBEDDING = (
    f"<OpDef><Name>Embedding</Name><Input>{tensor('input', 'BACKEND_SPECIFIC', rank='2D')}</Input>"
    f"<Input>{tensor('indices', 'QNN_DATATYPE_INT_32')}</Input>"
    f"<Output>{tensor('output', 'BACKEND_SPECIFIC')}</Output></OpDef>"
)
EMBEDDING_ON_HTP = (
    "<SupportedOps><OpName>Embedding</OpName></SupportedOps><SupplementalOpDef><Name>Embedding</Name>"
    "<Input><Name>input</Name><Datatype>QNN_DATATYPE_SFIXED_POINT_8</Datatype></Input>"
    "<Output><Name>output</Name><Datatype>QNN_DATATYPE_SFIXED_POINT_8</Datatype></Output></SupplementalOpDef>"
)


def spec(dtype: str = "int8", scheme: str = "per_tensor_affine", **more: Any) -> dict[str, Any]:
    """A QuantizationSpec as `examples/pt2e_specs.py` writes it."""
    return {"kind": "QuantizationSpec", "dtype": dtype, "qscheme": scheme, "is_dynamic": False, **more}


def pt2e(*annotations: Mapping[str, Any]) -> dict[str, Any]:
    """A file of these annotations."""
    return {"format": "qplan.pt2e/1", "quantizer": "XNNPACKQuantizer", "annotations": list(annotations)}


ACT = spec(quant_min=-128, quant_max=127)
WEIGHT = spec(scheme="per_channel_symmetric", quant_min=-127, quant_max=127, ch_axis=0)
XNNPACK = pt2e(
    {"ops": ["aten.conv2d.default"], "inputs": [ACT, WEIGHT, None], "output": ACT},
    {"ops": ["aten.conv2d.default", "aten.relu.default"], "inputs": [ACT, WEIGHT, None], "output": ACT},
    {"ops": ["aten.linear.default"], "inputs": [ACT, WEIGHT, None], "output": ACT},
    {"ops": ["aten.add.Tensor", "aten.relu.default"], "inputs": [ACT, ACT], "output": ACT},
    {"ops": ["aten.add.Tensor"], "inputs": [ACT, ACT], "output": ACT},
    {
        "ops": ["aten.max_pool2d.default"],
        "inputs": [ACT],
        "output": {"kind": "SharedQuantizationSpec", "with": "input 0"},
    },
    {
        "ops": ["aten.cat.default"],
        "inputs": [ACT, {"kind": "SharedQuantizationSpec", "with": "input 0"}],
        "output": {"kind": "SharedQuantizationSpec", "with": "input 0"},
    },
)
"""What torch's XNNPACKQuantizer says of these patterns with its symmetric 8-bit configuration."""
