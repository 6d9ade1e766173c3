"""Half an hour of three tenants' jobs while everything is killed again and again: `benchmarks.chaos`."""

from statistics import median

import pytest

from benchmarks import chaos
from benchmarks.chaos_tenants import DAMAGED, NO_ROOM

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("minutes", [30])
@pytest.mark.parametrize("database", sorted(chaos.STAGES))
def test_nothing_is_lost_doubled_or_starved(minutes, database, record_property):
    outcome = chaos.campaign(minutes, 6.0, seed=0, database=database)
    record_property("count", sum(outcome.taken.values()))
    record_property("faults", outcome.faults.total())
    for name, waits in outcome.waits.items():
        record_property(name, f"{len(waits)} done, median {median(waits):.1f} s, longest {max(waits):.1f} s")
    record_property("told", dict(outcome.told))
    record_property("gone with an older backup", outcome.rolled_back)
    assert (outcome.lost, outcome.doubled, outcome.wrong) == (0, 0, 0)
    assert set(outcome.states) <= {"done", NO_ROOM, *DAMAGED}
    assert outcome.states["done"] >= sum(outcome.taken.values())
    assert chaos.starved(outcome) == []
