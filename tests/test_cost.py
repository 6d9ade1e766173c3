"""Cost: the paper's table III, qonnx's own count, and ops that neither counts."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.costs import MODES, cost_of
from planner.errors import UnknownName
from planner.onnx.read import read_written
from tests.conversion.files import file_of, quant_node
from tests.oracles.executor import ask

# QONNX paper, table III: multiply-accumulates, bit operations, weights, weight bits.
TABLE_III = {
    "TFC_1W1A": (59_008, 59_008, 59_008, 59_008),
    "TFC_1W2A": (59_008, 118_016, 59_008, 59_008),
    "TFC_2W2A": (59_008, 236_032, 59_008, 118_016),
}
COUNTED_BY_QONNX = (*TABLE_III, "bnn_model_fc_1layer", "espcn_subpixel_quant", "kwsmlp_w3a3",
                    "qkeras_jettagging", "unsw_nb15-mlp-w2a2")  # fmt: skip


@pytest.mark.parametrize("name", TABLE_III)
def test_rows_of_the_papers_table(models, name):
    found = cost_of(read_written(models / "qonnx" / f"{name}.onnx"), "table3")
    assert (found.macs, found.bops, found.weights, found.weight_bits) == TABLE_III[name]


def test_the_qonnx_mode_counts_as_qonnx_does(models, tmp_path):
    paths = [models / "qonnx" / f"{name}.onnx" for name in COUNTED_BY_QONNX]
    answers = ask(tmp_path, [{"cost": str(path)} for path in paths])
    for path, answer in zip(paths, answers, strict=True):
        found = cost_of(read_written(path))
        ours = {"macs": found.macs, "bops": found.bops, "weight_bits": found.weight_bits}
        assert ours == {key: float(array) for key, array in answer.items()}, path.name


def layer(node, inputs, arrays, mode="qonnx"):
    data = file_of([node], inputs, [node.output[0]], arrays)
    (found,) = [item for item in cost_of(read_written(data), mode).layers if item.macs]
    return found


@pytest.mark.parametrize(
    ("kind", "attributes", "shape", "weight", "macs"),
    [
        ("Conv", {"kernel_shape": [3, 3]}, (1, 4, 8, 8), (6, 4, 3, 3), 6 * 36 * 36),
        ("Conv", {"kernel_shape": [3, 3], "group": 4}, (1, 4, 8, 8), (4, 1, 3, 3), 4 * 36 * 9),
        ("ConvTranspose", {"kernel_shape": [2, 2]}, (1, 4, 8, 8), (4, 6, 2, 2), 4 * 64 * 24),
        ("MatMul", {}, (5, 3, 7), (7, 2), 5 * 3 * 2 * 7),
        ("Gemm", {"transA": 1}, (7, 3), (7, 2), 3 * 2 * 7),
        ("Einsum", {"equation": "bij,jk->bik"}, (5, 3, 7), (7, 2), 5 * 3 * 2 * 7),
    ],
)
def test_ops_that_multiply(kind, attributes, shape, weight, macs):
    node = helper.make_node(kind, ["x", "w"], ["y"], "layer", **attributes)
    found = layer(node, {"x": (TensorProto.FLOAT, shape)}, {"w": np.ones(weight, np.float32)})
    assert (found.macs, found.bops, found.weights) == (macs, macs * 1024, np.prod(weight))


def test_recurrent_layers_multiply_input_and_state():
    arrays = {"w": np.ones((1, 20, 3), np.float32), "r": np.ones((1, 20, 5), np.float32)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], "layer", hidden_size=5)
    assert layer(node, {"x": (TensorProto.FLOAT, [7, 2, 3])}, arrays).macs == 7 * 2 * 20 * (3 + 5)


@pytest.mark.parametrize(
    ("mode", "per_mac"), [("qonnx", 4 * 3), ("table3", 32 * 3), ("eq5", 4 * 3 + 4 + 3 + 3)]
)
def test_modes_count_widths_each_in_its_way(mode, per_mac):
    first, arrays = quant_node("a", "x", scale=0.5, zero_point=0.0, bits=4)
    second, more = quant_node("b", "w", scale=1.0, zero_point=0.0, bits=3)
    nodes = [first, second, helper.make_node("MatMul", ["a", "b"], ["y"], "layer")]
    data = file_of(
        nodes, {"x": (TensorProto.FLOAT, [1, 8])}, ["y"], {**arrays, **more, "w": np.ones((8, 2), np.float32)}
    )
    found = cost_of(read_written(data), mode)
    assert (found.macs, found.bops) == (16, 16 * per_mac)


def test_integer_operators_count_their_element_types():
    arrays = {"w": np.ones((4, 2), np.int8)}
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], "layer")
    data = file_of([node], {"x": (TensorProto.UINT8, [1, 4])}, ["y"], arrays, types={"y": TensorProto.INT32})
    (found,) = cost_of(read_written(data)).layers
    assert (found.macs, found.bits_a, found.bits_w, found.weight_bits) == (8, 8, 8, 64)


def test_an_unknown_mode_is_named():
    data = file_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [1])}, ["y"], {})
    with pytest.raises(UnknownName, match="unknown cost mode 'eq6'"):
        cost_of(read_written(data), "eq6")
    assert [cost_of(read_written(data), mode).macs for mode in MODES] == [0, 0, 0]
