"""Element types and sizes: half precision, bfloat16, doubles, empty and scalar tensors, open dimensions."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.awkward.net import F16, F32, I64, Net


def half_graph() -> bytes:
    """Everything in half precision."""
    net = Net(80, np.float16)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 8, 8], F16), 3, 8))
    x = net.op("Flatten", net.op("GlobalAveragePool", net.conv(x, 8, 8)))
    net.dense(x, 8, 4, out="y")
    net.output("y", [1, 4], F16)
    return net.data()


def half_weights() -> bytes:
    """Weights stored in half precision behind casts, computed in float32."""
    net = Net(81)
    x = net.input("x", [1, 3, 8, 8])
    for c_in, c_out in ((3, 8), (8, 8)):
        weight = net.const((net.rng.standard_normal((c_out, c_in, 3, 3)) / 5).astype(np.float16))
        bias = net.const(net.vector_data((c_out,)).astype(np.float16))
        casts = [net.op("Cast", name, to=F32) for name in (weight, bias)]
        x = net.op("Relu", net.op("Conv", x, *casts, pads=[1] * 4))
    net.op("GlobalAveragePool", x, out="y")
    net.output("y", [1, 8, 1, 1])
    return net.data()


def half_inside() -> bytes:
    """Float32 at the boundary, casts, half precision within: the usual converted file."""
    net = Net(82, np.float16)
    x = net.op("Cast", net.input("x", [1, 3, 8, 8]), to=F16)
    x = net.op("Relu", net.conv(x, 3, 8))
    x = net.op("Add", net.conv(x, 8, 8), x)
    net.op("Cast", x, to=F32, out="y")
    net.output("y", [1, 8, 8, 8])
    return net.data()


def double_graph() -> bytes:
    net = Net(83, np.float64)
    x = net.op("Relu", net.op("MatMul", net.input("x", [4, 8], TensorProto.DOUBLE), net.weight(8, 8)))
    net.op("Add", net.op("MatMul", x, net.weight(8, 3)), net.vector(3), out="y")
    net.output("y", [4, 3], TensorProto.DOUBLE)
    return net.data()


def bfloat16_graph() -> bytes:
    """No convolution of onnxruntime's CPU runs in bfloat16, so there is nothing to calibrate with."""
    net = Net(84)
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [4, 3, 3, 3], net.rng.standard_normal(108))
    net.weights.append(weight)
    net.op("Conv", net.input("x", [1, 3, 6, 6], TensorProto.BFLOAT16), "w", pads=[1] * 4, out="y")
    net.output("y", [1, 4, 6, 6], TensorProto.BFLOAT16)
    # Before opset 22 no ONNX convolution has that type.
    return net.data(opset=22, ir=10)


def bfloat16_weights() -> bytes:
    """Weights in bfloat16 behind a cast."""
    net = Net(85)
    numbers = net.rng.standard_normal(108) / 5
    net.weights.append(helper.make_tensor("w", TensorProto.BFLOAT16, [4, 3, 3, 3], numbers))
    weight = net.op("Cast", "w", to=F32)
    net.op("Relu", net.op("Conv", net.input("x", [1, 3, 6, 6]), weight, pads=[1] * 4), out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()


def empty_tensors() -> bytes:
    """A concat with a part of no rows, a split into a part of none, an input of size 0."""
    net = Net(86)
    x = net.dense(net.input("x", [2, 8]), 8, 8)
    empty = net.const(np.zeros((0, 8), np.float32), "empty")
    x = net.op("Concat", x, empty, net.input("nothing", [0, 8]), axis=0)
    head, tail = net.op("Split", x, net.ints(2, 0), out=["head", "tail"], axis=0)
    net.dense(head, 8, 4, out="y")
    net.op("Relu", tail, out="none")
    net.output("y", [2, 4])
    net.output("none", [0, 8])
    return net.data()


def scalars() -> bytes:
    """A scalar input, scalar constants, a scalar output."""
    net = Net(87)
    gain = net.op("Add", net.input("gain", []), net.const(np.float32(2.0)))
    x = net.op("Mul", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4), gain)
    x = net.op("Add", x, net.const(np.float32(0.5)))
    net.op("Relu", x, out="map")
    net.op("ReduceMean", "map", keepdims=0, out="y")
    net.output("y", [])
    net.output("map", [1, 4, 6, 6])
    return net.data()


def dynamic_batch() -> bytes:
    net = Net(88)
    x = net.op("Relu", net.conv(net.input("x", ["batch", 3, 8, 8]), 3, 8))
    shape = net.op("Shape", x)
    batch = net.op("Gather", shape, net.ints(0))
    x = net.op("Reshape", x, net.op("Concat", batch, net.ints(-1), axis=0))
    net.dense(x, 8 * 64, 5, out="y")
    net.output("y", ["batch", 5])
    return net.data()


def dynamic_sequence() -> bytes:
    """Self-attention over a sequence of any length, with a mask of large negative numbers."""
    net = Net(89)
    width = 16
    ids = net.input("ids", ["batch", "sequence"], I64)
    mask = net.op("Cast", net.input("mask", ["batch", "sequence"], I64), to=F32)
    mask = net.op("Mul", net.op("Sub", net.const(np.float32(1)), mask), net.const(np.float32(-10000)))
    mask = net.op("Unsqueeze", mask, net.ints(1))
    x = net.op("Gather", net.const(net.rng.standard_normal((32, width)).astype(np.float32), "table"), ids)
    q, k, v = (net.op("Add", net.op("MatMul", x, net.weight(width, width)), net.vector(width)) for _ in "qkv")
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
    scores = net.op("Add", net.op("Mul", scores, net.const(np.float32(0.25))), mask)
    x = net.op("Add", net.op("MatMul", net.op("Softmax", scores, axis=-1), v), x)
    x = net.op("LayerNormalization", x, net.vector(width, low=0.5, high=1.5), net.vector(width), axis=-1)
    net.op("MatMul", x, net.weight(width, 4), out="y")
    net.output("y", ["batch", "sequence", 4])
    return net.data()


def unnamed_dimensions() -> bytes:
    """Dimensions without any name or number."""
    net = Net(90)
    x = net.op("Relu", net.conv(net.input("x", [None, 3, None, None]), 3, 4))
    net.op("GlobalAveragePool", x, out="y")
    net.output("y", [None, 4, 1, 1])
    return net.data()


def constant_node_weights() -> bytes:
    """No initializers: every weight is a Constant node."""
    net = Net(91)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4))
    net.dense(net.op("Flatten", x), 144, 4, out="y")
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in net.weights]
    net.weights.clear()
    net.nodes[:0] = constants
    net.output("y", [1, 4])
    return net.data()


def input_weights() -> bytes:
    """The weights are inputs of the model."""
    net = Net(92)
    net.input("x", [2, 8])
    net.input("w", [8, 4])
    net.input("filter", [4, 1, 3])
    x = net.op("MatMul", "x", "w")
    x = net.op("Conv", net.op("Unsqueeze", x, net.ints(1)), "filter", pads=[1, 1])
    net.op("Relu", x, out="y")
    net.output("y", [2, 4, 4])
    return net.data()


def nothing_constant() -> bytes:
    """No weights at all: pooling and activations."""
    net = Net(93)
    x = net.op("MaxPool", net.input("x", [1, 3, 8, 8]), kernel_shape=[2, 2], strides=[2, 2])
    net.op("AveragePool", net.op("Sigmoid", x), kernel_shape=[2, 2], strides=[2, 2], out="y")
    net.output("y", [1, 3, 2, 2])
    return net.data()


def sparse_weights() -> bytes:
    """A weight stored as its non-zero elements."""
    net = Net(94)
    dense = np.where(net.rng.random((8, 4)) < 0.4, net.rng.standard_normal((8, 4)), 0).astype(np.float32)
    places = np.flatnonzero(dense)
    values = numpy_helper.from_array(dense.reshape(-1)[places], "w")
    indices = numpy_helper.from_array(places.astype(np.int64), "w_indices")
    net.op("MatMul", net.input("x", [3, 8]), "w", out="y")
    net.output("y", [3, 4])
    model = helper.make_model(net.graph(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dense.shape))
    return model.SerializeToString()


def infinite_weights() -> bytes:
    """A padding constant of minus infinity, as exporters of attention write it."""
    net = Net(95)
    x = net.dense(net.input("x", [4, 6]), 6, 4)
    mask = np.where(np.tri(4) > 0, 0, -np.inf).astype(np.float32)
    net.dense(net.op("Softmax", net.op("Add", x, net.const(mask)), axis=-1), 4, 3, out="y")
    net.output("y", [4, 3])
    return net.data()


def zero_weights() -> bytes:
    """A layer of zeros, channels of zeros, a value that is always 0."""
    net = Net(96)
    weight = net.rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    weight[1] = 0
    x = net.op("Conv", net.input("x", [1, 3, 6, 6]), net.const(weight), pads=[1] * 4)
    dead = net.op("Conv", x, net.const(np.zeros((4, 4, 1, 1), np.float32)))
    net.op("Add", net.op("Relu", dead), net.conv(x, 4, 4), out="y")
    net.output("y", [1, 4, 6, 6])
    net.op("Relu", dead, out="zeros")
    net.output("zeros", [1, 4, 6, 6])
    return net.data()


def large_weights() -> bytes:
    """Weights dominate the file: the result has to be about a quarter of it."""
    net = Net(97)
    x = net.op("Relu", net.dense(net.input("x", [2, 256]), 256, 512))
    net.dense(x, 512, 64, out="y")
    net.output("y", [2, 64])
    return net.data()


def shared_large_table() -> bytes:
    """An embedding table that is also the output projection, transposed."""
    net = Net(98)
    table = net.const((net.rng.standard_normal((200, 32)) / 5).astype(np.float32), "table")
    x = net.op("Gather", table, net.input("ids", [1, 6], I64))
    x = net.op("Relu", net.op("MatMul", x, net.weight(32, 32)))
    net.op("MatMul", x, net.op("Transpose", table, perm=[1, 0]), out="y")
    net.output("y", [1, 6, 200])
    return net.data()


def nan_weights() -> bytes:
    """A bias that training broke: NaN in one channel of a model that never uses it."""
    net = Net(99)
    bias = net.vector_data((4,))
    bias[2] = np.nan
    broken = net.op(
        "Conv", net.input("x", [1, 3, 6, 6]), net.weight(4, 3, 3, 3), net.const(bias), pads=[1] * 4
    )
    x = net.op("Gather", broken, net.ints(0, 1, 3), axis=1)
    net.conv(x, 3, 2, out="y")
    net.output("y", [1, 2, 6, 6])
    return net.data()
