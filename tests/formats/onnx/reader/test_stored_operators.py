"""Operators on stored integers: read as ops on reals, they compute what onnxruntime does before it rounds."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from planner.errors import ModelError
from planner.formats.onnx.quantized.dialect import STORED
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


SCHEMAS = {
    (one.domain, one.name): [port.name.lower() for port in one.inputs] for one in get_all_operator_schema()
}


@pytest.mark.parametrize("kind", STORED)
def test_places_of_operands_are_those_of_onnxruntimes_schemas(kind):
    domain, _, name = kind.rpartition("::")
    names, known = SCHEMAS[domain, name], STORED[kind]
    assert known.scales == tuple(i for i, one in enumerate(names) if one.endswith("_scale"))
    assert known.zeros == tuple(i for i, one in enumerate(names) if one.endswith("_zero_point"))
    if known.weight is not None:
        weight, zero = known.weight
        assert names[weight] in {"w", "b"}
        assert names[zero] == f"{names[weight]}_zero_point"


def product(kind, given, rows=5):
    """A file of one product of stored integers."""
    operands, kept = ("q", "w", "qz", "wz"), TensorProto.INT32
    if kind == "QLinearMatMul":
        operands, kept = ("q", "qs", "qz", "w", "ws", "wz", "ys", "yz"), TensorProto.UINT8
    graph = helper.make_graph(
        [helper.make_node(kind, operands, ["y"], "op")],
        "g",
        [helper.make_tensor_value_info("q", TensorProto.UINT8, (rows, 6))],
        [helper.make_tensor_value_info("y", kept, (rows, 4))],
        [numpy_helper.from_array(np.asarray(given[key]), key) for key in operands[1:]],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


COLUMNS = {
    "w": MATRIX,
    "ws": np.float32([0.02, 0.03, 0.01, 0.05]),
    "wz": np.int8([-3, 0, 5, 9]),
    "qs": np.float32(0.1),
    "qz": np.uint8(120),
    "ys": np.float32(0.9),
    "yz": np.uint8(100),
}


@pytest.mark.parametrize("kind", ["QLinearMatMul", "MatMulInteger"])
def test_columns_may_have_parameters_of_their_own(kind):
    """Of several zero points onnxruntime runs no QLinearMatMul, so the formula is the reference."""
    q = np.random.default_rng(3).integers(0, 256, (5, 6)).astype(np.uint8)
    found = run_onnxruntime(write_graph(read_onnx(product(kind, COLUMNS))), {"q": q})["y"]
    sums = (q.astype(np.int64) - 120) @ (MATRIX.astype(np.int64) - COLUMNS["wz"])
    scaled = np.clip(np.rint(sums * np.float64(0.1) * COLUMNS["ws"] / 0.9) + 100, 0, 255)
    wanted, off = (scaled, 1) if kind == "QLinearMatMul" else (sums, 0)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=off)


@pytest.mark.parametrize("shape", [(5,), (6,), (6, 1)])
@pytest.mark.parametrize(
    ("key", "words"), [("qs", "operand 1, a scale,"), ("qz", "operand 2, a zero point,")]
)
def test_rows_of_a_product_have_one_scale(key, words, shape):
    """ONNX allows each its own, which a vector says of rows as of columns; onnxruntime refuses them too."""
    many = np.ones(shape, np.asarray(COLUMNS[key]).dtype)
    with pytest.raises(ModelError) as caught:
        read_onnx(product("QLinearMatMul", {**COLUMNS, key: many}, rows=shape[0]))
    assert f"{words} has the shape {list(shape)}; accepted: one number" in str(caught.value)
