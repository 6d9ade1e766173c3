"""Operators in their unusual forms: auto_pad, groups, factors, absent operands, recurrent nets, QDQ files."""

import numpy as np
from onnx import helper

from tests.awkward.net import I64, Net


def conv_forms() -> bytes:
    """SAME_UPPER with strides, SAME_LOWER, VALID, groups, depthwise, dilations, no bias."""
    net = Net(100)
    x = net.conv(net.input("x", [1, 4, 17, 17]), 4, 8, auto_pad="SAME_UPPER", strides=[2, 2])
    x = net.conv(net.op("Relu", x), 8, 8, auto_pad="SAME_LOWER", group=4)
    x = net.conv(net.op("Relu", x), 8, 8, auto_pad="VALID", group=8)
    net.conv(net.op("Relu", x), 8, 4, pads=[2] * 4, dilations=[2, 2], out="y")
    net.output("y", [1, 4, 7, 7])
    return net.data()


def conv_1d() -> bytes:
    net = Net(101)
    x = net.op("Relu", net.conv(net.input("x", [2, 3, 20]), 3, 6, rank=1))
    net.conv(x, 6, 4, rank=1, dilations=[2], pads=[2, 2], strides=[2], out="y")
    net.output("y", [2, 4, 10])
    return net.data()


def conv_3d() -> bytes:
    net = Net(102)
    x = net.op("Relu", net.conv(net.input("x", [1, 2, 6, 6, 6]), 2, 4, rank=3))
    net.conv(x, 4, 2, rank=3, strides=[2, 2, 2], out="y")
    net.output("y", [1, 2, 3, 3, 3])
    return net.data()


def conv_transpose_forms() -> bytes:
    """Strides with output_padding, groups, output_shape, dilations."""
    net = Net(103)
    x = net.input("x", [1, 4, 5, 5])
    up = {"strides": [2, 2], "output_padding": [1, 1], "pads": [1] * 4}
    x = net.op("Relu", net.op("ConvTranspose", x, net.weight(4, 6, 3, 3), net.vector(6), **up))
    x = net.op(
        "Relu", net.op("ConvTranspose", x, net.weight(6, 2, 3, 3), net.vector(4), group=2, pads=[1] * 4)
    )
    x = net.op("ConvTranspose", x, net.weight(4, 4, 3, 3), strides=[2, 2], output_shape=[20, 20])
    net.op(
        "ConvTranspose", net.op("Relu", x), net.weight(4, 2, 3, 3), dilations=[2, 2], pads=[2] * 4, out="y"
    )
    net.output("y", [1, 2, 20, 20])
    return net.data()


def gemm_forms() -> bytes:
    """transA, alpha, beta, a scalar C, a C of one row, no C, a C that is an activation."""
    net = Net(104)
    a = net.op("Gemm", net.input("x", [8, 4]), net.weight(8, 6), net.vector(6), transA=1, alpha=0.5, beta=2.0)
    b = net.op("Gemm", a, net.weight(6, 6), net.const(np.float32(0.25)), alpha=2.0)
    c = net.op("Gemm", b, net.weight(6, 6), net.const(net.vector_data((1, 6))), beta=0.5)
    d = net.op("Gemm", c, net.weight(6, 6), transB=1)
    e = net.op("Gemm", d, net.weight(6, 6), b, beta=0.5)
    f = net.op("Gemm", e, net.weight(6, 6), net.const(net.vector_data((4, 1))))
    net.op("Gemm", f, d, transB=1, out="y")
    net.output("y", [4, 4])
    return net.data()


def resize_forms() -> bytes:
    """Nearest by scales, linear by sizes, cubic, half_pixel, align_corners, ratios that are no integers."""
    net = Net(105)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4))
    scales = net.const(np.asarray([1, 1, 2, 2], np.float32))
    a = net.op("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")
    b = net.op("Resize", net.conv(a, 4, 4), "", "", net.ints(1, 4, 9, 7), mode="linear")
    more = {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}
    c = net.op("Resize", net.conv(b, 4, 4), "", "", net.ints(1, 4, 11, 13), **more)
    more = {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "half_pixel"}
    d = net.op("Resize", net.conv(c, 4, 4), "", net.const(np.asarray([1, 1, 0.7, 1.3], np.float32)), **more)
    net.conv(d, 4, 2, out="y")
    net.output("y", None)
    return net.data()


def pad_forms() -> bytes:
    """Reflect, edge, constant with a value, negative pads, pads with axes."""
    net = Net(106)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 8, 8]), 3, 4))
    x = net.conv(net.op("Pad", x, net.ints(0, 0, 1, 2, 0, 0, 2, 1), mode="reflect"), 4, 4)
    x = net.conv(net.op("Pad", x, net.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="edge"), 4, 4)
    x = net.conv(net.op("Pad", x, net.ints(0, 0, 1, 1, 0, 0, 1, 1), net.const(np.float32(0.7))), 4, 4)
    x = net.conv(net.op("Pad", x, net.ints(0, 0, -1, 0, 0, 0, 0, -2)), 4, 4)
    x = net.op("Pad", x, net.ints(1, 0), "", net.ints(3))
    net.conv(x, 4, 2, out="y")
    net.output("y", None)
    return net.data(opset=18)


def shape_movement() -> bytes:
    """Reshape with 0 and -1, Expand, Tile, Squeeze of all, Transpose, Slice with a step, GatherND."""
    net = Net(107)
    x = net.op("Relu", net.conv(net.input("x", [2, 3, 4, 4]), 3, 4))
    x = net.op("Reshape", x, net.ints(0, -1, 4))
    x = net.op("Tile", net.op("Transpose", x, perm=[0, 2, 1]), net.ints(1, 1, 2))
    x = net.op("Slice", x, net.ints(-1, 0), net.ints(-100, 32), net.ints(1, 2), net.ints(-1, 2))
    x = net.op("Expand", net.op("Unsqueeze", x, net.ints(1)), net.ints(1, 3, 1, 1))
    x = net.op("GatherND", x, net.const(np.asarray([[0, 1], [1, 2]], np.int64)))
    x = net.op("Squeeze", net.op("Reshape", x, net.ints(1, 2, 1, 64)))
    net.dense(x, 64, 3, out="y")
    net.output("y", [2, 3])
    return net.data()


def selection() -> bytes:
    """Where, TopK, ArgMax, Compress, NonZero: values chosen by values."""
    net = Net(108)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    other = net.conv("x", 3, 4)
    x = net.op("Where", net.op("Greater", x, other), x, other)
    flat = net.op("Reshape", x, net.ints(4, -1))
    top, _ = net.op("TopK", flat, net.ints(8), out=["top", "places"], axis=-1)
    net.output("places", [4, 8], I64)
    net.op("ArgMax", flat, axis=1, keepdims=0, out="best")
    net.output("best", [4], I64)
    net.dense(top, 8, 3, out="y")
    net.output("y", [4, 3])
    return net.data()


def split_forms() -> bytes:
    """Split into equal parts by attribute and by operand, some parts unread, num_outputs."""
    net = Net(109)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 12)
    a, _, c = net.op("Split", x, net.ints(4, 4, 4), out=["a", "unread", "c"], axis=1)
    d, e = net.op("Split", net.op("Add", a, c), out=["d", "e"], axis=1, num_outputs=2)
    net.op("Concat", net.conv(d, 2, 2), e, axis=1, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data(opset=18)


def absent_operands() -> bytes:
    """Optional operands and results that are "": Clip without min, Conv with "" for its bias, LSTM."""
    net = Net(110)
    x = net.op("Conv", net.input("x", [1, 3, 6, 6]), net.weight(4, 3, 3, 3), "", pads=[1] * 4)
    x = net.op("Clip", x, "", net.const(np.float32(1.0)))
    x, _ = net.op("Dropout", net.op("Clip", x, net.const(np.float32(-1.0)), ""), out=["kept", ""])
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Gemm", net.op("Flatten", x), net.weight(36, 4), "")
    net.op("Relu", x, out="y")
    net.output("y", [1, 4])
    return net.data()


def _recurrent(seed: int, kind: str, gates: int, **more: object) -> bytes:
    """A recurrent layer in both directions, with the sequence as the open dimension, between MatMuls."""
    net = Net(seed)
    hidden, width = 6, 8
    x = net.op("MatMul", net.input("x", ["time", 2, 5]), net.weight(5, width))
    weights = (net.weight(2, gates * hidden, width), net.weight(2, gates * hidden, hidden))
    bias = net.vector_weights(2, 2 * gates * hidden)
    start = net.input("h0", [2, 2, hidden])
    results = [net.name("seq"), "h_last"]
    y, last = net.op(
        kind, x, *weights, bias, "", start, out=results, direction="bidirectional", hidden_size=hidden, **more
    )
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.ints(0, 0, -1))
    net.op("MatMul", y, net.weight(2 * hidden, 3), out="y")
    net.output("y", ["time", 2, 3])
    net.output(last, [2, 2, hidden])
    return net.data(opset=15)


def lstm() -> bytes:
    return _recurrent(111, "LSTM", 4)


def gru() -> bytes:
    return _recurrent(112, "GRU", 3, linear_before_reset=1)


def rnn() -> bytes:
    return _recurrent(113, "RNN", 1, activations=["Relu", "Tanh"])


def quantized_already() -> bytes:
    """A QDQ file: quantized activations and weights around Conv and MatMul."""
    net = Net(114)

    def pair(name: str, scale: float, zero: int) -> str:
        s, z = net.const(np.float32(scale)), net.const(np.uint8(zero))
        return net.op("DequantizeLinear", net.op("QuantizeLinear", name, s, z), s, z)

    weight = net.rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    scales, zeros = net.const(np.full(4, 0.002, np.float32)), net.const(np.zeros(4, np.int8))
    w = net.op("DequantizeLinear", net.const(weight), scales, zeros, axis=0)
    x = net.op("Conv", pair(net.input("x", [1, 3, 6, 6]), 0.03, 128), w, pads=[1] * 4)
    x = pair(net.op("Relu", x), 0.02, 0)
    net.op("Flatten", net.op("GlobalAveragePool", x), out="y")
    net.output("y", [1, 4])
    return net.data()


def qoperator_already() -> bytes:
    """A file of QLinearConv between QuantizeLinear and DequantizeLinear."""
    net = Net(115)
    s, z = net.const(np.float32(0.03)), net.const(np.uint8(128))
    q = net.op("QuantizeLinear", net.input("x", [1, 3, 6, 6]), s, z)
    weight = net.const(net.rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8))
    ws, wz = net.const(np.float32(0.002)), net.const(np.int8(0))
    q = net.op("QLinearConv", q, s, z, weight, ws, wz, s, z, pads=[1] * 4)
    x = net.op("Relu", net.op("DequantizeLinear", q, s, z))
    net.conv(x, 4, 2, out="y")
    net.output("y", [1, 2, 6, 6])
    return net.data()


def dynamic_quantization() -> bytes:
    """DynamicQuantizeLinear and MatMulInteger, as quantize_dynamic writes them."""
    net = Net(116)
    x = net.op("Relu", net.dense(net.input("x", [3, 8]), 8, 8))
    q, scale, zero = net.op("DynamicQuantizeLinear", x, out=["q", "q_scale", "q_zero"])
    weight = net.const(net.rng.integers(-127, 128, (8, 4)).astype(np.int8))
    whole = net.op("Cast", net.op("MatMulInteger", q, weight, zero), to=1)
    net.op("Mul", whole, net.op("Mul", scale, net.const(np.float32(0.004))), out="y")
    net.output("y", [3, 4])
    return net.data()


def einsum_and_reductions() -> bytes:
    """Operators that targets rarely have: Einsum, ReduceL2, CumSum, Erf, Mod."""
    net = Net(117)
    x = net.dense(net.input("x", [4, 6]), 6, 6)
    x = net.op("Einsum", x, net.weight(6, 6), equation="ij,jk->ik")
    x = net.op("Div", x, net.op("ReduceL2", x, axes=[1], keepdims=1))
    x = net.op("Erf", net.op("CumSum", x, net.const(np.asarray(1, np.int64))))
    net.dense(x, 6, 3, out="y")
    net.output("y", [4, 3])
    return net.data()


def pooling_forms() -> bytes:
    """ceil_mode, count_include_pad, indices of MaxPool, LpPool, dilations."""
    net = Net(118)
    x = net.conv(net.input("x", [1, 3, 11, 11]), 3, 4)
    window = {"kernel_shape": [3, 3], "strides": [2, 2]}
    x = net.conv(net.op("AveragePool", x, ceil_mode=1, count_include_pad=1, pads=[1] * 4, **window), 4, 4)
    x, places = net.op("MaxPool", x, out=["pooled", "places"], ceil_mode=1, **window)
    net.op("LpPool", net.conv(x, 4, 4), kernel_shape=[2, 2], p=2, out="y")
    net.output("y", None)
    net.output(places, None, I64)
    return net.data()


def sequences() -> bytes:
    """Values that are no tensors."""
    net = Net(119)
    x = net.conv(net.input("x", [1, 4, 4, 4]), 4, 4)
    parts = net.op("SplitToSequence", x, net.ints(2, 2), axis=1)
    x = net.op("ConcatFromSequence", parts, axis=1)
    net.conv(x, 4, 2, out="y")
    net.output("y", [1, 2, 4, 4])
    return net.data()


def optional_and_strings() -> bytes:
    """A string constant among the outputs."""
    net = Net(120)
    net.op("Relu", net.conv(net.input("x", [1, 3, 4, 4]), 3, 4), out="y")
    net.op("Constant", value_strings=["cat", "dog"], out="labels")
    net.output("y", [1, 4, 4, 4])
    net.outputs.append(helper.make_tensor_value_info("labels", 8, [2]))
    return net.data()


def matmul_of_vectors() -> bytes:
    """MatMul with operands of rank 1, and of a stack of matrices."""
    net = Net(121)
    x = net.op("MatMul", net.input("x", [3, 4, 8]), net.weight(3, 8, 8))
    x = net.op("MatMul", x, net.const(net.vector_data((8,))))
    net.op("MatMul", net.const(net.vector_data((3,))), x, out="y")
    net.output("y", [4])
    return net.data()


def clip_upside_down() -> bytes:
    """A Clip whose lower bound is above its upper one, and a Clip with bounds from an input."""
    net = Net(122)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    upper = net.input("upper", [])
    x = net.conv(net.op("Clip", x, net.const(np.float32(0)), upper), 4, 4)
    net.op("Clip", x, net.const(np.float32(2)), net.const(np.float32(1)), out="flat")
    net.conv(x, 4, 2, out="y")
    net.output("y", [1, 2, 6, 6])
    net.output("flat", [1, 4, 6, 6])
    return net.data()


def newest_operators() -> bytes:
    """Operators of opset 23 and 24 that earlier ones lack: RMSNormalization, Swish."""
    net = Net(123)
    x = net.dense(net.input("x", [3, 8]), 8, 8)
    x = net.op("RMSNormalization", x, net.vector(8, low=0.5, high=1.5), axis=-1)
    net.dense(net.op("Swish", x), 8, 4, out="y")
    net.output("y", [3, 4])
    return net.data(opset=24, ir=12)


def newer_than_needed() -> bytes:
    """Declared as opset 23, with nothing in it that 21 lacks."""
    net = Net(124)
    net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4), out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data(opset=23, ir=11)


def training_normalization() -> bytes:
    """BatchNormalization in training mode: its statistics are those of the batch."""
    net = Net(125)
    x = net.conv(net.input("x", [2, 3, 6, 6]), 3, 4)
    parameters = [net.vector(4, low=0.5, high=1.5) for _ in range(4)]
    x, *_ = net.op("BatchNormalization", x, *parameters, out=["n", "mean", "var"], training_mode=1)
    net.conv(x, 4, 2, out="y")
    net.output("y", [2, 2, 6, 6])
    return net.data()


def machine_learning_domain() -> bytes:
    """Operators of ai.onnx.ml around a layer, and labels that are text."""
    net = Net(126)
    x = net.op("Scaler", net.input("x", [3, 4]), offset=[0.1] * 4, scale=[0.5] * 4, domain="ai.onnx.ml")
    x = net.op("Softmax", net.dense(x, 4, 3), axis=-1, out="probabilities")
    net.output("probabilities", [3, 3])
    best = net.op("ArgMax", x, axis=1, keepdims=0)
    labels = {"keys_int64s": [0, 1, 2], "values_strings": ["a", "b", "c"], "domain": "ai.onnx.ml"}
    net.op("LabelEncoder", best, out="label", **labels)
    net.outputs.append(helper.make_tensor_value_info("label", 8, [3]))
    return net.data(domains=["ai.onnx.ml:2"])


def map_output() -> bytes:
    """ZipMap: a list of dictionaries among the outputs, as scikit-learn's converter writes it."""
    net = Net(127)
    x = net.op("Softmax", net.dense(net.input("x", [3, 4]), 4, 3), axis=-1)
    net.op("ZipMap", x, out="y", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    kind = helper.make_map_type_proto(I64, helper.make_tensor_type_proto(1, []))
    net.outputs.append(helper.make_value_info("y", helper.make_sequence_type_proto(kind)))
    return net.data(domains=["ai.onnx.ml"])


def sequence_input() -> bytes:
    """An input that is a list of tensors."""
    net = Net(128)
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1, 4]))
    net.inputs.append(helper.make_value_info("xs", kind))
    net.dense(net.op("ConcatFromSequence", "xs", axis=0), 4, 3, out="y")
    net.output("y", [None, 3])
    return net.data()


def string_input() -> bytes:
    """Text goes in, an embedding comes out."""
    net = Net(129)
    words = {"keys_strings": ["a", "b"], "values_int64s": [0, 1], "default_int64": 1}
    net.inputs.append(helper.make_tensor_value_info("word", 8, [5]))
    ids = net.op("LabelEncoder", "word", domain="ai.onnx.ml", **words)
    net.dense(net.op("Gather", net.weight(2, 4), ids), 4, 3, out="y")
    net.output("y", [5, 3])
    return net.data(domains=["ai.onnx.ml:2"])
