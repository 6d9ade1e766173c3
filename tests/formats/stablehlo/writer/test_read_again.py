"""Float operators as this format has them: what is written computes what the model does, once it is read."""

import pytest

from planner.errors import ModelError, UnsupportedExport
from tests.formats.read_again import MODELS, assert_is_the_model, results

FORMAT = "stablehlo"
REFUSED = {
    "Mod all": "Mod at 'Mod_1' has no form in StableHLO",
    "Mod column": "Mod at 'Mod_1' has no form in StableHLO",
    "Mod scalar": "Mod at 'Mod_1' has no form in StableHLO",
}
UNREAD = {
    "ArgMax": "stays opaque and float",
    "ArgMin": "stays opaque and float",
    "model: the largest": "stays opaque and float",
    "model: argmax": "stays opaque and float",
}
"""Of a reduction or sort of two operands our reader makes no op of ONNX."""


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED | UNREAD])
def test_what_is_written_is_the_model(name):
    assert_is_the_model(name, FORMAT)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_has_not_is_refused(name):
    with pytest.raises(UnsupportedExport, match=REFUSED[name]):
        results(name, FORMAT)


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_stays_opaque(name):
    with pytest.raises(ModelError, match=UNREAD[name]):
        results(name, FORMAT)
