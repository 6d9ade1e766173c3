"""Passes give what torch-mlir's own passes give, op for op; where they differ, on purpose."""

from pathlib import Path

import pytest

from planner.formats.mlir.passes.table import QUANT_PASSES
from planner.formats.mlir.passes.tool import run_parts, split
from tests.oracles.mlir import PIPELINES, modules

SOURCE = (Path(__file__).parent / "passes.mlir").read_text(encoding="utf-8")
PARTS = [text for _, text in split(SOURCE)]


def ran(*passes, truncating=True, source=SOURCE):
    parts = run_parts(source, passes, separate=True, truncating=truncating)
    assert [part.error for part in parts if part.error] == []
    return [part.text for part in parts]


def test_every_pass_is_compared():
    assert PIPELINES.keys() == QUANT_PASSES.keys()


@pytest.mark.parametrize("name", QUANT_PASSES)
def test_a_pass_does_what_upstreams_does(name):
    """Op for op, constant for constant, on modules without dead code, which upstream removes."""
    parts = PARTS
    if name == "normalize-quant-types":
        parts = [text for text in PARTS if "{1:2}" not in text]  # blocks of two, see below
    if name != "canonicalize":
        parts = modules(parts, PIPELINES["canonicalize"])
    assert modules(ran(name, source="// -----\n".join(parts))) == modules(parts, PIPELINES[name])


def test_our_saturating_form_is_valid_upstream():
    printed = ran("lower-quant-ops", truncating=False)
    found = modules(printed)
    assert [text for text in found if text.startswith("ERROR")] == []
    assert not any("quant.qcast" in text or "quant.dcast" in text for text in found)


def test_passes_run_in_order():
    (text,) = run_parts(PARTS[1], ["lower-quant-ops", "strip-func-quant-types", "canonicalize"])
    assert "quant." not in text.text


@pytest.mark.parametrize("name", QUANT_PASSES)
def test_a_pass_changes_nothing_the_second_time(name):
    once = ran(name)
    assert ran(name, source="// -----\n".join(once)) == once


def test_blocks_of_several_keep_their_type():
    """Upstream makes two scales of blocks of two a per-axis type of two, which no longer fits the tensor."""
    kind = "!quant.uniform<i8:f32:{0:2}, {{0.5}, {0.25}}>"
    source = f'func.func @f(%x: tensor<4x3x{kind}>) {{ "some.end"(%x) : (tensor<4x3x{kind}>) -> () }}'
    (part,) = run_parts(source, ["normalize-quant-types"])
    assert kind in part.text
    (theirs,) = modules([source], PIPELINES["normalize-quant-types"])
    assert "f32:0, {5.000000e-01,2.500000e-01}" in theirs


def test_types_inside_regions_are_normalized_too():
    kind = "!quant.uniform<i8:f32:{}, {0.5}>"
    inside = f'^bb0(%x: tensor<4x{kind}>): "some.end"(%x) : (tensor<4x{kind}>) -> ()'
    source = f'"some.op"() ({{ {inside} }}) : () -> ()'
    (part,) = run_parts(source, ["normalize-quant-types"])
    assert part.text.count("tensor<4x!quant.uniform<i8:f32, 0.5>>") == 2


def test_float_storage_cannot_be_stripped():
    kind = "!quant.uniform<f8E5M2:f32, 0.5>"
    (part,) = run_parts(f"\nfunc.func private @f({kind})", ["strip-func-quant-types"])
    assert part.error == f"2:1: strip-func-quant-types: {kind} stores floats; quant.scast knows integers only"
