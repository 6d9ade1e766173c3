"""A plan's key stands for one plan: where a shipped plan changes, the revision of planning has changed too.

Plans of the cases of design 02 and of the tests of all shipped targets; `golden/decisions.txt` says what each
key stood for. Models, ranges and targets are text, so keys are the same on every machine.
"""

import hashlib
import json
from pathlib import Path

import planner
from planner.errors import PlannerError
from planner.plans.plan import plan_key
from planner.target.load import load_target, target_ids
from planner.target_tests.cases import plan_case
from planner.version import MADE_BY, PLANNING, VERSION
from tests.cases.table import CASES, TARGETS, planned, read

KNOWN = Path(__file__).parent / "golden" / "decisions.txt"


def shipped():
    """(name, plan)."""
    for name in CASES:
        yield f"case {name}", planned(name, read(CASES[name].model or name))
    for target in map(load_target, target_ids()):
        for case in target.tests:
            try:
                yield f"{target.id}: {case.name}", plan_case(target, case)
            except PlannerError:
                continue  # the test of a target may be that it refuses


def decided(plan):
    """Digest of what was chosen, not of how it is told."""
    kernels = [
        [k.name, k.row is not None, [[str(port.type) for port in ports] for ports in (k.inputs, k.outputs)]]
        for k in plan.kernels_in_order
    ]
    rescales = [[r.id, r.kind, r.cost] for r in plan.rescales]
    return hashlib.sha256(json.dumps([kernels, rescales, plan.cost]).encode()).hexdigest()[:16]


def test_a_key_stands_for_one_plan(golden):
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    known = dict(line.split(" ", 2)[:2] for line in lines)
    found = [(name, plan.key, decided(plan)) for name, plan in shipped()]
    changed = [name for name, key, digest in found if known.get(key, digest) != digest]
    assert not changed, (
        f"{len(changed)} plans changed and their keys did not ({', '.join(changed[:5])}): "
        "raise PLANNING in planner/version.py, then run pytest --update-golden"
    )
    golden("decisions.txt", "".join(f"{key} {digest} {name}\n" for name, key, digest in found))


def test_the_revision_is_part_of_the_key(monkeypatch):
    graph = read("concat_of_two_ranges")
    key = plan_key(graph, "m", "t", {})
    monkeypatch.setattr("planner.plans.plan.MADE_BY", f"{VERSION}, planning {PLANNING + 1}")
    assert plan_key(graph, "m", "t", {}) != key
    assert f"{VERSION}, planning {PLANNING}" == MADE_BY


def test_a_plan_of_another_planner_is_read_and_checked():
    """Its key is what it was: nothing asks that today's planner would give the same."""
    model = read("concat_of_two_ranges")
    text = planner.plan(model, TARGETS["npu"]).to_json()
    key = json.loads(text)["key"]
    older = planner.plan_from_json(text.replace(key, f"sha256:{'0' * 64}"))
    planner.check(older, model, TARGETS["npu"])
    assert older.key == f"sha256:{'0' * 64}"
