"""Move the fragments beside this file into CHANGELOG.md, under *Unreleased*.

Run by `make changelog`. The rule for fragments is in README.md beside this file.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Final

KINDS: Final = {"added": "Added", "changed": "Changed", "fixed": "Fixed"}
MOST: Final = 400
"""Characters of an item: details belong in the page that it links."""
NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.(" + "|".join(KINDS) + r")\.md")


def fragments(folder: Path) -> list[Path]:
    """Return the fragments of a folder, in the order of their names."""
    return sorted(path for path in folder.glob("*.md") if path.name != "README.md")


def faults(path: Path) -> list[str]:
    """Say what is wrong with a fragment."""
    text = path.read_text(encoding="utf-8").strip()
    found = []
    if not NAME.fullmatch(path.name):
        found.append(f"{path.name}: name it NAME.KIND.md, KIND one of {', '.join(KINDS)}")
    if not text or len(text) > MOST:
        found.append(f"{path.name}: {len(text)} characters, 1 to {MOST} are accepted")
    if text.startswith(("-", "#")) or "\n\n" in text:
        found.append(f"{path.name}: one item of plain text, without a dash, a heading or an empty line")
    return found


def assembled(page: str, items: dict[str, list[str]]) -> str:
    """Return the page with the items of each kind at the end of its list under *Unreleased*."""
    head, mark, rest = page.partition("## Unreleased\n")
    section, following, tail = rest.partition("\n## ")
    for kind, title in KINDS.items():
        lines = "".join("- " + text.replace("\n", "\n  ") + "\n" for text in items.get(kind, ()))
        before, heading, after = section.partition(f"### {title}\n")
        if not (mark and heading):
            raise SystemExit(f"CHANGELOG.md: no '### {title}' under '## Unreleased'")
        listed, next_heading, others = after.partition("\n### ")
        section = (
            before
            + heading
            + listed.rstrip("\n")
            + "\n" * bool(listed.strip())
            + lines
            + next_heading
            + others
        )
    return head + mark + section + following + tail


def main(root: Path) -> int:
    """Assemble the change log of a checkout; nothing changes where a fragment has a fault."""
    found = fragments(root / "changelog.d")
    wrong = [fault for path in found for fault in faults(path)]
    if wrong:
        sys.stderr.write("\n".join(wrong) + "\n")
        return 1
    items: dict[str, list[str]] = {}
    for path in found:
        items.setdefault(path.suffixes[0][1:], []).append(path.read_text(encoding="utf-8").strip())
    page = root / "CHANGELOG.md"
    page.write_text(assembled(page.read_text(encoding="utf-8"), items), encoding="utf-8")
    for path in found:
        path.unlink()
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # who asks for --help keeps the fragments
    sys.exit(main(Path(__file__).resolve().parents[1]))
