"""QONNX of version 2: IntQuant, Trunc with an output scale, domain version 2; run by the qonnx executor."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.formats.onnx.quantized.formulas import ROUNDINGS
from planner.formats.onnx.read import read_written
from planner.interpreter.models import ModelRunner, run_model
from tests.conversion.files import GENERAL, edges, file_of, op_types, quant_node
from tests.oracles.executor import ask

ZOO = ("TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "bnn_model_fc_1layer", "espcn_subpixel_quant", "kwsmlp_w3a3")


def versions(data):
    return {entry.domain: entry.version for entry in onnx.load_from_string(data).opset_import}


def trunc_file(*, six, mode="FLOOR", zero=0.0, computed=False):
    """Quant of 8 bits, then a Trunc to 4: of five operands, or of six."""
    node, arrays = quant_node("q", "x", scale=0.25, zero_point=zero, bits=8)
    numbers = {"t_scale": 0.25, "t_zero": zero, "t_bits": 8.0, "t_bits_out": 4.0}
    names = list(numbers)
    if six:
        numbers["t_scale_out"] = 4.0
        names = ["t_scale", "t_zero", "t_bits", "t_scale_out", "t_bits_out"]
    arrays |= {name: np.asarray(number, np.float32) for name, number in numbers.items()}
    flags = {"rounding_mode": mode, **({"signed": 1, "narrow": 0} if six else {})}
    nodes = [node]
    if computed:
        del arrays["t_scale"]
        nodes.append(helper.make_node("ReduceMax", ["q"], ["t_scale"], "scale", keepdims=0))
    nodes.append(helper.make_node("Trunc", ["q", *names], ["y"], "cut", domain=GENERAL, **flags))
    return file_of(nodes, {"x": (TensorProto.FLOAT, X.shape)}, ["y"], arrays)


X = edges(np.float32(0.25), 0, 8, size=100)
X = X[np.isfinite(X)]


def test_the_zoo_in_version_2_equals_the_files_in_the_qonnx_executor(models, tmp_path):
    jobs, wanted = [], []
    for name in ZOO:
        source = models / "qonnx" / f"{name}.onnx"
        graph = read_written(source)
        (port,) = graph.inputs
        x = np.random.default_rng(3).normal(size=graph.values[port].shape).astype(np.float32)
        done = convert(source, "qonnx-2")
        assert {"Quant", "IntQuant"} & set(op_types(done)) <= {"IntQuant"}, name
        assert versions(done)[GENERAL] == 2
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(done)
        jobs.append({"model": str(path), "treatment": "as it is", "arrays": {"x": x}})
        wanted.append(ModelRunner(graph).run({port: x}))
        again = run_model(done, {port: x})
        assert {key: array.tobytes() for key, array in again.items()} == {
            key: array.tobytes() for key, array in wanted[-1].items()
        }
    for name, answer, mine in zip(ZOO, ask(tmp_path, jobs), wanted, strict=True):
        assert not isinstance(answer, str), f"{name}: {answer}"
        (theirs,), (ours,) = answer.values(), mine.values()
        assert theirs.tobytes() == ours.tobytes(), name


@pytest.mark.parametrize("six", [True, False])
def test_trunc_in_the_qonnx_executor(tmp_path, six):
    files = [trunc_file(six=six, mode=mode, zero=zero) for mode in sorted(ROUNDINGS) for zero in (0.0, 16.0)]
    jobs = []
    for number, data in enumerate(files):
        done = convert(data, "qonnx-2")
        assert op_types(done).count("Trunc") == six
        assert op_types(done)[0] == "IntQuant"
        assert versions(done)[GENERAL] == 2
        path = tmp_path / f"model_{number}.onnx"
        path.write_bytes(done)
        jobs.append({"model": str(path), "treatment": "as it is", "arrays": {"x": X}})
    for data, answer in zip(files, ask(tmp_path, jobs), strict=True):
        assert not isinstance(answer, str), answer
        np.testing.assert_array_equal(answer["y"], run_model(data, {"x": X})["y"])


def test_there_and_back():
    data = convert(trunc_file(six=True), "qonnx-2")
    back = convert(data, "qonnx")
    assert op_types(back) == ["Quant", "Trunc"]
    np.testing.assert_array_equal(run_model(back, {"x": X})["y"], run_model(data, {"x": X})["y"])


def test_a_trunc_of_run_time_has_no_form():
    with pytest.raises(UnsupportedExport, match=r"qonnx-2 cannot say Trunc at 'cut' \(port cut.in\[0\]\)"):
        convert(trunc_file(six=False, computed=True), "qonnx-2")


@pytest.mark.parametrize("to", ["cleaned", "qonnx"])
def test_a_quant_is_of_version_1_whatever_domain_says_it(to):
    for domain in (GENERAL, "onnx.brevitas"):
        node, arrays = quant_node("y", "x", scale=0.25, zero_point=0.0, bits=8, domain=domain)
        data = file_of([node], {"x": (TensorProto.FLOAT, X.shape)}, ["y"], arrays, domains=(domain,))
        assert versions(convert(data, to))[GENERAL] == 1
