"""Oracles multiply integers exactly, also where onnxruntime's kernels saturate (x86 without VNNI)."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # not the tests' exact one

from planner.formats.onnx.quantized.exact_products import with_exact_products
from planner.formats.onnx.read import read_written
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.write import write_graph

ELEMENTS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
ENDS = {np.uint8: (200, 256), np.int8: (90, 128)}
ONE = [np.float32(1.0)]


def product(kind, nodes, x, numbers, out):
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info("x", ELEMENTS[x.dtype.type], x.shape)],
        [helper.make_tensor_value_info("y", out, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def of_kind(kind, x, w):
    """A product of large numbers, its zero points absent or not, the weight a constant or computed."""
    scales = {"s": np.float32(1.0), "t": np.float32(500.0)}
    zeros = {"xz": np.zeros((), x.dtype), "wz": np.asarray(3, w.dtype), "yz": np.zeros((), x.dtype)}
    numbers = {"w": w, **scales, **zeros}
    operands, attributes = {
        "MatMulInteger": ("x w", {}),
        "MatMulInteger of a computed weight": ("x v", {}),
        "MatMulInteger with zero points": ("x w xz wz", {}),
        "ConvInteger": ("x w", {}),
        "QLinearConv": ("x s xz w s wz t yz", {}),
        "QLinearMatMul": ("x s xz w s wz t yz", {}),
        "MatMulIntegerToFloat": ("x w s s xz wz", {"domain": "com.microsoft"}),
        "QGemm": ("x s xz w s wz", {"domain": "com.microsoft"}),
    }[kind]
    if "computed" in kind:
        numbers |= {"axes": np.asarray([0, 1], np.int64), "whole": np.asarray(w.shape, np.int64)}
    name = kind.partition(" ")[0]
    nodes = [helper.make_node(name, operands.split(), ["y"], name="product", **attributes)]
    if "computed" in kind:
        nodes.insert(0, helper.make_node("Expand", ["w", "whole"], ["v"]))
    out = {"QLinearConv": x.dtype, "QLinearMatMul": x.dtype}.get(name)
    element = ELEMENTS[out.type] if out else TensorProto.INT32 if "Integer" in name else TensorProto.FLOAT
    element = TensorProto.FLOAT if name == "MatMulIntegerToFloat" else element
    return product(name, nodes, x, numbers, element), 3 if " wz" in operands else 0


def wanted(kind, x, w, zero):
    first, second = x.astype(np.int64), w.astype(np.int64) - zero
    is_window = "Conv" in kind
    sums = np.einsum("nchw,ochw->no", first, second)[:, :, None, None] if is_window else first @ second
    if kind.startswith("QLinear"):
        ends = np.iinfo(x.dtype)
        return np.clip(np.rint(sums / 500.0), ends.min, ends.max)
    return sums


@pytest.mark.parametrize(
    "pair", [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8), (np.int8, np.int8)]
)
@pytest.mark.parametrize(
    "kind",
    [
        *(
            "ConvInteger",
            "MatMulInteger",
            "MatMulInteger of a computed weight",
            "MatMulInteger with zero points",
        ),
        *("MatMulIntegerToFloat", "QGemm", "QLinearConv", "QLinearMatMul"),
    ],
)
def test_sums_are_exact(kind, pair):
    rng = np.random.default_rng(0)
    first, second = ((1, 8, 2, 2), (3, 8, 2, 2)) if "Conv" in kind else ((4, 32), (32, 3))
    x = rng.integers(*ENDS[pair[0]], first).astype(pair[0])
    w = (
        rng.integers(*ENDS[pair[1]], second) * (1 if pair[1] is np.uint8 else rng.choice((-1, 1), second))
    ).astype(pair[1])
    data, zero = of_kind(kind, x, w)
    graph = with_exact_products(infer(read_written(data)))
    session = InferenceSession(write_graph(graph), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted(kind, x, w, zero))


def test_products_of_one_type_stay():
    x, w = np.zeros((2, 4), np.uint8), np.zeros((4, 2), np.uint8)
    graph = infer(read_written(of_kind("MatMulInteger", x, w)[0]))
    assert with_exact_products(graph).ops == graph.ops
