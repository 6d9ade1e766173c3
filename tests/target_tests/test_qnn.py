"""Qualcomm's HTP library: it takes what is written for its targets, and gives the interpreter's integers."""

import re
import subprocess

import numpy as np
import onnx
import pytest

import planner
from planner.interpreter.calls import Operand
from planner.interpreter.kernels.htp import added, multiplied
from planner.ir.types.qtypes import storage, uniform
from planner.target.load import load_target
from planner.target_tests.engines.table import ENGINES
from planner.target_tests.row_probe import probe_rows
from tests.oracles import qnn
from tests.oracles.qnn import PYTHON, ROOT

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no .oracles/qnn: run make oracles")
DIGITS = ROOT / "examples" / "digits"
SIXTEEN = ("Elu", "Exp", "Gelu", "HardSwish", "LeakyRelu", "Sigmoid", "Softmax", "Sqrt", "Tanh", "divide")
"""Kernels whose rows of 16 bits are further from the interpreter than one step."""
EXACT = ("conv2d", "depthwise_conv2d", "fully_connected", "transpose_conv2d")


def digits(target, **more):
    with np.load(DIGITS / "calibration.npz") as archive:
        images = archive["image"]
    model = planner.load_model(DIGITS / "digits.onnx", **more)
    graph = planner.annotate(
        model, stats=planner.calibrate(model, [{"image": one[None]} for one in images[:16]])
    )
    return graph, planner.plan(graph, target), [{"image": one[None]} for one in images[16:24]]


def verdicts(target, kernels):
    found = probe_rows(load_target(target), ENGINES["qnn"], python=str(PYTHON), kernels=kernels)
    return {finding.name: finding.verdict for finding in found}


def test_products_have_every_integer_of_the_library():
    """A few rows of each width, in the arithmetic `htp`."""
    found = verdicts("qnn-htp", ["transpose_conv2d"])
    assert len(found) == 12
    assert set(found.values()) == {"integers"}


@pytest.mark.parametrize(("kind", "sign"), [("Add", 1), ("Sub", -1)])
@pytest.mark.parametrize("bits", [8, 16])
def test_additions_have_every_integer_of_the_library(tmp_path, bits, kind, sign):
    """All pairs of bytes, and as many of words, in scales of every size."""
    rng, most = np.random.default_rng(bits), (1 << bits) - 1
    pairs = (
        np.meshgrid(np.arange(256), np.arange(256)) if bits == 8 else rng.integers(0, most + 1, (2, 256, 256))
    )
    a, b = (np.reshape(side, (1, 16, 64, 64)).astype(f"uint{bits}") for side in pairs)
    kinds = []
    for total in (0.03, 0.4, 0.7, 0.97, 1.3, 1.9, 2.5, 5.0):
        share, zeros = rng.uniform(0.1, 0.9), rng.integers(0, most + 1, 2).tolist()
        ratios = total * share, sign * total * (1 - share)
        middle = round(most / 2 - sum(r * (most / 2 - z) for r, z in zip(ratios, zeros, strict=True)))
        triple = zip((*ratios, 1.0), (*zeros, min(max(middle, 0), most)), strict=True)
        kinds.append([uniform(storage(f"u{bits}"), abs(r) * 0.0123, int(z)) for r, z in triple])
    data = pairwise(kind, kinds, a.shape)
    sample = {f"{side}{k}": array for k in range(len(kinds)) for side, array in (("a", a), ("b", b))}
    (found,) = qnn.run(tmp_path, [(data, [sample])])
    assert (found.partitions, found.told()) == (1, ())
    for k, (x, y, z) in enumerate(kinds):
        wanted = added(Operand(a, x), Operand(b, y), z, sign=sign)
        np.testing.assert_array_equal(found.outputs[0][f"y{k}"], wanted)


@pytest.mark.parametrize("bits", [8, 16])
def test_products_of_tensors_have_every_integer_of_the_library(tmp_path, bits):
    """All pairs of bytes, and as many of words, in scales of every size."""
    rng, most = np.random.default_rng(bits), (1 << bits) - 1
    pairs = (
        np.meshgrid(np.arange(256), np.arange(256)) if bits == 8 else rng.integers(0, most + 1, (2, 256, 256))
    )
    a, b = (np.asarray(side, f"uint{bits}") for side in pairs)
    kinds = []
    for low, high in (
        [(-10, -5)] * 4 + [(-14, -10), (-4, 0)] if bits == 8 else [(-18, -14)] * 4 + [(-24, -18)]
    ):
        scales = 2.0 ** rng.uniform(-9, -3, 2)
        scales = [*scales, scales[0] * scales[1] / 2.0 ** rng.uniform(low, high)]
        zeros = rng.integers(0, most + 1, 3)
        kinds.append(
            [uniform(storage(f"u{bits}"), float(s), int(z)) for s, z in zip(scales, zeros, strict=True)]
        )
    data = pairwise("Mul", kinds, a.shape)
    sample = {f"{side}{k}": array for k in range(len(kinds)) for side, array in (("a", a), ("b", b))}
    (found,) = qnn.run(tmp_path, [(data, [sample])])
    assert (found.partitions, found.told()) == (1, ())
    for k, (x, y, z) in enumerate(kinds):
        wanted = multiplied(Operand(a, x), Operand(b, y), z)
        np.testing.assert_array_equal(found.outputs[0][f"y{k}"], wanted)


def pairwise(kind, kinds, shape):
    """A model of an operator on two stored tensors, once for each three types."""
    nodes, constants, ports = [], [], {"a": [], "b": [], "y": []}
    for k, types in enumerate(kinds):
        for side, one in zip(ports, types, strict=True):
            stored = np.asarray(one.zero_point, f"uint{one.storage.bits}")
            constants += [
                onnx.numpy_helper.from_array(np.asarray(one.scale, np.float32), f"{side}{k}_scale"),
                onnx.numpy_helper.from_array(stored, f"{side}{k}_zero"),
            ]
            element = onnx.helper.np_dtype_to_tensor_dtype(stored.dtype)
            ports[side].append(onnx.helper.make_tensor_value_info(f"{side}{k}", element, shape))
            ends = (f"{side}{k}", f"{side}{k}_real")
            name, result = ends if side != "y" else ends[::-1]
            nodes.append(
                onnx.helper.make_node(
                    "QuantizeLinear" if side == "y" else "DequantizeLinear",
                    [name, f"{side}{k}_scale", f"{side}{k}_zero"],
                    [result],
                )
            )
        nodes.insert(-1, onnx.helper.make_node(kind, [f"a{k}_real", f"b{k}_real"], [f"y{k}_real"]))
    graph = onnx.helper.make_graph(nodes, "pairs", [*ports["a"], *ports["b"]], ports["y"], constants)
    opset = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


def run_planned(tmp_path, nodes, weights, shape, *, target="qnn-htp"):
    """The outputs of the library and of the interpreter, for a float model planned on samples of it."""
    rng = np.random.default_rng(0)
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
        for name, size in (("x", shape), ("y", None))
    ]
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "small", ports[:1], ports[1:], arrays)
    opset = [onnx.helper.make_opsetid("", 21)]
    path = tmp_path / "small.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    samples = [{"x": rng.normal(0.3, 2, shape).astype(np.float32)} for _ in range(4)]
    model = planner.load_model(path)
    known = planner.annotate(model, stats=planner.calibrate(model, samples))
    plan = planner.plan(known, target)
    (found,) = qnn.run(tmp_path, [(planner.export(known, plan, "onnx-qdq"), samples[:1])])
    assert (found.partitions, found.told()) == (1, ())
    return found.outputs[0]["y"], planner.evaluate(known, plan, samples[0]).outputs["y"]


@pytest.mark.parametrize(
    ("target", "sides", "off"),
    [
        ("qnn-htp", (3, 3), 0),
        ("qnn-htp", (7, 4), 0),
        ("qnn-htp", (9, 9), 0),
        ("hexagon-a16w8", (3, 3), 0),
        ("hexagon-a16w8", (5, 5), 0),
        ("hexagon-a16w8", (7, 4), 0),
    ],
)
def test_depthwise_convolutions_of_stride_2_have_every_integer(tmp_path, sides, target, off):
    """Beyond a side of 7 they are as others; words, whose sides are odd and equal, may be a step off."""
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.normal(0, 0.3, (16, 1, *sides)).astype(np.float32),
        "b": rng.normal(0, 0.5, 16).astype(np.float32),
    }
    pads = [side // 2 for side in sides] * 2
    conv = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], group=16, strides=[2, 2], pads=pads)
    given, wanted = run_planned(tmp_path, [conv], weights, (1, 16, 32, 32), target=target)
    np.testing.assert_allclose(given, wanted, rtol=0, atol=off)


@pytest.mark.parametrize("size", [48, 100, 256])
def test_normalizations_have_every_integer_of_the_library(tmp_path, size):
    rng = np.random.default_rng(size)
    weights = {
        "w": rng.normal(1, 0.3, size).astype(np.float32),
        "b": rng.normal(0, 0.5, size).astype(np.float32),
    }
    norm = onnx.helper.make_node("LayerNormalization", ["x", "w", "b"], ["y"])
    given, wanted = run_planned(tmp_path, [norm], weights, (1, 128, size))
    np.testing.assert_array_equal(given, wanted)


def test_x_times_its_sigmoid_is_one_operator(tmp_path):
    nodes = [onnx.helper.make_node("Sigmoid", ["x"], ["s"]), onnx.helper.make_node("Mul", ["x", "s"], ["y"])]
    given, wanted = run_planned(tmp_path, nodes, {}, (1, 16, 32, 32))
    np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize(("side", "stride"), [(1, 1), (2, 2)])
def test_depthwise_convolutions_that_end_the_compilation_run_in_float(tmp_path, side, stride):
    weights = {"w": np.random.default_rng(1).normal(0, 0.3, (16, 1, side, side)).astype(np.float32)}
    conv = onnx.helper.make_node("Conv", ["x", "w"], ["y"], group=16, strides=[stride, stride])
    given, wanted = run_planned(tmp_path, [conv], weights, (1, 16, 32, 32))
    np.testing.assert_allclose(given, wanted, atol=0.01)


def test_channels_of_zeros_keep_their_biases(tmp_path):
    """A weight scale of 1e-8 would make 65535 of them."""
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.normal(0, 0.3, (8, 4, 1, 1)).astype(np.float32),
        "b": rng.normal(0, 0.5, 8).astype(np.float32),
    }
    weights["w"][::2] *= 1e-30
    weights["b"][::2] = (0.0004, 0.003, 0.4, -0.2)
    conv = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"])
    given, wanted = run_planned(tmp_path, [conv], weights, (1, 4, 16, 16), target="hexagon-a16w8")
    np.testing.assert_allclose(given, wanted, atol=1e-3)


def test_a_mask_of_the_least_float_leaves_scores(tmp_path):
    """An addition of bytes would give one number everywhere, and its softmax 1/16."""
    mask = np.where(np.tri(16), 0, np.finfo(np.float32).min).astype(np.float32)
    nodes = [
        onnx.helper.make_node("Add", ["x", "mask"], ["s"]),
        onnx.helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    given, wanted = run_planned(tmp_path, nodes, {"mask": mask}, (1, 2, 16, 16))
    np.testing.assert_allclose(given, wanted, atol=0.006)


def test_rows_that_the_library_takes_in_a_form_of_its_own():
    """Signed weights of a LayerNormalization, a Clip of bytes and a lone Transpose would be refused."""
    found = verdicts("qnn-htp", ["Clip", "HardSigmoid", "LayerNormalization", "Relu", "Transpose", "Where"])
    assert set(found.values()) <= {"integers", "one step"}
    assert {name for name, verdict in found.items() if verdict == "one step"} <= {"LayerNormalization-2"}


@pytest.mark.parametrize("target", ["qnn-htp", "hexagon-a16w8"])
def test_the_digits_run_as_one_graph(tmp_path, target):
    graph, plan, samples = digits(target, dims={"N": 1})
    (found,) = qnn.run(tmp_path, [(planner.export(graph, plan, "onnx-qdq"), samples)])
    assert (found.partitions, found.told(), found.refused) == (1, (), {})
    for sample, outputs in zip(samples, found.outputs, strict=True):
        (wanted,) = planner.evaluate(graph, plan, sample).outputs.values()
        (given,) = outputs.values()
        assert np.abs(given - wanted).max() < 0.006, "more than one and a half steps of 8 bits"


def test_an_open_batch_is_refused_and_the_plan_says_so_before(tmp_path):
    graph, plan, samples = digits("qnn-htp")
    fixed = [note for note in plan.graph.notes if "sizes" in note or "N = 1" in note]
    data = planner.export(graph, plan, "onnx-qdq")
    (found,) = qnn.run(tmp_path, [(data, samples[:1])])
    # Samples that agree in the batch have fixed it.
    assert (found.partitions, bool(fixed)) == (1, True)
    bare = planner.load_model(DIGITS / "digits.onnx")
    (warning,) = [text for text in planner.plan(bare, "qnn-htp").warnings if "fixed sizes alone" in text]
    assert "--dim N=N" in warning


def test_files_for_the_library_have_no_guards_and_no_clamps_of_bytes():
    graph, plan, _ = digits("qnn-htp", dims={"N": 1})
    nodes = onnx.load_from_string(planner.export(graph, plan, "onnx-qdq")).graph.node
    stored = {name for node in nodes if node.op_type == "QuantizeLinear" for name in node.output}
    assert {node.op_type for node in nodes if stored & {*node.input}} == {"DequantizeLinear"}
    assert all(len(node.input) > 1 for node in nodes if node.op_type == "Max")


def test_the_context_binary_of_the_page(tmp_path):
    page = (ROOT / "docs" / "targets" / "qnn-htp.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    graph, plan, _ = digits("qnn-htp", dims={"N": 1})
    (tmp_path / "compile.py").write_text(script, encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(planner.export(graph, plan, "onnx-qdq"))
    command = [str(PYTHON), "compile.py", "model.onnx", "context.onnx"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    nodes = onnx.load(tmp_path / "context.onnx").graph.node
    assert "EPContext" in {node.op_type for node in nodes}


@pytest.mark.soak
@pytest.mark.parametrize("target", ["qnn-htp", "hexagon-a16w8"])
def test_the_library_takes_every_row(target):
    found = probe_rows(load_target(target), ENGINES["qnn"], python=str(PYTHON))
    assert {finding.verdict for finding in found} == {"integers", "one step", "differs"}
    exact = {finding.verdict for finding in found if finding.kernel in EXACT}
    assert exact == {"integers"}
    apart = {finding.kernel for finding in found if finding.verdict == "differs"}
    assert apart <= {*SIXTEEN, "matmul"}
