"""Plans that an earlier planner made and stored: read, checked and explained by today's.

`golden/of_planning_15.json.gz` has plans of cases, with warnings and float kernels, as planning 15 wrote:
words of warnings, reasons and logs have changed since. It is never made again.
"""

import gzip
import json

import pytest

import planner
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from tests.cases.table import CASES, read
from tests.conftest import ROOT

STORED = json.loads(
    gzip.decompress((ROOT / "tests" / "plans" / "golden" / "of_planning_15.json.gz").read_bytes())
)


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
