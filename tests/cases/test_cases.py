"""The cases of design 02 that need no function or loop: an annotated model, and what must come out.

The expectations are in `table.py`; test names bear the number in 02. `golden/NAME.txt` is the whole plan and
why it is so, as prose.
"""

from dataclasses import replace

import pytest

from planner.errors import Conflict
from planner.ir.graph import model_digest
from planner.plans.check import check
from planner.propagation.propagate import propagate
from tests.cases.table import (
    CASES,
    CONFLICTS,
    HERE,
    NPU,
    counted,
    port_type,
    read,
    reasons_to_tell,
    told,
    wanted_type,
)
from tests.propagation.graphs import renamed


def named(name: str) -> object:
    """A case as a parameter, its number in front of its name."""
    return pytest.param(name, id=f"{CASES[name].number:02}-{name}")


@pytest.mark.parametrize("name", list(map(named, CASES)))
def test_case(name):
    case, plan = CASES[name], propagate(read(name), NPU)
    assert counted(plan) == list(case.rescales)
    got = {address: port_type(plan, address) for address in (*case.ports, *case.alike)}
    assert {address: str(got[address]) for address in case.ports} == {
        address: str(wanted_type(wanted)) for address, wanted in case.ports.items()
    }
    assert len({(got[address].scales, got[address].zero_points) for address in case.alike}) <= 1
    reasons = {kernel.name: kernel.reason for kernel in plan.kernels_in_order if kernel.row is None}
    assert set(reasons) == set(case.floats)
    assert all(part in reasons[kernel] for kernel, part in case.floats.items())
    assert len(plan.warnings) == len(case.warnings)
    assert all(part in text for part, text in zip(case.warnings, plan.warnings, strict=True))
    if case.casts is not None:
        kinds = [rescale.kind for rescale in plan.rescales]
        assert (kinds.count("quantize"), kinds.count("dequantize")) == case.casts
    assert plan.optimal


@pytest.mark.parametrize("name", list(map(named, CASES)))
def test_plan_and_explanation(golden, name):
    """The whole plan and its reasons, word for word; and the checker agrees."""
    graph = read(name)
    plan = propagate(graph, NPU, model=model_digest(graph))
    check(plan, graph, NPU)
    golden(f"{name}.txt", told(plan, reasons_to_tell(plan, CASES[name])))


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=f"{number:02}-{name}") for name, (number, _) in CONFLICTS.items()]
)
def test_conflict(golden, name):
    """Two to five facts, each with where it stands; and a plan all the same on request."""
    graph, target = read(name), CONFLICTS[name][1]
    with pytest.raises(Conflict) as caught:
        propagate(graph, target)
    assert 2 <= len(caught.value.facts) <= 5
    golden(f"{name}.conflict.txt", "\n".join([str(caught.value), *caught.value.facts]) + "\n")
    plan = propagate(graph, target, best_effort=True)
    check(plan)
    assert plan.warnings[0].startswith(caught.value.message)


@pytest.mark.parametrize("name", list(map(named, CASES)))
def test_other_names_and_another_order(name):
    """Case 49: the same plan up to names."""
    graph = read(name)
    other = renamed(
        graph, [f"z{i}" for i in range(len(graph.values))], [f"n{i}" for i in range(len(graph.regions))]
    )
    order = dict(sorted(other.values.items(), reverse=True))
    plans = [propagate(one, NPU) for one in (graph, replace(other, values=order))]
    assert plans[0].cost == plans[1].cost
    kinds = [
        {k.name: [port.type for port in (*k.inputs, *k.outputs)] for k in plan.kernels_in_order}
        for plan in plans
    ]
    back = {f"n{i}": region.name for i, region in enumerate(graph.regions)}
    assert kinds[0] == {back[name]: types for name, types in kinds[1].items()}


def test_every_model_has_a_case():
    assert {path.stem for path in HERE.glob("*.json")} == {*CASES, *CONFLICTS}
