"""What a device's compiler reads: opsets and layouts of files, written so or refused by name."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from planner.errors import PlannerError, TargetError, UnsupportedExport
from planner.formats.table import AS_GIVEN, CHANNELS_LAST, EXPORTERS
from planner.target.records import Files
from planner.version import MADE_BY
from tests.formats.plans import model, op, run

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def device(files: str, base: str = "onnxruntime-cpu"):
    head = f"apiVersion: planner/v1\nkind: Target\nid: own\nversion: 1.0.0\nmode: fixed\nextends: {base}\n"
    return planner.load_target(f"{head}files: {files}\n")


@pytest.fixture(scope="module")
def digits():
    graph = planner.load_model(DIGITS / "digits.onnx")
    return planner.annotate(graph, stats=planner.calibrate(graph, DIGITS / "calibration.npz"))


def sample(graph):
    shape = (3, *graph.values[graph.inputs[0]].shape[1:])
    return {graph.inputs[0]: np.random.default_rng(1).normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize(
    ("limits", "written"),
    [((13, 21), 21), ((13, 19), 19), ((17, 18), 18), ((13, 17), 17), ((22, 22), 22), ((24, 25), 24)],
)
@pytest.mark.parametrize("form", ["onnx-integer", "onnx-qcdq", "onnx-qdq", "onnx-qoperator"])
def test_files_are_written_in_an_opset_that_the_compiler_reads(digits, form, limits, written):
    plan = planner.plan(digits, device(f"{{opset: {list(limits)}}}"))
    told = planner.plan_from_json(plan.to_json())
    assert (told.key, told.target.files) == (plan.key, Files(limits, runtime="onnxruntime"))
    data = planner.export(digits, plan, form)
    found = onnx.load_from_string(data)
    onnx.checker.check_model(found, full_check=True)
    assert {item.domain: item.version for item in found.opset_import}[""] == written
    assert (found.producer_name, found.ir_version) == ("quant-planner", 10)
    whole = planner.export(digits, planner.plan(digits, "onnxruntime-cpu"), form)
    np.testing.assert_array_equal(run(data, sample(digits))[0], run(whole, sample(digits))[0])


def test_the_smaller_file_reads_as_the_same_plan(digits):
    target = device("{opset: [13, 17]}")
    read = [
        planner.load_model(planner.export(digits, planner.plan(digits, device), "onnx-qdq"))
        for device in (target, "onnxruntime-cpu")
    ]
    small, whole = (planner.plan(graph, "onnxruntime-cpu") for graph in read)
    assert [str(port.type) for kernel in small.kernels_in_order for port in kernel.outputs] == [
        str(port.type) for kernel in whole.kernels_in_order for port in kernel.outputs
    ]


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("hexagon-a16w8", "DataType (4) of Input or Output of operator 'QuantizeLinear' is unallowed"),
        ("llm-w4", "DataType (22) of Input or Output of operator 'DequantizeLinear' is unallowed"),
    ],
)
def test_what_an_opset_cannot_say_is_refused(base, told):
    graph = model(
        [op("MatMul", "x w", "y")],
        inputs={"x": (4, 64)},
        outputs={"y": (4, 32)},
        constants={"w": np.random.default_rng(2).normal(size=(64, 32)).astype(np.float32)},
    )
    rows = {"x": np.random.default_rng(3).normal(size=(4, 64)).astype(np.float32)}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [rows]))
    plan = planner.plan(ready, device("{opset: [13, 19]}", base))
    with pytest.raises(
        UnsupportedExport, match="reads opsets 13 to 19, this plan is written in 21"
    ) as caught:
        planner.export(ready, plan, "onnx-qdq")
    assert f"there: {told}" in str(caught.value)


def test_an_operator_without_an_older_version_is_named(digits):
    plan = planner.plan(digits, device("{opset: [7, 13]}"))
    with pytest.raises(UnsupportedExport, match="no step there: No Adapter"):
        planner.export(digits, plan, "onnx-qdq")


def test_weights_beside_the_file_are_not_converted(digits, tmp_path):
    plan = planner.plan(digits, device("{opset: [13, 17]}"))
    with pytest.raises(UnsupportedExport, match="weights beside it"):
        planner.export_to(digits, plan, "onnx-qdq", tmp_path / "model.onnx", external=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_formats_of_the_other_layout_are_refused(digits, layout):
    plan = planner.plan(digits, device(f"{{layout: {layout}}}", "litert-int8"))
    wants_last = layout == "channels_last"
    for form in EXPORTERS.keys() - AS_GIVEN:
        if (form in CHANNELS_LAST) != wants_last:
            with pytest.raises(UnsupportedExport, match=r"reads channels (first|last); accepted: "):
                planner.export(digits, plan, form)
    assert planner.export(digits, plan, "litert" if wants_last else "onnx-qdq")


def test_limits_that_make_no_sense():
    with pytest.raises(TargetError, match="opsets from 21 to 13; the lesser first"):
        device("{opset: [21, 13]}")
    with pytest.raises(TargetError, match="2 or more entries are expected here"):
        device("{opset: [13]}")
    with pytest.raises(TargetError, match="channels_first"):
        device("{layout: nhwc}")


@pytest.mark.parametrize("limits", [(21, 21), (22, 24)])
@pytest.mark.parametrize("form", ["onnx-qcdq", "onnx-qdq", "onnx-qoperator"])
def test_signed_bytes_keep_their_guards(form, limits):
    """In opset 21 onnxruntime refuses a graph that it makes of pairs of i8 over moved data (`opsets`)."""
    rng = np.random.default_rng(4)
    constants = {
        "a": rng.normal(size=(8, 4)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
        "c": rng.normal(size=(2, 3)).astype(np.float32),
        "d": rng.normal(size=3).astype(np.float32),
        "s": np.asarray([1, 8, 2]),
    }
    ops = [
        op("MatMul", "x a", "m"),
        op("Add", "m b", "n"),
        op("Transpose", "n", "t", perm=[0, 2, 1]),
        op("Reshape", "t s", "r"),
        op("MatMul", "r c", "p"),
        op("Add", "p d", "y"),
    ]
    graph = model(ops, inputs={"x": (1, 4, 8)}, outputs={"y": (1, 8, 3)}, constants=constants)
    rows = {"x": rng.normal(size=(1, 4, 8)).astype(np.float32)}
    ready = planner.annotate(graph, stats=planner.calibrate(graph, [rows]))
    data = planner.export(
        ready, planner.plan(ready, device(f"{{opset: {list(limits)}}}", "litert-int8")), form
    )
    whole = planner.export(ready, planner.plan(ready, "litert-int8"), form)
    np.testing.assert_array_equal(run(data, rows)[0], run(whole, rows)[0])


@pytest.mark.parametrize(
    "files", [{"opset": ["a", "b"]}, {"opset": [1]}, {"opset": [21, 13]}, {"layout": "sideways"}]
)
def test_a_plan_whose_files_make_no_sense_is_refused(digits, files):
    told = json.loads(planner.plan(digits, device("{opset: [13, 21]}")).to_json())
    told["target"]["files"] = files
    with pytest.raises(PlannerError, match="files"):
        planner.plan_from_json(json.dumps(told))


@pytest.mark.parametrize(
    ("form", "limits"),
    [
        *((form, None) for form in ("finn", "hls4ml", "onnx-matmulnbits", "onnx-qoperator-clip", "qonnx")),
        *(
            (f"onnx-{form}", limits)
            for form in ("integer", "qcdq", "qdq", "qoperator")
            for limits in (None, (13, 17))
        ),
    ],
)
def test_a_file_says_where_it_comes_from(digits, form, limits):
    """The plan, the target and the model by their digests, also where the opset is converted."""
    bases = {"finn": "finn-fpga", "hls4ml": "hls4ml-fpga", "onnx-matmulnbits": "llm-w4", "qonnx": "finn-fpga"}
    base = bases.get(form, "onnxruntime-cpu")
    target = (
        planner.load_target(base)
        if limits is None
        else device(f"{{opset: [{limits[0]}, {limits[1]}]}}", base)
    )
    plan = planner.plan(digits, target)
    data = planner.export(digits, plan, form)
    if form == "hls4ml":
        data = zipfile.ZipFile(io.BytesIO(data)).read("model.onnx")
    file = onnx.load_from_string(data)
    assert (file.producer_name, file.producer_version) == ("quant-planner", MADE_BY)
    assert {entry.key: entry.value for entry in file.metadata_props} == {
        "qplan.model": plan.model,
        "qplan.plan": plan.key,
        "qplan.target": f"{target.id} {target.version} {plan.target.digest}",
    }
    assert planner.load_model(file.SerializeToString()).name == digits.name
