"""Operators as this format has them: what is written computes what the model does, once it is read."""

import pytest

from planner.errors import UnsupportedExport
from tests.formats.read_again import MODELS, assert_is_stored_alike, assert_is_the_model, results

FORMAT = "tosa"
REFUSED = {
    "ConvTranspose sized": "runs ConvTranspose in float",
    "Round": "runs Round in float",
    "Mod all": "runs Mod in float",
    "Mod column": "runs Mod in float",
    "Mod scalar": "runs Mod in float",
    "Mean of three": "runs Mean in float",
    "ArgMin": "runs ArgMin in float",
}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED])
def test_what_is_written_is_the_model(name):
    assert_is_the_model(name, FORMAT)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_has_not_is_refused(name):
    with pytest.raises(UnsupportedExport, match=REFUSED[name]):
        results(name, FORMAT)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED and "model: " not in name])
def test_stored_integers_are_the_same(name):
    assert_is_stored_alike(name, FORMAT)
