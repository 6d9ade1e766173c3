"""What a process keeps: caches have a bound, or keys that no request can add to; read from the sources.

A server answers for years, so a cache without a bound whose keys come with requests is a leak.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

SOURCES = [path for folder in ("planner", "api") for path in sorted((ROOT / folder).rglob("*.py"))]
ENDLESS = {
    "api/jobs/executors.py _opened": "the data folder and object store of a worker's server",
    "api/page/reference.py reference_page": "the application of the process",
    "api/schemas/schema_files.py schema_text": "names of schemas; any other raises",
    "planner/ir/arithmetic/words.py tanhs": "bits in front of the point of a 16-bit word",
    "planner/report/offers.py _built_in": "built-in targets",
    "planner/target/borders.py border_rows": "arithmetics of requantize, which the loader checks",
}
"""Caches without a bound of functions with arguments: what the arguments are."""
CONTAINERS = {
    "api/jobs/queue.py _KNOWN": "emptied at `MOST_KNOWN`",
    "planner/formats/writable.py _WRITTEN": "emptied at `_KEPT`",
    "planner/formats/onnx/sessions.py _KNOWN_OUTPUTS": "as long as the session",
    "planner/ir/graph.py _DIGESTS": "as long as the graph",
    "planner/ir/mapped.py _MAPS": "as long as an array shows the file",
    "planner/plans/write_json.py _ROWS": "`_MOST_ROWS`, the oldest go first",
    "planner/propagation/network/constant_ranges.py _KNOWN": "as long as the constant",
}
"""Containers of modules that are filled later: how long an entry stays."""
EMPTY = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter"}
WEAK = {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}


def unbounded(tree: ast.Module) -> Iterator[str]:
    """Functions with arguments whose results are all kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            takes = ast.unparse(node.args)
            if takes and any(map(is_endless, node.decorator_list)):
                yield node.name


def is_endless(decorator: ast.expr) -> bool:
    """Whether a decorator is a cache without a bound, which is `lru_cache` of 128 where nothing is said."""
    text = ast.unparse(decorator).removeprefix("functools.")
    return text == "cache" or (text.startswith("lru_cache(") and "None" in text)


def containers(tree: ast.Module) -> Iterator[str]:
    """Names of the module that stand for something empty, and not for a constant mapping."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            told = "" if isinstance(node, ast.Assign) else ast.unparse(node.annotation)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if is_filled_later(node.value, told):
                yield from (name.id for name in targets if isinstance(name, ast.Name))


def is_filled_later(value: ast.expr, annotation: str) -> bool:
    """Whether an empty value may change by its type."""
    text = ast.unparse(value)
    called = text.partition("(")[0].partition("[")[0]
    if called in WEAK:
        return True
    is_empty = text in ("{}", "[]") or (called in EMPTY and text.endswith("()"))
    return is_empty and not annotation.removeprefix("Final[").startswith(
        ("Mapping", "Sequence", "Attributes")
    )


@cache
def trees() -> Mapping[Path, ast.Module]:
    return {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in SOURCES}


def found(seek) -> set[str]:
    return {f"{name} {one}" for name, tree in trees().items() for one in seek(tree)}


def test_caches_without_a_bound_have_few_keys():
    assert found(unbounded) == set(ENDLESS)


def test_containers_of_modules_let_entries_go():
    assert found(containers) == set(CONTAINERS)


CACHED = """
@cache
def f(x): ...
@cache
def g(): ...
@lru_cache(None)
def h(x): ...
@lru_cache(8)
def i(x): ...
A: Final[dict[int, int]] = {}
B: Final[Mapping[int, int]] = {}
C = set()
D = {1: 2}
E = WeakSet()
"""


def test_what_is_found():
    tree = ast.parse(CACHED)
    assert [*unbounded(tree)] == ["f", "h"]
    assert [*containers(tree)] == ["A", "C", "E"]
