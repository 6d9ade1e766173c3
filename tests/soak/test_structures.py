"""The structure fuzzer: every model is a file that runs with our numbers, or is refused while planned."""

import pytest

from tests.soak.structures import PAIRS, campaign, told

NATIVE = tuple(
    pair
    for pair in PAIRS
    if pair in {("litert-int8", "litert"), ("tosa-int8", "tosa"), ("stablehlo", "stablehlo-int")}
)
HALF_AN_HOUR = 1800.0


def test_a_few_models():
    found = campaign(3600, 5000, count=6, pairs=NATIVE)
    assert not found.findings, told(found)
    assert found.models >= 5


@pytest.mark.soak
def test_half_an_hour_of_models(record_property):
    found = campaign(HALF_AN_HOUR, 100_000)
    record_property("count", found.models)
    record_property("ended", told(found).splitlines()[0])
    assert not found.findings, told(found)
