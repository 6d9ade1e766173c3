"""User-visible text has the field's words: the README, the how-tos, `--help`, messages of the command.

The words are those that readers of ONNX Runtime's, PyTorch's or LLVM's documentation would not know in our
sense; each has a better one. A true use of a word stands in `ALLOWED` with the words around it.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from planner.cli.app import TARGET_VERBS, VERBS, app
from planner.target_tests.cases import EARLIER

ROOT: Final = Path(__file__).resolve().parents[1]
WORDS: Final = {
    r"readers?": "consumer",
    r"movers?": "data-movement operator",
    r"dear(?:er|est)?": "expensive",
    r"pin(?:s|ned)?": "fixed type",
    r"asked[- ](?:for|to)|wanted|let go": "requested",
    r"told": "reported",
    r"grown": "widened",
    r"comes? along": "built in",
    r"[oi]n integers": "quantized",
    r"stays? (?:in )?float": "falls back to float",
    r"judg\w+": "evaluate, evaluation",
    r"shall": "will, must",
    r"strangers?(?:'s)?": "untrusted",
    r"odd": "unusual, or what is wrong with it",
}
ANY: Final = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
STARTS: Final = re.compile(r"(?:^|[.:!?]\s+)((?:What|Who|Where)\b[^.?!]*[.!])", re.MULTILINE)
"""A sentence that begins with a question word and is no question."""
ALLOWED: Final = frozenset(
    {
        "'readers'",
        "--readers",
        "...wanted: ",
        "data reader",
        "reader ... is not known",
        "readers = {",
        "readers is a number",
        "readers of formats",
        "| mover |",
        "| pin |",
        "to odd before",
    }
)
"""Words around a true use: names of options, of keys and of arguments, a class of onnxruntime's, and a
rounding mode."""
KEYS: Final = frozenset({"let go", *(then.pattern for then, _ in EARLIER)})
"""Values of a plan's JSON with a space in them, and words of earlier versions that tests of targets quote."""


def prose(path: Path) -> str:
    """The text of a page: no code but shown output, no addresses of links."""
    text = re.sub(
        r"^```(?P<language>[^\n]*)\n(?P<block>.*?)^```",
        lambda found: found["block"] if found["language"] == "text" else "",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "` `", text))


def helps() -> Iterator[tuple[str, str]]:
    """Verbs, and the text of their help: what they do, and their options."""
    yield "qplan", str(app.info.help)
    verbs = {**VERBS, **{f"target {name}": verb for name, verb in TARGET_VERBS.items()}}
    for name, verb in verbs.items():
        yield name, "\n".join((inspect.getdoc(verb) or "", *option_helps(verb)))


def messages(path: Path) -> Iterator[str]:
    """Texts of a module with a space in them, but for docstrings; `...` where a value stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(item)
        for node in ast.walk(tree)
        for item in (
            [one.value for one in getattr(node, "body", ()) if isinstance(one, ast.Expr)]
            if isinstance(getattr(node, "body", None), list)
            else []
        )
    }
    skipped |= {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "..." for one in node.values)
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            text = str(node.value)
        if " " in text:
            yield text


def descriptions(path: Path) -> Iterator[str]:
    """Texts of a module that generated reference pages show: messages, and docstrings of public names."""
    yield from messages(path)
    yield from docstrings(path)


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a module's public classes and functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield without_names(ast.get_docstring(node) or "")


def headers(path: Path) -> Iterator[str]:
    """The header of a module, and the strings under its public constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield without_names(ast.get_docstring(tree) or "")
    for before, node in pairwise(tree.body):
        match before, node:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if not name.startswith("_"):
                yield without_names(text)


def without_names(text: str) -> str:
    """A docstring without code, and without the names of arguments and attributes."""
    text = re.sub(r"`[^`\n]*`", "` `", text)
    return re.sub(r"^ *(?:\w+(?:, \w+)*:|>>>.*)", "", text, flags=re.MULTILINE)


def option_helps(verb: Callable[..., object]) -> Iterator[str]:
    """The help of each option and argument."""
    for parameter in inspect.signature(verb).parameters.values():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            yield str(getattr(info, "help", "") or "")


def ours(text: str) -> Iterator[str]:
    """Words of ours, with some text around them and the better word."""
    for pattern, better in WORDS.items() if ANY.search(text) else ():
        for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
            around = " ".join(text[max(0, found.start() - 30) : found.end() + 30].split())
            if not any(allowed in around for allowed in ALLOWED):
                yield f"{around!r}: {better}"
    for found in STARTS.finditer(text):
        yield f"{found[1]!r}: begin with the subject"


PAGES: Final = {
    path.relative_to(ROOT).as_posix(): prose(path)
    for path in sorted(
        {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"}
        - {ROOT / "CHANGELOG.md", ROOT / "docs" / "reference" / "library.md", *ROOT.glob("docs/results/*.md")}
    )
}
"""All pages but the change log, the measured ones, and names of arguments in the reference of the library."""


@pytest.mark.parametrize("name", PAGES)
def test_pages(name):
    assert list(ours(PAGES[name])) == []


HELPS: Final = dict(helps())
REFERENCE: Final = (
    *sorted((ROOT / "api" / "schemas").glob("*.py")),
    *sorted((ROOT / "planner" / "client" / "calls").glob("*.py")),
    ROOT / "planner" / "target" / "docs" / "fields.py",
    *sorted((ROOT / "planner" / "target" / "schema").glob("*.py")),
)
"""Modules whose texts are those of the reference: of HTTP, of the Python client, of the keys of a target."""
MESSAGES: Final = sorted(path for part in ("api", "planner") for path in (ROOT / part).rglob("*.py"))


@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_messages(path):
    assert [found for text in messages(path) if text not in KEYS for found in ours(text)] == []


@pytest.mark.parametrize("path", REFERENCE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_reference(path):
    assert [found for text in descriptions(path) for found in ours(text)] == []


PLAIN: Final = (*sorted(path.parent.name for path in (ROOT / "planner").glob("*/__init__.py")), "*.py")
"""Packages and modules of `planner` whose docstrings are plain English: all."""


@pytest.mark.parametrize("package", PLAIN)
def test_docstrings(package):
    found = (ROOT / "planner").glob(package)
    paths = sorted(path for one in found for path in (one.rglob("*.py") if one.is_dir() else (one,)))
    texts = [(path, text) for path in paths for text in (*headers(path), *docstrings(path))]
    assert [(path.name, found) for path, text in texts for found in ours(text)] == []


GONE: Final = re.compile(r"(?:^|_)(?:movers?|dear(?:er)?|afloat)(?:_|$)", re.IGNORECASE)
"""Parts of names that no module of the planner has any more: they were words of ours."""


def test_names_of_modules_and_what_they_define():
    found = []
    for path in sorted((ROOT / "planner").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            getattr(node, key)
            for node in ast.walk(tree)
            for key in ("id", "name", "arg")
            if hasattr(node, key)
        }
        found += [
            f"{path.name}: {name}"
            for name in {path.stem, *names}
            if isinstance(name, str) and GONE.search(name)
        ]
    assert found == []


@pytest.mark.parametrize("name", HELPS)
def test_help(name):
    assert list(ours(HELPS[name])) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The readers of a value.", 1),
        ("A kernel stays float. What it costs is told.", 3),
        ("Consumers read it. Which target is mine? What is it?", 0),
    ],
)
def test_words_of_ours_are_found(text, found):
    assert len(list(ours(text))) == found


def test_names_and_examples_of_docstrings_are_left_out():
    text = "Give `wanted` a type.\nArgs:\n  pinned, readers: names.\n  >>> len(model.wanted)\n  1"
    assert without_names(text) == "Give ` ` a type.\n\n names.\n\n  1"
