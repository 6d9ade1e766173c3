"""ATen operators by their ONNX names, as far as a target has rows of known form for them."""

from collections.abc import Mapping
from typing import Final

_LISTS: Final[Mapping[str, str]] = {
    "Abs": "abs",
    "Add": "add add_",
    "AveragePool": "avg_pool2d avg_pool1d",
    "BatchNormalization": "batch_norm",
    "Clip": "hardtanh hardtanh_ clamp clamp_ relu6 relu6_",
    "Concat": "cat concat",
    "Conv": "conv1d conv2d convolution",
    "ConvTranspose": "conv_transpose2d conv_transpose1d",
    "DepthToSpace": "pixel_shuffle",
    "Div": "div div_",
    "Elu": "elu elu_",
    "Exp": "exp",
    "Expand": "expand",
    "Flatten": "flatten",
    "Gather": "embedding",
    "Gelu": "gelu",
    "Gemm": "linear addmm",
    "GlobalAveragePool": "adaptive_avg_pool2d",
    "GroupNormalization": "group_norm",
    "HardSigmoid": "hardsigmoid hardsigmoid_",
    "HardSwish": "hardswish hardswish_",
    "Identity": "alias detach contiguous clone",
    "InstanceNormalization": "instance_norm",
    "LayerNormalization": "layer_norm",
    "LeakyRelu": "leaky_relu leaky_relu_",
    "Log": "log",
    "LogSoftmax": "log_softmax",
    "MatMul": "matmul mm bmm",
    "Max": "maximum",
    "MaxPool": "max_pool2d max_pool1d",
    "Min": "minimum",
    "Mul": "mul mul_",
    "Neg": "neg",
    "PRelu": "prelu",
    "Pad": "pad constant_pad_nd zero_pad2d",
    "Pow": "pow",
    "ReduceMax": "amax",
    "ReduceMean": "mean",
    "ReduceMin": "amin",
    "ReduceSum": "sum",
    "Relu": "relu relu_",
    "Reshape": "view reshape _unsafe_view",
    "Resize": "upsample_nearest2d upsample_bilinear2d interpolate",
    "Sigmoid": "sigmoid",
    "Slice": "slice slice_copy select",
    "Softmax": "softmax _softmax",
    "Split": "split split_with_sizes chunk",
    "Sqrt": "sqrt",
    "Squeeze": "squeeze squeeze_copy",
    "Sub": "sub sub_",
    "Tanh": "tanh",
    "Tile": "repeat tile",
    "Transpose": "permute transpose t permute_copy",
    "Unsqueeze": "unsqueeze unsqueeze_copy",
    "Where": "where",
}
ONNX: Final[Mapping[str, str]] = {aten: op for op, names in _LISTS.items() for aten in names.split()}


def onnx_of(name: str) -> str:
    """The ONNX operator of `aten.conv2d.default`, or `relu` alone; "" where none is known."""
    parts = name.removeprefix("torch.ops.").removeprefix("aten.").split(".")
    return ONNX.get(parts[0], "")
