"""What-if and accuracy verbs on random models and all targets: results, or errors of ours."""

import pytest

from planner.target.load import target_ids
from tests.what_if.never_crashes import walk

MANY = pytest.param(5000, marks=pytest.mark.soak)


@pytest.mark.parametrize("count", [8, MANY])
def test_every_verb_ends_in_a_result_or_an_error_of_ours(count, record_property):
    ids = target_ids()
    calls = [walk(seed, 3 + seed // len(ids) % 10, ids[seed * 5 % len(ids)]) for seed in range(count)]
    record_property("count", sum(calls))
    assert sum(bool(done) for done in calls) > count // 2
