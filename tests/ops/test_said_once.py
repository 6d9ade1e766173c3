"""Knowledge of operators stands once: tables keyed by operator, and files that name one, only get fewer.

A table is a dict or set literal that names four or more operators. Where a number falls, its limit falls with
it; where it rises, the knowledge belongs into `planner/ops` or into a format's own table. Scripts that an
engine's own Python runs (`run_*.py`) cannot import these and are not counted.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from onnx import defs

from tests.test_floors import ROOT

FEW: Final = 4
TABLES: Final = 29
NAMING: Final = {"Concat": 34, "DepthToSpace": 13}
"""Files of the planner that name an operator in a string of its own."""


@cache
def operators() -> frozenset[str]:
    return frozenset(schema.name for schema in defs.get_all_schemas() if schema.domain == "")


def files() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "planner").rglob("*.py")):
        if not path.name.startswith("run_"):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def keys(node: ast.AST) -> list[str]:
    """Operators that a dict or set literal has as keys."""
    found = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set) else []
    names = [key.value for key in found if isinstance(key, ast.Constant)]
    return [name for name in names if isinstance(name, str) and name in operators()]


def test_tables_keyed_by_operator_only_get_fewer():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} ({len(keys(node))} operators)"
        for path, tree in files()
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict | ast.Set) and len(keys(node)) >= FEW
    ]
    assert len(found) <= TABLES, "\n".join(found)


@pytest.mark.parametrize("name", NAMING)
def test_files_that_name_an_operator_only_get_fewer(name):
    found = [
        str(path.relative_to(ROOT))
        for path, tree in files()
        if any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(tree))
    ]
    assert len(found) <= NAMING[name], "\n".join(found)
