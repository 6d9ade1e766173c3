"""Every key of a type, a default or a row does something: its test holds, and fails without it."""

from pathlib import Path

import pytest

from planner.target.load import load_target
from planner.target_tests.cases import run_cases

TEXT = (Path(__file__).parent / "flags.yaml").read_text(encoding="utf-8")


def failures(text):
    return [result.name for result in run_cases(load_target(text)) if not result.ok]


def test_every_flag_holds():
    assert failures(TEXT) == []


@pytest.mark.parametrize(
    ("written", "instead", "fails"),
    [
        (", power_of_two: true", "", "float bias and powers of two"),
        ("bias: float", "bias: i32", "float bias and powers of two"),
        (", zero_point: 128}", "}", "a fixed zero point"),
        ("scale_min: 1/16, ", "", "a least scale"),
        (", scale_max: 1/8", "", "a greatest scale"),
        (", float: bf16", "", "runs in bf16"),
        (", weight_bits_effective: 7", "", "seven bits of a weight"),
        ("rescale_single_consumer: true", "rescale_single_consumer: false", "one rescale for each reader"),
    ],
)
def test_without_it_its_test_fails(written, instead, fails):
    assert written in TEXT
    assert failures(TEXT.replace(written, instead, 1)) == [fails]


def test_the_rows_of_a_target_with_every_default_of_a_bias():
    for bias, storage in (("i32", "i32"), ("i64", "i64"), ("float", "f32")):
        (row,) = load_target(TEXT.replace("bias: float", f"bias: {bias}")).rows["conv"]
        assert str(row.inputs[2].type.storage) == storage
