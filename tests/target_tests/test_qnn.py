"""Qualcomm's HTP library: it takes what is written for its targets, and gives the interpreter's integers."""

import re
import subprocess

import numpy as np
import onnx
import pytest

import planner
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


def test_rows_that_the_library_takes_in_a_form_of_its_own():
    """Signed weights of a LayerNormalization, a Clip of bytes and a lone Transpose would be refused."""
    found = verdicts("qnn-htp", ["Clip", "HardSigmoid", "LayerNormalization", "Relu", "Transpose", "Where"])
    assert set(found.values()) <= {"integers", "one step"}
    assert {name for name, verdict in found.items() if verdict == "one step"} <= {
        "LayerNormalization-1",
        "LayerNormalization-2",
    }


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
