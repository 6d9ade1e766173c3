"""The examples run, and the demo's quality is what the project promises of its own example."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402 - examples are scripts, not a package


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    return out, demo.run(out)


def test_the_demo_writes_every_file(results):
    out, found = results
    for name in demo.TARGETS:
        written = {path.name for path in (out / name).iterdir()}
        assert {"plan.json", "plan.mlir", "report.html", "onnx-qdq.onnx", "onnx-qoperator.onnx"} <= written
    assert [result.refused for result in found if result.refused] == []


def test_int8_reads_the_digits_as_well_as_float(results):
    for result in results[1]:
        assert result.float_accuracy - result.accuracy <= 0.005, result
        assert result.worst_class < 3, result


def test_the_demo_prints_its_table(results, capsys):
    demo.Console(width=160).print(demo.table(results[1]))
    text = capsys.readouterr().out
    assert all(name in text for name in demo.TARGETS)


@pytest.fixture
def environment(tmp_path):
    """Variables of a shell that finds this source tree and a `qplan` of it, installed or not."""
    command = tmp_path / "bin" / "qplan"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom planner.cli.app import main\nmain()\n")
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def test_the_library_example_runs(tmp_path, environment):
    out = tmp_path / "digits.onnx"
    line = [sys.executable, EXAMPLES / "plan_a_model.py", out]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SQNR" in done.stdout
    assert out.stat().st_size > 0


def test_the_command_example_runs(tmp_path, environment):
    line = [EXAMPLES / "command_line.sh", tmp_path / "out"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "teaching-npu" in done.stdout


def test_every_example_is_in_the_list():
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name != "README.md"]
    assert [name for name in sorted(files) if f"]({name})" not in listed] == []
