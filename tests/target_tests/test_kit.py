"""The kit: every row of a target exercised, and onnxruntime answers with the expected integers."""

import io
import json
import re

import numpy as np
import onnx
import pytest

from planner.formats.onnx.sessions import open_session
from planner.target.load import load_target, target_ids
from planner.target_tests.probe_kit import kit_files, make_kit, reproduced


def run(data, inputs):
    session = open_session(data)
    names = [port.name for port in session.get_outputs()]
    return dict(
        zip(names, session.run(None, {p.name: inputs[p.name] for p in session.get_inputs()}), strict=True)
    )


def test_onnxruntime_reproduces_the_kit_of_every_row_of_its_target():
    target = load_target("onnxruntime-cpu")
    kit = make_kit(target)
    assert kit.skipped == ()
    rows = [row.source for rows in target.rows.values() for row in rows]
    assert [item.row for item in kit.items if "." not in item.name] == rows
    assert [item.refusal for item in kit.items if item.file is None] == []
    differing = [text for item in kit.items for text in reproduced(item, run(item.file, item.inputs))]
    assert differing == []


def test_a_wrong_answer_is_told():
    item = make_kit(load_target("onnxruntime-cpu"), kernels=["Sigmoid"]).items[0]
    ((name, right),) = item.expected.items()
    wrong = right.copy()
    wrong.reshape(-1)[3] ^= 1
    assert list(reproduced(item, {name: wrong})) == [
        f"{item.name}: 1 of 64 elements of {name} differ, by 1 at most"
    ]
    assert list(reproduced(item, {})) == [
        f"{item.name}: {name} is missing or has another shape than [1, 4, 4, 4]"
    ]


UNREACHED = ("finn-fpga", "Div")
"""A model that is read multiplies by the reciprocal of a constant; annotated models alone have such a Div."""


@pytest.mark.parametrize("name", target_ids())
def test_every_row_has_an_item(name):
    target = load_target(name)
    kit = make_kit(target)
    rows = sorted(row.source for kernel, group in target.rows.items() for row in group
                  if (name, kernel) != UNREACHED)  # fmt: skip
    assert {(name, item.kernel) for item in kit.skipped} <= {UNREACHED}
    assert sorted(item.row for item in kit.items if "." not in item.name.removeprefix(item.kernel)) == rows


def test_every_alternative_of_a_row_has_an_item():
    """Activations, optional ports, ops of a pattern, and both widths where a row takes any storage."""
    kit = make_kit(load_target("litert-int8"), kernels=["conv2d", "fully_connected", "LSTM", "Reshape"])
    covered = {item.name: item.covers for item in kit.items}
    assert [text for name, text in covered.items() if name.startswith("conv2d-1")] == [
        "Conv Relu", "Conv Relu, without b", "Conv Clip", "Conv Clip, without b", "Conv", "Conv, without b",
    ]  # fmt: skip
    pooled = {item.covers for item in make_kit(load_target("k210-kpu"), kernels=["kpu_conv2d"]).items}
    assert {"Conv Tanh MaxPool, without b", "Conv Elu AveragePool", "Conv HardSwish"} <= pooled
    linear = [text for name, text in covered.items() if name.startswith("fully_connected-2")]
    assert {"Gemm Relu", "Gemm, without b", "MatMul Relu, without b", "MatMul, without b"} <= set(linear)
    assert [covered["Reshape-1"], covered["Reshape-1.2"]] == ["Reshape, i8", "Reshape, i16"]
    assert "LSTM, without b, without h_in, without c_in, without p" in covered.values()


def test_a_row_that_no_model_reaches_has_a_reason():
    text = """
apiVersion: planner/v1
kind: Target
id: odd
version: 1.0.0
types: {a8: {storage: i8}, a32: {storage: i32, symmetric: true}}
defaults: {port: a8}
kernels:
  - {kernel: Relu, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
  - {kernel: Relu, in: {x: a8}, out: {y: a8}, when: {x.rank: 4}, rules: [{same_scale: [x, y]}]}
  - {kernel: Sigmoid, in: {x: a32}, out: {y: a8}}
  - {kernel: Tanh, in: {x: a8, z: a8}, out: {y: a8}}
  - {kernel: secret, in: {x: a8}, out: {y: a8}}
"""
    kit = make_kit(load_target(text))
    assert [(item.kernel, item.reason.rpartition(":")[2]) for item in kit.skipped] == [
        ("Relu", "9 is chosen first"),
        ("Sigmoid", "an input is no integer of at most 16 bits, nor float32"),
        ("Tanh", "small models have other ports"),
        ("secret", "no small model of this kernel is known"),
    ]


def test_float_ports_have_float_numbers():
    """Weights of 2 to 8 bits in blocks, activations in float: onnxruntime answers within the tolerance."""
    kit = make_kit(load_target("llm-w4"), form="onnx-matmulnbits")
    index = json.loads(kit_files(kit)["kit.json"])
    items = [item for item in kit.items if item.kernel == "matmul_nbits"]
    assert len({item.row for item in items}) == 12
    kinds = []
    for item, told in zip(items, index["items"], strict=False):
        (kind,) = {array.dtype for array in (*item.inputs.values(), *item.expected.values())}
        kinds.append(kind)
        assert set(told["inputs"].values()) == {"f16" if kind == np.float16 else "f32"}
        results = run(item.file, item.inputs)
        assert list(reproduced(item, results)) == []
        more = 1.004 if kind == np.float16 else 1.001
        wrong = {name: array * kind.type(more) for name, array in results.items()}
        assert len(list(reproduced(item, wrong))) == 1
    assert kinds == [np.dtype(np.float16)] * 12 + [np.dtype(np.float32)] * 24


def test_tables_of_few_bits_answer_bit_for_bit():
    kit = make_kit(load_target("llm-w4"), form="onnx-matmulnbits", kernels=["Gather"])
    # The seventh, a table of bytes, is no MatMulNBits: a model of nothing else is written as QDQ.
    written = [item for item in kit.items if item.file is not None]
    assert (len(written), len(kit.items)) == (6, 7)
    for item in written:
        (found,), (wanted,) = run(item.file, item.inputs).values(), item.expected.values()
        np.testing.assert_array_equal(found, wanted)


def test_inputs_reach_the_ends_of_their_storage():
    item = make_kit(load_target("litert-int8"), kernels=["conv2d"]).items[0]
    (array,) = item.inputs.values()
    assert (array.dtype, int(array.min()), int(array.max())) == (np.int8, -128, 127)


def test_files_of_a_kit():
    kit = make_kit(load_target("teaching-npu"))
    files = kit_files(kit)
    index = json.loads(files["kit.json"])
    assert (index["format"], index["target"], index["digest"]) == ("qplan.kit/1", "teaching-npu", kit.digest)
    assert [entry["name"] for entry in index["items"]] == [item.name for item in kit.items]
    first = index["items"][0]
    expected = np.load(io.BytesIO(files[f"{first['name']}/expected.npz"]))
    assert set(expected.files) == set(first["expected"])
    assert all(text.startswith("!quant.uniform<i8:f32, ") for text in first["inputs"].values())
    assert files == kit_files(make_kit(load_target("teaching-npu")))
    readme = files["README.txt"].decode()
    assert "the target teaching-npu," in readme
    told = set(re.findall(r"\w[\w-]*\.(?:npz|onnx|json)", readme)) - {"results.npz", "ITEM.npz", "kit.json"}
    assert told == {path.rpartition("/")[2] for path in files if path.startswith(f"{first['name']}/")}


def test_no_weights_are_all_zero_in_a_type_of_two_bits():
    """Such a layer has no sums, and an engine that drops it proves nothing."""
    items = make_kit(load_target("finn-fpga"), form="finn", kernels=["mvau", "vvau"]).items
    files = [item.file for item in items if item.name.partition(".")[0] in {"mvau-1", "vvau-1"} and item.file]
    assert len(files) > 4
    for file in files:
        graph = onnx.load_from_string(file).graph
        (product,) = (node for node in graph.node if node.op_type in ("Conv", "MatMul"))
        arrays = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
        assert set(np.unique(arrays[product.input[1]])) == {-1, 0, 1}
