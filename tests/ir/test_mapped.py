"""Mapped arrays: what was read of a file is let go, and is read again as it was."""

import re
from pathlib import Path

import numpy as np
import pytest

from planner.ir.mapped import let_go

STATUS = Path("/proc/self/status")


def mapped_mb():
    return int(re.search(r"RssFile:\s+(\d+) kB", STATUS.read_text(encoding="ascii"))[1]) / 1024


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what of a mapping is in memory")
def test_what_was_read_of_a_mapping_is_let_go(tmp_path):
    np.arange(8 << 20, dtype=np.float32).tofile(tmp_path / "data")
    array = np.memmap(tmp_path / "data", np.uint8, "r").view(np.float32).reshape(1 << 10, -1)
    total, before = array.sum(dtype=np.float64), mapped_mb()
    let_go(array)
    assert mapped_mb() < before - 24
    assert array.sum(dtype=np.float64) == total


def test_arrays_in_memory_and_written_ones_stay(tmp_path):
    mine = np.ones(1 << 20, np.float32)
    let_go(mine)
    let_go(None)
    np.zeros(1 << 20, np.float32).tofile(tmp_path / "data")
    written = np.memmap(tmp_path / "data", np.float32, "c")
    written[:] = 3
    let_go(written)
    assert mine.sum() == 1 << 20
    assert written.sum() == 3 << 20
