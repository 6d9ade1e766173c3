"""Layers and bodies that are read in another form: written again, they compute what the file computes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from tests.conversion.files import run_onnxruntime

T, B, X, H = 4, 2, 3, 5
"""Steps, samples, numbers of an input, numbers of a state."""
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def layer(kind, direction, layout, states, results):
    """A file of one recurrent layer, and what it is fed."""
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    rng = np.random.default_rng(1)
    arrays = {
        "w": rng.normal(size=(ways, gates * H, X)),
        "r": rng.normal(size=(ways, gates * H, H)),
        "b": rng.normal(size=(ways, 2 * gates * H)),
    }
    state, made = ((B, ways, H), (B, T, ways, H)) if layout else ((ways, B, H), (T, ways, B, H))
    shapes = {"x": (B, T, X) if layout else (T, B, X)}
    shapes |= dict.fromkeys(["h", "c"][: 1 + (kind == "LSTM")] if states else [], state)
    inputs = ["x", "w", "r", "b", "", *("h" if "h" in shapes else "", "c" if "c" in shapes else "")]
    while not inputs[-1]:
        inputs.pop()
    outputs = [name if name in results else "" for name in ("y", "yh", "yc")][: 2 + (kind == "LSTM")]
    node = helper.make_node(
        kind,
        inputs,
        outputs,
        "layer",
        direction=direction,
        hidden_size=H,
        **({"layout": 1} if layout else {}),
    )
    ports = {name: made if name == "y" else state for name in outputs if name}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return model.SerializeToString(), feeds


def time_first(data, feeds):
    """The same layer with time first: onnxruntime has no other; results are turned back."""
    model = onnx.load_from_string(data)
    (node,) = model.graph.node
    del node.attribute[[item.name for item in node.attribute].index("layout")]
    for port in (*model.graph.input, *model.graph.output):
        sizes = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        order = (1, 2, 0, 3) if port.name == "y" else (1, 0, 2)
        for dim, size in zip(port.type.tensor_type.shape.dim, [sizes[k] for k in order], strict=True):
            dim.dim_value = size
    turned = {name: np.ascontiguousarray(array.transpose(1, 0, 2)) for name, array in feeds.items()}
    found = run_onnxruntime(model.SerializeToString(), turned)
    return {
        name: array.transpose((2, 0, 1, 3) if name == "y" else (1, 0, 2)) for name, array in found.items()
    }


@pytest.mark.parametrize("results", [("y", "yh", "yc"), ("yh",), ("y",)], ids="-".join)
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_a_recurrent_layer(kind, direction, layout, states, results):
    data, feeds = layer(kind, direction, layout, states, results)
    wanted = time_first(data, feeds) if layout else run_onnxruntime(data, feeds)
    found = run_onnxruntime(write_graph(read_onnx(data)), feeds)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
BODIES = {
    "a loop": """g (float[2,3] x) => (float[2,3] y, float[4,2,3] all) <int64 n = {4}, bool go = {1}> {
        y, all = Loop (n, go, x)
            <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t, float[2,3] u)
            { d = Identity(c) t = Tanh(s) u = Add(t, x) }> }""",
    "a loop of two states": """g (float[2,3] x, float[3] z) => (float[2,3] y, float[3] w, float[2,3] all)
        <int64 n = {2}, bool go = {1}> {
        y, w, all = Loop (n, go, x, z)
            <body = b (int64 i, bool c, float[2,3] s, float[3] v) =>
            (bool d, float[2,3] t, float[3] q, float[3] k)
            { d = Identity(c) t = Add(s, v) q = Neg(v) k = Mul(v, v) }> }""",
    "a state that is handed on": """g (float[2,3] x) => (float[2,3] y, float[3,2,3] all)
        <int64 n = {3}, bool go = {1}> {
        y, all = Loop (n, go, x)
            <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] s, float[2,3] u)
            { d = Identity(c) u = Cos(s) }> }""",
    "a scan": """g (float[3] x, float[5,3] rows) => (float[3] y, float[5,3] all) {
        y, all = Scan (x, rows) <num_scan_inputs = 1,
            body = b (float[3] s, float[3] r) => (float[3] t, float[3] u)
            { t = Add(s, r) u = Sin(t) }> }""",
    "a scan from behind": """g (float[3] x, float[3,5] rows) => (float[3] y, float[3,5] all) {
        y, all = Scan (x, rows) <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_axes = [1], scan_output_directions = [1],
            body = b (float[3] s, float[3] r) => (float[3] t, float[3] u) { t = Add(s, r) u = Sin(t) }> }""",
    "branches": """g (float[2,3] x, bool p) => (float[2,3] y, float[2,3] z) {
        a = Exp(x)
        y, z = If (p) <then_branch = t () => (float[2,3] b, float[2,3] c) { b = Add(a, x) c = Neg(x) },
            else_branch = e () => (float[2,3] d, float[2,3] f) { d = Mul(a, a) f = Abs(x) }> }""",
    "branches in a loop": """g (float[2,3] x, bool p) => (float[2,3] y) <int64 n = {3}, bool go = {1}> {
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) {
            d = Identity(c)
            t = If (p) <then_branch = h () => (float[2,3] k) { k = Add(s, x) },
                else_branch = e () => (float[2,3] l) { l = Mul(s, x) }> }> }""",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body(name):
    model = onnx.parser.parse_model(f"{HEAD} {BODIES[name]}")
    data = model.SerializeToString()
    rng = np.random.default_rng(2)
    for flag in (True, False):
        feeds = {}
        for port in model.graph.input:
            kind = port.type.tensor_type
            sizes = [dim.dim_value for dim in kind.shape.dim]
            is_flag = kind.elem_type == TensorProto.BOOL
            feeds[port.name] = np.asarray(flag) if is_flag else rng.normal(size=sizes).astype(np.float32)
        wanted = run_onnxruntime(data, feeds)
        found = run_onnxruntime(write_graph(read_onnx(data)), feeds)
        for key, array in wanted.items():
            np.testing.assert_allclose(found[key], array, rtol=1e-5, atol=1e-6)
