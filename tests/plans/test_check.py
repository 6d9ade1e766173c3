"""The checker passes real plans and refuses every mutant of them, naming the port at fault."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.fusion.fuse import fuse
from planner.ir.graph import model_digest
from planner.onnx.read import read_onnx
from planner.pipeline import export
from planner.plans.planjson import plan_from_json, plan_to_json
from planner.plans.planmlir import plan_from_mlir, plan_to_mlir
from planner.propagation.propagate import propagate
from tests.conftest import ROOT
from tests.plans.mutations import KERNELS, ORIGINS, PORTS, TYPES, UNSEEN, Mutation, retyping, some
from tests.plans.mutations_log import EDGES, LOG, MODEL
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


def test_export_looks_at_a_log_that_came_from_a_file():
    known = case("onnxruntime-cpu")
    forged = replace(known.plan, steps=())
    with pytest.raises(PlanInvalid, match="its step says nothing"):
        check(forged)
    assert export(known.model, forged, "onnx-qdq") == export(known.model, known.plan, "onnx-qdq")
    with pytest.raises(PlanInvalid, match="its step says nothing"):
        export(known.model, plan_from_json(plan_to_json(forged)), "onnx-qdq")


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
        ({"version": "9.9.9"}, "of version 9.9.9; litert-int8.yaml has 1.0.0: the target changed since"),
        ({"digest": "sha256:0"}, "for target 'litert-int8' of digest sha256:0; litert-int8.yaml has"),
    ],
)
def test_a_target_that_changed_is_named(change, words):
    """Its file was edited behind the plan's back, say: the message tells it from a changed model."""
    known = case("litert-int8")
    stale = replace(known.plan, target=replace(known.plan.target, **change))
    with pytest.raises(PlanInvalid) as caught:
        check(stale, known.model, known.target)
    assert words in str(caught.value)
