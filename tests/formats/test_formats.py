"""Every format of whole models computes what the reference interpreter computes, every element.

Each in the arithmetic it has: the row's own, or for files of float ops between quantizers `float32_qdq` (ONNX
rounds, then adds the zero point) and `float32_quant` (QONNX adds first). Exceptions by name in `NEARLY`.
"""

import io
import json
import zipfile
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.formats.qonnx.hls4ml import CONFIG_FILE, MODEL_FILE
from planner.formats.runnable import runnable
from planner.formats.table import EXPORTERS, file_name
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.graph import Graph
from tests.formats.plans import execute, loaded, model, op
from tests.interpreter.test_whole_models import digits, planned, tiny
from tests.oracles.executor import ask

MODELS = ("digits", "ad01_fp32", "pretrainedResnet", "vww_96_float")
CASES = [
    ("finn", "finn-fpga", None),
    ("hls4ml", "hls4ml-fpga", "float32_quant"),
    ("onnx-integer", "litert-int8", None),
    ("onnx-integer", "onnxruntime-cpu", None),
    ("onnx-qcdq", "litert-int8", "float32_qdq"),
    ("onnx-qcdq", "onnxruntime-cpu", "float32_qdq"),
    ("onnx-qdq", "litert-int8", "float32_qdq"),
    ("onnx-qdq", "onnxruntime-cpu", "float32_qdq"),
    ("onnx-qoperator-clip", "onnxruntime-cpu", None),
    ("qonnx", "hls4ml-fpga", "float32_quant"),
    ("qonnx", "litert-int8", "float32_quant"),
    ("qonnx", "onnxruntime-cpu", "float32_quant"),
]
# MatMul and Add in float32 round twice where Gemm rounds once: single steps of single elements.
NEARLY = {("hls4ml", "ad01_fp32"): 2.0**-9}


@pytest.fixture(scope="module")
def made():
    """Planned models by name and target, each planned once."""
    known: dict[tuple[str, str], tuple] = {}

    def make(name: str, target: str) -> tuple:
        if (name, target) not in known:
            path, samples = digits() if name == "digits" else tiny(name)
            known[name, target] = (*planned(path, samples, target), samples[:2])
        return known[name, target]

    return make


def run(form: str, data: bytes, graph: Graph, sample: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The outputs of a file: in onnxruntime, or by QONNX's and FINN's own formulas."""
    if form == "hls4ml":
        data = zipfile.ZipFile(io.BytesIO(data)).read(MODEL_FILE)
    if form in ("finn", "hls4ml", "qonnx"):
        return ModelRunner(read_written(data)).run(sample)
    return dict(zip(graph.outputs, execute(data, sample), strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("form", "target", "arithmetic"), CASES)
def test_a_file_equals_the_interpreter(made, form, target, arithmetic, name):
    graph, plan, samples = made(name, target)
    data = EXPORTERS[form](graph, plan)
    assert EXPORTERS[form](graph, plan) == data
    interpreter = Interpreter(graph, plan, arithmetic=arithmetic)
    for sample in samples:
        got = run(form, data, graph, sample)
        for output, wanted in interpreter.run(sample).outputs.items():
            atol = NEARLY.get((form, name), 0.0)
            assert np.ptp(wanted) > 0
            np.testing.assert_allclose(got[output], wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("name", MODELS)
def test_onnx_integer_has_no_float_between_its_first_quantize_and_last_dequantize(made, name):
    graph, plan, _ = made(name, "onnxruntime-cpu")
    proto = onnx.shape_inference.infer_shapes(loaded(EXPORTERS["onnx-integer"](graph, plan)))
    nodes = proto.graph.node
    assert [node.op_type for node in nodes].count("QuantizeLinear") == len(graph.inputs)
    # Rows with float results hand on floats without one.
    stored = [port for kernel in plan.kernels_in_order for port in kernel.outputs if port.type is not None]
    rounded = {port.value for port in stored} & set(graph.outputs)
    assert [node.op_type for node in nodes].count("DequantizeLinear") == len(rounded)
    infos = (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    types |= {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    floats = {name for name, kind in types.items() if kind == onnx.TensorProto.FLOAT}
    borders = ("DequantizeLinear", "QuantizeLinear", "QLinearSoftmax")
    found = [
        node.op_type for node in nodes if node.op_type not in borders and not floats.isdisjoint(node.input)
    ]
    # A float result is its sum, cast, times the product of the scales: no more than that.
    assert found == ["Mul"] * (len(graph.outputs) - len(rounded))
    assert [node.op_type for node in nodes if node.domain] in ([], ["QLinearSoftmax"])


def test_digits_on_integers_requantize_once_per_kernel(made):
    """One Div, the shift, for each linear kernel; a table only beside it."""
    graph, plan, _ = made("digits", "onnxruntime-cpu")
    types = [node.op_type for node in loaded(EXPORTERS["onnx-integer"](graph, plan)).graph.node]
    products = types.count("ConvInteger") + types.count("MatMulInteger")
    assert products == sum(
        len(k.inputs) > 1 and k.accumulator_bits is not None for k in plan.kernels_in_order
    )
    assert types.count("Div") <= len(plan.kernels_in_order)


def test_hls4ml_has_a_precision_for_each_layer(made):
    graph, plan, _ = made("digits", "hls4ml-fpga")
    archive = zipfile.ZipFile(io.BytesIO(EXPORTERS["hls4ml"](graph, plan)))
    assert archive.namelist() == [CONFIG_FILE, MODEL_FILE]
    layers = json.loads(archive.read(CONFIG_FILE))["LayerName"]
    nodes = [node.name for node in onnx.load_from_string(archive.read(MODEL_FILE)).graph.node]
    assert set(layers) - {"image"} <= set(nodes)
    assert layers["Conv_0"]["Precision"]["weight"] == "ap_fixed<16,2,AP_RND_CONV,AP_SAT>"
    assert {name for name in nodes if name.startswith("Conv")} <= set(layers)


def test_a_weight_in_blocks_is_turned_with_its_scales(made):
    graph, plan, samples = made("digits", "llm-w4")
    found = run("hls4ml", EXPORTERS["hls4ml"](graph, plan), graph, samples[0])
    wanted = planner.evaluate(graph, plan, samples[0]).outputs
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_each_format_says_what_onnxruntime_runs_of_it(made):
    for form, write in EXPORTERS.items():
        target = "llm-w4" if form == "onnx-matmulnbits" else "onnxruntime-cpu"
        graph, plan, samples = made("digits", target)
        is_onnx = form.startswith("onnx-") or form in ("hls4ml", "qonnx")
        plain = runnable(form, write(graph, plan) if is_onnx else b"")
        assert (plain is not None) == is_onnx
        if plain is not None:
            (got,) = execute(plain, samples[0])
            assert got.shape == (1, 10)


@pytest.mark.parametrize(
    ("form", "target"), [("finn", "finn-fpga"), ("qonnx", "litert-int8"), ("qonnx", "onnxruntime-cpu")]
)
@pytest.mark.parametrize("name", ["digits", "ad01_fp32"])
def test_the_qonnx_executor_computes_the_same(made, tmp_path, form, target, name):
    """It wants shapes without names, so the batch is 1."""
    graph, plan, samples = made(name, target)
    path = tmp_path / "model.onnx"
    proto = onnx.load_from_string(EXPORTERS[form](graph, plan))
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(proto, path)
    sample = {key: array[:1] for key, array in samples[0].items()}
    job = {"kind": "model", "model": str(path), "treatment": "cleaned", "arrays": dict(sample)}
    (answer,) = ask(tmp_path, [job])
    arithmetic = None if form == "finn" else "float32_quant"
    wanted = Interpreter(graph, plan, arithmetic=arithmetic).run(sample).outputs
    assert isinstance(answer, dict), answer
    for got, array in zip(answer.values(), wanted.values(), strict=True):
        np.testing.assert_array_equal(got, array)


def test_a_file_is_named_for_its_format():
    assert [file_name(name) for name in ("hls4ml", "onnx-qdq")] == ["hls4ml.zip", "onnx-qdq.onnx"]


REFUSALS = {
    ("finn", "hls4ml-fpga"): r"16 bits; finn accepts up to 10 bits per tensor",
    ("onnx-integer", "hls4ml-fpga"): r"16 bits; onnx-integer accepts i1..i8 or u1..u8",
    (
        "onnx-integer",
        "stablehlo",
    ): r"computes in float32_spec, which is no integer arithmetic; onnx-integer accepts",
    ("onnx-qcdq", "hls4ml-fpga"): r"16 bits; onnx-qcdq accepts i1..i8 or u1..u8",
    ("onnx-qoperator-clip", "hls4ml-fpga"): r"16 bits; onnx-qoperator-clip accepts i1..i8",
}


@pytest.mark.parametrize(("form", "target"), REFUSALS)
def test_a_refusal_names_port_row_and_what_would_do(made, form, target):
    graph, plan, _ = made("digits", target)
    with pytest.raises(UnsupportedExport, match=REFUSALS[form, target]) as caught:
        EXPORTERS[form](graph, plan)
    assert "stem/conv" in str(caught.value)
    assert f"row {plan.kernels_in_order[0].row}" in str(caught.value)


def test_finn_reads_the_golden_digits_and_signs_are_thresholds(models):
    """TFC_1W1A: the classes FINN's own file gives for its images, one threshold for each sign."""
    folder = models / "qonnx"
    graph = planner.load_model(folder / "TFC_1W1A.onnx")
    data = planner.export(graph, planner.plan(graph, "finn-fpga"), "finn")
    nodes = onnx.load_from_string(data).graph.node
    assert [node.op_type for node in nodes].count("MultiThreshold") == 4
    runner = ModelRunner(read_written(data))
    classes = []
    for image in np.load(folder / "tfc_w1a1_finn_input.npy"):
        (scores,) = runner.run({graph.inputs[0]: image[None] / np.float32(255)}).values()
        classes.append(int(scores.argmax()))
    assert classes == np.load(folder / "tfc_w1a1_finn_expected.npy").reshape(-1).tolist()


@pytest.mark.parametrize("name", ["TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "unsw_nb15-mlp-w2a2"])
def test_the_papers_networks_reach_finns_form(models, name):
    """Calibrated, so that what stands in front of the first quantizer is integer too."""
    graph = planner.load_model(models / "qonnx" / f"{name}.onnx")
    (value,) = (graph.values[key] for key in graph.inputs)
    rng = np.random.default_rng(0)
    sizes = [dim if isinstance(dim, int) else 1 for dim in value.shape]
    samples = [{value.name: rng.random(sizes).astype(np.float32)} for _ in range(16)]
    graph = planner.annotate(graph, stats=planner.calibrate(graph, samples[:8]))
    plan = planner.plan(graph, "finn-fpga")
    data = planner.export(graph, plan, "finn")
    proto = onnx.load_from_string(data).graph
    # The bias of the last layer, whose sums no thresholds follow, is added in float.
    known = {"Add", "Identity", "MatMul", "Mul", "MultiThreshold", "Reshape"}
    assert {node.op_type for node in proto.node} <= known
    types = {
        item.tensor_name: item.quant_parameter_tensor_names[0].value for item in proto.quantization_annotation
    }
    operands = {types[key] for node in proto.node if node.op_type == "MatMul" for key in node.input[1:]}
    assert operands == ({"TERNARY"} if "2a2" in name.lower() or "2W" in name else {"BIPOLAR"})
    if name == "TFC_1W1A":
        assert all(types[node.input[0]] == "BIPOLAR" for node in proto.node if node.op_type == "MatMul")
    interpreter, runner = Interpreter(graph, plan), ModelRunner(read_written(data))
    for sample in samples:
        found = runner.run(sample)
        for key, wanted in interpreter.run(sample).outputs.items():
            np.testing.assert_array_equal(found[key], wanted)


def test_weights_in_blocks_end_to_end():
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(128, 16)).astype(np.float32), rng.normal(size=(4, 128)).astype(np.float32)
    ops = [op("MatMul", "x w", "m"), op("Add", "m b", "y")]
    constants = {"w": w, "b": rng.normal(size=16).astype(np.float32)}
    graph = model(
        ops, inputs={"x": (4, 128)}, outputs={"y": (4, 16)}, constants=constants, shapes={"m": (4, 16)}
    )
    plan = planner.plan(graph, "llm-w4")
    data = planner.export(graph, plan, "onnx-matmulnbits")
    wanted = planner.evaluate(graph, plan, {"x": x}).outputs["y"]
    np.testing.assert_allclose(execute(data, {"x": x})[0], wanted, rtol=0, atol=2e-5)
    assert len(data) < w.nbytes / 2


@pytest.mark.parametrize("target", ["finn-fpga", "hls4ml-fpga", "onnxruntime-cpu", "tosa-int8"])
def test_finn_applies_a_pin_between_two_ports_of_one_type(target):
    """A moved value is cut off where it is pinned, though both kernels around it have the same other type."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,8] x) => (float[1,8] y) { f = Flatten(x) '
        "q = QuantizeLinear(f, s, z) d = DequantizeLinear(q, s, z) y = Flatten(d) }"
    )
    file = onnx.parser.parse_model(text)
    arrays = {"s": np.float32(4 / 255), "z": np.uint8(247)}
    file.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()
    )
    graph, sample = (
        planner.load_model(file.SerializeToString()),
        {"x": np.linspace(-2, 2, 8, dtype=np.float32)[None]},
    )
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    plan = planner.plan(ready, target)
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    assert wanted.max() < 0.13
    found = planner.run(planner.export(ready, plan, "finn"), sample)["y"]
    np.testing.assert_array_equal(found, wanted)
