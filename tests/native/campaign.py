"""Cases drawn at random: operator, magnitude, ratio, signs, bits, rank."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tests.native.models import OPERATORS, SIGNS, Case

WORDS: Final = frozenset({"litert-optimized", "litert-reference", "tosa"})
"""Engines that have rows of 16 bits."""


def drawn(seed: Sequence[int], engine: str, operators: Sequence[str] | None = None) -> Case:
    """One case, the same for the same seed."""
    rng = np.random.default_rng(seed)
    names = list(operators or OPERATORS)
    ratio = float(rng.choice([0, 0, -1, 1, rng.uniform(-4, 4)]))
    return Case(
        str(rng.choice(names)),
        float(rng.uniform(-7, 6)),
        round(ratio, 2),
        str(rng.choice(SIGNS)),
        int(rng.choice([8, 8, 16])) if engine in WORDS else 8,
        int(rng.integers(1, 5)),
        int(rng.integers(1 << 30)),
    )
