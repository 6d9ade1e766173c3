"""Other operators: those that make values, sequences and text. Source: ONNX operator schemas."""

from typing import Final

from planner.ops import axes, limits
from planner.ops.definition import OpDef
from planner.ops.forms import Form

OTHERS: Final = (
    OpDef("AffineGrid", "align_corners=0"),
    OpDef("Bernoulli", "dtype seed", form=Form.RANDOM),
    OpDef("BlackmanWindow", "output_datatype=1 periodic=1"),
    OpDef("Col2Im", "dilations pads strides"),
    OpDef("ConcatFromSequence", "axis new_axis=0"),
    OpDef(
        "Constant",
        "sparse_value value value_float value_floats value_int value_ints value_string value_strings",
        form=Form.CONSTANT,
    ),
    OpDef("ConstantOfShape", "value", form=Form.CONSTANT),
    OpDef("DFT", "inverse=0 onesided=0"),
    OpDef("EyeLike", "dtype k=0", parameters=frozenset({0})),
    OpDef("GridSample", "align_corners=0 mode=linear padding_mode=zeros", axes=axes.windows),
    OpDef("HammingWindow", "output_datatype=1 periodic=1"),
    OpDef("HannWindow", "output_datatype=1 periodic=1"),
    OpDef("If", "else_branch then_branch", form=Form.BODY),
    OpDef("ImageDecoder", "pixel_format=RGB"),
    OpDef("Loop", "body", form=Form.BODY),
    OpDef("MelWeightMatrix", "output_datatype=1", parameters=frozenset({0, 1, 2, 3, 4})),
    OpDef("Multinomial", "dtype=6 sample_size=1 seed", form=Form.RANDOM),
    OpDef("NegativeLogLikelihoodLoss", "ignore_index reduction=mean"),
    OpDef("NonMaxSuppression", "center_point_box=0", form=Form.COUNTED, parameters=frozenset({2, 3, 4})),
    OpDef("NonZero", form=Form.COUNTED),
    OpDef("OneHot", "axis=-1", parameters=frozenset({1, 2}), limits=(limits.new_axis,)),
    OpDef("Optional", "type"),
    OpDef("RandomNormal", "dtype=1 mean=0.0 scale=1.0 seed shape", form=Form.RANDOM),
    OpDef("RandomNormalLike", "dtype mean=0.0 scale=1.0 seed", form=Form.RANDOM, parameters=frozenset({0})),
    OpDef("RandomUniform", "dtype=1 high=1.0 low=0.0 seed shape", form=Form.RANDOM),
    OpDef("RandomUniformLike", "dtype high=1.0 low=0.0 seed", form=Form.RANDOM, parameters=frozenset({0})),
    OpDef("Range", "stash_type=1", parameters=frozenset({0, 1, 2})),
    OpDef("RegexFullMatch", "pattern"),
    OpDef(
        "RoiAlign",
        "coordinate_transformation_mode=half_pixel mode=avg output_height=1 output_width=1 "
        "sampling_ratio=0 spatial_scale=1.0",
    ),
    OpDef("RotaryEmbedding", "interleaved=0 num_heads rotary_embedding_dim=0"),
    OpDef("STFT", "onesided=1"),
    OpDef(
        "Scan",
        "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions",
        form=Form.BODY,
    ),
    OpDef("SequenceEmpty", "dtype"),
    OpDef("SequenceMap", "body", form=Form.BODY),
    OpDef("Shape", "end start=0", form=Form.SHAPE, parameters=frozenset({0})),
    OpDef("Size", form=Form.SHAPE, parameters=frozenset({0})),
    OpDef("SoftmaxCrossEntropyLoss", "ignore_index reduction=mean"),
    OpDef("SplitToSequence", "axis=0 keepdims=1"),
    OpDef("StringNormalizer", "case_change_action=NONE is_case_sensitive=0 locale stopwords"),
    OpDef("StringSplit", "delimiter maxsplit", form=Form.COUNTED),
    OpDef(
        "TfIdfVectorizer",
        "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s "
        "pool_strings weights",
    ),
    OpDef("Unique", "axis sorted=1", form=Form.COUNTED),
)
