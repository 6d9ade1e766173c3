"""The documentation builds as a site: strictly, offline, with a search, and with every page at hand."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("material", reason="needs the extra docs: pip install '.[docs]'")

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "docs" / "site" / "build.py"
PAGES = sorted(ROOT.glob("docs/**/*.md"))


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, BUILD, folder]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "site"
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_found_by_the_search(site):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    wanted = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in PAGES}
    assert wanted - found == set()


def test_sections_are_those_of_a_need(site):
    tabs = re.findall(
        r'class="md-tabs__link">\s*([\w-]+)',
        (site / "docs" / "index.html").read_text("utf-8").replace("\n", ""),
    )
    assert tabs == ["Start", "Tutorial", "How-to", "Reference", "Background", "Results"]


def test_no_page_draws_with_a_script_of_another_host():
    """The theme fetches mermaid where a page has such a block; build.py refuses all else."""
    assert [path.name for path in PAGES if "```mermaid" in path.read_text("utf-8")] == []


def test_a_broken_link_ends_the_build(tmp_path):
    for part in ("docs", "README.md"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    (tmp_path / "docs" / "price.md").write_text("# Prices\n\n[gone](nowhere.md), [lost](plans.md#nowhere)\n")
    line = [sys.executable, tmp_path / "docs" / "site" / "build.py", tmp_path / "site"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "'nowhere.md'" in done.stderr
    assert "'#nowhere'" in done.stderr
