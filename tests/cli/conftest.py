"""Fixtures of the command's tests: a way to call it, and one plan of the digits example."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import run

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
DATA = str(DIGITS / "calibration.npz")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which is one JSON document."""
        return json.loads(self.out)


class _Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.fixture
def qplan(capsys, monkeypatch) -> Callable[..., Answer]:
    """`qplan("show", path)` runs a command line in this process."""

    def call(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr("sys.stdin", _Stdin(stdin))
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def planned(tmp_path_factory) -> Path:
    """Folder of one `qplan plan` of the digits example for onnxruntime-cpu, in both formats."""
    out = tmp_path_factory.mktemp("plan") / "out"
    line = ["plan", MODEL, "--target", "onnxruntime-cpu", "--data", DATA, "--out", str(out)]
    assert run([*line, "--format", "onnx-qdq", "--format", "onnx-qoperator"]) == 0
    return out


@pytest.fixture(scope="session")
def stats(tmp_path_factory) -> Path:
    """Statistics of the digits example."""
    path = tmp_path_factory.mktemp("stats") / "stats.json"
    assert run(["calibrate", MODEL, "--data", DATA, "--out", str(path)]) == 0
    return path
