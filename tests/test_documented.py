"""What users can name is in the docs: rules, lint codes, errors, verbs and options, formats, public names."""

import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import planner
import planner.torch
from planner import errors
from planner.cli.app import TARGET_VERBS, VERBS
from planner.formats.table import EXPORTERS
from planner.target.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"])
THEIRS = {"docs/ContribOperators.md", "docs/spec.md"}  # of onnxruntime, of StableHLO


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def missing(names, text: str) -> list[str]:
    """Names that a page does not hold as code: in backquotes, alone or followed by their arguments."""
    return [name for name in names if not re.search(rf"`{re.escape(name)}[`( ]", text)]


def verbs() -> dict[str, Callable[..., object]]:
    return {**VERBS, **{f"target {name}": verb for name, verb in TARGET_VERBS.items()}}


def error_classes() -> list[type]:
    found = [item for item in vars(errors).values() if inspect.isclass(item)]
    return [item for item in found if issubclass(item, errors.PlannerError)]


def test_every_rule_is_documented():
    assert missing([*RULES, "fn"], page("reference/target-keys.md")) == []


def test_every_error_is_documented_with_its_exit_code():
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", page("errors.md"), re.MULTILINE)
    assert {name: int(code) for name, code in rows} == {e.__name__: e.exit_code for e in error_classes()}


def test_the_tree_of_errors_is_drawn():
    drawn = re.findall(r"\w+", errors.__doc__)
    assert {item.__name__ for item in error_classes()} <= set(drawn)


def test_every_format_is_documented():
    text = page("formats.md") + page("reference/formats.md")
    assert missing([*EXPORTERS, "onnx", "json", "mlir"], text) == []


def test_every_verb_is_documented():
    assert missing([f"qplan {name}" for name in verbs()], page("reference/command.md")) == []


def test_every_public_name_is_documented():
    names = [name for name in planner.__all__ if not name.startswith("_")]
    assert missing(names, page("reference/library.md")) == []


def test_every_public_name_is_there():
    assert [name for name in planner.__all__ if not hasattr(planner, name)] == []


def anchors(path: Path) -> set[str]:
    """What `#...` may name in a page: its headings as code hosts write them in addresses."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    broken = []
    for link in re.findall(r"\]\((?!http)([^)]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        page = path.parent / name if name else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            broken.append(link)
    assert broken == []


SUMMED_UP = ("accuracy", "formats", "models", "speed", "targets", "training")
"""The six pages of results; all others are their appendix."""


def linked(name: str) -> set[Path]:
    path = ROOT / "docs" / name
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    return {(path.parent / link).resolve() for link in links}


def test_every_page_is_in_the_index():
    assert [path.name for path in ROOT.glob("docs/*.md") if path not in linked("index.md")] == ["index.md"]
    summaries = {ROOT / "docs" / "results" / f"{name}.md" for name in SUMMED_UP}
    assert summaries <= linked("index.md")
    appendix = set().union(*(linked(f"results/{name}.md") for name in SUMMED_UP))
    assert set(ROOT.glob("docs/results/*.md")) - summaries - appendix == set()


@pytest.mark.parametrize("name", SUMMED_UP)
def test_a_page_of_results_is_short_and_names_its_commands(name):
    text = page(f"results/{name}.md")
    assert len(text.split()) <= 600
    assert re.search(r"`(?:python -m benchmarks\.|make |pytest )", text)


def test_pages_that_code_names_are_there():
    files = [
        ROOT / "Makefile",
        ROOT / "targets" / "README.md",
        *ROOT.glob("*.yaml"),
        *ROOT.glob("targets/*.yaml"),
    ]
    files += [
        path
        for folder in ("api", "benchmarks", "planner", "tests")
        for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    named = {
        name
        for path in files
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert sorted(name for name in named - THEIRS if not (ROOT / name).is_file()) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_modules_are_true(path):
    text = path.read_text(encoding="utf-8")
    dotted = set(re.findall(r"`((?:planner|benchmarks)\.[\w.]+\w)", text)) | set(
        re.findall(r"python -m (benchmarks\.\w+)", text)
    )
    files = set(re.findall(r"\b((?:planner|api|tests|benchmarks|examples)/[\w/]+\.py)\b", text))
    assert [name for name in sorted(dotted) if not exists(name)] == []
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one; PyTorch may not be here."""
    if name.startswith("planner.torch."):
        return name.removeprefix("planner.torch.") in planner.torch.__all__
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
