"""The documentation as a site: `python docs/site/build.py [FOLDER]`, or `make docs`.

The pages are those of the repository, with their links as they are. Sections and their order are those of
docs/index.md; what it does not name stands under its section's last heading. A broken link, a broken anchor
or a file that a page takes from another host ends the build.
"""

import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r"(\[[^\]\n]*\])\(([^)\s]+)\)")
FETCHED: Final = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
)
"""What a browser asks of another host when it opens a page; `<a>` is not among it."""
REST: Final = {
    "Reference": ("Shipped targets", "targets"),
    "Background": ("Decisions", "decisions"),
    "Results": ("Appendix", "results"),
}
"""Section, and the heading for the pages of a folder that the index does not name."""

RENAMED: Final = {"Measured": "Results"}
"""Headings of the index that links from elsewhere know, and the names of their sections."""


def main(folder: Path) -> None:
    """Build the site into a folder.

    Raises:
      SystemExit: a page takes something from another host.
      mkdocs.exceptions.Abort: a link is broken.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    staged = folder.with_name(folder.name + "-pages")
    shutil.rmtree(staged, ignore_errors=True)
    pages = list(stage(staged))
    config = load_config(
        str(ROOT / "docs" / "site" / "mkdocs.yml"),
        docs_dir=str(staged),
        site_dir=str(folder),
        nav=navigation(staged, pages),
        strict=True,
    )
    build(config)
    shutil.rmtree(staged)
    if found := sorted(set(fetched(folder))):
        raise SystemExit("these pages take files from other hosts:\n" + "\n".join(found))


def stage(staged: Path) -> Iterator[Path]:
    """Copy the pages of docs/ and all that they link to, each at its place; yield the pages."""
    waiting = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        place = source.relative_to(ROOT)
        (staged / place).parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copy(source, staged / place)
            continue
        text = source.read_text(encoding="utf-8")
        for _, link in LINK.findall(text):
            found = (source.parent / unquote(link.partition("#")[0])).resolve()
            if "://" not in link and found.is_file() and found not in seen:
                seen.add(found)
                waiting.append(found)
        (staged / place).write_text(for_the_site(text, source.parent), encoding="utf-8")
        yield place


def for_the_site(text: str, folder: Path) -> str:
    """A page with empty lines before lists and tables, and without links to folders."""

    def linked(found: re.Match[str]) -> str:
        is_folder = "://" not in found[2] and (folder / found[2]).is_dir()
        return found[1][1:-1] if is_folder else found[0]

    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        kind = block(line)
        if not is_code and kind and before.strip() and block(before) != kind and not before.startswith(" "):
            lines.append("")
        lines.append(line if is_code else LINK.sub(linked, line))
    return "\n".join(lines) + "\n"


def block(line: str) -> str:
    """Whether a line is of a table or of a list."""
    found = re.match(r"(\|)|([-*] |\d+\. )", line)
    return "" if found is None else "table" if found[1] else "list"


def navigation(staged: Path, pages: list[Path]) -> list[dict[str, Any]]:
    """The sections of docs/index.md with their pages, then the pages that it does not name."""
    parts = re.split(r"^## (.+)$", (staged / "docs/index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named: dict[Path, str] = {Path("README.md"): "Start", Path("docs/index.md"): "Start"}
    sections: dict[str, list[Any]] = {"Start": ["README.md", "docs/index.md"]}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        name = RENAMED.get(title, title.partition(":")[0])
        for _, link in LINK.findall(text):
            page = (ROOT / "docs" / link.partition("#")[0]).resolve()
            place = page.relative_to(ROOT) if "://" not in link else page
            if place in pages and place not in named:
                named[place] = name
                sections.setdefault(name, []).append(place.as_posix())
    rest = sorted(page for page in pages if page not in named)
    for name, (heading, folder) in REST.items():
        inside = [page.as_posix() for page in rest if page.parts[:2] == ("docs", folder)]
        sections.setdefault(name, []).append({heading: inside})
    folders = {folder for _, folder in REST.values()}
    others = [page.as_posix() for page in rest if page.parts[0] != "docs" or page.parts[1] not in folders]
    sections["Background"] += [{"Project": others}] if others else []
    return [{name: inside} for name, inside in sections.items()]


def fetched(folder: Path) -> Iterator[str]:
    """Pages with what they take from another host."""
    for page in folder.rglob("*.html"):
        for address in FETCHED.findall(page.read_text(encoding="utf-8")):
            yield f"{page.relative_to(folder)}: {address}"


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "out" / "docs").resolve())
