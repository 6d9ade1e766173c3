"""The face beside the main job: convert, run and cost of a file, by library."""

import numpy as np

import planner
from planner.onnx.read import read_written
from tests.conversion.files import file_of, quant_node


def test_convert_run_and_cost_take_a_file():
    node, arrays = quant_node("y", "x", scale=0.25, zero_point=0.0, bits=4)
    data = file_of([node], {"x": (1, [None])}, ["y"], arrays)
    x = np.linspace(-3, 3, 25, dtype=np.float32)
    done = planner.convert(data, "onnx-qcdq")
    kinds = [op.type for op in read_written(done).ops]
    assert kinds == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    wanted = planner.run(data, {"x": x})["y"]
    np.testing.assert_array_equal(planner.run(done, {"x": x})["y"], wanted)
    assert np.unique(wanted).size == 16
    assert planner.cost(data).macs == 0
