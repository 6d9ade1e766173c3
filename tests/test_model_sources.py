"""What `load_model` takes besides paths, objects of other libraries; what it says of files that are none."""

import gzip
import io
import json
import pickle
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

import planner
from planner.errors import InputError, ModelError, UnknownName
from planner.ir.graph import model_digest
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
PROGRAM = """"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1x4xf32>) -> tensor<1x4xf32>, sym_name = "main"}> ({
  ^bb0(%0: tensor<1x4xf32>):
    %1 = "stablehlo.tanh"(%0) : (tensor<1x4xf32>) -> tensor<1x4xf32>
    "func.return"(%1) : (tensor<1x4xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


class _Bindings:
    """A module of MLIR's own bindings: its operation prints itself."""

    operation: "_Bindings"

    def get_asm(self, *, print_generic_op_form):
        assert print_generic_op_form
        return PROGRAM


class _PathLike:
    def __fspath__(self):
        return str(DIGITS)


def bindings():
    module = _Bindings()
    module.operation = _Bindings()
    return module


def xdsl_module():
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    return Parser(context, PROGRAM).parse_module()


SOURCES = {
    "a ModelProto": lambda: onnx.load(DIGITS),
    "bytes": DIGITS.read_bytes,
    "a bytearray": lambda: bytearray(DIGITS.read_bytes()),
    "a memoryview": lambda: memoryview(DIGITS.read_bytes()),
    "an open file": lambda: io.BytesIO(DIGITS.read_bytes()),
    "a path-like": _PathLike,
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources_of_onnx(name):
    wanted = planner.load_model(DIGITS)
    found = planner.load_model(SOURCES[name]())
    assert [op.type for op in found.ops] == [op.type for op in wanted.ops]
    assert model_digest(found) == model_digest(wanted)


@pytest.mark.parametrize(
    "source",
    [PROGRAM.encode(), bindings, xdsl_module],
    ids=["bytes", "MLIR's bindings", "xDSL"],
)
def test_sources_of_mlir(source):
    found = planner.load_model(source() if callable(source) else source)
    assert [op.type for op in found.ops] == ["Tanh"]
    assert found.values[found.inputs[0]].shape == (1, 4)


def test_bytes_of_an_annotated_model():
    from planner.formats.annotated.document import write_annotated

    text = write_annotated(planner.annotate(planner.load_model(DIGITS)))
    assert planner.load_model(text.encode()).outputs == ("probabilities",)


class Module:
    """As torch.nn's."""


class BaseEstimator:
    """As scikit-learn's."""


class _Net(Module):
    pass


class _Classifier(BaseEstimator):
    pass


Module.__module__ = "torch.nn.modules.module"
BaseEstimator.__module__ = "sklearn.base"


class ExportedProgram:
    """As torch.export's."""


ExportedProgram.__module__ = "torch.export.exported_program"


def test_a_program_that_torch_cannot_export_is_refused_with_its_first_cause(monkeypatch):
    """PyTorch raises an error around an error, of many lines each."""
    torch = types.ModuleType("torch.onnx")
    torch.OnnxExporterError = type("OnnxExporterError", (RuntimeError,), {})

    def export(*_args, **_options):
        first = RuntimeError("No ONNX function found for\n aten._int_mm")
        raise torch.OnnxExporterError("This is step 3/3.\nNext steps:") from first

    torch.export = export
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.onnx", torch)
    with pytest.raises(ModelError) as caught:
        planner.load_model(ExportedProgram())
    wanted = "PyTorch's exporter to ONNX refuses the program: No ONNX function found for aten._int_mm (give "
    assert str(caught.value).startswith(wanted)


WRONG = {
    "a module of torch": (
        _Net,
        "not from a _Net (export it first: torch.export.export(model.eval(), example_inputs))",
    ),
    "an estimator": (
        _Classifier,
        "not from a _Classifier (convert it first: skl2onnx.to_onnx(model, X[:1]))",
    ),
    "an array": (lambda: np.zeros(3), "not from a ndarray"),
    "nothing": (lambda: None, "not from a NoneType"),
}


@pytest.mark.parametrize("name", WRONG)
def test_objects_that_are_no_models(name):
    make, said = WRONG[name]
    accepted = (
        "a path, the bytes of a file, an onnx.ModelProto, a torch.export, a jax.export or an MLIR module"
    )
    with pytest.raises(InputError) as caught:
        planner.load_model(make())
    assert str(caught.value) == f"a model is read from {accepted}, {said}"


def archive(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return data.getvalue()


def npz() -> bytes:
    data = io.BytesIO()
    np.savez(data, x=np.zeros(3))
    return data.getvalue()


def safetensors() -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(4)


FOREIGN = {
    "weights.pt": (
        archive("weights/data.pkl", "weights/data/0"),
        "a PyTorch file of weights",
        "torch.onnx.export",
    ),
    "old.pth": (
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
        "a PyTorch file of weights",
        "torch.onnx.export",
    ),
    "script.pt": (
        archive("m/data.pkl", "m/constants.pkl", "m/code/m.py"),
        "a TorchScript program",
        "torch.onnx",
    ),
    "program.pt2": (
        archive("m/archive_format", "m/models/model.json"),
        "a program of torch.export",
        "torch.export.load",
    ),
    "m.safetensors": (safetensors(), "a safetensors file: weights without a model", "torch.onnx.export"),
    "samples.npz": (npz(), "an .npz of arrays: samples", "--data"),
    "x.npy": (b"\x93NUMPY\x01\x00", "a single array of numpy", "numpy.savez"),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file, as Keras saves models", "export('model.onnx'"),
    "m.keras": (
        archive("config.json", "metadata.json", "model.weights.h5"),
        "a Keras model",
        "export('model.onnx'",
    ),
    "m.gguf": (b"GGUF" + bytes(32), "a GGUF file", "ONNX export"),
    "m.ort": (
        b"\x20\x00\x00\x00ORTM" + bytes(32),
        "a model in onnxruntime's own .ort format",
        "converted from",
    ),
    "m.pkl": (pickle.dumps({"a": 1}), "a Python pickle, which runs code when it is read", "skl2onnx"),
    "m.onnx.gz": (gzip.compress(b"x"), "a gzip archive", "unpack it"),
    "lfs.onnx": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "a pointer of Git LFS",
        "git lfs pull",
    ),
    "page.onnx": (b"\n<!DOCTYPE html><html></html>", "a web page", "saved the page"),
    "m.xml": (b'<?xml version="1.0"?><net name="m"/>', "an XML file, as OpenVINO has them", "converted from"),
    "zip.zip": (
        archive("a/m.onnx", "b.txt", "c", "d"),
        "a zip archive of 'a/m.onnx', 'b.txt', 'c', ...",
        "unpack it",
    ),
    "cut.zip": (archive("a")[:40], "a zip archive that is cut off or damaged", "fetch it again"),
    "frozen.pb": (b"\xff\xff", "a frozen graph of TensorFlow", "tf2onnx"),
    "train.py": (b"import torch\n", "Python source", "export the model"),
    "device.yaml": (b"apiVersion: qplan/1\n", "a YAML file", "--target"),
    "plan.json": (b'{"format": "qplan.plan/1"}', "a plan", "show, explain"),
    "stats.json": (b'{"format": "qplan.stats/2"}', "statistics of a model", "--stats"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(name, tmp_path):
    """What it is, that it is no model, and what to do: of a path, and (but for suffixes) of the bytes."""
    data, what, advice = FOREIGN[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        planner.load_model(path)
    assert str(caught.value).startswith(f"{str(path)!r} is {what}")
    assert "and no model that is read here (" in str(caught.value)
    assert advice in caught.value.hint
    if path.suffix not in (".pb", ".py", ".yaml"):
        with pytest.raises(ModelError, match=r"^the model is "):
            planner.load_model(data)


def test_verbs_that_read_files_as_they_are_say_so_too(tmp_path):
    path = tmp_path / "samples.npz"
    path.write_bytes(npz())
    with pytest.raises(ModelError, match=r"is an \.npz of arrays"):
        planner.convert(path, "qonnx")


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("saved_model.pb", "a SavedModel of TensorFlow"),
        ("config.json", "a model folder of Hugging Face"),
        ("plan.json", "the folder of a plan"),
    ],
)
def test_folders(file, what, tmp_path):
    (tmp_path / file).write_bytes(b"{}")
    with pytest.raises(ModelError, match=rf"^.* is {what}, and no model that is read here"):
        planner.load_model(tmp_path)


def test_what_is_not_known_is_no_onnx_model(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff\xff\xff")
    with pytest.raises(ModelError, match="is no ONNX model, or a truncated one: its 3 bytes do not parse"):
        planner.load_model(path)


def zipmap_model() -> bytes:
    """A linear classifier with a ZipMap behind it, as scikit-learn's converter writes one."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], np.eye(2, 3, dtype=np.float32).ravel())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]
    mapping = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [1]),
        helper.make_value_info("maps", helper.make_sequence_type_proto(mapping)),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])]
    graph = helper.make_graph(nodes, "classifier", inputs, outputs, [weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def test_a_zipmap_is_cut_with_one_option():
    with pytest.raises(ModelError, match=r"outputs=\['label', 'p'\] .--cut label,p"):
        planner.load_model(zipmap_model())
    found = planner.load_model(zipmap_model(), outputs=["p"])
    assert found.outputs == ("p",)
    assert [op.type for op in found.ops] == ["MatMul", "Softmax"]
    assert found.values["p"].shape == (1, 3)
    assert planner.load_model(zipmap_model(), outputs=["maps"]).outputs == ("p",)
    assert planner.load_model(zipmap_model(), outputs=["label", "p"]).outputs == ("label", "p")


def test_cutting_names_what_is_there():
    with pytest.raises(UnknownName, match=r"unknown value of the model 'score' .did you mean 'scores'"):
        planner.load_model(zipmap_model(), outputs=["score"])
    with pytest.raises(ModelError, match="the model cannot end twice at one value: p, p"):
        planner.load_model(zipmap_model(), outputs=["p", "p"])
    with pytest.raises(InputError, match="outputs are a list of names of values, not a str"):
        planner.load_model(zipmap_model(), outputs="p")
    with pytest.raises(InputError, match="outputs are chosen of ONNX models, not of mlir"):
        planner.load_model(PROGRAM.encode(), outputs=["p"])


def test_a_cut_model_needs_less_of_its_inputs():
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Add", ["a", "y"], ["b"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyb"]
    graph = helper.make_graph(nodes, "two", ports[:2], ports[2:])
    data = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()
    assert planner.load_model(data, outputs=["a"]).inputs == ("x",)


def test_the_folder_of_samples_is_not_looked_into(tmp_path: Path):
    with pytest.raises(ModelError, match=r": a folder, not a file$"):
        planner.load_model(tmp_path)
