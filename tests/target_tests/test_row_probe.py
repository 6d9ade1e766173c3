"""Rows against engines: wrong claims are found, right ones hold, and an engine's answers are told."""

import numpy as np
import pytest

from planner.errors import InputError, UnknownName
from planner.formats.onnx.sessions import open_session
from planner.target.load import load_target
from planner.target_tests.engines.answers import Answer
from planner.target_tests.engines.table import ENGINES, Engine, own_engine
from planner.target_tests.row_probe import COMPILED, VERDICTS, probe_rows
from tests.oracles import litert, tosa
from tests.oracles.litert import ROOT

VELA = ROOT / ".oracles" / "vela" / "bin" / "python"
CLAIMS = """
apiVersion: planner/v1
kind: Target
id: claims
version: 1.0.0
types:
  u8: {storage: u8}
  i8: {storage: i8}
  u16: {storage: u16}
  i8c: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true}
  b32: {storage: i32, symmetric: true}
defaults: {port: u8, requantize: float32_even}
fusions:
  - {kernel: conv, pattern: "Relu?(Conv(x, w, b?))", where: {w: constant, b: constant}}
kernels:
  - {kernel: Sigmoid, in: {x: u16}, out: {y: u16}}
  - {kernel: MaxPool, in: {x: u16}, out: {y: u16}, rules: [{same_scale: [x, y]}]}
  - kernel: Softmax
    in: {x: i8}
    out: {y: i8}
    requantize: litert
    rules: [{fixed_scale: {port: y, scale: 1/128, zero_point: -128}}]
  - {kernel: MaxPool, in: {x: u8}, out: {y: u8}, rules: [{same_scale: [x, y]}]}
  - kernel: conv
    in: {x: u8, w: i8c, b?: b32}
    out: {y: u8}
    axis: {w: out_channel}
    rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]
"""


def verdicts(found):
    return {finding.name: (finding.verdict, finding.detail) for finding in found}


def test_wrong_claims_are_found():
    """Rows that an engine has no integer kernel for, or one of another scale only, beside two that it has."""
    found = verdicts(probe_rows(load_target(CLAIMS), ENGINES["onnxruntime"]))
    assert found["Sigmoid-1"] == ("float", "Sigmoid")
    assert found["MaxPool-1"] == ("float", "MaxPool")
    assert {found["MaxPool-2"], found["conv-1"]} == {("integers", "")}
    (softmax,) = probe_rows(load_target(CLAIMS), ENGINES["litert"], kernels=["Softmax"], python="python")
    assert (softmax.verdict, softmax.holds) == ("not written", False)
    assert "SOFTMAX accepts 0.00390625 and -128" in softmax.detail


def run(file, inputs):
    session = open_session(file)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def test_an_engine_of_ones_own():
    target = load_target("teaching-npu")
    found = probe_rows(target, own_engine(run, "onnx-qdq"), kernels=["MaxPool", "conv"])
    names = {"MaxPool-1", "conv-1", "conv-1.2", "conv-1.3", "conv-1.4", "conv-1.5", "conv-1.6"}
    assert set(verdicts(found)) == names
    assert {finding.verdict for finding in found} == {"integers"}

    def wrong(file, inputs):
        return {name: array ^ 2 for name, array in run(file, inputs).items()}

    (finding,) = probe_rows(target, own_engine(wrong, "onnx-qdq"), kernels=["MaxPool"])
    assert (finding.verdict, finding.refuted) == ("differs", True)
    assert finding.detail.endswith("differ, by 2 at most")

    def near(file, inputs):
        return {name: array ^ 1 for name, array in run(file, inputs).items()}

    (finding,) = probe_rows(target, own_engine(near, "onnx-qdq"), kernels=["MaxPool"])
    assert (finding.verdict, finding.refuted) == ("one step", True)
    assert finding.detail.endswith("differ, by 1 at most")

    def broken(*_):
        raise ZeroDivisionError("no array of the device is wide enough")

    (finding,) = probe_rows(target, own_engine(broken, "onnx-qdq"), kernels=["MaxPool"])
    assert finding.verdict == "refused"
    assert finding.detail == "ZeroDivisionError: no array of the device is wide enough"

    (finding,) = probe_rows(target, own_engine(lambda *_: {}, "onnx-qdq"), kernels=["MaxPool"])
    assert finding.detail.startswith("y0 is missing")


def test_what_is_not_written_is_no_refutation():
    found = probe_rows(load_target("litert-int8"), own_engine(run, "finn"), kernels=["Softmax"])
    assert {(finding.verdict, finding.refuted) for finding in found} == {("not written", False)}


def test_float_ports_are_compared_as_floats():
    found = probe_rows(load_target("llm-w4"), own_engine(run, "onnx-matmulnbits"), kernels=["matmul_nbits"])
    assert {finding.verdict for finding in found} == {"as floats"}


def test_every_verdict_is_explained():
    engine = Engine("onnx-qdq", lambda _, jobs: [Answer(refusal="no\n  op") for _ in jobs], "float")
    found = probe_rows(load_target(CLAIMS), engine)
    assert {(finding.verdict, finding.detail) for finding in found} == {("refused", "no op")}
    assert {engine.otherwise for engine in ENGINES.values()} - {""} <= set(VERDICTS)


def test_an_unknown_kernel():
    with pytest.raises(UnknownName, match="unknown kernel 'conw'"):
        probe_rows(load_target("teaching-npu"), ENGINES["onnxruntime"], kernels=["conw"])


def test_an_engine_that_does_not_start(tmp_path):
    target = load_target("litert-int8")
    for name, words in (
        ("litert", "no_such"),
        ("qnn", "no_such"),
        ("tosa", "no_such"),
        ("vela", "there is no vela beside"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            probe_rows(target, ENGINES[name], python=str(tmp_path / "no_such"), kernels=["Softmax"])
        assert "give the Python of an environment with" in caught.value.hint


@pytest.mark.skipif(not litert.PYTHON.exists(), reason="no .oracles/litert: run make oracles")
def test_every_row_of_litert_int8_that_a_file_can_say_runs_in_litert():
    """In one of the runtime's sets of kernels: the reference ones lack some, the others round otherwise."""
    target = load_target("litert-int8")
    both = [
        probe_rows(target, ENGINES[name], python=str(litert.PYTHON))
        for name in ("litert", "litert-optimized")
    ]
    reference, optimized = ({found.name for found in findings if found.refuted} for findings in both)
    assert not reference & optimized
    assert {name.split("-")[0] for name in reference} <= {
        "DepthToSpace",
        "Elu",
        "Expand",
        "ReduceSum",
        "Tile",
    }
    unknown = {found.name.split(".")[0] for found in both[0] if not found.holds and not found.refuted}
    assert unknown == {"LSTM-1", "LSTM-2", "LSTM-3"}


@pytest.mark.skipif(not tosa.PYTHON.exists(), reason="no .oracles/tosa: run make oracles")
def test_every_row_of_tosa_int8_runs_in_the_reference_model():
    found = probe_rows(load_target("tosa-int8"), ENGINES["tosa"], python=str(tosa.PYTHON))
    assert [finding for finding in found if finding.refuted] == []
    unknown = {finding.name.split(".")[0] for finding in found if not finding.holds}
    assert unknown == {"matmul-2"}


@pytest.mark.skipif(not VELA.exists(), reason="no .oracles/vela: run make oracles")
def test_what_vela_leaves_to_the_cpu_is_found():
    text = """
apiVersion: planner/v1
kind: Target
id: wishful
version: 1.0.0
types: {a8: {storage: i8}}
defaults: {port: a8, requantize: litert}
kernels:
  - kernel: LogSoftmax
    in: {x: a8}
    out: {y: a8}
    rules: [{fixed_scale: {port: y, scale: 1/16, zero_point: 127}}]
  - {kernel: Abs, in: {x: a8}, out: {y: a8}}
"""
    found = verdicts(probe_rows(load_target(text), ENGINES["vela"], python=str(VELA)))
    assert found == {"LogSoftmax-1": ("cpu", "LOG_SOFTMAX"), "Abs-1": ("integers", COMPILED)}


@pytest.mark.skipif(not VELA.exists(), reason="no .oracles/vela: run make oracles")
def test_vela_takes_every_row_of_ethos_u55_that_a_file_can_say():
    found = probe_rows(load_target("ethos-u55"), ENGINES["vela"], python=str(VELA))
    assert {finding.name for finding in found if finding.refuted} == set()


def test_numbers_of_wrong_shape_are_told():
    target = load_target("teaching-npu")
    flat = own_engine(lambda file, inputs: {k: np.ravel(v) for k, v in run(file, inputs).items()}, "onnx-qdq")
    (finding,) = probe_rows(target, flat, kernels=["MaxPool"])
    assert "has another shape than" in finding.detail
