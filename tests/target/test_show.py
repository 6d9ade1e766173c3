"""Rows as plain data and back, without loss."""

import json
from pathlib import Path

import pytest

from planner.errors import PlanFormatError
from planner.ir.types.qtypes import FloatType, storage
from planner.target.load import load_target, target_ids
from planner.target.records import PortPattern, PortType, Row, Rule
from planner.target.show import row_from_json, row_to_json, target_to_json

FULL = Row(
    kernel="k",
    inputs=(
        PortPattern("x", PortType(storage("i8", -127, 127), "axis", symmetric=True)),
        PortPattern("w", PortType(storage("i4"), "block", block_size=(32, 64), weight_bits_effective=3)),
        PortPattern("b", PortType(FloatType("bf16")), optional=True),
        PortPattern("xs", PortType(), variadic=True),
    ),
    outputs=(
        PortPattern(
            "y", PortType(storage("u8"), zero_point=0, power_of_two=True, scale_min=2**-16, scale_max=1.0)
        ),
        PortPattern("z", PortType(storage("f8E4M3FN"))),
    ),
    rules=(
        Rule("same_scale", {"ports": ("x", "y")}, "t.yaml:4"),
        Rule("fn", {"name": "f", "args": {"a": (1, 2.5, None, {"b": ()})}}, "t.yaml:5"),
    ),
    axis={"x": "out_channel", "w": 1},
    when={"min_bits": {"x": 9}, "x.rank": (3, 4), "Conv.group": "== x.shape[1]"},
    requantize="gemmlowp",
    accumulator=storage("i32"),
    computes=True,
    float="bf16",
    source="t.yaml:3",
    mark=".2",
)


@pytest.mark.parametrize("row", [FULL, Row("k", (), ())])
def test_round_trip(row):
    """Through real JSON text, ports in order."""
    again = row_from_json(json.loads(json.dumps(row_to_json(row))))
    assert again == row
    assert row_to_json(again) == row_to_json(row)


def test_text_of_a_row():
    """Defaults are left out."""
    row = Row(
        "k", (PortPattern("x", PortType(storage("u8"))),), (PortPattern("y", PortType()),), source="t.yaml:3"
    )
    assert row_to_json(row) == {
        "kernel": "k",
        "in": [{"name": "x", "type": {"storage": "u8"}}],
        "out": [{"name": "y", "type": {"storage": "*"}}],
        "source": "t.yaml:3",
    }


def test_rows_of_targets_round_trip():
    demo = load_target(Path(__file__).parent / "demo.yaml", {"my_targets:npu_special": lambda *_: {}})
    for target in (demo, *map(load_target, target_ids())):
        for rows in target.rows.values():
            for row in rows:
                assert row_from_json(json.loads(json.dumps(row_to_json(row)))) == row


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "row: an object is expected, not list"),
        ({}, "row: field 'kernel' is missing"),
        ({"kernel": 1}, "row.kernel: 1 is no str"),
        ({"kernel": "k", "colour": 1}, "row: unknown field 'colour'; known: kernel, axis, when,"),
        ({"kernel": "k", "in": {}}, "in: a list is expected, not dict"),
        ({"kernel": "k", "in": [{"type": {}}]}, "port: field 'name' is missing"),
        (
            {"kernel": "k", "in": [{"name": "x", "type": {"storage": "q8"}}]},
            "port.type: type.storage: unknown storage",
        ),
        (
            {"kernel": "k", "in": [{"name": "x", "type": {"zero_point": True}}]},
            "type.zero_point: True is no int",
        ),
        ({"kernel": "k", "rules": [{"kind": "fn"}]}, "rule: field 'args' is missing"),
        ({"kernel": "k", "computes": 1}, "row.computes: 1 is no bool"),
    ],
)
def test_refusals(data, message):
    with pytest.raises(PlanFormatError) as caught:
        row_from_json(data)
    assert message in str(caught.value)


def test_target_as_data():
    target = load_target("teaching-npu")
    data = json.loads(json.dumps(target_to_json(target)))
    assert (data["id"], data["digest"], data["file"]) == (target.id, target.digest, "teaching-npu.yaml")
    assert list(data["kernels"]) == list(target.rows)
    assert data["defaults"]["port"]["storage"] == str(target.default_port.storage)
