"""Explanations as prose goldens: a value, a port, a kernel, a rescale, what is not there."""

import pytest

import planner
from planner.errors import UnknownName
from planner.plans.explain import explain
from tests.plans.planned import TARGETS, case


def asked(target: str) -> dict[str, str]:
    """One address of each sort in the plan of the shipped example."""
    plan = case(target).plan
    within = next((r for r in plan.rescales if r.from_type is not None and r.to_type is not None), None)
    entering = next(r for r in plan.rescales if r.from_type is None)
    found = {
        "model input": plan.graph.inputs[0],
        "value": plan.kernels["stem/conv"].outputs[0].value,
        "value of a fixed type": plan.kernels["head/softmax"].outputs[0].value,
        "value in a class": plan.kernels["join/concat"].outputs[0].value,
        "port": "head/gemm.in[0]",
        "port of a weight": "head/gemm.in[1]",
        "port of a bias": "head/gemm.in[2]",
        "kernel": "head/gemm",
        "quantize": entering.id,
    }
    return found | ({"rescale": within.id} if within else {})


@pytest.mark.parametrize("target", TARGETS)
def test_explanations(target, golden):
    plan = case(target).plan
    told = [f"## {what}: {address}\n{explain(plan, address)}\n" for what, address in asked(target).items()]
    golden(f"explain-{target}.txt", "\n".join(told))


def test_an_unknown_address_gets_the_nearest():
    with pytest.raises(UnknownName) as caught:
        explain(case("litert-int8").plan, "head/gem")
    assert str(caught.value) == (
        "unknown value, port, kernel or rescale 'head/gem' "
        "(did you mean 'head/gemm' or 'head/gemm_out' or 'head/gemm.in[2]'?)"
    )


def test_every_address_has_an_explanation():
    """Whatever the plan names can be asked for, and the answer names it."""
    for target in TARGETS:
        plan = case(target).plan
        ports = [p.address for k in plan.kernels_in_order for p in (*k.inputs, *k.outputs)]
        rescales = [rescale.id for rescale in plan.rescales]
        for address in (*plan.values, *plan.kernels, *rescales, *ports):
            assert explain(plan, address).startswith(address)


def test_a_constant_with_a_fact_is_explained_by_the_port_that_stores_it():
    """Not by the fact alone, which is among its reasons."""
    made = case("litert-int8")
    weight = made.plan.kernels["head/gemm"].inputs[1].value
    wish = {"format": "qplan.annotations/1", "values": {weight: "!quant.any<i4>"}}
    told = explain(planner.plan(planner.annotate(made.model, annotations=wish), "litert-int8"), weight)
    assert told.startswith("head/gemm.in[1] is !quant.uniform<i8<-127:127>")
    assert f"the model asks for at least !quant.any<i4> at {weight}" in told


def test_the_boundary_has_both_sides():
    plan = case("litert-int8").plan
    assert explain(plan, "@model.out[0]") == "image is a model input and is float."
    assert explain(plan, "@model.in[0]").startswith("probabilities#0: ")
