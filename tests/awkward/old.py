"""Files of old exporters: opset 6 to 9, initializers among the inputs, operators that ONNX has dropped."""

import numpy as np
from onnx import helper

from tests.awkward.net import F32, Net


def _with_weights_as_inputs(net: Net, opset: int) -> bytes:
    """IR 3: every initializer is listed among the inputs."""
    for tensor in net.weights:
        net.inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return net.data(opset=opset, ir=3)


def _normalized(net: Net, x: str, channels: int) -> str:
    low_high = {"low": 0.5, "high": 1.5}
    return net.op("BatchNormalization", x, *(net.vector(channels, **low_high) for _ in range(4)))


def _small_cnn(opset: int) -> bytes:
    net = Net(opset)
    x = _normalized(net, net.conv(net.input("x", [1, 3, 12, 12]), 3, 8), 8)
    x = net.op("MaxPool", net.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Clip", net.op("Dropout", net.conv(x, 8, 8), ratio=0.5), min=0.0, max=6.0)
    x = net.op("Pad", x, pads=[0, 0, 1, 1, 0, 0, 1, 1])
    if opset < 9:
        x = net.op("Upsample", x, mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
    else:
        x = net.op("Upsample", x, net.const(np.asarray([1, 1, 2, 2], np.float32)), mode="nearest")
    x = net.op("Slice", x, starts=[1, 1], ends=[9, 9], axes=[2, 3])
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.op("Softmax", net.dense(x, 8, 5), axis=1, out="y")
    net.output("y", [1, 5])
    return _with_weights_as_inputs(net, opset)


def opset_7() -> bytes:
    return _small_cnn(7)


def opset_8() -> bytes:
    return _small_cnn(8)


def opset_9() -> bytes:
    return _small_cnn(9)


def cntk_export() -> bytes:
    """Names such as `Plus30_Output_0`, biases added behind, weights reshaped before a MatMul, auto_pad."""
    net = Net(30)
    x = net.input("Input3", [1, 1, 28, 28])
    for i, (c_in, c_out) in enumerate(((1, 8), (8, 16))):
        weight = net.weight(c_out, c_in, 5, 5, name=f"Parameter{5 + i}")
        conv = net.op(
            "Conv", x, weight, name=f"Convolution{i}", auto_pad="SAME_UPPER", dilations=[1, 1], group=1,
            kernel_shape=[5, 5], strides=[1, 1], out=f"Convolution{i}_Output_0",
        )  # fmt: skip
        bias = net.const(net.vector_data((c_out, 1, 1)), f"Parameter{15 + i}")
        plus = net.op("Add", conv, bias, name=f"Plus{i}", out=f"Plus{i}_Output_0")
        relu = net.op("Relu", plus, name=f"ReLU{i}", out=f"ReLU{i}_Output_0")
        size = 2 + i
        x = net.op(
            "MaxPool", relu, name=f"Pooling{i}", auto_pad="NOTSET", kernel_shape=[size, size],
            pads=[0, 0, 0, 0], strides=[size, size], out=f"Pooling{i}_Output_0",
        )  # fmt: skip
    shape = net.const(np.asarray([1, 256], np.int64), "Pooling1_Output_0_reshape0_shape")
    flat = net.op("Reshape", x, shape, name="Times212_reshape0")
    weight = net.weight(16, 4, 4, 10, name="Parameter193")
    wide = net.const(np.asarray([256, 10], np.int64), "Parameter193_reshape1_shape")
    matrix = net.op("Reshape", weight, wide, name="Times212_reshape1")
    times = net.op("MatMul", flat, matrix, name="Times212", out="Times212_Output_0")
    bias = net.const(net.vector_data((1, 10)), "Parameter194")
    net.op("Add", times, bias, name="Plus214", out="Plus214_Output_0")
    net.output("Plus214_Output_0", [1, 10])
    return _with_weights_as_inputs(net, 8)


def constant_of_shape_weights() -> bytes:
    """Weights and biases that are one number each, made while running."""
    net = Net(31)

    def fill(number: float, *shape: int) -> str:
        value = helper.make_tensor("value", F32, [1], [number])
        return net.op("ConstantOfShape", net.ints(*shape), value=value)

    x = net.op("Conv", net.input("x", [1, 3, 8, 8]), fill(0.1, 6, 3, 3, 3), fill(0.25, 6), pads=[1] * 4)
    x = net.op("Relu", net.op("Mul", x, net.const(net.vector_data((6, 1, 1)))))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.op("Gemm", x, fill(-0.3, 4, 6), fill(0.0, 4), transB=1, out="y")
    net.output("y", [1, 4])
    return net.data(opset=9, ir=4)


def normalization_chain() -> bytes:
    """BatchNormalization, Mul and Add behind every convolution, as frozen training graphs have them."""
    net = Net(32)
    x = net.input("data", [2, 3, 10, 10])
    for c_in, c_out in ((3, 8), (8, 8)):
        x = _normalized(net, net.conv(x, c_in, c_out), c_out)
        x = net.op("Mul", x, net.const(net.vector_data((1, c_out, 1, 1)) + np.float32(1)))
        x = net.op("Relu", net.op("Add", x, net.const(net.vector_data((c_out, 1, 1)))))
    net.op("GlobalAveragePool", x, out="y")
    net.output("y", [2, 8, 1, 1])
    return net.data(opset=9, ir=4)


def normalization_alone() -> bytes:
    """BatchNormalization first, with nothing before it that could take it in."""
    net = Net(33)
    x = _normalized(net, net.input("x", [1, 3, 8, 8]), 3)
    net.conv(net.op("Relu", x), 3, 4, out="y")
    net.output("y", [1, 4, 8, 8])
    return net.data(opset=9, ir=4)


def crop_and_image_scaler() -> bytes:
    """Relics of Core ML converters: experimental operators that ONNX withdrew in opset 10."""
    net = Net(34)
    x = net.op("ImageScaler", net.input("image", [1, 3, 12, 12]), scale=0.5, bias=[-0.1, 0.2, 0.3])
    x = net.op("Crop", net.conv(x, 3, 6), border=[1, 2, 1, 2])
    net.op("Relu", x, out="y")
    net.output("y", [1, 6, 8, 10])
    return _with_weights_as_inputs(net, 8)


def sums() -> bytes:
    """Sum of one, two and three values."""
    net = Net(35)
    x = net.input("x", [1, 4, 6, 6])
    a, b, c = (net.conv(x, 4, 4) for _ in range(3))
    three = net.op("Sum", a, b, c)
    two = net.op("Sum", net.op("Sum", three), x)
    net.conv(two, 4, 4, out="y")
    net.output("y", [1, 4, 6, 6])
    return _with_weights_as_inputs(net, 8)


def local_response_normalization() -> bytes:
    net = Net(36)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 9, 9]), 3, 8))
    x = net.op("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)
    net.conv(x, 8, 4, out="y")
    net.output("y", [1, 4, 9, 9])
    return _with_weights_as_inputs(net, 7)


def softmax_over_many() -> bytes:
    """Softmax of opset 7 to 12 normalises over all dimensions from its axis on."""
    net = Net(37)
    net.op("Softmax", net.conv(net.input("x", [2, 3, 4, 4]), 3, 6), axis=1, out="y")
    net.output("y", [2, 6, 4, 4])
    return net.data(opset=11, ir=6)


def opset_6() -> bytes:
    """Operands that broadcast from an axis on, copies that test, a slope per channel."""
    net = Net(38)
    x = net.conv(net.input("x", [1, 3, 4, 4]), 3, 6)
    x = net.op("Mul", x, net.vector(6), axis=1, broadcast=1)
    x = net.op("Dropout", net.op("Relu", x), ratio=0.4, is_test=1)
    x = net.op("PRelu", x, net.vector(6))
    net.op("Add", net.conv(x, 6, 4), net.vector(4), axis=1, broadcast=1, out="y")
    net.output("y", [1, 4, 4, 4])
    return _with_weights_as_inputs(net, 6)
