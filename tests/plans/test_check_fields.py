"""`check` refuses each change of one field of a plan's JSON: key, options, warnings, price, values, types."""

import json
from functools import cache

import pytest

import planner
from planner.errors import PlannerError
from planner.plans.plan import Plan
from planner.target.load import load_target
from tests.conftest import ROOT
from tests.plans.randommodels import random_model

TARGETS = ("litert-int8", "onnxruntime-cpu", "teaching-npu", "qnn-htp")


@cache
def digits():
    folder = ROOT / "examples" / "digits"
    model = planner.load_model(folder / "digits.onnx")
    return planner.annotate(model, stats=planner.calibrate(model, folder / "calibration.npz"))


@cache
def with_warnings():
    """A random model whose plan warns."""
    for seed in range(200):
        model = random_model(seed, 8, facts=0.3)
        try:
            plan = planner.plan(model, "litert-int8")
        except PlannerError:
            continue
        if len(plan.warnings) > 1 and plan.excused and plan.rescales:
            return model, plan
    raise AssertionError


def refused(document, model, target):
    """Whether reading or checking a changed document refuses it."""
    try:
        planner.check(planner.plan_from_json(json.dumps(document)), model, target)
    except PlannerError:
        return True
    return False


def changed(document, **fields):
    return {**json.loads(json.dumps(document)), **fields}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: changed(d, key="sha256:" + "0" * 64),
        lambda d: changed(d, key=""),
        lambda d: changed(d, warnings=[]),
        lambda d: changed(d, warnings=d["warnings"][1:]),
        lambda d: changed(d, warnings=[*d["warnings"], d["warnings"][0]]),
        lambda d: changed(d, warnings=[*d["warnings"], "all is well"]),
        lambda d: changed(d, warnings=["runs in float: nothing", *d["warnings"]]),
        lambda d: changed(d, warnings=["'k' was restored to float: i8, asked of it by 'k', is dropped"]),
        lambda d: changed(d, options={**d["options"], "colour": "red"}),
        lambda d: changed(d, options={**d["options"], "bit_price": 7.0}),
        lambda d: changed(d, options={**d["options"], "best_effort": True}),
        lambda d: changed(d, options={**d["options"], "best_effort": False}),
        lambda d: changed(d, options={**d["options"], "bias_pins": "derive"}),
        lambda d: changed(d, options={**d["options"], "bias_pins": "never"}),
        lambda d: changed(d, options={"strategy": "rfc"}),
        lambda d: changed(d, options={}),
        lambda d: changed(d, cost=d["cost"] + 1),
        lambda d: changed(d, cost=0.0),
        lambda d: changed(d, excused=0.0),
        lambda d: changed(d, excused=-1.0),
        lambda d: changed(d, bound=d["cost"] + 1),
        lambda d: changed(d, bound=d["bound"] - 1),
        lambda d: changed(d, optimal=not d["optimal"]),
        lambda d: changed(d, model="sha256:" + "0" * 64),
        lambda d: changed(d, more=1),
    ],
)
def test_a_changed_field_is_refused(change):
    """Of a plan with warnings, options and excused bits."""
    model, plan = with_warnings()
    document = json.loads(plan.to_json())
    assert not refused(document, model, "litert-int8")
    assert refused(change(document), model, "litert-int8")


def mutants(document):
    """The document with one figure or type of a value, a kernel, a rescale or a cost changed."""
    for name, value in document["values"].items():
        for field, other in (("bits_lost", value["bits_lost"] + 0.25), ("clip", value["clip"] + 0.1)):
            yield changed(document, values={**document["values"], name: {**value, field: other}})
        yield changed(document, values={**document["values"], name: {**value, "decided_by": None}})
        yield changed(
            document, values={**document["values"], name: {**value, "type": "!quant.uniform<i8:f32, 9.0>"}}
        )
    for place, kernel in enumerate(document["kernels"]):
        for field, other in (
            ("row", None),
            ("reason", "no reason"),
            ("accumulator_bits", 99),
            ("trip_count", 7),
        ):
            if kernel[field] != other:
                kernels = [*document["kernels"]]
                kernels[place] = {**kernel, field: other}
                yield changed(document, kernels=kernels)
        for side in ("in", "out"):
            for i, kind in enumerate(kernel[side]):
                kernels = [*document["kernels"]]
                types = [*kernel[side]]
                types[i] = "!quant.uniform<i8:f32, 9.0>" if kind is None else None
                kernels[place] = {**kernel, side: types}
                if kernel["inputs" if side == "in" else "outputs"][i] is not None:
                    yield changed(document, kernels=kernels)
    for place, rescale in enumerate(document["rescales"]):
        for field, other in (("cost", rescale["cost"] + 1), ("kind", "clamp"), ("elements", 1), ("to", None)):
            if rescale[field] != other:
                rescales = [*document["rescales"]]
                rescales[place] = {**rescale, field: other}
                yield changed(document, rescales=rescales)
    for name, price in document["target"]["costs"].items():
        costs = {**document["target"]["costs"], name: 3.25 if price is None else price + 0.25}
        yield changed(document, target={**document["target"], "costs": costs})


@pytest.mark.parametrize("target", TARGETS)
def test_a_changed_figure_or_type_is_refused(target):
    """Every figure and type of the plan of the shipped example, one after the other."""
    device = load_target(target)
    document = json.loads(planner.plan(digits(), device).to_json())
    assert not refused(document, digits(), device)
    count = 0
    more = [changed(document, excused=document["excused"] + 1), changed(document, cost=document["cost"] + 1)]
    for mutant in (*more, *mutants(document)):
        if mutant == document:
            continue
        count += 1
        kept = [field for field in document if mutant[field] != document[field]]
        assert refused(mutant, digits(), device), kept
    assert count > 100


def test_dropped_warnings_are_refused_by_every_export():
    """Exports check first."""
    model, plan = with_warnings()
    fields = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
    with pytest.raises(planner.PlannerError, match=r"does not warn that|with a warning"):
        planner.export(model, Plan(**{**fields, "warnings": ()}), "onnx-qdq")


def test_a_best_effort_plan_says_what_it_left_out():
    """Its notes tell what the plan lacks; an invented one is refused."""
    model = planner.annotate(digits(), kernels={"head/gemm": "float"})
    plan = planner.plan(model, "litert-int8", best_effort=True)
    document = json.loads(plan.to_json())
    assert not refused(document, model, "litert-int8")

    def noted(text):
        return changed(document, warnings=[f"its constraints cannot hold: {text}", *document["warnings"]])

    served = next(kernel.name for kernel in plan.kernels_in_order if kernel.row)
    fact = next(fact for fact in plan.graph.values["image"].facts)
    # What the plan lacks is taken, so that the others are refused for what it has.
    for text in ("runs in float: head/gemm", f"left out: {fact} at head/gemm_out", "done all the same"):
        assert not refused(noted(text), model, "litert-int8"), text
    for text in (f"runs in float: {served}", f"left out: {fact} at image", "is float: head/gemm"):
        assert refused(noted(text), model, "litert-int8"), text
