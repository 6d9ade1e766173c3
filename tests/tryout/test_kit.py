"""The kit: every row of a target exercised, and onnxruntime answers with the expected integers."""

import io
import json

import numpy as np
import pytest

from planner.onnx.sessions import open_session
from planner.target.load import load_target, target_ids
from planner.tryout.kit import kit_files, make_kit, reproduced


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
    assert [item.row for item in kit.items] == [row.source for rows in target.rows.values() for row in rows]
    assert [item.refusal for item in kit.items if item.file is None] == []
    differing = [text for item in kit.items for text in reproduced(item, run(item.file, item.inputs))]
    assert differing == []


def test_a_wrong_answer_is_told():
    item = next(item for item in make_kit(load_target("onnxruntime-cpu")).items if item.kernel == "Sigmoid")
    ((name, right),) = item.expected.items()
    wrong = right.copy()
    wrong.reshape(-1)[3] ^= 1
    assert list(reproduced(item, {name: wrong})) == [
        f"{item.name}: 1 of 64 elements of {name} differ, by 1 at most"
    ]
    assert list(reproduced(item, {})) == [
        f"{item.name}: {name} is missing or has another shape than [1, 4, 4, 4]"
    ]


@pytest.mark.parametrize("name", target_ids())
def test_every_row_has_an_item_or_a_reason(name):
    target = load_target(name)
    kit = make_kit(target)
    rows = sorted(row.source for group in target.rows.values() for row in group)
    assert sorted([*(item.row for item in kit.items), *(item.row for item in kit.skipped)]) == rows
    assert all(item.reason for item in kit.skipped)
    if name not in ("finn-fpga", "llm-w4"):  # rows that facts choose; floats in and out
        assert len(kit.skipped) <= max(1, len(rows) // 4)


def test_inputs_reach_the_ends_of_their_storage():
    item = make_kit(load_target("litert-int8")).items[0]
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
