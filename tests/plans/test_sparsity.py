"""Rows for sparse weights: 2 of each 4 along the dimension that is summed, else the next row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import PlanInvalid
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.target_tests.probe_kit import make_kit

TARGET = """
apiVersion: planner/v1
kind: Target
id: sparse
version: 1.0.0
types:
  a8: {storage: i8}
  w8: {storage: i8, range: [-127, 127], symmetric: true, granularity: axis}
  s8: {storage: i8, range: [-127, 127], symmetric: true, granularity: axis, sparsity: "2:4"}
defaults: {port: a8}
kernels:
  - {kernel: KERNEL, in: {x: a8, w: s8}, out: {y: a8}}
  - {kernel: KERNEL, in: {x: a8, w: w8}, out: {y: a8}}
"""
SHAPES = {"Conv": (6, 10, 3, 3), "MatMul": (10, 6), "Gemm": (10, 6)}
SUMMED = {"Conv": 1, "MatMul": 0, "Gemm": 0}
INPUTS = {"Conv": (1, 10, 5, 5), "MatMul": (3, 10), "Gemm": (3, 10)}


def pruned(kernel, seed=0):
    """Weights of which the two smallest of each four along the summed dimension are 0; the last two stay."""
    drawn = np.random.default_rng(seed).normal(size=SHAPES[kernel]).astype(np.float32)
    moved = np.moveaxis(drawn, SUMMED[kernel], -1)
    for begin in (0, 4):
        group = moved[..., begin : begin + 4]
        order = np.argsort(np.abs(group), axis=-1)
        np.put_along_axis(group, order[..., :2], 0.0, axis=-1)
    return drawn


def planned(kernel, weight):
    node = helper.make_node(kernel, ["x", "w"], ["y"], name="k")
    shape = INPUTS[kernel]
    sides = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph([node], "sparse", sides[:1], sides[1:], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = planner.load_model(made.SerializeToString())
    samples = [{"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}]
    model = planner.annotate(model, stats=planner.calibrate(model, samples))
    target = planner.load_target(TARGET.replace("KERNEL", kernel))
    plan = planner.plan(model, target)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        planner.check(one, model, target)
    return model, target, plan


@pytest.mark.parametrize("kernel", SHAPES)
def test_sparse_weights_take_their_row(kernel):
    model, target, plan = planned(kernel, pruned(kernel))
    assert plan.row_of("k") == target.rows[kernel][0]
    assert planner.export(model, plan, "onnx-qdq")


@pytest.mark.parametrize("kernel", SHAPES)
def test_one_number_too_many_takes_the_next(kernel):
    weight = pruned(kernel)
    group = np.moveaxis(weight, SUMMED[kernel], 0)[:4]
    group[(slice(None), *([0] * (weight.ndim - 1)))] = 0.5
    _, target, plan = planned(kernel, weight)
    assert plan.row_of("k") == target.rows[kernel][1]


def test_zeros_along_another_dimension_do_not_count():
    weight = np.ones((8, 8), np.float32)
    weight[:, ::2] = 0.0  # every other column, so each column that is left is dense
    _, target, plan = planned("MatMul", np.ascontiguousarray(np.vstack([weight, weight])[:10, :6]))
    assert plan.row_of("k") == target.rows["MatMul"][1]


@settings(max_examples=15)
@given(st.integers(0, 9), st.integers(0, 5))
def test_whoever_counts_finds_the_same(i, j):
    """The planner and the checker, which judges the row that is not chosen too, agree on any one number."""
    weight = pruned("MatMul")
    weight[i, j] = 0.25
    group = weight[i - i % 4 : i - i % 4 + 4, j]
    _, target, plan = planned("MatMul", weight)
    assert plan.row_of("k") == target.rows["MatMul"][int(np.count_nonzero(group) > 2)]


def test_a_plan_of_dense_weights_by_a_sparse_row_is_refused():
    weight = pruned("MatMul")
    weight[:4, 0] = 1.0
    model, target, plan = planned("MatMul", weight)
    told = plan_from_json(plan.to_json())
    key = told.kernels["k"].row
    narrow = replace(told.target.rows[key], inputs=target.rows["MatMul"][0].inputs)
    wrong = replace(told, target=replace(told.target, rows={key: narrow}))
    with pytest.raises(PlanInvalid, match="2:4 sparse, and 4 of 4 along axis 0 are not 0"):
        planner.check(wrong, model)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('sparsity: "4:2"', "T028 sparsity 4:2 leaves nothing out"),
        ('sparsity: "2:2"', "T028 sparsity 2:2"),
        ("sparsity: half", "T014"),
        ("sparsity: 2", "sparsity"),
        ('sparsity: "0:4"', "T014"),
    ],
)
def test_sparsities_that_are_none(text, words):
    with pytest.raises(planner.PlannerError) as caught:
        planner.load_target(TARGET.replace('sparsity: "2:4"', text).replace("KERNEL", "MatMul"))
    assert words in str(caught.value)


@pytest.mark.parametrize("kernel", SHAPES)
def test_the_kit_prunes_its_weights(kernel):
    """A row for sparse weights has an item, whose weights are so."""
    target = planner.load_target(TARGET.replace("KERNEL", kernel))
    assert target.rows[kernel][0].source in {item.row for item in make_kit(target).items}


def test_zero_has_to_be_one_number():
    text = TARGET.replace(", granularity: axis, sparsity", ", sparsity").replace(
        "s8: {storage: i8, range: [-127, 127], symmetric: true", "s8: {storage: i8"
    )
    with pytest.raises(planner.PlannerError, match="sparsity needs symmetric: true or a zero_point, so that"):
        planner.load_target(text.replace("KERNEL", "MatMul"))
    for number in (0, 5):
        fixed = text.replace("s8: {storage: i8", f"s8: {{storage: i8, zero_point: {number}")
        assert planner.load_target(fixed.replace("KERNEL", "MatMul")).rows["MatMul"]
