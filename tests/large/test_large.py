"""Large models: memory stays bounded while one is planned and written, and nothing half written is left."""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from benchmarks.decoder import samples, size_of, write_decoder
from benchmarks.large_models import QPLAN, measured
from planner.cli.app import INTERRUPTED
from planner.cli.app import run as command
from planner.errors import InputError, UnsupportedExport
from planner.formats import to_file
from planner.formats.onnx import sessions, write
from planner.formats.onnx.sessions import open_session
from planner.ir.graph import Constant

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys
import planner
from benchmarks.memory import peak_rss_mb
from planner.formats import to_file

to_file.LARGE = 1 << 20
digits = planner.load_model("examples/digits/digits.onnx")
planner.export(digits, planner.plan(digits, "llm-w4"), "onnx-matmulnbits")
before = peak_rss_mb()
model = planner.load_model(sys.argv[1])
plan = planner.plan(model, "llm-w4")
planner.export_to(model, plan, "onnx-matmulnbits", sys.argv[2])
print(peak_rss_mb() - before)
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A decoder of 13 MB whose weights lie beside it, read and planned."""
    path = write_decoder(tmp_path_factory.mktemp("decoder") / "decoder.onnx", size_of(0.02))
    model = planner.load_model(path)
    return path, model, planner.plan(model, "llm-w4")


@pytest.fixture
def low(monkeypatch):
    """What counts as large is small."""
    monkeypatch.setattr(to_file, "LARGE", 1 << 20)


def outputs(path):
    size = size_of(0.02)
    session = open_session(str(path))
    return session.run(None, {"input_ids": samples(size, 1)["input_ids"][0]})[0]


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_is_far_below_the_weights(tmp_path):
    size = size_of(0.128)
    path = write_decoder(tmp_path / "decoder.onnx", size)
    arguments = [sys.executable, "-c", JOB, str(path), str(tmp_path / "w4.onnx")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    # Its packed weights and the scales of its blocks are in memory, its float ones are not.
    assert float(done.stdout) < 0.7 * size.matrices / 1e6


@pytest.mark.usefixtures("low")
def test_large_weights_go_beside_the_model(decoder, tmp_path):
    _, model, plan = decoder
    told = []
    files = planner.export_to(
        model, plan, "onnx-matmulnbits", tmp_path / "w4.onnx", progress=lambda *at: told.append(at)
    )
    assert [file.name for file in files] == ["w4.onnx", "w4.onnx.data"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert told[-1] == (len(plan.graph.regions),) * 2
    data = planner.export(model, plan, "onnx-matmulnbits")
    assert files[0].stat().st_size < len(data) / 50
    (tmp_path / "whole.onnx").write_bytes(data)
    np.testing.assert_array_equal(outputs(files[0]), outputs(tmp_path / "whole.onnx"))


def test_small_weights_stay_in_the_model(decoder, tmp_path):
    _, model, plan = decoder
    (file,) = planner.export_to(model, plan, "onnx-matmulnbits", tmp_path / "new" / "w4.onnx")
    assert file.read_bytes() == planner.export(model, plan, "onnx-matmulnbits")


@pytest.mark.usefixtures("low")
def test_weights_go_where_they_are_asked_for(decoder, tmp_path):
    _, model, plan = decoder
    written = planner.export_to(model, plan, "onnx-matmulnbits", tmp_path / "a.onnx", external=False)
    assert len(written) == 1
    with pytest.raises(UnsupportedExport, match="with external data can be: onnx-matmulnbits"):
        planner.export_to(model, plan, "tosa", tmp_path / "a.mlir", external=True)


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("before", [None, b"as it was"])
def test_an_interruption_leaves_what_was_there(decoder, tmp_path, monkeypatch, before):
    _, model, plan = decoder
    goals = [tmp_path / "w4.onnx", tmp_path / "w4.onnx.data"]
    for goal in goals if before else ():
        goal.write_bytes(before)
    seen, whole = [], write.raw_view

    def interrupted(array, dtype):
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return whole(array, dtype)

    monkeypatch.setattr(write, "raw_view", interrupted)
    with pytest.raises(KeyboardInterrupt):
        planner.export_to(model, plan, "onnx-matmulnbits", goals[0])
    assert len(seen) == 3
    assert len(seen[-1]) == (3 if before else 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == (
        {goal.name: before for goal in goals} if before else {}
    )


@pytest.mark.usefixtures("low")
def test_the_own_weights_are_not_written_over(decoder):
    path, model, plan = decoder
    source = path.with_suffix(".data")
    goal = path.with_name("w4.onnx")
    data = goal.with_name("w4.onnx.data")
    data.hardlink_to(source)
    try:
        with pytest.raises(InputError, match="over the model's own weights"):
            planner.export_to(model, plan, "onnx-matmulnbits", goal)
    finally:
        data.unlink()
    assert not goal.exists()


@pytest.mark.usefixtures("low")
def test_the_command_writes_a_large_model(decoder, tmp_path, capsys):
    path, out = decoder[0], tmp_path / "out"
    line = ["plan", str(path), "--target", "llm-w4", "--format", "onnx-matmulnbits", "--out", str(out)]
    assert command(line) == 0
    names = ["onnx-matmulnbits.onnx", "onnx-matmulnbits.onnx.data", "plan.json", "plan.mlir", "report.html"]
    assert sorted(item.name for item in out.iterdir()) == names
    assert [item.name for item in tmp_path.iterdir()] == ["out"]
    assert command(["check", str(out)]) == 0
    goal = str(tmp_path / "again.onnx")
    capsys.readouterr()
    assert command(["export", str(out), "--format", "onnx-matmulnbits", "--out", goal]) == 0
    assert "again.onnx.data (" in capsys.readouterr().out
    np.testing.assert_array_equal(outputs(goal), outputs(out / names[0]))
    assert (
        command(["export", str(out), "--format", "onnx-matmulnbits", "--out", goal, "--no-external-data"])
        == 0
    )
    assert not onnx.external_data_helper.uses_external_data(
        onnx.load(goal, load_external_data=False).graph.initializer[0]
    )


@pytest.mark.usefixtures("low")
def test_an_interrupted_command_leaves_no_folder(decoder, tmp_path, monkeypatch):
    def interrupted(_array, _dtype):
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "raw_view", interrupted)
    line = ["plan", str(decoder[0]), "--target", "llm-w4", "--format", "onnx-matmulnbits"]
    assert command([*line, "--out", str(tmp_path / "out")]) == INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_calibration_runs_from_the_file(decoder, monkeypatch):
    _, model, _ = decoder
    feeds = samples(size_of(0.02), 3)
    held = {
        name: Constant(None if constant.array is None else np.array(constant.array), constant.lo, constant.hi)
        for name, constant in model.constants.items()
    }
    copied = planner.calibrate(replace(model, constants=held), feeds)
    monkeypatch.setattr(sessions, "LARGE", 1 << 20)

    def refused(**_):
        raise AssertionError("weights are written again")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    mapped = planner.calibrate(model, feeds)
    assert mapped.values.keys() == copied.values.keys()
    for name, seen in mapped.values.items():
        assert seen.lo == pytest.approx(copied.values[name].lo, rel=1e-4, abs=1e-5)
        assert seen.hi == pytest.approx(copied.values[name].hi, rel=1e-4, abs=1e-5)


@pytest.mark.soak
def test_a_decoder_of_eight_gigabytes_is_planned_and_written():
    size = size_of(8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < 2 * size.matrices:
            pytest.skip(f"needs {2 * size.matrices:,} bytes free in {folder}")
        source, out = write_decoder(folder / "decoder.onnx", size), folder / "out"
        line = ("plan", str(source), "--target", "llm-w4", "--format", "onnx-matmulnbits", "--out", str(out))
        done = measured("qplan plan", (QPLAN, *line))
        assert 8 * (out / "onnx-matmulnbits.onnx.data").stat().st_size > size.matrices
        assert done.peak * 1e6 < 1.5e9 + 4 * size.largest


@pytest.mark.usefixtures("low")
def test_quantize_and_save_stream(decoder, tmp_path, monkeypatch):
    """The main door: weights go from file to file, and a copy under another name finds its own."""
    path, model, plan = decoder
    told = []
    held = {"input_ids": samples(size_of(0.02), 2)["input_ids"]}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = planner.quantize(
        path, held, target="llm-w4", format="onnx-matmulnbits", progress=lambda *step: told.append(step)
    )
    assert [file.name for file in done.files] == ["onnx-matmulnbits.onnx", "onnx-matmulnbits.onnx.data"]
    assert done.size == sum(file.stat().st_size for file in done.files) > 50 * len(done.data)
    assert f"{done.size:,} bytes" in repr(done)
    assert [step for step in told if step[0] == "exporting"][-1][1] > 1
    assert done.comparison.samples == 2
    done.save(tmp_path / "new" / "w4.onnx")
    assert sorted(item.name for item in (tmp_path / "new").iterdir()) == ["w4.onnx", "w4.onnx.data"]
    (folder,) = (item for item in tmp_path.iterdir() if item.name.startswith("qplan-"))
    del done
    assert not folder.exists()
    (tmp_path / "whole.onnx").write_bytes(planner.export(model, plan, "onnx-matmulnbits"))
    np.testing.assert_array_equal(outputs(tmp_path / "new" / "w4.onnx"), outputs(tmp_path / "whole.onnx"))
    names = {item.name for item in tmp_path.iterdir()}
    assert names == {"new", "whole.onnx"}
