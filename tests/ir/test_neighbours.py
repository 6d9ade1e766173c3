"""Neighbours in a sum: what they add up to, what scales that asks for, and that an engine pairs them so."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import PlanInvalid
from planner.ir.graph import Op
from planner.ir.operators.neighbours import greatest_pairs, least_scales
from tests.ir import engine_pairs

MOST = 128
"""Steps of a pair that 16 bits hold beside 255 of u8."""
CONVS = {
    "1x1": (6, 5, 1, 1),
    "odd": (4, 3, 3, 3),
    "even": (3, 4, 2, 3),
    "one channel": (5, 1, 3, 3),
    "1d": (2, 3, 4),
}


def op(kind, **attributes):
    return Op("n", kind, ("x", "w"), ("y",), attributes)


def pairs_by_hand(weight, order):
    """The greatest |a + b| of each channel; `order` turns a channel's weights into the order of its sum."""
    found = []
    for channel in weight:
        line = order(channel)
        found.append(max((abs(a + b) for a, b in zip(line[::2], line[1::2], strict=False)), default=0.0))
    return np.array(found)


@pytest.mark.parametrize("shape", CONVS.values(), ids=CONVS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_of_convolutions_positions_come_before_channels(shape, dtype):
    weight = np.random.default_rng(1).normal(size=shape).astype(dtype)
    wanted = pairs_by_hand(
        weight.astype(np.float64),
        lambda channel: [channel[(c, *at)] for at in np.ndindex(*shape[2:]) for c in range(shape[1])],
    )
    assert greatest_pairs(weight, op("Conv")) == pytest.approx(wanted)


@pytest.mark.parametrize("terms", [1, 2, 7, 600])
def test_of_matrices_rows_are_paired(terms):
    weight = np.random.default_rng(2).normal(size=(terms, 5))
    wanted = pairs_by_hand(weight.T, list)
    assert greatest_pairs(weight, op("MatMul")) == pytest.approx(wanted)
    assert greatest_pairs(weight, op("Gemm")) == pytest.approx(wanted)
    assert greatest_pairs(weight.T, op("Gemm", transB=1)) == pytest.approx(wanted)
    both = np.stack([weight, 2 * weight])
    assert greatest_pairs(both, op("MatMul")) == pytest.approx(2 * wanted)


def test_of_large_weights_all_pieces_count():
    weight = np.zeros((700, 1024), np.float32)
    weight[650, 3], weight[651, 3], weight[11, 900], weight[12, 900] = 1, 2, 5, 5
    found = greatest_pairs(weight, op("MatMul"))
    assert (found[3], found[900], found.sum()) == (3, 5, 8)


def test_what_adds_no_pairs():
    assert greatest_pairs(np.ones((4, 1, 3, 3)), op("Conv", group=4)) is None
    assert greatest_pairs(np.ones((4, 1, 3, 3)), op("ConvTranspose")) is None
    assert greatest_pairs(np.ones(4), op("Mul")) is None


def test_scales_leave_room_for_rounding_and_no_more_than_is_stored():
    rng = np.random.default_rng(3)
    for _ in range(200):
        weight = rng.normal(size=(int(rng.integers(2, 60)), 1)) * 10.0 ** rng.integers(-6, 6)
        farthest = np.abs(weight).max(axis=0)
        scale = np.maximum(least_scales(greatest_pairs(weight, op("MatMul")), farthest, MOST), farthest / 127)
        stored = np.rint(weight / scale)
        assert greatest_pairs(stored, op("MatMul"))[0] <= MOST
    assert least_scales(np.array([10.0]), np.array([2.0]), 101) == 0.04


def model_of(kind, rng, *, rank=2):
    """One product by weights that are large side by side, and a Relu."""
    if kind == "Conv":
        shape, x = (6, int(rng.integers(1, 6)), 3, 3), [1, 0, 8, 8]
        x[1] = shape[1]
    else:
        shape, x = (int(rng.integers(2, 40)), 6), [3, 0]
        x[1] = shape[0]
        shape = (2, *shape) if rank == 3 else shape
        x = [2, *x] if rank == 3 else x
    weight = rng.choice([-1, 1], shape) * rng.uniform(0.7, 1, shape)
    nodes = [helper.make_node(kind, ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    ends.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    graph = helper.make_graph(
        nodes, "m", ends[:1], ends[1:], [numpy_helper.from_array(weight.astype(np.float32), "w")]
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return data.SerializeToString(), [{"x": rng.uniform(0, 1, x).astype(np.float32)} for _ in range(3)]


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "MatMul", "MatMul of three axes"])
@pytest.mark.parametrize("seed", range(4))
def test_plans_keep_pairs_within_their_register_and_are_checked(kind, seed):
    rank = 3 if kind.endswith("axes") else 2
    data, samples = model_of(kind.split()[0], np.random.default_rng(seed), rank=rank)
    model = planner.load_model(data)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    plan = planner.plan(ready, "onnxruntime-cpu")
    planner.check(plan, ready, "onnxruntime-cpu")
    (kernel,) = plan.kernels_in_order
    weight = kernel.inputs[1]
    array = ready.constants["w"].array
    axis = weight.type.axis
    scales = np.asarray(weight.type.scales)
    scales = scales if axis is None else scales.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    product = next(one for one in ready.ops if one.type == kind.split()[0])
    stored = np.rint(array / scales)
    assert greatest_pairs(stored, product).max() <= MOST
    assert greatest_pairs(stored, product).max() >= MOST - 2, "no coarser than that"
    finer = replace(weight.type, scales=tuple(float(np.float32(scale * 0.9)) for scale in weight.type.scales))
    inputs = (kernel.inputs[0], replace(weight, type=finer), *kernel.inputs[2:])
    forged = replace(plan, kernels_in_order=(replace(kernel, inputs=inputs),))
    with pytest.raises(PlanInvalid):
        planner.check(forged, ready, "onnxruntime-cpu")


def test_onnxruntime_pairs_them_so():
    """In a process of its own: here all sessions have exact products (`tests.exact_products`)."""
    run = [sys.executable, "-m", engine_pairs.__name__]
    found = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert found["within"] == []
    assert found["depthwise"] == []
    # Elsewhere pairs are added in 32 bits, and none saturates.
    assert found["beyond"] in ([], found["tried"])


def test_a_file_is_the_same_with_and_without_optimisations_on_any_cpu(tmp_path):
    found = {}
    for kind in ("Conv", "Gemm", "MatMul"):
        data, samples = model_of(kind, np.random.default_rng(7))
        (tmp_path / f"{kind}.onnx").write_bytes(data)
        np.savez(tmp_path / f"{kind}.npz", x=np.stack([one["x"] for one in samples]))
        code = (
            "import sys, planner; name = sys.argv[1]; import numpy as np\n"
            "x = [{'x': one} for one in np.load(name + '.npz')['x']]\n"
            "done = planner.quantize(name + '.onnx', x, effort='quick')\n"
            "print(done.comparison.notes, done.comparison.worst_sqnr)"
        )
        run = [sys.executable, "-c", code, str(tmp_path / kind)]
        found[kind] = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert all(text.startswith("()") for text in found.values()), found
