"""A model with open sizes that samples settle: planned and met again as if it had been read with them."""

import numpy as np
import onnx.parser
import pytest

import planner

SHAPES = """
<ir_version: 10, opset_import: ["" : 21]> m (float[N, 8] x) => (float[N, 2, M] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[2] rest = {2, 4}> {
    s = Shape(x)
    n = Slice(s, zero, one, zero)
    sizes = Concat<axis = 0>(n, rest)
    r = Reshape(x, sizes)
    y = Relu(r)
}
"""
BRANCH = """
<ir_version: 10, opset_import: ["" : 21]> m (float[N, 8] x) => (float[N, 8] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64 single = {1}> {
    s = Shape(x)
    n = Slice(s, zero, one, zero)
    q = Squeeze(n)
    is_one = Equal(q, single)
    r = If(is_one) <
        then_branch = a () => (float[N, 8] t) { t = Relu(x) },
        else_branch = b () => (float[N, 8] e) { e = Tanh(x) }
    >
    y = Sigmoid(r)
}
"""
SAMPLES = [{"x": np.linspace(-1, k + 1, 8, dtype=np.float32)[None]} for k in range(4)]


def data_of(text):
    return onnx.parser.parse_model(text).SerializeToString()


def ready(model):
    return planner.annotate(model, stats=planner.calibrate(model, SAMPLES))


@pytest.mark.parametrize(("target", "form"), [("tosa-int8", "tosa"), ("litert-int8", "litert")])
def test_what_computes_shapes_is_no_kernel(target, form):
    model = planner.load_model(data_of(SHAPES))
    annotated = ready(model)
    plan = planner.plan(annotated, target, formats=(form,))
    assert [kernel.kernel for kernel in plan.kernels_in_order] == ["Reshape", "Relu"]
    planner.check(plan, annotated, target)
    assert planner.export(annotated, plan, form)
    sized = ready(planner.load_model(data_of(SHAPES), dims={"N": 1}))
    again = planner.plan(sized, target, formats=(form,))
    assert [kernel.outputs for kernel in again.kernels_in_order] == [
        kernel.outputs for kernel in plan.kernels_in_order
    ]


def test_the_model_as_it_is_read_meets_its_plan():
    model = planner.load_model(data_of(SHAPES))
    plan = planner.plan(ready(model), "tosa-int8")
    wanted = planner.evaluate(ready(model), plan, SAMPLES[0]).outputs["y"]
    assert np.array_equal(planner.evaluate(model, plan, SAMPLES[0]).outputs["y"], wanted)
    assert planner.losses(model, plan, SAMPLES) is not None


def test_a_format_without_fixed_sizes_keeps_them_open():
    annotated = ready(planner.load_model(data_of(SHAPES)))
    plan = planner.plan(annotated, "litert-int8", formats=("onnx-qdq",))
    assert "Shape" in {kernel.kernel for kernel in plan.kernels_in_order}


def test_a_branch_that_sizes_decide_is_none():
    done = planner.quantize(data_of(BRANCH), SAMPLES, target="tosa-int8", format="tosa", effort="quick")
    assert [kernel.kernel for kernel in done.plan.kernels_in_order if kernel.row] == ["Relu", "Sigmoid"]
    assert "If" not in {kernel.kernel for kernel in done.plan.kernels_in_order}


def test_samples_of_several_sizes_leave_the_branch():
    samples = [*SAMPLES, {"x": np.ones((3, 8), np.float32)}]
    done = planner.quantize(data_of(BRANCH), samples, target="litert-int8", effort="quick")
    assert {scope.type for scope in done.plan.graph.scopes.values()} == {"If"}
