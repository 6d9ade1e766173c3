"""Attributes of ONNX's standard operators, and their defaults.

Facts of the standard, read where predicates are judged. A test compares with the `onnx` package. Source:
ONNX operator schemas, opset 21 to 28; operator pages for defaults that schemas leave out (windows, states).
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

NOTHING: Final = object()
"""The default of an attribute that has none."""

REDUCTIONS: Final = (
    "L1",
    "L2",
    "LogSum",
    "LogSumExp",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Sum",
    "SumSquare",
)
"""Ops called `Reduce...`; their axes are an operand."""

# Schemas give no default here, as its length is the rank; the pages say 1 (or 0) along each axis.
_WINDOW: Final = {"dilations": 1, "pads": 0, "strides": 1}
_RECURRENT: Final = {"clip": "absent", "sequence_lens": "absent"}
_IN_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "AveragePool": _WINDOW,
    "Conv": _WINDOW,
    "ConvInteger": _WINDOW,
    "ConvTranspose": {**_WINDOW, "output_padding": 0},
    "GRU": {**_RECURRENT, "activations": ["Sigmoid", "Tanh"]},
    "LSTM": {**_RECURRENT, "activations": ["Sigmoid", "Tanh", "Tanh"]},
    "LpPool": _WINDOW,
    "MaxPool": _WINDOW,
    "QLinearConv": _WINDOW,
    "RNN": {**_RECURRENT, "activations": ["Tanh"]},
}


def default_of(op: str, attribute: str) -> Any:
    """The default of an attribute that an op does not carry; NOTHING where it has none."""
    return _table().get(op, {}).get(attribute, NOTHING)


def attribute_names(op: str) -> tuple[str, ...]:
    """Attributes that an op may carry; empty for an op without any, or of another domain."""
    return tuple(_table().get(op, {}))


def as_written(number: float) -> float:
    """A float32 as the shortest decimal that stands for it: an alpha of 0.01 is 0.01, not 0.0099999998."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    return float(str(single)) if float(single) == number else number


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    op = ""
    for word in _SCHEMAS.split():
        if word.endswith(":"):
            op = word[:-1]
            found[op] = {}
            continue
        name, has_default, text = word.partition("=")
        found[op][name] = _value(text) if has_default else NOTHING
    for op, meant in _IN_WORDS.items():
        found[op] |= meant
    return found


def _value(text: str) -> Any:
    if "," in text:
        return [_value(part) for part in text.split(",")]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


_SCHEMAS: Final = """
    AffineGrid: align_corners=0
    ArgMax: axis=0 keepdims=1 select_last_index=0
    ArgMin: axis=0 keepdims=1 select_last_index=0
    Attention: is_causal=0 kv_num_heads left_window_size=-1 q_num_heads qk_matmul_output_mode=0
      right_window_size=-1 scale softcap=0.0 softmax_precision
    AveragePool: auto_pad=NOTSET ceil_mode=0 count_include_pad=0 dilations kernel_shape pads strides
    BatchNormalization: epsilon=1e-05 momentum=0.9 training_mode=0
    Bernoulli: dtype seed
    BitCast: to
    BitShift: direction
    BlackmanWindow: output_datatype=1 periodic=1
    Cast: round_mode=up saturate=1 to
    CastLike: round_mode=up saturate=1
    CausalConvWithState: activation=none
    Celu: alpha=1.0
    CenterCropPad: axes
    Col2Im: dilations pads strides
    Compress: axis
    Concat: axis
    ConcatFromSequence: axis new_axis=0
    Constant: sparse_value value value_float value_floats value_int value_ints value_string value_strings
    ConstantOfShape: value
    Conv: auto_pad=NOTSET dilations group=1 kernel_shape pads strides
    ConvInteger: auto_pad=NOTSET dilations group=1 kernel_shape pads strides
    ConvTranspose: auto_pad=NOTSET dilations group=1 kernel_shape output_padding output_shape pads strides
    CumProd: exclusive=0 reverse=0
    CumSum: exclusive=0 reverse=0
    DFT: inverse=0 onesided=0
    DeformConv: dilations group=1 kernel_shape offset_group=1 pads strides
    DepthToSpace: blocksize mode=DCR
    DequantizeLinear: axis=1 block_size=0 output_dtype=0
    Dropout: seed
    Einsum: equation
    Elu: alpha=1.0
    EyeLike: dtype k=0
    Flatten: axis=1
    GRU: activation_alpha activation_beta activations clip direction=forward hidden_size layout=0
      linear_before_reset=0
    Gather: axis=0
    GatherElements: axis=0
    GatherND: batch_dims=0
    Gelu: approximate=none
    Gemm: alpha=1.0 beta=1.0 transA=0 transB=0
    GlobalLpPool: p=2
    GridSample: align_corners=0 mode=linear padding_mode=zeros
    GroupNormalization: epsilon=1e-05 num_groups stash_type=1
    HammingWindow: output_datatype=1 periodic=1
    HannWindow: output_datatype=1 periodic=1
    HardSigmoid: alpha=0.2 beta=0.5
    Hardmax: axis=-1
    If: else_branch then_branch
    ImageDecoder: pixel_format=RGB
    InstanceNormalization: epsilon=1e-05
    IsInf: detect_negative=1 detect_positive=1
    LRN: alpha=0.0001 beta=0.75 bias=1.0 size
    LSTM: activation_alpha activation_beta activations clip direction=forward hidden_size input_forget=0
      layout=0
    LayerNormalization: axis=-1 epsilon=1e-05 stash_type=1
    LeakyRelu: alpha=0.01
    LinearAttention: chunk_size=64 kv_num_heads q_num_heads scale=0.0 update_rule=gated_delta
    LogSoftmax: axis=-1
    Loop: body
    LpNormalization: axis=-1 p=2
    LpPool: auto_pad=NOTSET ceil_mode=0 dilations kernel_shape p=2 pads strides
    MaxPool: auto_pad=NOTSET ceil_mode=0 dilations kernel_shape pads storage_order=0 strides
    MaxRoiPool: pooled_shape spatial_scale=1.0
    MaxUnpool: kernel_shape pads strides
    MeanVarianceNormalization: axes=0,2,3
    MelWeightMatrix: output_datatype=1
    Mod: fmod=0
    Multinomial: dtype=6 sample_size=1 seed
    NegativeLogLikelihoodLoss: ignore_index reduction=mean
    NonMaxSuppression: center_point_box=0
    OneHot: axis=-1
    Optional: type
    Pad: mode=constant
    QLinearConv: auto_pad=NOTSET dilations group=1 kernel_shape pads strides
    QuantizeLinear: axis=1 block_size=0 output_dtype=0 precision=0 saturate=1
    RMSNormalization: axis=-1 epsilon=1e-05 stash_type=1
    RNN: activation_alpha activation_beta activations clip direction=forward hidden_size layout=0
    RandomNormal: dtype=1 mean=0.0 scale=1.0 seed shape
    RandomNormalLike: dtype mean=0.0 scale=1.0 seed
    RandomUniform: dtype=1 high=1.0 low=0.0 seed shape
    RandomUniformLike: dtype high=1.0 low=0.0 seed
    Range: stash_type=1
    ReduceL1: keepdims=1 noop_with_empty_axes=0
    ReduceL2: keepdims=1 noop_with_empty_axes=0
    ReduceLogSum: keepdims=1 noop_with_empty_axes=0
    ReduceLogSumExp: keepdims=1 noop_with_empty_axes=0
    ReduceMax: keepdims=1 noop_with_empty_axes=0
    ReduceMean: keepdims=1 noop_with_empty_axes=0
    ReduceMin: keepdims=1 noop_with_empty_axes=0
    ReduceProd: keepdims=1 noop_with_empty_axes=0
    ReduceSum: keepdims=1 noop_with_empty_axes=0
    ReduceSumSquare: keepdims=1 noop_with_empty_axes=0
    RegexFullMatch: pattern
    Reshape: allowzero=0
    Resize: antialias=0 axes coordinate_transformation_mode=half_pixel cubic_coeff_a=-0.75 exclude_outside=0
      extrapolation_value=0.0 keep_aspect_ratio_policy=stretch mode=nearest nearest_mode=round_prefer_floor
    ReverseSequence: batch_axis=1 time_axis=0
    RoiAlign: coordinate_transformation_mode=half_pixel mode=avg output_height=1 output_width=1
      sampling_ratio=0 spatial_scale=1.0
    RotaryEmbedding: interleaved=0 num_heads rotary_embedding_dim=0
    STFT: onesided=1
    Scan: body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions
    Scatter: axis=0
    ScatterElements: axis=0 reduction=none
    ScatterND: reduction=none
    Selu: alpha=1.6732632 gamma=1.050701
    SequenceEmpty: dtype
    SequenceMap: body
    Shape: end start=0
    Shrink: bias=0.0 lambd=0.5
    Softmax: axis=-1
    SoftmaxCrossEntropyLoss: ignore_index reduction=mean
    SpaceToDepth: blocksize mode=DCR
    Split: axis=0 num_outputs
    SplitToSequence: axis=0 keepdims=1
    StringNormalizer: case_change_action=NONE is_case_sensitive=0 locale stopwords
    StringSplit: delimiter maxsplit
    SwiGLU: alpha=1.0
    Swish: alpha=1.0
    TensorScatter: axis=-2 mode=linear
    TfIdfVectorizer: max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes
      pool_int64s pool_strings weights
    ThresholdedRelu: alpha=1.0
    TopK: axis=-1 largest=1 sorted=1
    Transpose: perm
    Trilu: upper=1
    Unique: axis sorted=1
    Upsample: mode=nearest
"""
