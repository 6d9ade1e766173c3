"""Scales that a text gave come out of every text with its digits: equal as doubles, not only as float32."""

import re

import pytest

import planner
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.plans.read_mlir import plan_from_mlir
from tests.equality import assert_same

MODULE = """func.func @main(%x: tensor<4xf32>, %u: tensor<4xf32>) -> tensor<4xf32> {
  %xq = quant.qcast %x : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.05:3>>
  %xd = quant.dcast %xq : tensor<4x!quant.uniform<i8:f32, 0.05:3>> to tensor<4xf32>
  %us = "quant.stats"(%u) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>} : (tensor<4xf32>) -> tensor<4xf32>
  %a = "onnx.Add"(%xd, %us) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %aq = quant.qcast %a : tensor<4xf32> to tensor<4x!quant.uniform<i8:f32, 0.1>>
  %ad = quant.dcast %aq : tensor<4x!quant.uniform<i8:f32, 0.1>> to tensor<4xf32>
  %b = "onnx.Concat"(%ad, %us) {axis = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %bq = quant.qcast %b : tensor<8xf32> to tensor<8x!quant.uniform<i8:f32, 0.3>>
  %bd = quant.dcast %bq : tensor<8x!quant.uniform<i8:f32, 0.3>> to tensor<8xf32>
  return %bd : tensor<8xf32>
}
""".replace("-> tensor<4xf32> {", "-> tensor<8xf32> {")
GIVEN = {0.05, 0.1, 0.3}


def scales(text):
    """The scales of all uniform types of a text, as the doubles that another tool reads."""
    kinds = re.findall(r"!quant\.uniform<\w+:f32, ([0-9.e-]+)", text)
    assert kinds
    return set(map(float, kinds))


@pytest.fixture(scope="module")
def model():
    return planner.load_model(MODULE.encode(), format="mlir")


def test_a_model_keeps_them_through_its_texts(model):
    assert scales(write_mlir(model)) == GIVEN
    assert scales(write_annotated(model)) == GIVEN
    again = read_annotated(write_annotated(model))
    assert_same(read_mlir(write_mlir(again)), again)
    assert scales(write_mlir(again)) == GIVEN


def test_a_plan_shows_them_at_ports_rescales_and_casts(model):
    plan = planner.plan(model, "litert-int8")
    text = plan.to_mlir().partition("{-#")[0]
    found = scales(text)
    assert found > GIVEN
    assert not {scale for scale in found if round(scale, 6) in GIVEN} - GIVEN
    assert '"qplan.rescale"' in text
    assert "(%x: tensor<4xf32>, %u: tensor<4xf32>) -> (tensor<8xf32>)" in text
    for again in (plan_from_mlir(plan.to_mlir()), planner.plan_from_json(plan.to_json())):
        assert_same(plan, again)
        assert again.to_mlir() == plan.to_mlir()
    # What is computed with is the float32.
    assert plan.values["a"].type.scale == float.fromhex("0x1.99999a0000000p-4")


@pytest.mark.parametrize(("form", "target"), [("mlir", "litert-int8"), ("stablehlo", "stablehlo")])
def test_files_have_them(model, form, target):
    plan = planner.plan(model, target)
    found = scales(planner.export(model, plan, form).decode())
    assert found >= GIVEN
    assert not {scale for scale in found if round(scale, 6) in GIVEN} - GIVEN
