"""docs/types.md says what is: its types are canonical, its roundings and names those of the code."""

import re
from pathlib import Path

import numpy as np

from planner.constants.quantize import ARITHMETICS
from planner.constants.rounding import QONNX, ROUNDINGS, round_floats
from planner.ir.types.qtypes import EXPRESSED, FLOAT_STORAGE
from planner.ir.types.typetext import parse_type

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "types.md").read_text(encoding="utf-8")


def test_every_type_on_the_page_is_canonical():
    texts = re.findall(r"`(!quant\.[^`]+)`", PAGE)
    assert len(texts) >= 10
    assert [str(parse_type(text)) for text in texts] == texts


def test_the_table_of_roundings():
    rows = re.findall(
        r"^\| `(\w+)`[^|]* \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| ([A-Z_, ]*)\|$", PAGE, re.MULTILINE
    )
    assert {row[0] for row in rows} == set(ROUNDINGS)
    for name, *numbers, names in rows:
        found = round_floats(np.array([2.5, -2.5, 0.2, -0.2]), name)
        assert [int(number) for number in numbers] == found.tolist()
        assert set(names.replace(",", " ").split()) == {n for n, own in QONNX.items() if own == name}


def test_names_of_arithmetics_and_formats():
    assert [name for name in (*ARITHMETICS, *EXPRESSED, *FLOAT_STORAGE) if f"`{name}`" not in PAGE] == []
