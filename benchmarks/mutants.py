"""Whether tests bite: small changes of meaning in the planner, each run against the tests of its own folder.

Usage, from the repository root: `python -m benchmarks.mutants [--count 200] [--seed 1] [--within planner/ops]
[--seconds 60] [--workers 2] [--write]`. A mutant changes one place of one file: a comparison, a number, the
order of operands, a term, a sign, a condition. It is dead if a test of the folder that guards its file fails
in time. Works on copies of the tree; `--write` puts the page into docs/results/mutants.md.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from benchmarks.shipped.page import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "results" / "mutants.md"
FOLDERS: Final = ("planner", "tests", "targets", "benchmarks", "examples", "api")
"""What a copy holds besides the files of the root."""
TESTS: Final = {
    "annotated": ("formats",),
    "checker": ("plans",),
    "onnx": ("onnx_import", "conversion"),
    "ops": ("ops", "propagation"),
    "stablehlo_reader": ("mlir", "formats"),
    "tosa_reader": ("mlir", "formats"),
}
"""Folders of tests whose names are not those of the packages that they guard."""
SURVIVORS: Final = 40
"""Survivors that the page lists, at most."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the characters from `start` to `end` of a file's line give way to others."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.after.encode() + line[self.end :]).decode()
        return "".join(lines)


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant: `killed`, `survived`, `too slow` or `no tests`; by which test, in seconds."""

    mutant: Mutant
    fate: str
    by: str
    seconds: float


SWAPPED: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
}


def mutants_of(text: str, name: str) -> Iterator[Mutant]:
    """Every mutant of a file; expressions of several lines are left alone."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.expr) or node.lineno != node.end_lineno or node.end_col_offset is None:
            continue
        for after in _changes(node):
            before = ast.unparse(node)
            if after != before:
                yield Mutant(name, node.lineno, node.col_offset, node.end_col_offset, before, after)


def _changes(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in SWAPPED:
            yield f"({ast.unparse(left)} {SWAPPED[type(op)]} {ast.unparse(right)})"
        case ast.Constant(value) if type(value) is int:
            yield f"({value + 1})"
        case ast.BinOp(left, ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Mod(), right):
            sign = {"Sub": "-", "Div": "/", "FloorDiv": "//", "Mod": "%"}[type(node.op).__name__]
            yield f"({ast.unparse(right)} {sign} {ast.unparse(left)})"
        case ast.BinOp(left, ast.Add() | ast.Mult(), right):
            yield f"({ast.unparse(left)})"
            yield f"({ast.unparse(right)})"
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.BoolOp(op, values):
            other = " or " if isinstance(op, ast.And) else " and "
            yield f"({other.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.IfExp(test, body, orelse):
            yield f"(({ast.unparse(orelse)}) if ({ast.unparse(test)}) else ({ast.unparse(body)}))"
        case _:
            return


def guards_of(file: str) -> tuple[str, ...]:
    """Folders of tests that guard a file of the planner."""
    parts = Path(file).parts[1:-1]
    found: list[str] = []
    for names in (parts[:2], parts[:1]):
        path = "/".join(names)
        found += [
            f"tests/{one}" for one in TESTS.get(path, (path,)) if path and (ROOT / "tests" / one).is_dir()
        ]
        if found:
            break
    return tuple(found)


def drawn(count: int, seed: int, within: str) -> list[Mutant]:
    """Mutants by chance, files by their number of places; those of messages and of types are left out."""
    every: list[Mutant] = []
    for path in sorted((ROOT / within).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        every += mutants_of(path.read_text(encoding="utf-8"), name)
    chosen = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311 - a seeded sample, no secret
    return sorted(chosen, key=lambda one: (one.file, one.line, one.start))


def copied(folder: Path) -> Path:
    """A copy of the tree."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)
    for name in ("docs", ".oracles"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def fate(mutant: Mutant, tree: Path, limit: float) -> Fate:
    """Run the tests that guard a mutant's file, in a copy of the tree."""
    tests = guards_of(mutant.file)
    if not tests:
        return Fate(mutant, "no tests", "", 0.0)
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(text), encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests)
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return Fate(mutant, "too slow", "", limit)
    finally:
        path.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - began
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return Fate(mutant, "killed" if done.returncode else "survived", failed[0] if failed else "", seconds)


def fates(mutants: Sequence[Mutant], workers: int, limit: float) -> list[Fate]:
    """The fate of every mutant, each worker in a copy of its own."""
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for worker in range(workers):
            trees.put(copied(Path(folder) / str(worker)))

        def one(mutant: Mutant) -> Fate:
            tree = trees.get()
            try:
                found = fate(mutant, tree, limit)
            finally:
                trees.put(tree)
            print(f"{found.fate:9}{found.seconds:6.0f} s  {_told(mutant)}  {found.by}", flush=True)
            return found

        with ThreadPoolExecutor(workers) as pool:
            return [*pool.map(one, mutants)]


def _told(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.line}: `{mutant.before}` becomes `{mutant.after}`"


def page(found: Sequence[Fate], seed: int, limit: float) -> str:
    """The page."""
    names = ("killed", "survived", "too slow", "no tests")
    by_package: dict[str, list[Fate]] = {}
    for one in found:
        by_package.setdefault(Path(one.mutant.file).parts[1], []).append(one)
    rows = [
        [package, *(str(sum(one.fate == name for one in own)) for name in names)]
        for package, own in sorted(by_package.items())
    ]
    killed = sum(one.fate == "killed" for one in found)
    left = [one for one in found if one.fate != "killed"][:SURVIVORS]
    return f"""# Mutants

Made by `python -m benchmarks.mutants --count {len(found)} --seed {seed} --write`: changes of one place in
the planner, drawn by chance, each run against the tests of the folder that guards its file, for {limit:.0f}
seconds at most. Some survivors mean the same as before: a bound that no value meets, a number only told.

- Dead: {killed} of {len(found)}.

{table(["package", *names], rows)}

## Survivors
{chr(10).join(f"- {_told(one.mutant)} ({one.fate})" for one in left)}
"""


def main() -> None:
    """Draw, run, tell, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", default="planner")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = fates(drawn(given.count, given.seed, given.within), given.workers, given.seconds)
    text = page(found, given.seed, given.seconds)
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
