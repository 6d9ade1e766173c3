"""Control flow, functions and foreign operators: networks wrapped into If, Loop, calls and custom domains."""

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from tests.awkward.net import BOOL, F32, I64, Net


def _branch(seed: int, *, reads: str) -> GraphProto:
    """A network as the body of an If: it reads an outer value and owns its weights."""
    body = Net(seed)
    for tensor_name in ("weight", "bias"):
        shape = (6, 3, 3, 3) if tensor_name == "weight" else (6,)
        body.const((body.rng.standard_normal(shape) / 5).astype(np.float32), tensor_name)
    x = body.op("Conv", reads, "weight", "bias", pads=[1] * 4, kernel_shape=[3, 3])
    x = body.op("Relu", x)
    body.conv(x, 6, 4, out="result")
    body.output("result", [1, 4, 8, 8])
    return body.graph(f"branch{seed}")


def _if(net: Net, condition: str) -> bytes:
    branches = {"then_branch": _branch(1, reads="x"), "else_branch": _branch(2, reads="x")}
    net.op("If", condition, name="choice", out="y", **branches)
    net.output("y", [1, 4, 8, 8])
    return net.data(opset=16)


def if_constant() -> bytes:
    net = Net(40)
    net.input("x", [1, 3, 8, 8])
    return _if(net, net.const(np.asarray(True)))


def if_constant_node() -> bytes:
    """The condition is computed, but from constants alone."""
    net = Net(41)
    net.input("x", [1, 3, 8, 8])
    return _if(net, net.op("Greater", net.op("Size", "x"), net.const(np.asarray(7, np.int64))))


def if_computed() -> bytes:
    """The condition depends on the data: the branches stay closed, the rest is quantized."""
    net = Net(42)
    net.input("input", [1, 3, 8, 8])
    net.conv("input", 3, 3, out="x")
    return _if(net, net.op("Greater", net.op("ReduceSum", "input", keepdims=0), net.const(np.float32(0))))


def if_nested() -> bytes:
    """An If of known condition in an If of known condition; the inner one captures from two levels up."""
    net = Net(43)
    net.input("x", [1, 3, 8, 8])
    middle = Net(44)
    inner = {"then_branch": _branch(3, reads="x"), "else_branch": _branch(4, reads="x")}
    middle.op("If", "yes", out="from_inner", **inner)
    middle.op("Neg", "from_inner", out="negated")
    middle.output("negated", [1, 4, 8, 8])
    other = _branch(5, reads="x")
    net.const(np.asarray(True), "yes")
    net.op("If", "yes", out="y", then_branch=middle.graph("middle"), else_branch=other)
    net.output("y", [1, 4, 8, 8])
    return net.data(opset=16)


def loop_body() -> bytes:
    """A convolution that runs three times in a Loop; its weights are captured from outside."""
    net = Net(45)
    x = net.op("Relu", net.conv(net.input("x", [1, 4, 6, 6]), 3 + 1, 4))
    net.weight(4, 4, 3, 3, name="w")
    net.vector(4, name="b")
    body = Net(46)
    body.input("i", [], I64)
    body.input("go", [], BOOL)
    body.input("state", [1, 4, 6, 6])
    body.op("Tanh", body.op("Conv", "state", "w", "b", pads=[1] * 4), out="next")
    body.op("Identity", "go", out="go_on")
    body.output("go_on", [], BOOL)
    body.output("next", [1, 4, 6, 6])
    trips = net.const(np.asarray(3, np.int64))
    y = net.op("Loop", trips, "", x, body=body.graph("body"))
    net.conv(y, 4, 2, out="y")
    net.output("y", [1, 2, 6, 6])
    return net.data(opset=16)


def scan_body() -> bytes:
    """A running sum over the first axis."""
    net = Net(47)
    x = net.dense(net.input("x", [5, 4]), 4, 4)
    body = Net(48)
    body.input("total", [4])
    body.input("row", [4])
    body.op("Add", "total", "row", out="sum")
    body.op("Identity", "sum", out="seen")
    body.output("sum", [4])
    body.output("seen", [4])
    start = net.const(np.zeros(4, np.float32))
    last, every = net.op("Scan", start, x, out=["last", "every"], body=body.graph("body"), num_scan_inputs=1)
    net.output(last, [4])
    net.dense(every, 4, 3, out="y")
    net.output("y", [5, 3])
    return net.data(opset=16)


def captured_values() -> bytes:
    """A subgraph reads an activation that integer kernels read and write too, and a weight they share."""
    net = Net(49)
    net.input("x", [1, 4, 6, 6])
    net.weight(4, 4, 3, 3, name="shared")
    net.op("Relu", net.op("Conv", "x", "shared", pads=[1] * 4), out="inner value")
    bodies = {}
    for key, kind in (("then_branch", "Tanh"), ("else_branch", "Sigmoid")):
        body = Net(50)
        body.op(kind, body.op("Conv", "inner value", "shared", pads=[1] * 4), out="branch result")
        body.output("branch result", [1, 4, 6, 6])
        bodies[key] = body.graph(key)
    condition = net.op("Greater", net.op("ReduceMax", "x", keepdims=0), net.const(np.float32(0)))
    chosen = net.op("If", condition, **bodies)
    net.op("Add", net.conv("inner value", 4, 4), chosen, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data(opset=16)


def local_functions() -> bytes:
    """The layers are calls of model-local functions, one inside the other."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own.layers", 1)]
    act = helper.make_function(
        "own.layers", "Act", ["t"], ["r"], [helper.make_node("Relu", ["t"], ["r"])], opsets[:1]
    )
    nodes = [
        helper.make_node("Conv", ["t", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Act", ["c"], ["r"], domain="own.layers"),
    ]
    layer = helper.make_function("own.layers", "Layer", ["t", "w", "b"], ["r"], nodes, opsets)
    net = Net(51)
    x = net.input("x", [1, 3, 8, 8])
    for c_in, c_out in ((3, 6), (6, 6)):
        x = net.op("Layer", x, net.weight(c_out, c_in, 3, 3), net.vector(c_out), domain="own.layers")
    net.conv(x, 6, 2, out="y")
    net.output("y", [1, 2, 8, 8])
    return net.data(domains=["own.layers"], functions=[act, layer])


def contrib_operator() -> bytes:
    """Operators that only onnxruntime knows, between layers that anyone does."""
    net = Net(52)
    x = net.dense(net.input("x", [3, 8]), 8, 16)
    x = net.op("FusedGemm", x, net.weight(16, 16), net.vector(16), domain="com.microsoft", activation="Relu")
    x = net.op("BiasGelu", x, net.vector(16), domain="com.microsoft")
    net.dense(x, 16, 4, out="y")
    net.output("y", [3, 4])
    return net.data(domains=["com.microsoft"])


def custom_operator() -> bytes:
    """An operator that nobody here can run."""
    net = Net(53)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    x = net.op("DeformableConv", x, net.weight(4, 4, 3, 3), domain="acme.vision", name="deform 1")
    net.op("Relu", x, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data(domains=["acme.vision"])


def dead_custom_operator() -> bytes:
    """The same, but nothing reads its result."""
    net = Net(54)
    x = net.conv(net.input("x", [1, 3, 6, 6]), 3, 4)
    net.op("DebugDump", x, domain="acme.vision")
    net.op("Relu", x, out="y")
    net.output("y", [1, 4, 6, 6])
    return net.data(domains=["acme.vision"])


def unknown_operator() -> bytes:
    """An operator of the standard domain that no version of ONNX has."""
    net = Net(55)
    net.op("Convolve", net.input("x", [1, 3]), out="y", name="conv one")
    net.output("y", [1, 3])
    return net.data()


def weights_in_branches() -> bytes:
    """Constant nodes inside the branches of an If whose condition is an input."""
    net = Net(56)
    net.input("flag", [], BOOL)
    x = net.conv(net.input("x", [1, 3, 8, 8]), 3, 3)
    bodies = {}
    for key, seed in (("then_branch", 1), ("else_branch", 2)):
        body = Net(seed)
        value = (body.rng.standard_normal((4, 3, 1, 1))).astype(np.float32)
        tensor: TensorProto = numpy_helper.from_array(value, "")
        weight = body.op("Constant", value=tensor)
        body.op("Conv", x, weight, out="result")
        body.output("result", [1, 4, 8, 8])
        bodies[key] = body.graph(key)
    net.op("Relu", net.op("If", "flag", **bodies), out="y")
    net.output("y", [1, 4, 8, 8], F32)
    return net.data(opset=16)
