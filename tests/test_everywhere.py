"""Linux, macOS, Windows: library, command and report need nothing of one system; paths, line ends of all."""

import json
import os
import re
import subprocess
import sys

import pytest

import planner
from planner.cli.app import run
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
LINUX_ALONE = ("fcntl", "grp", "posix_ipc", "pwd", "resource", "termios", "tty")
"""Modules that Windows' Python lacks; macOS has them, with other meanings."""

JOB = """
import importlib.abc, os, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {blocked!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Block())
for name in ("fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "setsid", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
from planner.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "line",
    [
        [
            "quantize",
            str(DIGITS / "digits.onnx"),
            "--data",
            str(DIGITS / "calibration.npz"),
            "-o",
            "out",
            "--effort",
            "quick",
        ],
        ["target", "list"],
        ["help"],
    ],
    ids=lambda line: line[0],
)
def test_nothing_of_one_system_is_needed(line, tmp_path):
    """In a Python without these modules and calls, as on Windows."""
    words = [sys.executable, "-c", JOB.format(blocked=LINUX_ALONE), *line]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if line[0] == "quantize":
        assert "verdict: " in done.stdout
        assert (tmp_path / "out" / "report.html").is_file()


def test_files_are_written_with_the_same_line_ends_everywhere(tmp_path):
    """No byte of a file hangs on the system: line ends of Windows would change digests."""
    target = tmp_path / "my.yaml"
    assert run(["target", "new", "my-npu", "-o", str(target)]) == 0
    planner.calibrate(planner.load_model(DIGITS / "digits.onnx"), DIGITS / "calibration.npz").save(
        tmp_path / "stats.json"
    )
    for path in tmp_path.iterdir():
        assert b"\r" not in path.read_bytes()


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_texts_are_read_with_any_line_ends(tmp_path, ends):
    """A target, constraints and a plan that an editor on Windows has saved mean the same."""
    source = (ROOT / "targets" / "teaching-npu.yaml").read_text(encoding="utf-8")
    path = tmp_path / "npu.yaml"
    path.write_bytes(source.replace("\n", ends).encode())
    device = planner.load_target(path)
    assert len(device.rows) == len(planner.load_target("teaching-npu").rows)
    notes = tmp_path / "notes.yaml"
    notes.write_bytes(f"format: qplan.annotations/1{ends}kernels: {{head/gemm: float}}{ends}".encode())
    asked = planner.annotate(planner.load_model(DIGITS / "digits.onnx"), annotations=notes)
    assert list(asked.wanted) == ["head/gemm"]


def test_a_plan_names_its_files_with_forward_slashes(tmp_path):
    out = tmp_path / "deep" / "er" / "out"
    data = ["--data", str(DIGITS / "calibration.npz")]
    assert run(["plan", str(DIGITS / "digits.onnx"), "-t", "litert-int8", *data, "-o", str(out)]) == 0
    sources = json.loads((out / "plan.json").read_text(encoding="utf-8"))["sources"]
    assert all("\\" not in place for place in sources.values())
    assert "/" in sources["reference"]


def test_names_with_blanks_and_letters_of_any_script(tmp_path):
    folder = tmp_path / "mein Modell é 模型"
    folder.mkdir()
    model = folder / "ziffern ü.onnx"
    model.write_bytes((DIGITS / "digits.onnx").read_bytes())
    found = planner.load_model(model)
    assert found.name == "ziffern ü"
    line = ["quantize", str(model), "--data", str(DIGITS / "calibration.npz"), "-o", str(folder / "aus gabe")]
    assert run(line) == 0
    assert run(["check", str(folder / "aus gabe")]) == 0


def test_texts_are_opened_with_their_encoding_said():
    """Windows' own is not UTF-8: every text file of ours is read and written as UTF-8 by name."""
    bare = []
    for path in (ROOT / "planner").rglob("*.py"):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_file = any(f".{name}(" in text for name in ("read_text", "write_text"))
            if is_file and "encoding" not in text and "utf-8" not in text and "def " not in text:
                bare.append(f"{path.relative_to(ROOT)}:{number}: {text.strip()}")
    assert bare == []


def test_the_service_says_that_it_is_of_linux(tmp_path):
    words = [sys.executable, "-c", JOB.format(blocked=LINUX_ALONE), "serve", "--data", str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert re.fullmatch(
        r"qplan: error: the service does not run on this system: it needs (fcntl|resource), and its sandbox "
        r"is Linux's \(run it on Linux, in Docker or WSL say; the library and all other verbs work here\)\n",
        done.stderr,
    )
