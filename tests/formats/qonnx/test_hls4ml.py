"""Exports for hls4ml in its own C simulation: linear layers bit for bit, softmax as its tables have it."""

import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import write_graph
from planner.formats.qonnx.hls4ml import write_hls4ml
from planner.formats.qonnx.hls4ml_ops import READ
from planner.formats.qonnx.qonnx import write_qonnx
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.types.qtypes import Bipolar, Uniform, storage, uniform
from tests.formats.plans import i8, model, op, plan_of, u8
from tests.oracles.simulation import PYTHON, simulate, simulate_all

EXAMPLES = Path(__file__).parents[3] / "examples" / "digits"
RNG = np.random.default_rng(1)
# What hls4ml adds of its own: sums in float on one side, and tables of 1024 entries for softmax.
WITHIN = {"TFC_2W2A": 2e-4, "qkeras_jettagging": 0.011}


def small():
    """A convolution, an activation, a pool and a dense layer, planned, with samples."""
    ops = [
        op("Conv", "x w b", "c", pads=(1, 1, 1, 1)),
        op("Relu", "c", "r"),
        op("MaxPool", "r", "p", kernel_shape=(2, 2), strides=(2, 2)),
        op("Flatten", "p", "f"),
        op("Gemm", "f v d", "y"),
    ]
    shapes = {"w": (4, 2, 3, 3), "b": (4,), "v": (64, 5), "d": (5,)}
    constants = {name: RNG.normal(size=shape).astype(np.float32) * 0.3 for name, shape in shapes.items()}
    graph = model(ops, inputs={"x": (1, 2, 8, 8)}, outputs={"y": (1, 5)}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = RNG.normal(size=(8, 2, 8, 8)).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


def trained(path):
    """A model of the zoo, planned, with samples, and what its own file gives for them."""
    graph = planner.load_model(path)
    (name,) = graph.inputs
    samples = RNG.normal(size=(8, *graph.values[name].shape[1:])).astype(np.float32)
    runner = ModelRunner(read_written(path))
    results = [next(iter(runner.run({name: x[None]}).values())) for x in samples]
    return (
        planner.export(graph, planner.plan(graph, "hls4ml-fpga"), "hls4ml"),
        samples,
        np.concatenate(results),
    )


def nodes_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return onnx.load_from_string(archive.read("model.onnx")).graph.node


def digits():
    """The example, planned, with a few of its test images."""
    graph = planner.load_model(EXAMPLES / "digits.onnx")
    graph = planner.annotate(graph, stats=planner.calibrate(graph, EXAMPLES / "calibration.npz"))
    with np.load(EXAMPLES / "test.npz") as archive:
        return graph, planner.plan(graph, "hls4ml-fpga"), archive["image"][:8].reshape(-1, 1, 8, 8)


def test_the_ops_are_those_that_hls4ml_has_layers_for():
    if not PYTHON.exists():
        pytest.skip("no .oracles/hls4ml: run make oracles")
    code = (
        "from hls4ml.converters.onnx_to_hls import get_supported_onnx_layers as f; print('OPS', *sorted(f()))"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    words = next(line for line in done.stdout.splitlines() if line.startswith("OPS ")).split()[1:]
    # skipped in its reader, or turned into constants by QONNX's cleanup
    assert set(words) | {"Constant", "Dropout", "Identity"} == READ


def test_the_example_is_in_ops_that_hls4ml_reads():
    """Its Clip is Relus, its Concat of three joins two and two; the numbers stay those of the plan."""
    graph, plan, images = digits()
    data = planner.export(graph, plan, "hls4ml")
    nodes = nodes_of(data)
    assert {node.op_type for node in nodes} <= READ
    assert all(len(node.input) == 2 for node in nodes if node.op_type == "Concat")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    interpreter = Interpreter(graph, plan, arithmetic="float32_quant")
    for image in images:
        sample = {graph.inputs[0]: image[None]}
        wanted = interpreter.run(sample).outputs
        for name, array in runner.run(sample).items():
            np.testing.assert_allclose(array, wanted[name], rtol=0, atol=2e-4)


@pytest.mark.parametrize("y", [i8(0.0625), u8(0.0625), i8(0.25, 5)])
@pytest.mark.parametrize("low", [None, -9.0, -1.3, 0.0, 0.4])
@pytest.mark.parametrize("high", [None, 0.5, 1.03, 6.0, 900.0])
def test_a_clip_is_relus_and_differences(low, high, y):
    ends = {name: np.float32(end) for name, end in (("lo", low), ("hi", high)) if end is not None}
    names = " ".join(("x", "lo" if low is not None else "-", "hi" if high is not None else "-"))
    constants = {name: np.asarray(end) for name, end in ends.items()}
    x = np.linspace(-9, 9, 600, dtype=np.float32).reshape(1, -1)
    graph = model(
        [op("Clip", names, "y")], inputs={"x": x.shape}, outputs={"y": x.shape}, constants=constants
    )
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": i8(0.0625), "y": y}, "exact_even")
    data = write_hls4ml(graph, plan)
    assert "Clip" not in {node.op_type for node in nodes_of(data)}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (found,) = ModelRunner(read_written(archive.read("model.onnx"))).run({"x": x}).values()
    wanted = Interpreter(graph, plan).run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(found, wanted)


def test_an_op_without_a_layer_is_refused():
    graph = model([op("Erf", "x", "y")], inputs={"x": (1, 4)}, outputs={"y": (1, 4)}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": i8(0.0625), "y": i8(0.0625)}, "exact_even")
    with pytest.raises(
        UnsupportedExport, match=r"^Erf at 'op_y' \('y_float'\): hls4ml 1.3 has no layer for it; it reads"
    ):
        write_hls4ml(graph, plan)


def exported(ops, shape, constants):
    """A network that is planned with types of the target's own, as hls4ml's archive."""
    graph = model(ops, inputs={"x": shape}, outputs={"y": None}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = [{"x": RNG.normal(size=shape).astype(np.float32)}]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    return planner.export(graph, planner.plan(graph, "hls4ml-fpga"), "hls4ml")


COPIES = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
MISREAD = [
    ([op("PRelu", "x s", "y")], (1, 4), {"s": np.full(4, 0.3, np.float32)}, "reads no slopes"),
    ([op("Selu", "x", "y", alpha=1.0)], (1, 4), {}, "one alpha and gamma for all"),
    ([op("Softmax", "x", "y", axis=1)], (1, 4, 2, 2), {}, "over all numbers of a sample"),
    *(
        ([op("Relu", "x", "a"), op("Sigmoid", "x", "b"), op(kind, "x a b", "y")], (1, 4), {}, "joins two")
        for kind in ("Max", "Min")
    ),
    *(
        ([op("Conv", "x w", "c"), op("Resize", "c - s", "y", **COPIES, **more)], shape, consts, said)
        for shape, scales, more, said in (
            ((1, 2, 6, 5), (1, 1, 2, 2), {}, "copies each pixel of a square"),
            ((1, 2, 6, 6), (1, 1, 2, 3), {}, "as often along both sides"),
        )
        for consts in [{"w": np.ones((2, 2, 3, 3), np.float32), "s": np.array(scales, np.float32)}]
    ),
    (
        [op("Resize", "x - s", "y", **COPIES)],
        (1, 2, 6, 6),
        {"s": np.array([1, 1, 2, 2], np.float32)},
        "beside",
    ),
]


@pytest.mark.parametrize(("ops", "shape", "constants", "said"), MISREAD)
def test_what_hls4ml_reads_otherwise_is_refused_by_name(ops, shape, constants, said):
    """Its simulation ends in an error of its own, or gives other numbers."""
    with pytest.raises(UnsupportedExport, match=f"{ops[-1].type} at .*hls4ml 1.3 .*{said}"):
        exported(ops, shape, constants)


@pytest.mark.parametrize(("kind", "alpha"), [("Elu", 1.0), ("LeakyRelu", 0.01)])
def test_slopes_are_written_out(kind, alpha):
    """hls4ml gives an Elu without one that of a LeakyRelu: results below 0 were a hundredth of theirs."""
    (node,) = (node for node in nodes_of(exported([op(kind, "x", "y")], (1, 4), {})) if node.op_type == kind)
    assert onnx.helper.get_node_attr_value(node, "alpha") == np.float32(alpha)


def test_a_sum_of_two_on_one_odd_scale_is_multiplied_once():
    """hls4ml moves two equal factors behind the sum, and ends in an error of its own."""
    facts = {"a": ODD, "b": ODD, "y": uniform(storage("i8"), 0.02)}
    ops = [op("Relu", "x", "a"), op("LeakyRelu", "x", "b"), op("Add", "a b", "y")]
    graph, plan, samples = scaled(ops, {}, facts, ((1, 4), (1, 4)))
    data = planner.export(graph, plan, "hls4ml")
    nodes = {out: node for node in nodes_of(data) for out in node.output}
    (add,) = (node for node in nodes.values() if node.op_type == "Add")
    assert not [name for name in add.input if nodes[name].op_type == "Mul"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    found = np.concatenate([next(iter(runner.run({"x": x[None]}).values())) for x in samples])
    wanted = evaluated(graph, plan, samples) * np.float32(0.02)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_a_squeeze_is_a_reshape():
    kinds = [
        node.op_type
        for node in nodes_of(
            exported(
                [op("GlobalMaxPool", "x", "p"), op("Squeeze", "p a", "y")],
                (1, 4, 2, 2),
                {"a": np.array([2, 3], np.int64)},
            )
        )
    ]
    assert "Squeeze" not in kinds
    assert "Reshape" in kinds


PADS = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w": np.ones((2, 3, 3, 3), np.float32)}
"""Of an image, and a convolution behind it."""


@pytest.mark.parametrize(
    ("constants", "attributes", "said"),
    [
        ({"v": np.asarray(0.5, np.float32)}, {}, "pads with 0 alone, not a number"),
        ({"v": np.asarray(0, np.float32)}, {"mode": "reflect"}, "pads with 0 alone, not by reflect"),
        ({"v": np.asarray(0, np.float32)}, {}, "QONNX's conversion leaves the axes of a Pad as they were"),
    ],
)
def test_a_pad_that_hls4ml_refuses_is_refused_by_name(constants, attributes, said):
    """Each of these ended in an error of hls4ml's own, behind a file that looked right."""
    ops = [op("Pad", "x p v", "a", **attributes), op("Conv", "a w", "y")]
    graph = model(ops, inputs={"x": (1, 3, 8, 8)}, outputs={"y": (1, 2, 8, 8)}, constants=PADS | constants)
    graph = planner.load_model(write_graph(graph))
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)}]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    with pytest.raises(UnsupportedExport, match=f"Pad at .*hls4ml 1.3 .*{said}"):
        planner.export(graph, planner.plan(graph, "hls4ml-fpga"), "hls4ml")


def test_a_float_product_behind_a_scale_is_refused():
    """hls4ml moves the scale behind the product and ends in an error: kwsmlp_w3a3 without --data."""
    ops, constants = [op("MatMul", "x w", "y")], {"w": np.eye(4, dtype=np.float32)}
    graph, _, _ = scaled(ops, constants, {"x": ODD}, ((1, 4), (1, 4)))
    graph = planner.annotate(graph, kernels={graph.ops[0].name: "float"})
    with pytest.raises(
        UnsupportedExport, match=r"MatMul at .* in float behind the scale of .*hls4ml 1\.3 moves"
    ):
        planner.export(graph, planner.plan(graph, "hls4ml-fpga"), "hls4ml")


def signed(scale, threshold=0.0):
    """The sign of a value times a scale, as a BipolarQuant is read, and a product behind it."""
    ops = [
        op("GreaterOrEqual", "x t", "q"),
        op("Where", "q plus minus", "s"),
        op("MatMul", "s w", "y"),
    ]
    numbers = {"t": threshold, "plus": scale, "minus": -scale}
    constants = {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    constants["w"] = RNG.normal(size=(4, 3)).astype(np.float32)
    facts = {"s": (Bipolar("f32", scale),)}
    shapes = {"inputs": {"x": (5, 4)}, "outputs": {"y": (5, 3)}, "dtypes": {"q": "bool"}}
    graph = model(ops, **shapes, constants=constants, facts=facts)
    kernels = [(["q"], "x", "q"), (["s"], "-", "s"), (["y"], "s w", "y")]
    return graph, plan_of(graph, kernels, {"w": i8(2**-5)}, "exact_even")


@pytest.mark.parametrize(("threshold", "is_sign"), [(0.0, True), (0.5, False)])
def test_a_sign_is_written_as_one_quantizer(threshold, is_sign):
    graph, plan = signed(0.5, threshold)
    data = write_qonnx(graph, plan)
    kinds = [node.op_type for node in onnx.load_from_string(data).graph.node]
    assert ("Where" not in kinds) == ("GreaterOrEqual" not in kinds) == is_sign
    assert kinds.count("BipolarQuant") == 1
    x = RNG.normal(size=(5, 4)).astype(np.float32)
    x[0] = (0.0, -0.0, 0.5, 0.49)
    wanted = Interpreter(graph, plan, arithmetic="float32_quant").run({"x": x}).outputs["y"]
    (got,) = ModelRunner(read_written(data)).run({"x": x}).values()
    np.testing.assert_array_equal(got, wanted)


def test_signs_of_activations_are_refused():
    """In hls4ml's C simulation of bnn_model_fc_1layer 71 of 128 results had the other sign."""
    with pytest.raises(UnsupportedExport, match=r"^BipolarQuant at .*bits 0 and 1 for -1 and 1"):
        write_hls4ml(*signed(0.5))


POOLS = {
    "global": ((4, 4), op("GlobalAveragePool", "c", "y")),
    "one axis": ((8,), op("GlobalAveragePool", "c", "y")),
    "no power of two": ((3, 5), op("GlobalAveragePool", "c", "y")),
    "windows": ((7, 7), op("AveragePool", "c", "y", kernel_shape=(3, 3), strides=(2, 2))),
    "pads": (
        (8, 8),
        op("AveragePool", "c", "y", kernel_shape=(2, 2), strides=(2, 2), pads=(1,) * 4, count_include_pad=1),
    ),
    "largest": ((4, 6), op("GlobalMaxPool", "c", "y")),
}
EQUAL = ("global", "one axis", "largest")


def pooled(name):
    """A convolution and a pool, planned, with samples."""
    sizes, pool = POOLS[name]
    rng = np.random.default_rng(5)
    w = rng.normal(size=(3, 2, *(1,) * len(sizes))).astype(np.float32)
    shapes = {"inputs": {"x": (1, 2, *sizes)}, "outputs": {"y": (1, 3, *("abc"[: len(sizes)]))}}
    graph = planner.load_model(
        write_graph(model([op("Conv", "x w", "c"), pool], **shapes, constants={"w": w}))
    )
    # On a grid: hls4ml rounds an input twice.
    samples = np.round(64 * rng.normal(size=(8, 2, *sizes)).astype(np.float32)) / 64
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


def evaluated(graph, plan, samples, arithmetic="exact_even"):
    """What the plan gives in arithmetic of no float sums, as C has none."""
    interpreter = Interpreter(graph, plan, arithmetic=arithmetic)
    results = [interpreter.run({graph.inputs[0]: sample[None]}).outputs for sample in samples]
    return np.concatenate([next(iter(one.values())) for one in results])


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_a_convolution_or_a_window(name):
    """hls4ml mistakes the axes of its own; in the file the numbers stay those of the plan."""
    graph, plan, samples = pooled(name)
    data = planner.export(graph, plan, "hls4ml")
    assert {node.op_type for node in nodes_of(data)} <= {"Quant", "Conv", "MaxPool"}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    found = np.concatenate([next(iter(runner.run({"x": x[None]}).values())) for x in samples])
    np.testing.assert_array_equal(found, evaluated(graph, plan, samples, "float32_quant"))


@pytest.mark.parametrize(
    ("kind", "attributes", "sizes"),
    [
        ("GlobalAveragePool", {}, ("h", 4)),
        ("GlobalMaxPool", {}, (4, "w")),
        ("GlobalMaxPool", {}, (8,)),
        ("MaxPool", {"kernel_shape": (2,)}, (8,)),
        ("AveragePool", {"kernel_shape": (2, 2), "pads": (1, 1, 1, 1)}, (4, 4)),
        ("AveragePool", {"kernel_shape": (2, 2), "dilations": (2, 2)}, (4, 4)),
        ("AveragePool", {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}, (6, 6)),
    ],
)
def test_a_pool_of_another_kind_is_refused(kind, attributes, sizes):
    shapes = {"inputs": {"x": (1, 3, *sizes)}, "outputs": {"y": (1, 3, *("abc"[: len(sizes)]))}}
    graph = model([op(kind, "x", "y", **attributes)], **shapes, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": i8(0.0625), "y": i8(0.0625)}, "exact_even")
    with pytest.raises(
        UnsupportedExport, match=r"Pool at 'op_y.*hls4ml 1.3 (mistakes its axes|reads no MaxPool)"
    ):
        write_hls4ml(graph, plan)


@pytest.mark.soak
def test_the_c_simulation_pools_as_the_plans_do(tmp_path):
    plans = [pooled(name) for name in POOLS]
    found = simulate(
        tmp_path, [(planner.export(graph, plan, "hls4ml"), samples) for graph, plan, samples in plans]
    )
    assert not [one for one in found if isinstance(one, str)]
    for one, name, (graph, plan, samples) in zip(found, POOLS, plans, strict=True):
        wanted = evaluated(graph, plan, samples)
        # Weights of 1/n for other n than powers of two, and inputs that it rounds twice, may cost a step.
        step = 0.0 if name in EQUAL else plan.values["y"].type.scale
        np.testing.assert_allclose(one.reshape(wanted.shape), wanted, rtol=0, atol=1.001 * step)


def scaled(ops, constants, facts, shapes):
    """A plan of a model whose types have scales that are no powers of two, with samples."""
    graph = model(ops, inputs={"x": shapes[0]}, outputs={"y": shapes[1]}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    rng = np.random.default_rng(7)
    samples = (np.round(64 * rng.normal(size=(12, *shapes[0][1:]))) / 64).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    values = {n: replace(v, facts=(*v.facts, facts[n])) if n in facts else v for n, v in graph.values.items()}
    graph = replace(graph, values=values)
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


def per_channel():
    """A convolution with a scale per channel, a Clip, pools, and a sum of two branches, all on odd scales."""
    rng = np.random.default_rng(2)
    ops = [
        op("Conv", "x w b", "c", pads=(1, 1, 1, 1)),
        op("Clip", "c lo hi", "r"),
        op("MaxPool", "r", "p", kernel_shape=(2, 2), strides=(2, 2)),
        op("GlobalAveragePool", "p", "g"),
        op("GlobalMaxPool", "p", "h"),
        op("Add", "g h", "s"),
        op("Flatten", "s", "f"),
        op("Gemm", "f v d", "y"),
    ]
    scales = np.array([0.3, 0.05, 0.11, 0.7], np.float32)
    constants = {
        "w": (rng.integers(-3, 4, (4, 2, 3, 3)) * scales[:, None, None, None]).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
        "v": (rng.integers(-8, 8, (4, 5)) * np.float32(0.13)).astype(np.float32),
        "d": rng.normal(size=5).astype(np.float32),
        "lo": np.asarray(0.0, np.float32),
        "hi": np.asarray(1.9, np.float32),
    }
    odd = {name: uniform(storage(store), scale) for name, store, scale in (
        ("x", "i6", 0.11), ("r", "u5", 0.077), ("g", "u6", 0.021), ("h", "u6", 0.043), ("s", "u7", 0.029),
        ("v", "i4", 0.13), ("y", "i8", 0.31),
    )}  # fmt: skip
    odd["w"] = Uniform(storage("i3", -3, 3), tuple(map(float, scales)), (0,) * 4, axis=0)
    return scaled(ops, constants, odd, ((1, 2, 8, 8), (1, 5)))


def test_scales_of_any_kind_are_factors_behind_sums():
    """The file's numbers are the plan's, and every Quant of it is on a grid of a power of two."""
    graph, plan, samples = per_channel()
    assert plan.fully_quantized
    assert plan.values["r"].type.scale == np.float32(0.077)
    data = planner.export(graph, plan, "hls4ml")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        file = onnx.load_from_string(archive.read("model.onnx"))
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    numbers = {one.name: onnx.numpy_helper.to_array(one) for one in file.graph.initializer}
    quants = [node for node in file.graph.node if node.op_type == "Quant"]
    assert len(quants) > 6
    assert all(np.all(np.frexp(numbers[node.input[1]])[0] == 0.5) for node in quants)
    found = np.concatenate([next(iter(runner.run({"x": x[None]}).values())) for x in samples])
    # A pinned output is integers to the interpreter, and their reals in a file without stored tensors.
    wanted = evaluated(graph, plan, samples) * np.float32(plan.values["y"].type.scale)
    np.testing.assert_array_equal(found, wanted)


ODD = uniform(storage("i8"), 0.03)
# Ops, constants, pins; the pins of a value and of its port differ, a number is no port, a bias fills a word.
EDGES = {
    "a pin that is a power of two": (
        [op("Relu", "x", "y")],
        {},
        {"x": ODD, "y": uniform(storage("u4"), 0.25)},
    ),
    "a bias beyond a word": (
        [op("Gemm", "x w b", "y")],
        {"w": np.eye(4, dtype=np.float32) / 3, "b": np.array([3, 6, -6, 0], np.float32)},
        {"x": uniform(storage("i16"), 1.5 * 2**-15), "w": uniform(storage("i16"), 2.0**-15), "y": ODD},
    ),
    "zero points of powers of two": (
        [op("MatMul", "x w", "m"), op("Relu", "m", "y")],
        {"w": np.diag(np.arange(1, 5)).astype(np.float32) / 8},
        {"x": uniform(storage("i8"), 2.0**-4, 5), "w": i8(1 / 8), "y": uniform(storage("i6"), 2.0**-4, -9)},
    ),
    "a bias behind a product": (
        [op("MatMul", "x w", "m"), op("Add", "m b", "y")],
        {"w": np.eye(4, dtype=np.float32) / 4, "b": np.array([0.3, -0.7, 1.1, 0.01], np.float32)},
        {"x": ODD, "w": i8(1 / 8), "y": uniform(storage("i8"), 0.017)},
    ),
    "a reader on another scale than the pin": (
        [op("Relu", "x", "r"), op("Sigmoid", "x", "s"), op("Concat", "s s r", "y", axis=1)],
        {},
        {"x": uniform(storage("i4"), 0.25), "r": uniform(storage("i8"), 1.0), "s": ODD, "y": ODD},
    ),
}


def edge(name):
    """A plan of one of them, with samples, and the reals of what it gives."""
    ops, constants, facts = EDGES[name]
    size = {"Concat": 12}.get(ops[-1].type, 4)
    graph, plan, samples = scaled(ops, constants, facts, ((1, 4), (1, size)))
    scale, zero = (facts["y"].scale, facts["y"].zero_point) if "y" in facts else (1.0, 0)
    reals = (evaluated(graph, plan, samples).astype(np.float64) - zero) * np.float32(scale)
    return graph, plan, samples, reals


@pytest.mark.parametrize("name", EDGES)
def test_what_stands_beside_odd_scales(name):
    graph, plan, samples, wanted = edge(name)
    with zipfile.ZipFile(io.BytesIO(planner.export(graph, plan, "hls4ml"))) as archive:
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    found = np.concatenate([next(iter(runner.run({"x": x[None]}).values())) for x in samples])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("added", ["", "m b", "b m"])
def test_a_product_of_matrices_multiplies_stored_numbers(added):
    """Its factor is behind the sums and the bias, on whichever side that stands; three axes make no Gemm."""
    ops = [op("MatMul", "x w", "m" if added else "y"), *([op("Add", added, "y")] if added else [])]
    constants = {"w": np.eye(4, dtype=np.float32) / 4}
    constants |= {"b": np.array([0.3, -0.7, 1.1, 0.01], np.float32)} if added else {}
    # No sample is halfway between two steps of the input, where the rounded factor of the file decides.
    scales = {"x": 0.0307, "w": 0.007, "y": 0.017}
    odd = {name: uniform(storage("i8"), scale) for name, scale in scales.items()}
    graph, plan, samples = scaled(ops, constants, odd, ((1, 3, 4), (1, 3, 4)))
    data = planner.export(graph, plan, "hls4ml")
    makers = {name: node for node in nodes_of(data) for name in node.output}
    (product,) = (node for node in makers.values() if node.op_type == "MatMul")
    assert [makers[name].op_type for name in product.input] == ["Quant", "Quant"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        runner = ModelRunner(read_written(archive.read("model.onnx")))
    found = np.concatenate([next(iter(runner.run({"x": x[None]}).values())) for x in samples])
    wanted = evaluated(graph, plan, samples) * np.float32(odd["y"].scale)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.soak
def test_the_c_simulation_of_what_stands_beside_odd_scales(tmp_path):
    # A Sigmoid is a table there.
    cases = [edge(name) for name in EDGES if name != "a reader on another scale than the pin"]
    found = simulate(tmp_path, [(planner.export(*case[:2], "hls4ml"), case[2]) for case in cases])
    for got, (*_, wanted) in zip(found, cases, strict=True):
        assert not isinstance(got, str), got
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=1e-6)


def test_the_c_simulation_multiplies_as_the_plan_does(tmp_path):
    """Every number of a net on scales that are no powers of two, per tensor and per channel."""
    graph, plan, samples = per_channel()
    (found,) = simulate(tmp_path, [(planner.export(graph, plan, "hls4ml"), samples)])
    assert not isinstance(found, str), found
    wanted = evaluated(graph, plan, samples) * np.float32(plan.values["y"].type.scale)
    assert len(np.unique(wanted)) > 8
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.soak
@pytest.mark.parametrize("tail", [(), ("Relu",)])
def test_the_c_simulation_hands_on_sums_as_they_are(tmp_path, tail):
    """A float result of a product has the type of its accumulator, so no bit of it is lost."""
    ops = [op("Gemm", "x w b", "c" if tail else "y"), *(op(kind, "c", "y") for kind in tail)]
    arrays = {"w": RNG.normal(size=(16, 5)).astype(np.float32), "b": RNG.normal(size=5).astype(np.float32)}
    graph = model(ops, inputs={"x": (1, 16)}, outputs={"y": (1, 5)}, constants=arrays)
    types = {"x": i8(2**-5), "w": i8(2**-6), "b": uniform(storage("i32"), 2**-11)}
    plan = plan_of(graph, [([o.outputs[0] for o in ops], "x w b", "y")], types)
    # Within the guard bits of an input: 26.501 steps are 26.5 to them, a tie (docs/formats.md).
    samples = (np.rint(RNG.normal(size=(6, 16)) * 2**12) / 2**12).astype(np.float32)
    (got,) = simulate(tmp_path, [(write_hls4ml(graph, plan), samples)])
    wanted = [Interpreter(graph, plan).run({"x": x[None]}).outputs["y"] for x in samples]
    np.testing.assert_array_equal(np.asarray(got).reshape(6, 5), np.concatenate(wanted))


def test_the_c_simulation_computes_the_example(tmp_path):
    """Every logit is that of the plan; the probabilities are as softmax's tables have them, in any run."""
    _, _, images = digits()
    whole = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(onnx.load(EXAMPLES / "digits.onnx")))
    both = whole.extract_model(["image"], ["head/gemm_out", "probabilities"])
    graph = planner.load_model(both.SerializeToString())
    graph = planner.annotate(graph, stats=planner.calibrate(graph, EXAMPLES / "calibration.npz"))
    plan = planner.plan(graph, "hls4ml-fpga")
    samples = [{"image": x[None]} for x in images]
    (found,) = simulate_all(tmp_path, [(planner.export(graph, plan, "hls4ml"), samples)])
    assert not isinstance(found, str), found
    interpreter = Interpreter(graph, plan, arithmetic="exact_even")
    for image, outputs in zip(images, found.outputs, strict=True):
        wanted = interpreter.run({"image": image[None]}).outputs
        logits, probabilities = (outputs[name].reshape(wanted[name].shape) for name in wanted)
        np.testing.assert_array_equal(logits, wanted["head/gemm_out"])
        np.testing.assert_allclose(probabilities, wanted["probabilities"], rtol=0, atol=0.011)


@pytest.mark.soak
def test_the_c_simulation_computes_what_the_models_do(models, tmp_path):
    graph, plan, samples = small()
    assert plan.fully_quantized
    interpreter = Interpreter(graph, plan, arithmetic="float32_quant")
    wanted = [np.concatenate([interpreter.run({"x": x[None]}).outputs["y"] for x in samples])]
    exports = [(planner.export(graph, plan, "hls4ml"), samples)]
    for name in WITHIN:
        data, samples, results = trained(models / "qonnx" / f"{name}.onnx")
        exports.append((data, samples))
        wanted.append(results)
    first, *others = simulate(tmp_path, exports)
    np.testing.assert_array_equal(first, wanted[0])
    for atol, got, result in zip(WITHIN.values(), others, wanted[1:], strict=True):
        assert np.ptp(result) > 0.5
        np.testing.assert_allclose(got.reshape(result.shape), result, rtol=0, atol=atol)


def test_each_quantizer_has_parameters_of_its_own():
    """hls4ml removes them with the first Quant that it reads; jet tagging with calibrated ranges ended so."""
    graph, plan, _ = small()
    quants = [node for node in nodes_of(planner.export(graph, plan, "hls4ml")) if node.op_type == "Quant"]
    read = [name for node in quants for name in node.input[1:]]
    assert len(quants) > 3
    assert len(set(read)) == len(read)


def test_shapes_of_all_tensors_are_written():
    """hls4ml reads them from the file, and QONNX's cleanup had to infer them in front of it."""
    graph, plan, _ = small()
    with zipfile.ZipFile(io.BytesIO(planner.export(graph, plan, "hls4ml"))) as archive:
        file = onnx.load_from_string(archive.read("model.onnx")).graph
    shapes = {
        item.name: [size.dim_value for size in item.type.tensor_type.shape.dim] for item in file.value_info
    }
    made = {name for node in file.node for name in node.output} - {item.name for item in file.output}
    assert shapes.keys() == made
    assert [1, 4, 8, 8] in shapes.values()
    assert [1, 64] in shapes.values()


def one_layer(kind, *, side=8, width=64):
    """A convolution of a square picture, or a matrix, planned."""
    shapes = (
        {"x": (1, 2, side, side), "w": (2, 2, 3, 3)} if kind == "Conv" else {"x": (1, width), "w": (width, 5)}
    )
    ops = [op(kind, "x w", "y")]
    constants = {"w": RNG.normal(size=shapes["w"]).astype(np.float32)}
    graph = model(ops, inputs={"x": shapes["x"]}, outputs={"y": None}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    # Within the guard bits of an input, so that no tie is off (docs/formats.md).
    samples = (np.rint(RNG.normal(size=(2, *shapes["x"][1:])) * 2**8) / 2**8).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


@pytest.mark.parametrize(
    ("kind", "sizes", "io_type"),
    [
        ("Conv", {"side": 45}, "io_parallel"),  # 4,050 elements
        ("Conv", {"side": 46}, "io_stream"),  # 4,232 elements
        ("MatMul", {"width": 5000}, "io_parallel"),  # streams take a matrix's operand as one element
    ],
)
def test_pictures_too_large_for_registers_are_streamed(kind, sizes, io_type):
    graph, plan, _ = one_layer(kind, **sizes)
    with zipfile.ZipFile(io.BytesIO(planner.export(graph, plan, "hls4ml"))) as archive:
        assert json.loads(archive.read("hls_config.json"))["IOType"] == io_type


@pytest.mark.soak
def test_the_c_simulation_streams_pictures(tmp_path):
    graph, plan, samples = one_layer("Conv", side=46)
    (found,) = simulate(tmp_path, [(planner.export(graph, plan, "hls4ml"), samples)])
    assert not isinstance(found, str), found
    wanted = [planner.evaluate(graph, plan, {"x": x[None]}).outputs["y"] for x in samples]
    assert np.ptp(wanted[0]) > 1
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=0, atol=1e-6)


def resized():
    """Two Resizes by one factor between convolutions, with a rescale in front of each, planned."""
    ops = [
        op("Conv", "x v", "a"),
        op(
            "Resize",
            "a - s",
            "b",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        op("Conv", "b w", "c"),
        op(
            "Resize",
            "c - s",
            "d",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        op("Conv", "d w", "y"),
    ]
    constants = {name: RNG.normal(size=(2, 2, 3, 3)).astype(np.float32) for name in "vw"}
    constants["s"] = np.array([1, 1, 2, 2], np.float32)
    graph = model(ops, inputs={"x": (1, 2, 6, 6)}, outputs={"y": None}, constants=constants)
    graph = planner.load_model(write_graph(graph))
    samples = (np.rint(RNG.normal(size=(2, 2, 6, 6)) * 2**8) / 2**8).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x[None]} for x in samples]))
    pins = {"a": i8(2.0**-4), "c": i8(2.0**-1)}
    values = {
        name: replace(value, facts=(*value.facts, pins[name])) if name in pins else value
        for name, value in graph.values.items()
    }
    graph = replace(graph, values=values)
    return graph, planner.plan(graph, "hls4ml-fpga"), samples


def test_each_resize_has_a_region_and_scales_of_its_own():
    """hls4ml removes both with it, and asks whether the region is true; each Quant has its type."""
    graph, plan, _ = resized()
    with zipfile.ZipFile(io.BytesIO(planner.export(graph, plan, "hls4ml"))) as archive:
        file = onnx.load_from_string(archive.read("model.onnx")).graph
        layers = json.loads(archive.read("hls_config.json"))["LayerName"]
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in file.initializer}
    resizes = [node for node in file.node if node.op_type == "Resize"]
    parameters = [name for node in resizes for name in node.input[1:]]
    assert len(set(parameters)) == 4
    assert [arrays[name].tolist() for name in parameters] == [[0], [1, 2, 2, 1]] * 2
    read = {name for node in file.node for name in node.input}
    assert arrays.keys() <= read
    quants = [node for node in file.node if node.op_type == "Quant" and node.input[0] not in arrays]
    assert all("result" in layers[node.name]["Precision"] for node in quants)


@pytest.mark.soak
def test_the_c_simulation_resizes(tmp_path):
    graph, plan, samples = resized()
    (found,) = simulate(tmp_path, [(planner.export(graph, plan, "hls4ml"), samples)])
    assert not isinstance(found, str), found
    wanted = [planner.evaluate(graph, plan, {"x": x[None]}).outputs["y"] for x in samples]
    assert np.ptp(wanted[0]) > 1
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=0, atol=1e-6)


def test_no_constant_and_no_input_has_a_dot_in_its_name():
    """hls4ml replaces it where a constant is made, and not where a layer reads it: an AttributeError."""
    graph = model(
        [op("Gemm", "x.1 fc.weight fc.bias", "h"), op("Gemm", f"h {'long.' * 20}weight", "y")],
        inputs={"x.1": (1, 8)},
        outputs={"y": (1, 5)},
        constants={
            "fc.weight": RNG.normal(size=(8, 8)).astype(np.float32),
            "fc.bias": RNG.normal(size=8).astype(np.float32),
            f"{'long.' * 20}weight": RNG.normal(size=(8, 5)).astype(np.float32),
        },
    )
    graph = planner.load_model(write_graph(graph))
    samples = [{"x.1": RNG.normal(size=(1, 8)).astype(np.float32)} for _ in range(4)]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(graph, "hls4ml-fpga")
    with zipfile.ZipFile(io.BytesIO(planner.export(graph, plan, "hls4ml"))) as archive:
        data = archive.read("model.onnx")
        layers = json.loads(archive.read("hls_config.json"))["LayerName"]
    file = onnx.load_from_string(data).graph
    names = {item.name for item in file.initializer}
    assert len(names) == len(file.initializer) > 6
    assert not any("." in name for name in names)
    made = {name for node in file.node for name in node.output} | names | {item.name for item in file.input}
    assert {name for node in file.node for name in node.input} <= made
    assert [item.name for item in file.input] == ["x_1"]
    assert "x_1" in layers
    found = ModelRunner(read_written(data)).run({"x_1": samples[0]["x.1"]})
    np.testing.assert_allclose(
        found["y"], planner.evaluate(graph, plan, samples[0]).outputs["y"], rtol=0, atol=1e-4
    )
