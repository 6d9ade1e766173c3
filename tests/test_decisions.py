"""Decision pages have their four parts, are listed in ARCHITECTURE.md, and name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_pages_are_numbered_without_a_gap():
    assert [path.name[:5] for path in PAGES] == [f"{number:04}-" for number in range(1, len(PAGES) + 1)]


def test_every_page_is_listed():
    listed = re.findall(r"\(docs/decisions/([\w-]+\.md)\)", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    assert listed == [path.name for path in PAGES]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_has_its_parts_and_its_tests(path):
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.name[:4]}. ")
    for part in ("**Context.**", "**Decision.**", "**Rejected.**", "**Guarded by**"):
        assert text.count(part) == 1, part
    guards = re.findall(r"`(tests/[\w/]+\.py)`", text.partition("**Guarded by**")[2])
    assert guards
    assert [name for name in guards if not (ROOT / name).is_file()] == []


def test_sources_cite_pages_of_this_repository():
    """Code cites the specification or a page of `docs/`, which readers have; `design 01` is neither."""
    outside = [
        path.relative_to(ROOT).as_posix()
        for folder in ("planner", "api", "benchmarks", "tests", "targets", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js", ".yaml", ".md") and path != Path(__file__).resolve()
        if re.search(r"\bdesign,?\s+(?:# )?[01]\d", path.read_text("utf-8"), re.IGNORECASE)
    ]
    assert outside == []


def test_cited_sections_exist():
    sections = re.findall(
        r"^## (\d+)\. ", (ROOT / "docs" / "specification.md").read_text("utf-8"), re.MULTILINE
    )
    assert sections == [str(number) for number in range(1, len(sections) + 1)]
    cited = {
        number
        for folder in ("planner", "api", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for number in re.findall(
            r"docs/specification\.md,\s+(?:# )?sections?\s+(?:# )?(\d+)", path.read_text("utf-8")
        )
    }
    assert cited
    assert cited <= set(sections)


def test_the_architecture_stays_short():
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 8_000
