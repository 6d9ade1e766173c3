"""Names, ports and declarations that are unusual: quotes, markup, duplicates, what nothing reads."""

import numpy as np
from onnx import helper, numpy_helper

from tests.awkward.net import F32, I64, Net

LONG = "layer/" * 700 + "out"


def strange_names() -> bytes:
    """Quotes, slashes, spaces, markup, line ends, names that look like ours and like the system's paths."""
    net = Net(60)
    net.input('it\'s "x"/0', [1, 3, 6, 6])
    net.weight(4, 3, 3, 3, name="../../etc/passwd")
    net.vector(4, name="<img src=x onerror=alert(1)>")
    net.op(
        "Conv", "it's \"x\"/0", "../../etc/passwd", "<img src=x onerror=alert(1)>", pads=[1] * 4,
        out="a b\tc\nd", name="</script><script>alert('n')</script>",
    )  # fmt: skip
    net.op("Relu", "a b\tc\nd", out="@model.out[0]", name="@model")
    net.conv("@model.out[0]", 4, 4, out="{{7*7}}${x}%s")
    net.op("Add", "{{7*7}}${x}%s", "@model.out[0]", out="y#0", name="conv1.in[0]")
    net.output("y#0", [1, 4, 6, 6])
    return net.data()


def unicode_names() -> bytes:
    net = Net(61)
    net.input("вход", [1, 3, 6, 6])
    net.weight(4, 3, 3, 3, name="重み")
    net.op("Conv", "вход", "重み", pads=[1] * 4, out="🙂", name="свёртка")
    net.op("Relu", "🙂", out="é")
    net.op("Sigmoid", "é", out="e\u0301", name="\u202egnp.exe")
    net.conv("e\u0301", 4, 2, out="выход")
    net.output("выход", [1, 2, 6, 6])
    return net.data()


def long_names() -> bytes:
    net = Net(62)
    net.input(f"{LONG}/x", [1, 3, 6, 6])
    net.op("Conv", f"{LONG}/x", net.weight(4, 3, 3, 3, name=f"{LONG}/w"), pads=[1] * 4, out=f"{LONG}/a")
    net.op("Relu", f"{LONG}/a", out=f"{LONG}/y", name=LONG)
    net.output(f"{LONG}/y", [1, 4, 6, 6])
    return net.data()


def names_like_ours() -> bytes:
    """Values called as an exporter would call its own."""
    net = Net(63)
    net.input("x", [1, 3, 6, 6])
    net.weight(4, 3, 3, 3, name="x_quantized")
    net.op("Conv", "x", "x_quantized", pads=[1] * 4, out="x_dequantized")
    net.op("Relu", "x_dequantized", out="x_scale", name="x_zero_point")
    net.conv("x_scale", 4, 4, out="y")
    net.op("Mul", "y", "x_scale", out="y_quantized")
    net.output("y", [1, 4, 6, 6])
    net.output("y_quantized", [1, 4, 6, 6])
    return net.data()


def duplicate_node_names() -> bytes:
    net = Net(64)
    x = net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4, name="same"), name="same")
    net.conv(x, 4, 2, out="y", name="same")
    net.output("y", [1, 2, 6, 6])
    return net.data()


def duplicate_initializers() -> bytes:
    """One name twice, with the same numbers."""
    net = Net(65)
    net.weight(4, 3, 3, 3, name="w")
    net.weights.append(net.weights[0])
    net.op("Relu", net.op("Conv", net.input("x", [1, 3, 6, 6]), "w", pads=[1] * 4), out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()


def contradicting_initializers() -> bytes:
    """One name twice, with different numbers."""
    net = Net(66)
    net.weight(4, 3, 3, 3, name="w")
    net.weight(4, 3, 3, 3, name="w")
    net.op("Relu", net.op("Conv", net.input("x", [1, 3, 6, 6]), "w", pads=[1] * 4), out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()


def equal_initializers() -> bytes:
    """The same numbers under two names, and one weight that two layers share."""
    net = Net(67)
    x = net.input("x", [1, 4, 6, 6])
    net.weight(4, 4, 3, 3, name="w1")
    net.const(numpy_helper.to_array(net.weights[0]), "w2")
    a = net.op("Relu", net.op("Conv", x, "w1", pads=[1] * 4))
    b = net.op("Relu", net.op("Conv", a, "w2", pads=[1] * 4))
    net.op("Conv", b, "w1", pads=[1] * 4, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()


def unused_everything() -> bytes:
    """An input, an initializer, a node and a result that nothing reads."""
    net = Net(68)
    net.input("unused input", [1, 7])
    net.input("unused ids", ["n"], I64)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    net.weight(50, 50, name="unused weight")
    net.op("Tanh", x)
    net.op("Relu", x, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()


def many_outputs() -> bytes:
    """Inner values are model outputs too, in another order than they are computed."""
    net = Net(69)
    a = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4, out="a")
    b = net.op("Relu", a, out="b")
    c = net.conv(b, 4, 4, out="c")
    for name in (c, a, b):
        net.output(name, [1, 4, 6, 6])
    return net.data()


def output_twice() -> bytes:
    """One value is listed twice among the outputs."""
    net = Net(70)
    net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4), out="y")
    net.output("y", [1, 4, 6, 6])
    net.output("y", [1, 4, 6, 6])
    return net.data()


def input_is_output() -> bytes:
    net = Net(71)
    net.conv(net.input("x", [1, 3, 6, 6]), 3, 4, out="y")
    net.output("x", [1, 3, 6, 6])
    net.output("y", [1, 4, 6, 6])
    return net.data()


def initializer_is_output() -> bytes:
    """The anchors of a detector, say: an initializer and a Constant node among the outputs."""
    net = Net(72)
    net.conv(net.input("x", [1, 3, 6, 6]), 3, 4, out="y")
    net.const(net.vector_data((5, 4)), "anchors")
    net.op("Constant", value=numpy_helper.from_array(net.vector_data((2, 2)), ""), out="grid")
    net.output("y", [1, 4, 6, 6])
    net.output("anchors", [5, 4])
    net.output("grid", [2, 2])
    return net.data()


def initializer_is_output_and_weight() -> bytes:
    """A weight that is also a model output, in float."""
    net = Net(73)
    net.weight(4, 3, 3, 3, name="w")
    net.op("Conv", net.input("x", [1, 3, 6, 6]), "w", pads=[1] * 4, out="y")
    net.output("y", [1, 4, 6, 6])
    net.output("w", [4, 3, 3, 3])
    return net.data()


def same_value_twice() -> bytes:
    """`x + x`, `x * x`, `[x, x]`, `x @ x`."""
    net = Net(74)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    x = net.op("Add", x, x)
    x = net.op("Concat", x, x, axis=1)
    x = net.op("MatMul", x, x)
    net.op("Mul", x, x, out="y")
    net.output("y", [1, 8, 6, 6])
    return net.data()


def empty_graph() -> bytes:
    """No nodes: the input is the output."""
    net = Net(75)
    net.input("x", [1, 3])
    net.output("x", [1, 3])
    return net.data()


def nothing_to_quantize() -> bytes:
    """Integers in, integers out."""
    net = Net(76)
    x = net.op("Add", net.input("ids", [2, 5], I64), net.const(np.asarray(3, np.int64)))
    x = net.op("Gather", net.const(np.arange(100, dtype=np.int64)), x)
    net.op("Reshape", x, net.ints(5, -1), out="y")
    net.output("y", [5, 2], I64)
    return net.data()


def undeclared_output() -> bytes:
    """An output without a shape, values with wrong declared shapes left out."""
    net = Net(77)
    net.op("Relu", net.conv(net.input("x", [1, 3, 6, 6]), 3, 4), out="y")
    net.outputs.append(helper.make_tensor_value_info("y", F32, None))
    return net.data()


def wrong_declared_shape() -> bytes:
    """A value_info that contradicts what the nodes compute."""
    net = Net(78)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4, out="inner")
    net.infos.append(helper.make_tensor_value_info("inner", F32, [1, 4, 7, 7]))
    net.op("Relu", x, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data()
