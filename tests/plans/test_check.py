"""The checker passes real plans and refuses every mutant of them, naming the port at fault."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.formats.onnx.read import read_onnx
from planner.fusion.fuse import fuse
from planner.ir.graph import model_digest
from planner.pipeline import export
from planner.plans.plan import Plan
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.records import Step
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.propagation.propagate import propagate
from tests.conftest import ROOT
from tests.plans.mutations import KERNELS, ORIGINS, PORTS, TYPES, UNSEEN, Mutation, retyping, some
from tests.plans.mutations_log import EDGES, LOG, MODEL, REASONS
from tests.plans.planned import TARGETS, case

MUTATIONS: Final[Mapping[str, Mutation]] = {
    **{name: retyping(*how) for name, how in (*TYPES.items(), *UNSEEN.items())},
    **{f"{name}, log forged": retyping(*how, forge=True) for name, how in TYPES.items()},
    **KERNELS,
    **PORTS,
    **ORIGINS,
    **LOG,
    **EDGES,
    **MODEL,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_a_real_plan_passes(target, strategy):
    known = case(target)
    plan = propagate(
        fuse(known.model, known.target), known.target, strategy=strategy, model=model_digest(known.model)
    )
    check(plan)
    check(plan, known.model, known.target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_read_back_passes_for_the_bare_model(target):
    """A file's model carries no constraints: the plan's own count."""
    known = case(target)
    bare = read_onnx(ROOT / "examples" / "digits" / "digits.onnx")
    check(plan_from_json(plan_to_json(known.plan)), bare, known.target)
    check(plan_from_mlir(plan_to_mlir(known.plan)), bare, known.target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_mutant_is_refused_at_its_port(kind, target):
    """Every broken plan is refused, with the address of what was broken and a message that starts with it."""
    known = case(target)
    mutants = some(MUTATIONS[kind], known)
    for plan, model, device, ports in mutants:
        with pytest.raises(PlanInvalid) as caught:
            check(plan, model, device)
        assert caught.value.port in ports, caught.value.message
        if caught.value.port:
            assert caught.value.message.startswith(f"{caught.value.port}: ")


@pytest.mark.parametrize("kind", REASONS)
def test_reasons_of_types_that_are_right_are_not_verified(kind):
    """What is given up, by name: docs/plans.md says what guards it instead."""
    known = case("litert-int8")
    mutants = some(REASONS[kind], known)
    assert mutants
    for plan, model, device, _ in mutants:
        check(plan, model, device)


KEPT: Final[Mapping[str, Callable[[Plan], Plan]]] = {
    "in memory": lambda plan: plan,
    "as JSON": lambda plan: plan_from_json(plan_to_json(plan)),
    "as MLIR": lambda plan: plan_from_mlir(plan_to_mlir(plan)),
}
ALTERED: Final[Mapping[str, tuple[Callable[[Sequence[Step]], Sequence[Step]], str]]] = {
    "no log": (lambda log: log[:0], "its step says nothing"),
    "another type": (lambda log: (*log[:-1], replace(log[-1], type="float")), "decided float"),
    "a later cause": (lambda log: (*log[:-1], replace(log[-1], because=(len(log),))), "earlier steps"),
    "another number": (lambda log: (*log[:-1], replace(log[-1], n=0)), "is numbered 0"),
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("altered", ALTERED)
def test_no_plan_with_an_altered_log_is_exported(altered, kept):
    """Wherever a plan comes from, its log is read before a file is written of it."""
    known = case("onnxruntime-cpu")
    change, words = ALTERED[altered]
    forged = KEPT[kept](replace(known.plan, steps=change(known.plan.steps)))
    for work in (lambda: check(forged), lambda: export(known.model, forged, "onnx-qdq")):
        with pytest.raises(PlanInvalid, match=words):
            work()
    assert export(known.model, KEPT[kept](known.plan), "onnx-qdq")


def test_there_are_mutants_enough():
    """A mutation that finds no place would pass unseen."""
    found = {
        kind: sum(len(some(mutation, case(target))) for target in TARGETS)
        for kind, mutation in MUTATIONS.items()
    }
    assert [kind for kind, count in found.items() if count == 0] == []
    assert len(found) >= 100
    assert sum(found.values()) >= 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "other"}, "for target 'other'; this is 'litert-int8': plan again for it"),
        ({"version": "9.9.9"}, "of version 9.9.9; litert-int8.yaml has {}: the target changed since"),
        ({"digest": "sha256:0"}, "for target 'litert-int8' of digest sha256:0; litert-int8.yaml has"),
    ],
)
def test_a_target_that_changed_is_named(change, words):
    """Its file was edited behind the plan's back, say: the message tells it from a changed model."""
    known = case("litert-int8")
    stale = replace(known.plan, target=replace(known.plan.target, **change))
    with pytest.raises(PlanInvalid) as caught:
        check(stale, known.model, known.target)
    assert words.format(known.target.version) in str(caught.value)
