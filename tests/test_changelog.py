"""CHANGELOG.md stays short, and fragments of changelog.d become items of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST = 25_000


def assemble(root: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, root / "changelog.d" / "assemble.py"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path):
    """The change log and its fragments, as they are here, to be assembled elsewhere."""
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    return tmp_path


def test_the_fragments_that_are_here_assemble_into_a_short_page(checkout):
    items = [
        path.read_text("utf-8").strip()
        for path in (checkout / "changelog.d").glob("*.md")
        if path.name != "README.md"
    ]
    done = assemble(checkout)
    assert done.returncode == 0, done.stderr
    page = (checkout / "CHANGELOG.md").read_text("utf-8")
    assert [item for item in items if item.replace("\n", "\n  ") not in page] == []
    assert len(page.encode()) <= MOST
    assert [path.name for path in (checkout / "changelog.d").glob("*.md")] == ["README.md"]


def test_items_go_under_their_kind_in_order(checkout):
    page = "# Changes\n\n## Unreleased\n\n### Added\n- old\n\n### Changed\n\n### Fixed\n\n## 0.1.0\n- text\n"
    (checkout / "CHANGELOG.md").write_text(page)
    for name, text in (
        ("b-two.added.md", "second"),
        ("a-one.added.md", "first\nline"),
        ("c.fixed.md", "mended"),
    ):
        (checkout / "changelog.d" / name).write_text(text + "\n")
    for path in (ROOT / "changelog.d").glob("*.md"):
        if path.name != "README.md":
            (checkout / "changelog.d" / path.name).unlink()
    assert assemble(checkout).returncode == 0
    assert (checkout / "CHANGELOG.md").read_text() == (
        "# Changes\n\n## Unreleased\n\n### Added\n- old\n- first\n  line\n- second\n\n### Changed\n\n"
        "### Fixed\n- mended\n\n## 0.1.0\n- text\n"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no-kind.md", "text", "name it NAME.KIND.md"),
        ("long.added.md", "x" * 401, "401 characters"),
        ("empty.fixed.md", "", "0 characters"),
        ("list.added.md", "- text", "without a dash"),
    ],
)
def test_a_wrong_fragment_changes_nothing(checkout, name, text, said):
    before = (checkout / "CHANGELOG.md").read_text("utf-8")
    (checkout / "changelog.d" / name).write_text(text)
    done = assemble(checkout)
    assert done.returncode == 1
    assert said in done.stderr
    assert (checkout / "CHANGELOG.md").read_text("utf-8") == before
    assert (checkout / "changelog.d" / name).exists()
