"""Whether tests bite: small changes of meaning in the planner, each run against the tests of its own folder.

Usage, from the repository root: `python -m benchmarks.mutants [--count 200] [--seed 1] [--within planner/ops]
[--seconds 60] [--workers 2] [--cache FOLDER] [--write] [--so-far] [--again FATES]`. A mutant changes
a place of a file: a comparison, a number, the order of operands, a term, a sign, a condition. It is dead if a
test of the folder that guards its file fails in time, which is the processor's, so that other work on the
machine does not count. Tests that execute the changed line run first, quick ones before slow ones: which
those are is recorded (`benchmarks.executed`) and kept in the cache until a file of tests changes.
Works on copies of the tree; `--write` puts the page into docs/results/mutants.md. `--so-far` runs nothing and
tells of what a run in this very tree has kept. `--again` runs those that lived in an earlier run, whose file
of fates it names, in the tree as it is now, and tells of them below.
"""

import argparse
import ast
import functools
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, TypeAlias

from benchmarks.executed import digest, place_of, used
from benchmarks.shipped.page import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "results" / "mutants.md"
FOLDERS: Final = ("planner", "tests", "targets", "benchmarks", "examples", "api")
"""What a copy holds besides the files of the root."""
TESTS: Final = {
    "calibration/sources": ("calibration", "formats/test_encodings.py", "formats/test_public_encodings.py"),
    "checker": ("plans",),
    "client": ("api/test_client.py", "api/test_client_tls.py"),
    "formats/annotated": ("formats/annotated", "cases/test_structure.py"),
    "formats/litert/reader": ("formats/litert/reader", "formats/litert/writer/test_recurrent.py"),
    "formats/mlir": ("formats/mlir", "cases/test_structure.py"),
    "formats/mlir/passes": ("formats/mlir", "formats/stablehlo/reader", "cases/test_structure.py"),
    "formats/onnx": ("formats/onnx/reader", "conversion"),
    "formats/onnx/composites": ("formats/onnx/reader", "conversion", "formats/test_weights_alone.py"),
    "formats/onnx/drafts": ("formats/onnx/reader", "conversion", "formats/litert/reader"),
    "formats/onnx/writer": ("formats",),
    "formats/qonnx": ("formats/qonnx", "conversion"),
    "formats/stablehlo": ("formats/stablehlo", "formats/mlir", "formats/annotated"),
    "formats/stablehlo/reader": ("formats/stablehlo/reader", "formats/mlir", "formats/annotated"),
    "formats/tosa": ("formats/tosa", "formats/mlir", "formats/annotated"),
    "formats/tosa/reader": ("formats/tosa/reader", "formats/mlir", "formats/annotated"),
    "interpreter": ("interpreter", "plans/test_lookup.py"),
    "interpreter/kernels": ("interpreter", "formats/litert/writer"),
    "ir": (
        *("ir", "cases", "calibration/test_sizes_seen.py", "fusion/test_inner_types.py"),
        *("plans/test_asked.py", "propagation/test_asked.py"),
    ),
    "ir/arithmetic": ("ir", "interpreter"),
    "lowering": ("interpreter", "formats"),
    "ops": ("ops", "propagation", "ir/test_axes.py"),
    "propagation": ("propagation", "cases"),
    "propagation/result": ("propagation", "calibration/test_warned_as_written.py", "cases"),
    "target": ("target", "target_files/test_shipped.py", "target_files/test_traits.py"),
    "torch": ("training",),
}
"""Tests whose folders are not named as the packages that they guard."""
ROOT_TESTS: Final = "tests"
"""The tests that are in no folder guard the modules that are in none."""
QUICK: Final = "not slow and not soak"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "qplan-mutants"
EQUIVALENT: Final = ROOT / "benchmarks" / "equivalent_mutants.tsv"
"""Mutants that mean the same, found by hand: file, function, before, after, reason."""
FAILED: Final = ("FAILED ", "ERROR ")
BUSY: Final = 20
"""Seconds that may pass for each processor second, for a mutant that waits for ever."""
FEW: Final = 3
"""Files of tests that run first."""
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
    """What became of a mutant, one of `FATES`; by which test or for which reason, in seconds."""

    mutant: Mutant
    fate: str
    by: str
    seconds: float


FATES: Final = ("killed", "survived", "too slow", "no tests", "equivalent")
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
            yield f"({ast.unparse(ast.BinOp(right, node.op, left))})"
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
    """Folders or files of tests that guard a file of the planner."""
    parts = Path(file).parts[1:-1]
    if not parts:
        return (ROOT_TESTS,)
    for names in (parts[:3], parts[:2], parts[:1]):
        path = "/".join(names)
        found = tuple(f"tests/{one}" for one in TESTS.get(path, (path,)) if (ROOT / "tests" / one).exists())
        if found:
            return found
    return ()


def guarded_by(tests: str) -> tuple[str, ...]:
    """The packages of which a folder or file of tests has a record."""
    if tests == ROOT_TESTS:
        return ("planner",)
    paths = (path for path in sorted((ROOT / "planner").rglob("*")) if path.is_dir())
    folders = (path.relative_to(ROOT).as_posix() for path in paths if path.name != "__pycache__")
    return tuple(folder for folder in folders if tests in _records_of(f"{folder}/module.py"))


def drawn(count: int, seed: int, within: str) -> list[Mutant]:
    """Mutants by chance, files by their number of places; what Python does not accept is passed over."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / within).rglob("*.py"))
    }
    every = [one for name, text in texts.items() for one in mutants_of(text, name)]
    random.Random(seed).shuffle(every)  # noqa: S311 - a seeded order, no secret
    chosen: list[Mutant] = []
    for one in every:
        if len(chosen) == count:
            break
        try:
            compile(one.applied(texts[one.file]), one.file, "exec")
        except SyntaxError:  # Quotes in the braces of an f-string, before Python 3.12.
            continue
        chosen.append(one)
    return sorted(chosen, key=lambda one: (one.file, one.line, one.start))


def function_of(text: str, line: int) -> str:
    """The name of the innermost function around a line, or nothing at the level of the module."""
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else ""


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The reason for every mutant that means the same."""
    rows = [line.split("\t") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()[1:]]
    return {(file, function, before, after): why for file, function, before, after, why in rows}


def folders_of(tests: str) -> list[str]:
    """The folders of a folder that hold tests themselves, for each has a record of its own; a file is one."""
    if tests.endswith(".py") or tests == ROOT_TESTS:
        return [tests]
    return sorted({path.parent.relative_to(ROOT).as_posix() for path in (ROOT / tests).rglob("test_*.py")})


def _kept(tests: str, kept_in: Path) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """What is recorded of a folder, the digests of its files of tests, and those that are not recorded."""
    path = kept_in / f"{tests.replace('/', '.')}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found: dict[str, Any] = {"tests": {}, "shared": {}, "digests": {}, "of": [], **known}
    there = [ROOT / tests] if tests.endswith(".py") else (ROOT / tests).glob("test_*.py")
    now = {one.relative_to(ROOT).as_posix(): digest(one) for one in there}
    known_of = all(any(f"{one}/".startswith(f"{its}/") for its in found["of"]) for one in guarded_by(tests))
    stale = sorted(
        one for one, its in now.items() if found["digests"].get(one, {}).get(one) != its or not known_of
    )
    return found, now, stale


def recorded(tests: str, files: Sequence[str], kept_in: Path) -> Mapping[str, Any]:
    """Which tests of a folder execute which lines of some files; a changed file of tests is recorded anew."""
    found, now, stale = _kept(tests, kept_in)
    if stale:
        print(f"recording {tests}: {len(stale)} files", flush=True)
        fresh = _record(tests, stale, kept_in)
        kept = now.keys() - stale
        found["tests"] = {test: said for test, said in found["tests"].items() if _file_of(test) in kept}
        found["shared"] = {test: lines for test, lines in found["shared"].items() if test in kept}
        for key in ("tests", "shared"):
            found[key] |= fresh[key]
        found["digests"] |= {one: fresh["digests"] | {one: now[one]} for one in stale}
        path = kept_in / f"{tests.replace('/', '.')}.json"
        path.write_text(json.dumps(found | {"of": guarded_by(tests)}), encoding="utf-8")
    for test, said in found["tests"].items():
        said["lines"] = _now(said["lines"], found["digests"][_file_of(test)], files, kept_in)
    for test, lines in found["shared"].items():
        found["shared"][test] = _now(lines, found["digests"][test], files, kept_in)
    return found


def _now(
    lines: Mapping[str, Sequence[int]], digests: Mapping[str, str], files: Sequence[str], kept_in: Path
) -> dict[str, set[int]]:
    """The lines of some files as they are now."""
    moved = {one: _moved(one, digests[one], kept_in) for one in lines if one in files}
    return {one: {line for then in lines[one] for line in its.get(then, ())} for one, its in moved.items()}


@functools.cache
def _moved(file: str, recorded_as: str, kept_in: Path) -> Mapping[int, Sequence[int]]:
    """The lines of a file now for each line of then; new ones belong to the line before."""
    now = (ROOT / file).read_text(encoding="utf-8").splitlines()
    then = (kept_in / "texts" / recorded_as).read_text(encoding="utf-8").splitlines()
    found: dict[int, list[int]] = {}
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if tag == "equal":
            found |= {i1 + k + 1: [j1 + k + 1] for k in range(i2 - i1)}
            continue
        for line in range(i1, i2) if tag == "replace" else (i1 - 1,):
            found.setdefault(line + 1, []).extend(range(j1 + 1, j2 + 1))
    return found


def _record(tests: str, stale: Sequence[str], cache: Path) -> Mapping[str, Any]:
    """Record files of tests; the texts of what they execute are kept, by digest."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        to = Path(folder) / "executed.json"
        options = ("-m", QUICK, f"--executed-to={to}", f"--executed-of={','.join(guarded_by(tests))}")
        done = _pytest(*options, *stale, tree=ROOT, limit=None)
        if not to.exists():
            raise RuntimeError(f"pytest said {done.returncode}: {done.stdout} {done.stderr}")
        found: Mapping[str, Any] = json.loads(to.read_text(encoding="utf-8"))
    (cache / "texts").mkdir(exist_ok=True)
    for name, its in found["digests"].items():
        shutil.copy(ROOT / name, cache / "texts" / its)
    return found


def _file_of(test: str) -> str:
    return test.partition("::")[0]


Record: TypeAlias = Mapping[str, Any]
"""What `recorded` says of one folder."""


def stages_of(
    mutant: Mutant, own: Sequence[str], others: Sequence[str], said: Callable[[str], Record], text: str
) -> Iterator[list[str]]:
    """The tests to run, those of the mutant's own folder that execute the line before those of others.

    Others are recorded only where a mutant outlives those.
    """
    records = [said(tests) for tests in own]
    ran: set[str] = set()
    for stage in order(mutant, records, text)[: -1 if others else None]:
        ran.update(stage)
        yield stage
    if others:
        stages = order(mutant, [*records, *(said(tests) for tests in others)], text)
        yield from ([test for test in stage if test not in ran] for stage in stages)


def order(mutant: Mutant, records: Sequence[Record], text: str) -> list[list[str]]:
    """The tests to run: those that execute the line, then those that execute the file, or all that is left.

    Quick ones come first, those of a file together where they take about as long, for they share fixtures.
    """
    place = place_of(ast.parse(text), mutant.line)
    stages: list[list[tuple[int, str, float, str]]] = [[], [], []]
    for record in records:
        for test, said in record["tests"].items():
            own = said["lines"].get(mutant.file, ())
            shared = record["shared"].get(_file_of(test), {}).get(mutant.file, ())
            if not said["passed"]:
                continue
            stage = 0 if place in own or place in shared else 1 if own or shared else 2
            seconds = said.get("seconds", 60.0)
            stages[stage].append((math.ceil(math.log(max(seconds, 0.1), 3)), _file_of(test), seconds, test))
    first, second, third = ([test for *_, test in sorted(stage)] for stage in stages)
    # A table of a module is read where no line of its file runs, and children are not traced.
    if not function_of(text, mutant.line) or not first:
        second += third
    # Most mutants die by the quickest tests: a few files are read sooner than all.
    few = list(dict.fromkeys(map(_file_of, first)))[:FEW]
    quickest = [test for test in first if _file_of(test) in few]
    return [quickest, [test for test in first if _file_of(test) not in few], second]


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


def _pytest(*arguments: str, tree: Path, limit: float | None) -> subprocess.CompletedProcess[str]:
    """Run pytest in a tree with our plugin, for processor seconds; compiled files are kept there."""
    options = (
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        "-p",
        "benchmarks.executed",
    )
    command: tuple[str, ...] = (sys.executable, "-m", "pytest", *options)
    if limit is not None:
        command = ("sh", "-c", f'ulimit -t {math.ceil(limit)}; exec "$@"', "sh", *command)
    environment = {
        "QPLAN_MODELS": str(ROOT.parent / "shared" / "models"),
        **{name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        (*command, *arguments),
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, errors = process.communicate(timeout=None if limit is None else limit * BUSY)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # With the servers and engines that tests started.
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def fate(mutant: Mutant, tree: Path, limit: float, said: Callable[[str], Record]) -> Fate:
    """Run the tests that guard a mutant's file, in a copy of the tree.

    Args:
      said: the record of a folder or file of tests.
    """
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    times = (path.stat().st_atime, path.stat().st_mtime)
    why = equivalents().get((mutant.file, function_of(text, mutant.line), mutant.before, mutant.after))
    if why:
        return Fate(mutant, "equivalent", why, 0.0)
    own = _own_records_of(mutant.file)
    stages = stages_of(mutant, own, [one for one in _records_of(mutant.file) if one not in own], said, text)
    seconds, count = 0.0, 0
    path.write_text(mutant.applied(text), encoding="utf-8")
    try:
        for stage in filter(None, stages):
            count += len(stage)
            listed = tree / "order.json"
            listed.write_text(json.dumps(stage), encoding="utf-8")
            done = _pytest(
                *("-x", "-m", QUICK, f"--executed-order={listed}", *dict.fromkeys(map(_file_of, stage))),
                tree=tree,
                limit=max(limit - seconds, 1.0),
            )
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return Fate(mutant, "too slow", "", limit)
            seconds += used(done.stdout)
            if done.returncode not in (0, 5):  # 5: no test was chosen.
                failed = _failed(done.stdout)
                if not failed and "conftest" not in done.stderr and done.returncode > 0:
                    raise RuntimeError(f"pytest said {done.returncode}: {done.stdout} {done.stderr}")
                return Fate(mutant, "killed", failed[0] if failed else "tests/conftest.py", seconds)
    except subprocess.TimeoutExpired:
        return Fate(mutant, "too slow", "", limit)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, times)  # Else what was compiled from the mutant could be taken for the file's own.
    return Fate(mutant, "survived" if count else "no tests", "", seconds)


def fates(mutants: Sequence[Mutant], workers: int, limit: float, cache: Path) -> list[Fate]:
    """The fate of every mutant, each worker in a copy of its own."""
    files: dict[str, list[str]] = defaultdict(list)
    for mutant in mutants:
        for tests in _records_of(mutant.file):
            files[tests].append(mutant.file)
    records: dict[str, Record] = {}
    locks: dict[str, Lock] = {tests: Lock() for tests in files}
    trees: SimpleQueue[Path] = SimpleQueue()

    def said(tests: str) -> Record:
        with locks[tests]:
            if tests not in records:
                records[tests] = recorded(tests, files[tests], cache)
            return records[tests]

    known = Known(cache)

    def one(mutant: Mutant) -> Fate:
        if mutant in known.fates:
            return known.fates[mutant]
        tree = trees.get()
        try:
            found = fate(mutant, tree, limit, said)
        finally:
            trees.put(tree)
        known.add(found)
        print(f"{found.fate:9}{found.seconds:6.0f} s  {_told(mutant)}  {found.by}", flush=True)
        return found

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for worker in range(workers):
            trees.put(copied(Path(folder) / str(worker)))
        # What needs the fewest records comes first, so that a run that is stopped has told of most.
        dear = {tests: len(_kept(tests, cache)[2]) / len(its) for tests, its in files.items()}
        cheap = sorted(mutants, key=lambda its: sum(dear[tests] for tests in _own_records_of(its.file)))
        jobs = {mutant: pool.submit(one, mutant) for mutant in cheap}
        return _confirmed([jobs[mutant].result() for mutant in mutants], trees.get())


def left_of(path: Path) -> tuple[list[Mutant], int]:
    """The mutants of a file of fates that lived, where the tree has them now, and how many it has no more."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lived = [Mutant(*its) for its, fate, *_ in rows if fate not in ("killed", "equivalent")]
    found = [now for one in lived if (now := _today(one))]
    return found, len(lived) - len(found)


def _today(one: Mutant) -> Mutant | None:
    """The same change at the nearest line; None where the code is gone."""
    path = ROOT / one.file
    places = mutants_of(path.read_text(encoding="utf-8"), one.file) if path.exists() else ()
    same = [its for its in places if (its.before, its.after) == (one.before, one.after)]
    return min(same, key=lambda its: (abs(its.line - one.line), abs(its.start - one.start)), default=None)


class Known:
    """Fates in this very tree, kept in the cache, so that a run that was stopped goes on."""

    def __init__(self, cache: Path) -> None:
        names = (one for name in FOLDERS for one in (ROOT / name).rglob("*") if one.is_file())
        own = (f"{one} {digest(one)}" for one in sorted(names) if "__pycache__" not in one.parts)
        tree = hashlib.sha256("\n".join(own).encode()).hexdigest()
        self.path = cache / f"fates.{tree[:16]}.jsonl"
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ()
        rows = (json.loads(line) for line in lines)
        self.fates = {Mutant(*mutant): Fate(Mutant(*mutant), *rest) for mutant, *rest in rows}

    def add(self, found: Fate) -> None:
        """Keep one."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps([astuple(found.mutant), found.fate, found.by, found.seconds])}\n")


def _confirmed(found: Sequence[Fate], tree: Path) -> list[Fate]:
    """Let those live whose test fails without them too: in a copy of the tree, or by chance."""
    killers = sorted({one.by for one in found if one.fate == "killed" and one.by != "tests/conftest.py"})
    listed = tree / "order.json"
    listed.write_text(json.dumps(killers), encoding="utf-8")
    done = _pytest(
        f"--executed-order={listed}", *dict.fromkeys(map(_file_of, killers)), tree=tree, limit=None
    )
    failed = _failed(done.stdout)
    for one in failed:
        print(f"{one} fails without a mutant", flush=True)
    return [
        replace(one, fate="survived") if one.fate == "killed" and one.by in failed else one for one in found
    ]


def _failed(said: str) -> list[str]:
    lines = (line.partition(" ") for line in said.splitlines() if line.startswith(FAILED))
    return [test.partition(" - ")[0] for _, _, test in lines]


def _own_records_of(file: str) -> list[str]:
    return folders_of(next(iter(guards_of(file)))) if guards_of(file) else []


@functools.cache
def _records_of(file: str) -> tuple[str, ...]:
    return tuple(one for tests in guards_of(file) for one in folders_of(tests))


def _told(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.line}: `{mutant.before}` becomes `{mutant.after}`"


def page(found: Sequence[Fate], seed: int, limit: float, within: str, count: int) -> str:
    """The page of a draw, of which some may not have been run."""
    by_package: dict[str, list[Fate]] = {}
    for one in found:
        by_package.setdefault(Path(one.mutant.file).parts[1], []).append(one)
    rows = [
        [package, *(str(sum(one.fate == name for one in own)) for name in FATES)]
        for package, own in sorted(by_package.items())
    ]
    killed = sum(one.fate == "killed" for one in found)
    left = [one for one in found if one.fate not in ("killed", "equivalent")][:SURVIVORS]
    same = [one for one in found if one.fate == "equivalent"]
    rest = f" {count - len(found)} more were drawn and not run." if count > len(found) else ""
    return f"""# Mutants

Made by `python -m benchmarks.mutants --count {count} --seed {seed} --within {within} --write`:
changes of one place each, drawn by chance, each run against the tests of the folder that guards its file,
for {limit:.0f} processor seconds at most, those that execute the changed line first. Equivalent
mutants were found by hand.

- Dead: {killed} of {len(found)}; {len(same)} are equivalent.{rest}
- Processor seconds, beside the records: {sum(one.seconds for one in found):.0f}.

{table(["package", *FATES], rows)}

## Survivors
{chr(10).join(f"- {_told(one.mutant)} ({one.fate})" for one in left)}

## Equivalent
{chr(10).join(f"- {_told(one.mutant)}: {one.by}" for one in same)}
"""


SINCE: Final = "\n## Since"


def since(found: Sequence[Fate], gone: int) -> str:
    """What the page says of the mutants that lived, when they are run again."""
    killed = sum(one.fate == "killed" for one in found)
    same = [one for one in found if one.fate == "equivalent"]
    left = [one for one in found if one.fate not in ("killed", "equivalent")]
    return f"""{SINCE}
Of the {len(found) + gone} that lived, {killed} die by tests written since, {gone} were in code that is
deleted, {len(same)} are equivalent. Left:
{chr(10).join(f"- {_told(one.mutant)} ({one.fate})" for one in left)}

Equivalent:
{chr(10).join(f"- {_told(one.mutant)}: {one.by}" for one in same)}
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
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--so-far", action="store_true")
    parser.add_argument("--again", type=Path)
    given = parser.parse_args()
    if given.again:
        lived, gone = left_of(given.again)
        text = since(fates(lived, given.workers, given.seconds, given.cache), gone)
        print(text)
        if given.write:
            PAGE.write_text(PAGE.read_text(encoding="utf-8").partition(SINCE)[0] + text, encoding="utf-8")
        return
    mutants = drawn(given.count, given.seed, given.within)
    known = Known(given.cache).fates
    found = (
        [known[one] for one in mutants if one in known]
        if given.so_far
        else fates(mutants, given.workers, given.seconds, given.cache)
    )
    text = page(found, given.seed, given.seconds, given.within, len(mutants))
    print(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
