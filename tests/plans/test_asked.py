"""What is asked of kernels, on random models and every shipped target: it is done, refused, or told.

docs/specification.md, section 11. The checker accepts what the planner makes of it, and refuses
plans that do otherwise.
"""

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import planner
from planner.errors import Conflict, PlanInvalid
from planner.ir.graph import model_digest
from planner.ir.kernel_requests import with_wanted
from planner.ir.roles import is_movement
from planner.ir.structure import BORDERS
from planner.ir.types.qtypes import Uniform
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.target.load import load_target, target_ids
from tests.plans.movement_models import movement_model
from tests.plans.planned import case
from tests.plans.randommodels import random_model

TARGETS = st.sampled_from(target_ids())
STRATEGIES = st.sampled_from(("minimal", "rfc"))
STORES = ("i8", "u8", "i16", "i8<-127:127>", "i4", "f32")


@st.composite
def models(draw):
    seed, steps = draw(st.integers(0, 1 << 20)), draw(st.integers(1, 10))
    make = draw(st.sampled_from((random_model, random_model, movement_model)))
    return make(seed, steps, facts=draw(st.sampled_from((0.0, 0.1))))


@st.composite
def wishes(draw, model):
    """Names and globs of ops with something asked of each."""
    names = sorted(op.name for op in model.all_ops())
    found = {}
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(names))
        key = draw(st.sampled_from((name, name, name[:1] + "*", "*", "?" * len(name))))
        store = draw(st.sampled_from(STORES))
        forms = ("float", "float", "any", store, store, {"out": [store]}, {"in": [store], "out": ["*"]})
        found[key] = draw(st.sampled_from(forms))
    return found


def own_asked(plan, wanted):
    """By kernel, what the last name asks, else the last glob: the rule, read once more."""
    found = {}
    for region in plan.graph.regions:
        names = {region.name, *(op.name for op in region.ops)}
        keys = [key for key in wanted if key in names] or [
            key for key in wanted if any(fnmatchcase(name, key) for name in names)
        ]
        if keys and region.kernel not in BORDERS and any((*region.inputs, *region.outputs)):
            found[region.name] = keys[-1] in names, wanted[keys[-1]]
    return {name: asked for name, asked in found.items() if name in plan.kernels}


def has(port, text):
    if text == "*" or not port.value:
        return True
    if text == "f32":
        return port.type is None
    if not isinstance(port.type, Uniform):
        return False
    return str(port.type.storage) == text or ("<" not in text and port.type.storage.name == text)


def is_done(kernel, asked):
    if asked in ("float", "any"):
        return asked == "any" or (kernel.row, kernel.reason) == (None, "annotated: float")
    if kernel.row is None:
        return False
    if isinstance(asked, str):
        return all(has(port, asked) for port in kernel.outputs)
    sides = ((kernel.inputs, asked.get("in", ())), (kernel.outputs, asked.get("out", ())))
    return all(has(*pair) for ports, texts in sides for pair in zip(ports, texts, strict=False))


def holds(model, wanted, target, strategy):
    asked = with_wanted(model, wanted)
    try:
        plan = planner.plan(asked, target, strategy=strategy)
    except Conflict as conflict:
        met = conflict
    else:
        met = None
    if met is not None:
        given_up = met.concession.wanted if met.concession is not None else ()
        assert all(what != "any" and repr(name) in met.message for name, what in given_up)
        if given_up:
            plan = planner.plan(asked, target, strategy=strategy, best_effort=True)
            planner.check(plan, asked, target)
        return
    planner.check(plan, asked, target)
    planner.check(plan, asked)
    for again in (plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        assert again.graph.wanted == plan.graph.wanted
        planner.check(again, asked, target)
    for name, (by_name, what) in own_asked(plan, wanted).items():
        if by_name or what == "float":
            assert is_done(plan.kernels[name], what), (name, what, plan.kernels[name])


@settings(max_examples=60, deadline=None)
@given(st.data(), models(), TARGETS, STRATEGIES)
def test_what_is_asked_is_done_or_refused(data, model, target, strategy):
    holds(model, data.draw(wishes(model)), target, strategy)


@pytest.mark.soak
@settings(max_examples=2000, deadline=None)
@given(st.data(), models(), TARGETS, STRATEGIES)
def test_what_is_asked_is_done_or_refused_at_length(data, model, target, strategy):
    holds(model, data.draw(wishes(model)), target, strategy)


def planned(model, target):
    try:
        return planner.plan(model, target)
    except Conflict:
        assume(False)
        raise


def stored_as(kernel):
    return {
        side: [str(port.type.storage) if isinstance(port.type, Uniform) else "*" for port in ports]
        for side, ports in (("in", kernel.inputs), ("out", kernel.outputs))
    }


def own_rows(model, plan):
    """What kernels that compute have already, and float where that is what they have."""
    moving = {r.name for r in plan.graph.regions if r.ops and all(is_movement(op, model) for op in r.ops)}
    ports = {r.name: any((*r.inputs, *r.outputs)) for r in plan.graph.regions}
    return {
        name: "float" if kernel.row is None else stored_as(kernel)
        for name, kernel in plan.kernels.items()
        if name not in moving and ports[name]
    }


def types_of(plan):
    return {name: (k.row, k.inputs, k.outputs) for name, k in plan.kernels.items()}


@settings(max_examples=30, deadline=None)
@given(models(), TARGETS)
def test_to_ask_for_what_is_there_changes_nothing(model, target):
    plan = planned(model, target)
    ops = {op.name for op in model.all_ops()}
    wanted = {name: what for name, what in own_rows(model, plan).items() if name in ops}
    assume(wanted)
    again = planner.plan(with_wanted(model, wanted), target)
    assert types_of(again) == types_of(plan)
    assert (again.cost, again.optimal) == (plan.cost, plan.optimal)


@settings(max_examples=20, deadline=None)
@given(models(), TARGETS)
def test_any_asks_nothing(model, target):
    plan = planned(model, target)
    again = planner.plan(with_wanted(model, {"*": "any"}), target)
    assert types_of(again) == types_of(plan)
    assert again.cost == plan.cost
    assert [step for step in again.steps if step.rule == "annotated"] == []


@settings(max_examples=20, deadline=None)
@given(models(), TARGETS)
def test_all_in_float_is_float(model, target):
    asked = with_wanted(model, {"*": "float"})
    if load_target(target).on_no_kernel == "error":
        with pytest.raises(Conflict, match="runs no kernel in float"):
            planner.plan(asked, target)
        return
    plan = planned(asked, target)
    assert {kernel.row for kernel in plan.kernels.values() if kernel.kernel not in BORDERS} <= {None}
    planner.check(plan, asked, target)


@settings(max_examples=30, deadline=None)
@given(st.data(), models(), TARGETS)
def test_a_plan_that_does_otherwise_is_refused(data, model, target):
    """The plan without what is asked, with the wishes and its digests forged: refused at the kernel."""
    plan = planned(model, target)
    name = data.draw(st.sampled_from(sorted(plan.kernels)))
    assume(name in {op.name for op in model.all_ops()} and plan.kernels[name].inputs)
    wanted = {name: data.draw(st.sampled_from(("float", "i16", {"out": ["i4"]})))}
    asked = with_wanted(model, wanted)
    found = own_asked(plan, wanted).get(name)
    assume(found is not None and not is_done(plan.kernels[name], found[1]))
    lying = replace(
        plan, graph=replace(plan.graph, wanted=asked.wanted), model=model_digest(asked), annotated=asked
    )
    for given_ in ((), (asked,), (asked, target)):
        with pytest.raises(PlanInvalid) as caught:
            planner.check(lying, *given_)
        assert caught.value.port == name


def glob_case():
    base = case("litert-int8")
    model = with_wanted(base.model, {"*": "i16"})
    return planner.plan(model, base.target), model, base.target


def test_a_glob_that_is_done_in_part_is_counted():
    plan, model, target = glob_case()
    kernels = plan.kernels_in_order
    wide = [k.name for k in kernels if k.row and stored_as(k)["out"] == ["i16"]]
    assert wide
    assert len(wide) < len(kernels) or plan.warnings == ()
    planner.check(plan, model, target)


def test_a_glob_that_is_not_counted_is_refused():
    base = case("onnxruntime-cpu")
    model = with_wanted(base.model, {"*": "i4"})
    plan = planner.plan(model, base.target)
    assert [text for text in plan.warnings if text.startswith("'*' asks for i4: ")]
    silent = replace(plan, warnings=tuple(text for text in plan.warnings if "asks for" not in text))
    with pytest.raises(PlanInvalid, match=r"does not warn that '\*' asks for i4"):
        planner.check(silent, model, base.target)


def test_a_kernel_that_nobody_asked_is_not_left_in_float():
    plan = case("litert-int8").plan
    first = plan.kernels_in_order[0]
    bare = replace(first, row=None, reason="annotated: float")
    lying = replace(plan, kernels_in_order=(bare, *plan.kernels_in_order[1:]))
    with pytest.raises(PlanInvalid, match="nothing requests that"):
        planner.check(lying)
