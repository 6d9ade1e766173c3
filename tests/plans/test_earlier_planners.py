"""Plans that an earlier planner made and stored: read, checked and explained by today's.

`golden/of_planning_15.json.gz` has plans of cases, with warnings and float kernels, as planning 15 wrote:
words of warnings, reasons and logs have changed since. It is never made again. `golden/warnings.json` has
the warnings of cases as this planner words them.
"""

import gzip
import json
from dataclasses import replace

import pytest

import planner
from planner.errors import PlanInvalid
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.version import PLANNING, WORDS
from tests.cases.table import CASES, planned, read
from tests.conftest import ROOT

GOLDEN = ROOT / "tests" / "plans" / "golden"
STORED = json.loads(gzip.decompress((GOLDEN / "of_planning_15.json.gz").read_bytes()))
WARNINGS = GOLDEN / "warnings.json"


def test_some_have_warnings_and_float_kernels():
    assert sum(bool(document["warnings"]) for document in STORED.values()) > 10
    assert any(kernel["row"] is None for one in STORED.values() for kernel in one["kernels"])


@pytest.mark.parametrize("name", STORED)
def test_a_stored_plan_stays_of_use(name):
    plan = plan_from_json(json.dumps(STORED[name]))
    model = read(CASES[name].model or name) if name in CASES else read(name)
    planner.check(plan, model)
    for kernel in plan.kernels_in_order:
        assert planner.explain(plan, kernel.name)
    assert plan_from_json(plan.to_json()).to_json() == plan.to_json()
    assert plan_from_mlir(plan.to_mlir()).key == plan.key


@pytest.fixture
def of_before():
    """A model and its plan, as a planner of other words of warnings stored it."""
    name = "mean_flagged_same_scale"
    plan = planned(name, read(name))
    return read(name), replace(plan, warnings=("of then",) * len(plan.warnings))


def test_other_words_of_the_same_planning_refuse_nothing(of_before, monkeypatch):
    model, plan = of_before
    with pytest.raises(PlanInvalid, match="does not warn that mean"):
        planner.check(plan, model)
    monkeypatch.setattr("planner.propagation.result.repeated_warnings.WORDS", WORDS + 1)
    for stored in (plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        planner.check(stored, model)


def test_a_plan_says_whose_words_its_warnings_are(of_before):
    _, plan = of_before
    later = replace(plan, words=WORDS + 1)
    assert [one(later).words for one in (_by_json, _by_mlir)] == [WORDS + 1] * 2
    assert [one(plan).words for one in (_by_json, _by_mlir)] == [WORDS] * 2
    assert later.key == plan.key


def _by_json(plan):
    return plan_from_json(plan.to_json())


def _by_mlir(plan):
    return plan_from_mlir(plan.to_mlir())


def test_other_words_have_another_revision(request):
    plans = {name: planned(name, read(case.model or name)) for name, case in CASES.items()}
    texts = {name: [*plan.warnings] for name, plan in plans.items() if plan.warnings}
    found = {"planning": PLANNING, "words": WORDS, "warnings": texts}
    known = json.loads(WARNINGS.read_text("utf-8"))
    is_same = (known["planning"], known["words"]) == (PLANNING, WORDS)
    other = [name for name, told in known["warnings"].items() if name in CASES and texts.get(name) != told]
    assert not (is_same and other), f"warnings of {other} changed: raise WORDS in planner/version.py"
    if request.config.getoption("--update-golden"):
        WARNINGS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        return
    assert known == found, "run pytest --update-golden and review the diff"
