"""Operators on stored integers: read as ops on reals, they compute what onnxruntime does before it rounds."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from tests.conversion.files import run_onnxruntime

MS = "com.microsoft"
GRIDS = {"q": (np.float32(0.25), np.uint8(120)), "k": (np.float32(0.5), np.uint8(130))}
GOAL = (np.float32(0.75), np.uint8(100))
"""Scale and zero point of the operands, and of the result."""
Q, K, Y = ("q", "qs", "qz"), ("k", "ks", "kz"), ("ys", "yz")
IMAGE = (1, 2, 6, 6)
RNG = np.random.default_rng(5)
WEIGHT = RNG.integers(-100, 100, (3, 2, 3, 3)).astype(np.int8)
MATRIX = RNG.integers(-100, 100, (6, 4)).astype(np.int8)
CONV = {"w": WEIGHT, "ws": np.float32([0.02, 0.03, 0.01]), "wz": np.int8([0, 0, 0])}
DENSE = {"w": MATRIX, "ws": np.float32(0.02), "wz": np.int8(3)}
EACH = {"w": MATRIX, "ws": np.float32([0.02, 0.03, 0.01, 0.05]), "wz": np.int8([0, 0, 0, 0])}
W = ("w", "ws", "wz")
# Operator, operands, shape of each stored operand, attributes, constants, and whether the result is stored.
CASES = {
    "QLinearAdd": ((*Q, *K, *Y), IMAGE, {}, {}, True),
    "QLinearMul": ((*Q, *K, *Y), (2, 3), {}, {}, True),
    "QLinearConcat": ((*Y, *Q, *K), IMAGE, {"axis": 1}, {}, True),
    "QLinearWhere": (("p", *Q, *K, *Y), (2, 3), {}, {"p": np.array([[True, False, True]])}, True),
    "QLinearSigmoid": ((*Q, *Y), (2, 3), {}, {}, True),
    "QLinearLeakyRelu": ((*Q, *Y), (2, 3), {"alpha": 0.2}, {}, True),
    "QLinearAveragePool": ((*Q, *Y), IMAGE, {"kernel_shape": [2, 3], "strides": [2, 1]}, {}, True),
    "QLinearGlobalAveragePool": ((*Q, *Y), IMAGE, {"channels_last": 0}, {}, True),
    "QLinearConv": ((*Q, *W, *Y), IMAGE, {"pads": [1, 0, 1, 0]}, CONV, True),
    "QLinearConv, a bias": (
        *((*Q, *W, *Y, "b"), IMAGE, {}),
        *({**CONV, "b": np.int32([900, -500, 70])}, True),
    ),
    "QLinearMatMul": ((*Q, *W, *Y), (5, 6), {}, DENSE, True),
    "QLinearMatMul, each column": ((*Q, *W, *Y), (5, 6), {}, EACH, True),
    "QGemm": ((*Q, *W, "", *Y), (5, 6), {}, DENSE, True),
    "QGemm, a bias": ((*Q, *W, "b", *Y), (5, 6), {}, {**DENSE, "b": np.int32([9, -500, 70, 3])}, True),
    "QGemm, turned": ((*Q, *W, "", *Y), (5, 6), {"transB": 1}, {**DENSE, "w": MATRIX.T.copy()}, True),
    "QGemm, reals": ((*Q, *W, "b"), (5, 6), {}, {**DENSE, "b": np.int32([9, -500, 70, 3])}, False),
    "MatMulIntegerToFloat": (("q", "w", "qs", "ws", "qz", "wz"), (5, 6), {}, DENSE, False),
    "MatMulIntegerToFloat, each column": (("q", "w", "qs", "ws", "qz", "wz"), (5, 6), {}, EACH, False),
    "MatMulIntegerToFloat, a bias": (
        *(("q", "w", "qs", "ws", "qz", "wz", "b"), (5, 6), {}),
        *({**DENSE, "b": np.float32([1, -2, 3, 4])}, False),
    ),
}


def made(name):
    """A file that stores floats, runs one operator, and gives its result in floats."""
    operands, shape, attributes, constants, stored = CASES[name]
    kind = name.partition(",")[0]
    domain = "" if kind in ("QLinearConv", "QLinearMatMul") else MS
    sides = [side for side in GRIDS if side in operands]
    arrays = {f"{side}{part}": array for side in sides for part, array in zip("sz", GRIDS[side], strict=True)}
    arrays |= dict(zip(Y, GOAL, strict=True)) | constants
    nodes = [
        helper.make_node("QuantizeLinear", [f"x{side}", f"{side}s", f"{side}z"], [side], f"store_{side}")
        for side in sides
    ]
    nodes.append(
        helper.make_node(kind, operands, ["r" if stored else "y"], "op", domain=domain, **attributes)
    )
    if stored:
        nodes.append(helper.make_node("DequantizeLinear", ["r", *Y], ["y"], "back"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(f"x{side}", TensorProto.FLOAT, shape) for side in sides],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), key) for key, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    # On the grids of the operands, so that nothing is lost in front of the operator.
    stored_numbers = {side: RNG.integers(100, 150, shape) for side in sides}
    feeds = {
        f"x{side}": ((numbers - int(GRIDS[side][1])) * GRIDS[side][0]).astype(np.float32)
        for side, numbers in stored_numbers.items()
    }
    return data, feeds


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_operator_on_reals(name):
    data, feeds = made(name)
    graph = read_onnx(data)
    left = {op.type for op in graph.ops} & {node.op_type for node in onnx.load_from_string(data).graph.node}
    assert not left
    wanted, found = run_onnxruntime(data, feeds)["y"], run_onnxruntime(write_graph(graph), feeds)["y"]
    assert found.shape == wanted.shape
    low, high = ((end - int(GOAL[1])) * GOAL[0] for end in (0, 255))
    found = np.clip(found, low, high) if CASES[name][4] else found
    step = GOAL[0] if CASES[name][4] else 1e-3
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=0.51 * step)
