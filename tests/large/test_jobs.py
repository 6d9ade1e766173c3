"""Large models over HTTP: children plan and write one, in limits that count its weights once, not tenfold."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from api.jobs.child_process import PER_BYTE
from api.settings import Settings
from benchmarks.decoder import Size, write_decoder
from benchmarks.large_jobs import FORM, TARGET, jobs
from planner.ir.mapped import LEAST, let_go, map_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are confined on Linux")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_decoder_is_planned_and_written_by_children(tmp_path):
    """Its file is the library's; more tensors lie in its data than a child may open files."""
    source = write_decoder(tmp_path / "decoder.onnx", Size(12, 128, 352, 500))
    made = {job.task: job for job in jobs(source, tmp_path)}
    model = planner.load_model(source)
    own = onnx.load_from_string(planner.export(model, planner.plan(model, TARGET), FORM))
    found = onnx.load_from_string(made["export"].made.read_bytes())
    # The service names a model's file in its own way, and with it the digests of where the file comes from.
    found.graph.name = own.graph.name
    for file in (found, own):
        del file.metadata_props[:]
    assert found == own
    weights = source.with_suffix(".data").stat().st_size
    least = Settings(tmp_path).job_memory + weights
    assert least < made["plan"].limit < least + PER_BYTE * (1 << 20)
    assert all(0 < job.peak < 300 << 20 for job in made.values())


def test_arrays_of_a_file_share_a_descriptor(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 64)
    before = open_files()
    arrays = [map_bytes(path, 16 * k, 16) for k in range(200)]
    assert open_files() <= before + 1
    assert all(np.array_equal(array, np.arange(16 * k, 16 * k + 16) % 256) for k, array in enumerate(arrays))
    assert not arrays[0].flags.writeable
    del arrays
    assert open_files() <= before


def test_a_file_that_changed_is_mapped_anew(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"a" * 10)
    old = map_bytes(path, 0, 10)
    path.unlink()
    path.write_bytes(b"b" * 11)
    assert bytes(map_bytes(path, 1, 10)) == b"b" * 10
    assert bytes(old) == b"a" * 10


def test_what_was_let_go_is_read_again(tmp_path):
    path = tmp_path / "weights"
    content = np.random.default_rng(0).integers(0, 256, 3 * LEAST, np.uint8)
    path.write_bytes(content.tobytes())
    middle = map_bytes(path, LEAST - 7, LEAST + 10)
    assert np.array_equal(middle, content[LEAST - 7 :][: LEAST + 10])
    let_go(middle)
    let_go(middle.reshape(2, -1).T)
    assert np.array_equal(middle, content[LEAST - 7 :][: LEAST + 10])
