"""Every awkward model on every target, computed and in every format: a result, or an error of ours."""

import pytest

import planner
from benchmarks.target_matrix import target_ids
from planner.errors import PlannerError
from planner.formats.table import EXPORTERS
from tests.awkward.job import samples_of
from tests.awkward.models import AWKWARD

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", AWKWARD)
def test_nothing_crashes(name):
    try:
        graph = planner.load_model(AWKWARD[name]())
        samples = samples_of(graph)
        ready = planner.annotate(graph, stats=planner.calibrate(graph, list(samples)))
    except PlannerError:
        return  # test_job knows which ones, and the words
    written = 0
    for target in target_ids():
        plan = planner.plan(ready, target)
        planner.check(plan, ready, target)
        written += bool(attempted(planner.evaluate, ready, plan, samples[0]))
        written += sum(bool(attempted(planner.export, ready, plan, form)) for form in EXPORTERS)
    assert written > len(EXPORTERS)


def attempted(job, *arguments):
    try:
        return job(*arguments)
    except PlannerError:
        return None
