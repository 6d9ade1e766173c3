"""Mapped arrays: what was read of a file is let go, and is read again as it was."""

import re
from pathlib import Path

import numpy as np
import pytest

from planner.ir.mapped import Place, let_go, map_bytes, mapped_file

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


def test_bytes_of_a_file_are_shown_where_they_are(tmp_path):
    path = tmp_path / "data"
    np.arange(64, dtype=np.uint8).tofile(path)
    first, second = map_bytes(path, 4, 12), map_bytes(path, 16, 8)
    assert first.tolist() == list(range(4, 16))
    assert second.tolist() == list(range(16, 24))
    assert not first.flags.writeable
    assert first._mmap is second._mmap
    array = second.view(np.float32)
    assert mapped_file(array) == Place(path, 16)
    assert mapped_file(array.reshape(1, 2)) == Place(path, 16)
    assert mapped_file(first.view(np.float32)) == Place(path, 4)
    # Parts, copies, turned ones and those of one's own have no place as a whole.
    assert mapped_file(array[:1]) is None
    assert mapped_file(first.reshape(3, 4).T) is None
    assert mapped_file(array.copy()) is None
    assert mapped_file(np.memmap(path, np.uint8, "c")) is None


def test_a_file_that_changed_is_mapped_anew(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"abcd")
    before = map_bytes(path, 0, 4)
    path.unlink()
    path.write_bytes(b"wxyz1")
    assert bytes(map_bytes(path, 0, 4)) == b"wxyz"
    assert bytes(before) == b"abcd"
