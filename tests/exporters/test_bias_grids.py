"""A QAT net whose biases lie on finer grids than its weights: every format says what its file says."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.exporters.stablehlo.write import write_stablehlo_int
from planner.exporters.table import EXPORTERS
from tests.exporters.litert.running import runtime_target
from tests.exporters.tosa.running import fed
from tests.oracles import hlo, litert, tosa

QONNX = "qonnx.custom_op.general"
RNG = np.random.default_rng(3)
SAMPLES = [{"x": RNG.normal(size=(1, 16)).astype(np.float32)} for _ in range(8)]
FINE = 2.0**-8
FORMATS = (
    ("onnxruntime-cpu", "onnx-qdq", 5),
    ("onnxruntime-cpu", "onnx-qoperator", 8),
    ("onnxruntime-cpu", "onnx-qoperator-clip", 5),
    ("onnxruntime-cpu", "onnx-integer", 8),
    ("onnxruntime-cpu", "onnx-qcdq", 5),
    ("onnxruntime-cpu", "qonnx", 5),
    ("litert-int8", "onnx-qdq", 5),
    ("qnn-htp", "onnx-qdq", 8),
)
"""Targets, formats, bits of the activations: operators on stored integers have whole bytes."""


def net(bits=5):
    """Weights of 3 bits in steps of 1/4, activations in steps of 1/8, biases at odd multiples of 2^-8.

    So no sum lies half way between two steps of anything, whatever a device rounds.
    """
    rng, nodes, constants = np.random.default_rng(5), [], []

    def constant(name, array):
        constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def quant(name, x, scale, bits, signed):
        ports = [x, constant(f"{name}s", scale), constant(f"{name}z", 0), constant(f"{name}b", bits)]
        flags = {"signed": signed, "narrow": 0, "rounding_mode": "ROUND"}
        nodes.append(helper.make_node("Quant", ports, [name], name, domain=QONNX, **flags))
        return name

    x = quant("q0", "x", 0.125, bits, 1)
    for i, (rows, columns) in enumerate([(12, 16), (6, 12)]):
        w = quant(f"w{i}", constant(f"w{i}f", rng.integers(-3, 4, (rows, columns)) / 4), 0.25, 3, 1)
        b = constant(f"b{i}", (2 * rng.integers(-300, 300, rows) + 1) * FINE)
        nodes.append(helper.make_node("Gemm", [x, w, b], [f"y{i}"], f"fc{i}", transB=1))
        if i == 0:
            nodes.append(helper.make_node("Relu", ["y0"], ["r0"], "relu"))
            x = quant("q1", "r0", 0.125, bits, 0)
    quant("y", "y1", 0.125, 8, 1)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6])],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(QONNX, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def ready(target, bits=5):
    """The net planned for a target: its graph, the plan."""
    graph = planner.load_model(net(bits))
    graph = planner.annotate(graph, stats=planner.calibrate(graph, SAMPLES))
    plan = planner.plan(graph, target)
    kinds = [kernel.inputs[1].type for kernel in plan.kernels_in_order if len(kernel.inputs) == 3]
    assert [set(kind.scales) for kind in kinds] == [{2.0**-7}, {2.0**-7}]
    return graph, plan


def wanted(bits=5):
    """The results of the file as it is written."""
    return [planner.run(net(bits), sample)["y"] for sample in SAMPLES]


@pytest.mark.parametrize(("target", "form", "bits"), FORMATS)
def test_onnx(target, form, bits):
    graph, plan = ready(target, bits)
    data = EXPORTERS[form](graph, plan)
    found = planner.compare(graph, data, SAMPLES, exact_products=True)
    assert found.worst_sqnr == np.inf


def test_litert(tmp_path):
    graph, plan = ready(runtime_target(), 8)
    (found,) = litert.run(tmp_path, [(EXPORTERS["litert"](graph, plan), SAMPLES)])
    assert not isinstance(found, str), found
    for one, array in zip(found, wanted(8), strict=True):
        np.testing.assert_array_equal(one["y"], array)


def test_tosa(tmp_path):
    graph, plan = ready("tosa-int8")
    data = EXPORTERS["tosa"](graph, plan)
    (found,) = tosa.run(tmp_path, [(data, [fed(graph, plan, sample) for sample in SAMPLES])])
    assert not isinstance(found, str), found
    kind = plan.values["y"].type
    for (got,), array in zip(found, wanted(), strict=True):
        reals = got if got.dtype.kind == "f" else (got.astype(np.float32) - kind.zero_point) * kind.scale
        np.testing.assert_array_equal(reals, array)


def test_stablehlo():
    graph, plan = ready("stablehlo")
    jobs = [(write_stablehlo_int(graph, plan).decode(), [sample["x"]]) for sample in SAMPLES]
    for (got,), array in zip(hlo.evaluated(jobs), wanted(), strict=True):
        np.testing.assert_array_equal(got, array)


def test_the_net_is_one_that_loses_without():
    """Biases on the grid of the sums as the pins would have it: other numbers."""
    graph = planner.load_model(net())
    steps = graph.constants["b0"].array / (0.25 * 0.125)
    assert np.all(steps != np.rint(steps))
    onnx.checker.check_model(onnx.load_from_string(net()))
