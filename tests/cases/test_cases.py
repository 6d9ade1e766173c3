"""The cases of the specification that need no function or loop: an annotated model, and what must come out.

The expectations are in `table.py`; test names bear the number in 02. `golden/NAME.txt` is the whole plan and
why it is so, as prose.
"""

from dataclasses import replace

import pytest

from planner.checker.check import check
from planner.errors import Conflict
from planner.propagation.propagate import propagate
from tests.cases.table import (
    CASES,
    CONFLICTS,
    HERE,
    TARGETS,
    counted,
    planned,
    port_type,
    read,
    reasons_to_tell,
    told,
    wanted_type,
)
from tests.propagation.graphs import renamed

ELSEWHERE = (40, 41, *range(59, 65), 66, 67)
"""Loops, branches and functions (`test_structure`), needed ranges, islands, float results."""


def named(name: str) -> object:
    """A case as a parameter, its number in front of its name."""
    return pytest.param(name, id=f"{CASES[name].number:02}-{name}")


@pytest.mark.parametrize("name", list(map(named, CASES)))
def test_case(name):
    case = CASES[name]
    plan = planned(name, read(case.model or name))
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
    assert {value: plan.values[value].clip for value in case.clips} == pytest.approx(case.clips, abs=0.01)
    assert plan.optimal


@pytest.mark.parametrize("name", list(map(named, CASES)))
def test_plan_and_explanation(golden, name):
    """The whole plan and its reasons, word for word; and the checker agrees."""
    graph = read(CASES[name].model or name)
    plan = planned(name, graph)
    check(plan, graph, TARGETS[CASES[name].target])
    golden(f"{name}.txt", told(plan, reasons_to_tell(plan, CASES[name])))


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=f"{number:02}-{name}") for name, (number, *_) in CONFLICTS.items()]
)
def test_conflict(golden, name):
    """Two to five facts, each with where it stands; and a plan all the same on request."""
    _, model, target_name = CONFLICTS[name]
    graph, target = read(model or name), TARGETS[target_name]
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
    graph = read(CASES[name].model or name)
    other = renamed(
        graph, [f"z{i}" for i in range(len(graph.values))], [f"n{i}" for i in range(len(graph.regions))]
    )
    order = dict(sorted(other.values.items(), reverse=True))
    plans = [planned(name, one) for one in (graph, replace(other, values=order))]
    assert plans[0].cost == plans[1].cost
    kinds = [
        {k.name: [port.type for port in (*k.inputs, *k.outputs)] for k in plan.kernels_in_order}
        for plan in plans
    ]
    back = {f"n{i}": region.name for i, region in enumerate(graph.regions)}
    assert kinds[0] == {back[name]: types for name, types in kinds[1].items()}


def test_every_model_has_a_case():
    models = {case.model or name for name, case in CASES.items()}
    models |= {model or name for name, (_, model, _) in CONFLICTS.items()}
    assert {path.stem for path in HERE.glob("*.json")} == models


def test_every_number_has_a_case_and_goldens():
    """`numbers.txt` is the list of tests/cases; some cases need ops, loops or functions (`ELSEWHERE`)."""
    listed = [line.split(maxsplit=1)[0] for line in (HERE / "numbers.txt").read_text().splitlines()]
    assert listed == [str(n) for n in range(1, len(listed) + 1)]
    met = {case.number: f"{name}.txt" for name, case in CASES.items()}
    met |= {number: f"{name}.conflict.txt" for name, (number, *_) in CONFLICTS.items()}
    assert sorted({*met, *ELSEWHERE}) == list(map(int, listed))
    assert [name for name in met.values() if not (HERE / "golden" / name).exists()] == []
