"""What-if and accuracy verbs on random models and all targets: results, or errors of ours."""

import pytest

from planner.target.load import target_ids
from tests.what_if.never_crashes import check_edits, walk

MANY = pytest.param(5000, marks=pytest.mark.soak)


@pytest.mark.parametrize("count", [8, MANY])
def test_every_verb_ends_in_a_result_or_an_error_of_ours(count, record_property):
    ids = target_ids()
    calls = [walk(seed, 3 + seed // len(ids) % 10, ids[seed * 5 % len(ids)]) for seed in range(count)]
    record_property("count", sum(calls))
    assert sum(bool(done) for done in calls) > count // 2


EDITED = (
    (3, 5, "finn-fpga"),  # a width, and an unsigned type, at ports that take any storage, or floats
    (46, 6, "tensorrt-int8"),  # a range of a constant of which the kernel needs less
    (94, 5, "tensorrt-int8"),  # a range at a constant's port
    (140, 2, "stablehlo"),  # a type that no row has at a port that one row has in float
    (211, 3, "finn-fpga"),  # a type of a constant's port around another zero point
    (461, 8, "teaching-npu"),  # a type at a port that is joined to one of another storage
    (708, 3, "hexagon-a16w8"),  # a range of a product, which needs less of its operands then
)


@pytest.mark.parametrize("case", EDITED)
def test_what_replan_returns_passes_check(case):
    assert check_edits(*case, 6)


@pytest.mark.soak
def test_what_replan_returns_passes_check_at_length(record_property):
    ids = target_ids()
    done = sum(check_edits(seed, 2 + seed % 7, ids[seed % len(ids)], 6) for seed in range(3000))
    record_property("count", done)
    assert done > 3000
