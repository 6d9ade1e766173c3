"""Operators as this format has them: what is written computes what the model does, once it is read."""

import pytest

from planner.errors import UnsupportedExport
from tests.formats.read_again import MODELS, assert_is_stored_alike, assert_is_the_model, results

FORMAT = "litert"
REFUSED = {
    "ConvTranspose sized": "runs ConvTranspose in float",
    "Erf": "runs Erf in float",
    "Mod all": "runs Mod in float",
    "Mod column": "runs Mod in float",
    "Mod scalar": "runs Mod in float",
    "Xor": "runs Xor in float",
    "ReduceProd": "runs ReduceProd in float",
    "ReduceProd without": "runs ReduceProd in float",
    "Mean of three": "runs Mean in float",
    "ArgMin": "runs ArgMin in float",
    "model: conv of three axes": "runs Conv in float",
    "model: tables": "runs Erf in float",
    "model: the largest": "runs TopK in float",
}
OWN = [name for name in MODELS if name not in REFUSED and "model: " not in name]
"""The models are read again in the tests of the reader."""


@pytest.mark.parametrize("name", OWN)
def test_what_is_written_is_the_model(name):
    assert_is_the_model(name, FORMAT)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_has_not_is_refused(name):
    with pytest.raises(UnsupportedExport, match=REFUSED[name]):
        results(name, FORMAT)


@pytest.mark.parametrize("name", OWN)
def test_stored_integers_are_the_same(name):
    assert_is_stored_alike(name, FORMAT)
