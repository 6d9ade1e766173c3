"""Every test draws the same numbers, whatever ran before it."""

import numpy as np
import pytest

from tests.weight_conditioning import nets


@pytest.fixture(autouse=True)
def _drawn_anew(monkeypatch):
    monkeypatch.setattr(nets, "RNG", np.random.default_rng(7))
