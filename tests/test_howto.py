"""The how-tos, followed step by step: their files, their commands, what the pages say these print."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.app import run
from tests.api.conftest import free_port
from tests.walked import blocks, is_printed

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
FOLLOWED = [*PAGES, ROOT / "docs" / "contributing" / "add-a-target.md"]
VELA = ROOT / ".oracles" / "vela" / "bin" / "vela"
TORCH = ROOT / ".oracles" / "torch" / "bin" / "python"
QPLAN = "import sys; from planner.cli.app import main; main(sys.argv[1:])"
FEWEST, MOST = 300, 600
"""Words of a page."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the example in it, as the current one; programs started there find the planner."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    (tmp_path / "targets").mkdir()
    monkeypatch.chdir(tmp_path)
    # PyTorch has an environment of its own, which takes all else from this one.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(is_of_packages, sys.path)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def is_of_packages(place: str) -> bool:
    return Path(place).name == "site-packages"


class Walk:
    """What a page did so far: the lines printed, and the servers that it started."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.python = sys.executable
        self.port = free_port()
        self.printed: list[str] = []
        self.servers: list[subprocess.Popen[str]] = []

    def with_port(self, text: str) -> str:
        """The text with a free port instead of the usual one, which may be taken here."""
        return text.replace("8000", str(self.port))

    def run(self, line: str) -> int:
        """Run one line and keep what it prints."""
        words = shlex.split(self.with_port(line))
        if "$(" in line:
            words = ["bash", "-c", self.with_port(line)]
        if words[0] == "qplan":
            self.capsys.readouterr()
            code = run(words[1:])
            self.printed += self.capsys.readouterr().out.splitlines()
            return code
        words[0] = {"python": self.python, "vela": str(VELA)}.get(words[0], words[0])
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        self.printed += done.stdout.splitlines()
        return done.returncode

    def serve(self, line: str) -> None:
        """Start a server in the background."""
        words = shlex.split(self.with_port(line))
        command = [sys.executable, "-c", QPLAN, *words[1:]]
        self.servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True))

    def end(self) -> None:
        """Stop the servers."""
        for server in self.servers:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=60)


@pytest.fixture
def walk(capsys):
    """A walk whose servers end with the test."""
    one = Walk(capsys)
    yield one
    one.end()


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_the_page_is_true(page, folder, walk):
    """A mark says where the exit code is another than 0; the last line of a block is the one it is of."""
    found = list(blocks(page))
    if any(block.text.startswith("vela ") for block in found) and not VELA.exists():
        pytest.skip("no .oracles/vela: run make oracles")
    if any("import torch" in block.text for block in found):
        if not TORCH.exists():
            pytest.skip("no .oracles/torch: run make oracles")
        walk.python = str(TORCH)
    for block in found:
        if block.mark == "file":
            (folder / block.name).write_text(walk.with_port(block.text), encoding="utf-8")
        elif block.mark == "server":
            walk.serve(block.text)
        elif block.language == "sh":
            walk.printed = []
            codes = [walk.run(line) for line in block.text.replace("\\\n", "").splitlines()]
            assert codes == [*[0] * (len(codes) - 1), int(block.name or 0)], block.text
        else:
            assert block.language == "text"
            assert [line for line in block.text.splitlines() if not is_printed(line, walk.printed)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_is_short(page):
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"))
    assert FEWEST <= len(re.findall(r"[\w'-]+", re.sub(r"```.*?```", "", text, flags=re.DOTALL))) <= MOST


def test_the_readme_and_the_index_name_every_page():
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [path.name for path in PAGES if f"howto/{path.name}" not in text] == []


def test_a_line_is_compared_by_its_words_and_roughly_by_its_numbers():
    printed = ["  onnx-qdq: top1 21.3 %, float 99.8 %", "cost: 1,234 in all"]
    assert is_printed("top1 21.1 %, float 99.8 %", printed)
    assert is_printed("cost: 1,230", printed)
    assert not is_printed("top1 25.1 %, float 99.8 %", printed)
    assert not is_printed("top5 21.1 %, float 99.8 %", printed)


def test_a_network_of_ones_own_is_trained_with_ten_more_lines_at_most():
    """A marked line is of the planner, and of those without a mark none is."""
    files = [block for block in blocks(ROOT / "docs/howto/train-under-a-plan.md") if block.mark == "file"]
    (file,) = [block for block in files if block.name == "own_network.py"]
    lines = file.text.splitlines()
    marked = [line for line in lines if line.endswith("  # new")]
    assert 0 < len(marked) <= 10
    assert [line for line in lines if "planner" in line and line not in marked] == []


def test_the_example_is_the_file_of_the_page():
    files = [block for block in blocks(ROOT / "docs/howto/train-under-a-plan.md") if block.mark == "file"]
    (file,) = [block for block in files if block.name == "train.py"]
    assert (ROOT / "examples" / "train_under_a_plan.py").read_text(encoding="utf-8") == file.text
