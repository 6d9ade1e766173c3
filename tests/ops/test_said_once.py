"""Knowledge of operators stands once: tables keyed by operator, and files that name one, only get fewer.

A table is a dict or set literal that names four or more operators. Those that are left are listed with the
reason why they are no part of a definition; a new one belongs into `planner/ops`, or into the table of a
format. Scripts that an engine's own Python runs (`run_*.py`) cannot import these and are not counted.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from onnx import defs

from tests.test_floors import ROOT

FEW: Final = 4
MOST: Final = 25
"""Tables that may be left."""
FORMAT: Final = "which operators of a format or framework an op is, or what writes or reads it there"
ENGINE: Final = "what one engine computes or fuses, by its source"
REWRITE: Final = "the functions of one pass, each for one operator"
TABLES: Final[Mapping[str, str]] = {
    "factors/paths.py BLOCK_ENDS": "last ops of norms and activations that exporters spell out",
    "formats/litert/vocabulary.py BUILTINS": FORMAT,
    "formats/litert/writer/table.py _MORE": FORMAT,
    "formats/onnx/affine.py FOLDS": REWRITE,
    "formats/onnx/composites/basics.py BASICS": REWRITE,
    "formats/onnx/composites/take_apart.py BODIES": REWRITE,
    "formats/onnx/drafts/simplify.py _REWRITES": REWRITE,
    "formats/onnx/operators/before_opset_7.py ADAPTERS": "rewrites of old operator sets",
    "formats/onnx/opsets.py ADAPTERS": "rewrites of old operator sets",
    "formats/onnx/quantized/dialect.py STORED": FORMAT,
    "formats/onnx/quantized/expand.py EXPANSIONS": REWRITE,
    "formats/onnx/writer/guards/optimisations.py _FOLLOWERS": ENGINE,
    "formats/stablehlo/vocabulary.py OPERATIONS": FORMAT,
    "formats/stablehlo/writer/floats/table.py OPS": FORMAT,
    "formats/tosa/vocabulary.py OPERATORS": FORMAT,
    "formats/tosa/writer/floats.py FLOAT_OPS": FORMAT,
    "formats/tosa/writer/movement.py MOVEMENT": FORMAT,
    "interpreter/kernels/stored.py STORED_KERNELS": REWRITE,
    "interpreter/kernels/table.py OF_ONNXRUNTIME": ENGINE,
    "ir/operators/standard_op.py SPELLED": REWRITE,
    "target_exchange/aten.py _LISTS": FORMAT,
    "target_exchange/nncf.py OPERATIONS": FORMAT,
    "target_exchange/vocabulary.py FUSED": FORMAT,
    "target_tests/templates.py TEMPLATES": "models of one op, with operands that fit it",
    "torch/operators.py FUNCTIONS": FORMAT,
}
NAMING: Final = {"Concat": 14, "DepthToSpace": 6}
"""Files of the planner that name an operator in a string of its own."""


@cache
def operators() -> frozenset[str]:
    return frozenset(schema.name for schema in defs.get_all_schemas() if schema.domain == "")


@cache
def files() -> Mapping[Path, ast.Module]:
    paths = [path for path in sorted((ROOT / "planner").rglob("*.py")) if not path.name.startswith("run_")]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def keys(node: ast.AST) -> list[str]:
    """Operators that a dict or set literal has as keys."""
    found = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set) else []
    names = [key.value for key in found if isinstance(key, ast.Constant)]
    return [name for name in names if isinstance(name, str) and name in operators()]


def name_of(statement: ast.stmt) -> str:
    """The name that a statement of a module defines."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return getattr(targets[0], "id", None) or getattr(statement, "name", f"line {statement.lineno}")


def test_tables_keyed_by_operator_are_those_that_have_a_reason():
    found = [
        f"{path.relative_to(ROOT / 'planner')} {name_of(statement)}"
        for path, tree in files().items()
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Dict | ast.Set) and len(keys(node)) >= FEW
    ]
    assert sorted(found) == sorted(TABLES)
    assert len(found) <= MOST


@pytest.mark.parametrize("name", NAMING)
def test_files_that_name_an_operator_only_get_fewer(name):
    found = [
        str(path.relative_to(ROOT))
        for path, tree in files().items()
        if any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(tree))
    ]
    assert len(found) <= NAMING[name], "\n".join(found)
