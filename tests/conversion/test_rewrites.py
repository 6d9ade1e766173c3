"""Rewrites that qonnx has by name, beside qonnx's own on its models: the same ops, the same results."""

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import file_of, op_types, quant_node, run_onnxruntime
from tests.oracles.executor import PYTHON, ask

RNG = np.random.default_rng(11)
DATA = next(iter((PYTHON.parents[1] / "lib").glob("python3*/site-packages/qonnx/data/onnx")), None)
THEIRS = {
    "batchnorm-to-affine": ["BatchNormToAffine"],
    "convs-lowered": ["ExtractBiasFromConv", "LowerConvsToMatMul"],
    "gemm-to-matmul": ["GemmToMatMul"],
}
SHIPPED = (
    ("convs-lowered", "mnist-conv/model.onnx"),
    ("convs-lowered", "residual_block_clean.onnx"),
    ("convs-lowered", "bsd300x3-espcn/subpixel/quant_model.onnx"),
    ("batchnorm-to-affine", "residual_block_clean.onnx"),
)


def x_of(data):
    graph = read_written(data)
    (port,) = graph.inputs
    shape = [dim if isinstance(dim, int) else 1 for dim in graph.values[port].shape]
    return port, RNG.normal(size=shape).astype(np.float32)


def spelled_out(data):
    """Convolutions with every attribute: qonnx takes none that leaves one out."""
    model = onnx.load_from_string(data)
    for node in (node for node in model.graph.node if node.op_type == "Conv"):
        said = {attribute.name for attribute in node.attribute}
        defaults = {"strides": [1, 1], "dilations": [1, 1], "group": 1}
        if "auto_pad" not in said:
            defaults["pads"] = [0] * 4
        node.attribute.extend(
            helper.make_attribute(key, default) for key, default in defaults.items() if key not in said
        )
    return model.SerializeToString()


def beside(tmp_path, cases):
    """Our file and qonnx's answer for each (name of a rewrite, path, whether qonnx cleans it up first)."""
    jobs, mine = [], []
    for to, path in cases:
        clean = tmp_path / f"{len(jobs)}.onnx"
        clean.write_bytes(spelled_out(convert(path, "cleaned")))
        port, x = x_of(clean)
        done = convert(clean, to)
        mine.append((op_types(done), run_model(done, {port: x}), run_model(clean, {port: x})))
        jobs.append(
            {"model": str(clean), "treatment": "as it is", "arrays": {"x": x}, "transformations": THEIRS[to]}
        )
    return list(zip(cases, mine, ask(tmp_path, jobs), strict=True))


def assert_alike(case, mine, answer):
    kinds, got, plain = mine
    assert not isinstance(answer, str), f"{case}: {answer}"
    theirs = Counter(answer.pop("op types").tolist())
    assert Counter(kind for kind in kinds if kind != "Max") == theirs, case
    for key, array in got.items():
        reach = np.abs(plain[key]).max()
        for wanted in (answer[key], plain[key]):
            far = np.abs(array - wanted) > 2e-5 * reach
            # Where a sum lies between two steps of a quantizer behind it, its last digit decides.
            assert np.mean(far) <= (1e-4 if "quant" in case[1].name else 0), case
            assert np.abs(array - wanted).max() <= 1 / 255 * reach, case


def test_models_that_qonnx_ships(tmp_path):
    if DATA is None:
        pytest.skip("no .oracles/qonnx: run make oracles")
    for case, mine, answer in beside(tmp_path, [(to, DATA / name) for to, name in SHIPPED]):
        assert_alike(case, mine, answer)


def conv_file(shape, weight, *, bits=0, bias=True, **attributes):
    arrays = {"w": RNG.integers(-3, 4, weight).astype(np.float32)}
    nodes, name = [], "w"
    if bits:
        node, added = quant_node("wq", "w", scale=0.5, zero_point=0.0, bits=bits)
        nodes, name, arrays = [node], "wq", {**arrays, **added}
    if bias:
        arrays["b"] = RNG.integers(-3, 4, weight[0]).astype(np.float32)
    names = ["x", name, *(["b"] if bias else [])]
    nodes.append(helper.make_node("Conv", names, ["y"], "c", kernel_shape=weight[2:], **attributes))
    return file_of(nodes, {"x": (TensorProto.FLOAT, shape)}, ["y"], arrays)


CONVS = {
    "plain": conv_file((1, 3, 6, 7), (4, 3, 3, 3)),
    "strides": conv_file((1, 3, 9, 7), (4, 3, 3, 2), strides=[2, 1], pads=[1, 0, 1, 1]),
    "dilations": conv_file((1, 2, 9, 9), (4, 2, 3, 3), dilations=[2, 3], bias=False),
    "one by one": conv_file((1, 3, 5, 5), (4, 3, 1, 1)),
    "one by one with strides": conv_file((1, 3, 5, 5), (4, 3, 1, 1), strides=[2, 2]),
    "depthwise": conv_file((1, 4, 6, 6), (4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]),
    "groups": conv_file((1, 4, 6, 6), (6, 2, 3, 3), group=2),
    "quantized": conv_file((1, 3, 6, 6), (4, 3, 3, 3), bits=4),
    "quantized depthwise": conv_file((1, 4, 6, 6), (4, 1, 3, 3), bits=4, group=4),
    "same": conv_file((1, 3, 6, 9), (4, 3, 3, 2), strides=[2, 2], auto_pad="SAME_UPPER"),
    "same from below": conv_file((1, 3, 6, 9), (4, 3, 2, 4), auto_pad="SAME_LOWER"),
    "valid": conv_file((1, 3, 6, 9), (4, 3, 3, 3), auto_pad="VALID"),
    "several images": conv_file((3, 2, 6, 6), (4, 2, 3, 3)),
}


@pytest.mark.parametrize("name", list(CONVS))
def test_a_lowered_convolution_of_integers_is_the_convolution(name):
    done = convert(CONVS[name], "convs-lowered")
    assert "Conv" not in op_types(done)
    assert "MatMul" in op_types(done)
    shape = read_written(CONVS[name]).values["x"].shape
    x = RNG.integers(-8, 8, shape).astype(np.float32)
    wanted = run_model(CONVS[name], {"x": x})["y"]
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], wanted)
    np.testing.assert_array_equal(run_onnxruntime(convert(done, "onnx"), {"x": x})["y"], wanted)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_parameters_of_one_number_fit_the_matrix(shape, groups):
    node, arrays = quant_node("wq", "w", scale=0.5, zero_point=0.0, bits=4)
    arrays = {name: array.reshape(shape) for name, array in arrays.items()}
    arrays["w"] = RNG.integers(-3, 4, (4, 4 // groups, 2, 2)).astype(np.float32)
    conv = helper.make_node("Conv", ["x", "wq"], ["y"], "c", group=groups)
    data = file_of([node, conv], {"x": (TensorProto.FLOAT, (1, 4, 3, 3))}, ["y"], arrays)
    x = RNG.integers(-8, 8, (1, 4, 3, 3)).astype(np.float32)
    done = convert(data, "convs-lowered")
    assert "Conv" not in op_types(done)
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


def test_convolutions_beside_qonnx(tmp_path):
    cases = []
    for name in ("plain", "strides", "dilations", "one by one", "depthwise"):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(CONVS[name])
        cases.append(("convs-lowered", path))
    for case, mine, answer in beside(tmp_path, cases):
        assert_alike(case, mine, answer)


def test_what_has_no_such_form_stays():
    line = file_of(
        [helper.make_node("Conv", ["x", "w"], ["y"], "c")],
        {"x": (TensorProto.FLOAT, (1, 2, 8))},
        ["y"],
        {"w": np.ones((2, 2, 3), np.float32)},
    )
    open_size = conv_file((1, 3, None, 6), (4, 3, 3, 3))
    for data in (line, open_size):
        assert op_types(convert(data, "convs-lowered")) == ["Conv"]


@pytest.mark.parametrize("transposed", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}])
@pytest.mark.parametrize("factors", [{}, {"alpha": 0.5}, {"alpha": 2.0, "beta": 4.0}])
@pytest.mark.parametrize("bias", [True, False])
def test_a_gemm_is_a_product_and_a_sum(transposed, factors, bias):
    arrays = {"w": RNG.integers(-3, 4, (5, 4) if "transB" in transposed else (4, 5)).astype(np.float32)}
    if bias:
        arrays["b"] = RNG.integers(-3, 4, 5).astype(np.float32)
    node = helper.make_node("Gemm", ["x", *arrays], ["y"], "g", **transposed, **factors)
    shape = (4, 3) if "transA" in transposed else (3, 4)
    data = file_of([node], {"x": (TensorProto.FLOAT, shape)}, ["y"], arrays)
    done = convert(data, "gemm-to-matmul")
    assert "Gemm" not in op_types(done)
    x = RNG.integers(-8, 8, shape).astype(np.float32)
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


def test_gemm_and_batch_normalization_beside_qonnx(tmp_path):
    arrays = {"w": RNG.normal(size=(4, 5)).astype(np.float32), "b": RNG.normal(size=5).astype(np.float32)}
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "g", alpha=1.0, beta=1.0)
    (tmp_path / "gemm.onnx").write_bytes(file_of([gemm], {"x": (TensorProto.FLOAT, (3, 4))}, ["y"], arrays))
    names = ("s", "b", "m", "v")
    statistics = {name: RNG.uniform(0.5, 2, 3).astype(np.float32) for name in names}
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"], "n", epsilon=0.01)
    data = file_of([node], {"x": (TensorProto.FLOAT, (2, 3, 4, 4))}, ["y"], statistics)
    (tmp_path / "norm.onnx").write_bytes(data)
    assert op_types(convert(data, "batchnorm-to-affine")) == ["Mul", "Add"]
    cases = [
        ("gemm-to-matmul", tmp_path / "gemm.onnx"),
        ("batchnorm-to-affine", tmp_path / "norm.onnx"),
    ]
    for case, mine, answer in beside(tmp_path, cases):
        assert_alike(case, mine, answer)


def test_weights_stored_are_lowered():
    arrays = {
        "w": RNG.integers(-8, 8, (4, 3, 3, 3)).astype(np.int8),
        "s": np.float32([0.25, 0.5, 1, 2]),
        "z": np.zeros(4, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], "d", axis=0),
        helper.make_node("Conv", ["x", "d"], ["y"], "c"),
    ]
    data = file_of(nodes, {"x": (TensorProto.FLOAT, (1, 3, 5, 5))}, ["y"], arrays)
    done = convert(data, "convs-lowered")
    model = onnx.load_from_string(done)
    assert [node.op_type for node in model.graph.node] == [
        "DequantizeLinear", "Transpose", "Im2Col", "MatMul", "Transpose",
    ]  # fmt: skip
    x = RNG.integers(-8, 8, (1, 3, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], run_model(data, {"x": x})["y"])


def annotations(data):
    model = onnx.load_from_string(data)
    return {
        entry.tensor_name: {pair.key: pair.value for pair in entry.quant_parameter_tensor_names}
        for entry in model.graph.quantization_annotation
    }


def test_a_depthwise_matrix_says_its_window():
    """FINN makes a vector-vector unit of it by this annotation."""
    window = {"tensor_sparsity": "{'dw': {'kernel_shape': [3, 3]}}"}
    assert annotations(convert(CONVS["depthwise"], "convs-lowered")) == {"w": window}
    assert annotations(convert(CONVS["quantized depthwise"], "convs-lowered")) == {"w": window}
    assert annotations(convert(CONVS["plain"], "convs-lowered")) == {}


def test_datatypes_that_a_file_says_stay():
    model = onnx.load_from_string(CONVS["plain"])
    for name, kind in (("x", "UINT8"), ("w", "INT4")):
        entry = model.graph.quantization_annotation.add(tensor_name=name)
        entry.quant_parameter_tensor_names.add(key="finn_datatype", value=kind)
    said = {"x": {"finn_datatype": "UINT8"}, "w": {"finn_datatype": "INT4"}}
    assert annotations(convert(model.SerializeToString(), "cleaned")) == said
    assert annotations(convert(model.SerializeToString(), "convs-lowered")) == said
    assert annotations(convert(model.SerializeToString(), "onnx")) == {}
