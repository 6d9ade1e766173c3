"""Types of many blocks are made in arrays: the very types that are made one block after the other."""

import numpy as np
import pytest

from planner.ir.types.qtypes import storage
from planner.propagation.parameters import blocks
from planner.target.records import PortType


@pytest.mark.parametrize(
    ("stored", "symmetric"), [("i4", True), ("u4", False), ("u2", False), ("i8", True), ("u8", False)]
)
@pytest.mark.parametrize("power_of_two", [False, True])
def test_the_same_types(monkeypatch, stored, symmetric, power_of_two):
    rng = np.random.default_rng(5)
    spec = PortType(storage(stored), granularity="block", symmetric=symmetric, power_of_two=power_of_two)
    ends = np.sort(rng.normal(size=(2000, 2)).astype(np.float32).astype(np.float64) + 0.2, axis=1)
    ends[:3] = [(0, 0), (0, 3), (-1, 0)]
    given = ((ends[:, 0], ends[:, 1]), (64000, 1), (1, 0), 32)
    many = blocks.block_type(*given, spec=spec)
    monkeypatch.setattr(blocks, "HELD", 1 << 30)
    few = blocks.block_type(*given, spec=spec)
    assert (many, hash(many)) == (few, hash(few))
