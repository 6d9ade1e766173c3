"""Affine steps behind a quantizer: they stay apart, since its type is one of numbers before them."""

import pytest

import planner
from planner.ir.types.qtypes import Uniform
from tests.calibration.test_warned_as_written import source


@pytest.mark.parametrize(
    ("activation", "normalized", "kind"),
    [("Relu", True, "BatchNormalization"), ("Add", False, "Add"), ("Mul", False, "Mul")],
)
def test_no_quantizer_is_folded_away(activation, normalized, kind):
    graph = planner.load_model(source(activation, normalized=normalized, fixed=True))
    assert kind in [op.type for op in graph.ops]
    first = next(op for op in graph.ops if op.type == "Conv")
    assert any(isinstance(fact, Uniform) for fact in graph.values[first.outputs[0]].facts)
    assert "a/bias" not in graph.constants
