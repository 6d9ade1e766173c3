"""Linear operators: sums of products, and recurrent layers made of them. Source: ONNX operator schemas."""

from typing import Final

from planner.ops import axes, limits
from planner.ops.definition import OpDef
from planner.ops.forms import Form
from planner.ops.macs import conv, conv_transpose, einsum, gemm, matmul, recurrent

PRODUCTS: Final = (
    OpDef(
        "Attention",
        "is_causal=0 kv_num_heads left_window_size=-1 q_num_heads qk_matmul_output_mode=0 "
        "right_window_size=-1 scale softcap=0.0 softmax_precision",
        form=Form.CONTRACTION,
    ),
    OpDef("CausalConvWithState", "activation=none"),
    OpDef(
        "Conv",
        "auto_pad=NOTSET dilations=1 group=1 kernel_shape pads=0 strides=1",
        form=Form.LINEAR,
        macs=conv,
        axes=axes.windows,
        limits=(limits.convolution,),
    ),
    OpDef(
        "ConvInteger",
        "auto_pad=NOTSET dilations=1 group=1 kernel_shape pads=0 strides=1",
        limits=(limits.integer_convolution,),
    ),
    OpDef(
        "ConvTranspose",
        "auto_pad=NOTSET dilations=1 group=1 kernel_shape output_padding=0 output_shape pads=0 strides=1",
        form=Form.LINEAR,
        macs=conv_transpose,
        axes=axes.windows,
        limits=(limits.transposed_convolution,),
    ),
    OpDef("DeformConv", "dilations group=1 kernel_shape offset_group=1 pads strides", axes=axes.windows),
    OpDef("Einsum", "equation", form=Form.CONTRACTION, macs=einsum),
    OpDef(
        "GRU",
        "activation_alpha activation_beta activations=Sigmoid,Tanh clip=absent direction=forward "
        "hidden_size layout=0 linear_before_reset=0 sequence_lens=absent",
        form=Form.RECURRENT,
        parameters=frozenset({4}),
        macs=recurrent,
        axes=axes.recurrent,
        limits=(limits.recurrent,),
    ),
    OpDef("Gemm", "alpha=1.0 beta=1.0 transA=0 transB=0", form=Form.LINEAR, macs=gemm, axes=axes.product),
    OpDef(
        "LSTM",
        "activation_alpha activation_beta activations=Sigmoid,Tanh,Tanh clip=absent "
        "direction=forward hidden_size input_forget=0 layout=0 sequence_lens=absent",
        form=Form.RECURRENT,
        parameters=frozenset({4}),
        macs=recurrent,
        axes=axes.recurrent,
        limits=(limits.recurrent,),
    ),
    OpDef("LinearAttention", "chunk_size=64 kv_num_heads q_num_heads scale=0.0 update_rule=gated_delta"),
    OpDef("MatMul", form=Form.LINEAR, macs=matmul, axes=axes.product),
    OpDef(
        "QLinearConv",
        "auto_pad=NOTSET dilations=1 group=1 kernel_shape pads=0 strides=1",
        limits=(limits.quantized_convolution,),
    ),
    OpDef(
        "RNN",
        "activation_alpha activation_beta activations=Tanh, clip=absent direction=forward "
        "hidden_size layout=0 sequence_lens=absent",
        form=Form.RECURRENT,
        parameters=frozenset({4}),
        macs=recurrent,
        axes=axes.recurrent,
        limits=(limits.recurrent,),
    ),
)
