"""The checker judges by itself: nothing that makes plans is within its reach, in source or at run time."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import ROOT

MAKERS: Final = (
    "planner.fusion",
    "planner.propagation",
    "planner.target.lint.findings",
    "planner.target.load",
    "planner.target.patterns",
)
OURS: Final = sorted((ROOT / "planner" / "checker").rglob("[a-z]*.py"))


def made_by(name: str) -> bool:
    return any(name == maker or name.startswith(f"{maker}.") for maker in MAKERS)


def imported(path: Path) -> set[str]:
    """Modules and members that a file imports, dotted."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_no_module_of_the_checker_imports_a_maker_of_plans():
    assert len(OURS) >= 9
    assert [(path.name, name) for path in OURS for name in sorted(imported(path)) if made_by(name)] == []


def test_the_checker_derives_its_own_rescales():
    """It reads the records of rescales, not the function that makes them."""
    assert [path.name for path in OURS if any("plans.rescales" in name for name in imported(path))] == []


def test_loading_the_checker_loads_no_maker_of_plans():
    code = "import sys, planner.checker.check; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert "planner.checker.check" in loaded
    assert [name for name in loaded if made_by(name)] == []
