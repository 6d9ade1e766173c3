"""The benchmark of plans made by hand: what it asks of kernels, where its tables go, what it says of them."""

import argparse

import numpy as np
import onnx
from onnx import helper

import planner
from benchmarks.hand_made import by_hand, noisiest, placed, section, smooth
from benchmarks.shipped.data import Made
from benchmarks.shipped.sides import AIMET, LARGE, MODELOPT, large_sides

GIVEN = argparse.Namespace(target="onnxruntime-cpu", cut=5)


def gated():
    """A convolution, `x * Sigmoid(x)`, and a product of two other values."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Sigmoid", ["a"], ["s"], name="gate"),
        helper.make_node("Mul", ["a", "s"], ["b"], name="gated"),
        helper.make_node("Conv", ["b", "v"], ["c"], name="next"),
        helper.make_node("Mul", ["c", "b"], ["y"], name="plain"),
    ]
    shape = [1, 3, 6, 6]
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal((3, 3, 1, 1)).astype(np.float32), name)
        for name in ("w", "v")
    ]
    graph = helper.make_graph(
        nodes,
        "gated",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return made.SerializeToString(), [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]


def test_of_a_gate_the_product_is_smooth_as_well(tmp_path):
    data, feeds = gated()
    path = tmp_path / "gated.onnx"
    path.write_bytes(data)
    first = planner.quantize(path, feeds, effort="quick")
    assert smooth(first.plan) == ["gate", "gated"]
    worst = noisiest(first, path, feeds)
    assert set(worst) <= {kernel.name for kernel in first.plan.kernels_in_order}
    assert worst
    made = Made(path, feeds, lambda _: 1.0, feeds[0])
    both = by_hand("both", first, made, "float")
    assert both.keys() == {*worst, "gate", "gated"}
    kept = planner.quantize(path, feeds, effort="quick", kernels=by_hand("smooth", first, made, "float"))
    rows = {kernel.outputs[0].value: kernel.row for kernel in kept.plan.kernels_in_order}
    assert rows["b"] is None
    assert rows["a"] is not None


def test_a_table_takes_the_place_of_an_older_one():
    page = placed("# Page\n", "a", "t", "### a, t\n\nold")
    page = placed(page, "b", "t", "### b, t\n\nother")
    assert placed(page, "a", "t", "### a, t\n\nnew") == "# Page\n\n### a, t\n\nnew\n\n### b, t\n\nother\n"


def test_what_is_missing_is_blank_and_said():
    whole = {"metric": 0.5, "sqnr": 20.0, "work": 0.1, "integers": 0.9, "size": 2_000_000, "asked": 3}
    whole |= {"trials": 16, "seconds": 400.0, "processor_s": 100.0, "rss_mb": 900.0, "others": 0.75}
    whole |= {"digest": "a", "given_up": "one for the other"}
    again = whole | {"digest": "b", "workers_mb": [300.0, 310.0]}
    failed = {"failed": "no such op", "seconds": 3.0, "others": 0.1}
    found = section("minilm", {"search": whole, "dask": again, "AIMET": failed}, GIVEN)
    assert "| 0.500 | 20.0 | 10.0% | 90% | 2.00 | 3 | 16 | 400 | 100 | 900 | 75% |" in found
    assert "900 + 300 + 310" in found
    assert "| AIMET |  |  |  |  |  |  |  | 3 |  |  | 10% |" in found
    assert "- AIMET: no such op." in found
    assert "less than 300 s, by the clock more" in found
    assert "Another file: with Dask, 2 workers." in found


def test_large_peers_are_measured_where_they_are_or_are_asked_for(tmp_path):
    assert large_sides(tmp_path, is_asked=False) == {}
    assert large_sides(tmp_path, is_asked=True).keys() == LARGE.keys()
    folder = tmp_path / "environments" / "aimet"
    folder.mkdir(parents=True)
    (folder / AIMET.name).write_bytes(AIMET.read_bytes())
    assert large_sides(tmp_path, is_asked=False).keys() == {"AIMET", "AIMET, mixed"}
    (folder / AIMET.name).write_bytes(MODELOPT.read_bytes())
    assert large_sides(tmp_path, is_asked=False) == {}
