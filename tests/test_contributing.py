"""What contributors are told to run is what CI runs: pre-commit's hooks are the commands of `make lint`."""

import re
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_hooks_are_the_commands_of_lint():
    sources = re.findall(r"^SOURCES := (.+)$", makefile(), re.MULTILINE)[0]
    recipe = "".join(re.findall(r"^(?:format|lint):.*\n((?:\t.+\n)+)", makefile(), re.MULTILINE))
    wanted = [
        line.strip().replace("$(BIN)", ".venv/bin").replace("$(SOURCES)", sources)
        for line in recipe.splitlines()
    ]
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]] == wanted


def test_every_make_target_named_is_there():
    targets = set(re.findall(r"^([\w-]+):", makefile(), re.MULTILINE))
    pages = [ROOT / "CONTRIBUTING.md", *ROOT.glob(".github/**/*.md"), *ROOT.glob("docs/contributing/*.md")]
    named = {name for page in pages for name in re.findall(r"`?make ([\w-]+)`?", page.read_text("utf-8"))}
    assert "setup" in named
    assert named <= targets


def test_the_widths_of_editors_are_those_of_ruff():
    wide = re.findall(r"^line-length = (\d+)$", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert f"max_line_length = {wide[0]}" in (ROOT / ".editorconfig").read_text("utf-8")


def test_long_tests_are_there():
    """After `make test`, `python -m benchmarks.long_tests out/tests.xml` lists those that were long."""
    for line in (ROOT / "tests" / "long.txt").read_text("utf-8").splitlines():
        path, _, name = line.partition("::")
        assert (ROOT / path).exists(), line
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), line
