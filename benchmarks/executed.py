"""Which tests execute which statements of the planner, recorded and used for an order: a plugin of pytest.

Usage: `pytest -p benchmarks.executed --executed-to FILE --executed-of planner/ir,planner/ops TESTS`
records, `--executed-order FILE` runs only the tests that the file lists, in its order. `benchmarks.mutants`
does both. A statement within a function stores a one before it runs, so a recording takes hardly longer
than the tests alone.
"""

import ast
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

EXECUTED: Final = "__executed__"
"""The name that a module of ours gives to its array of executed lines."""


def digest(path: Path) -> str:
    """A digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def places(tree: ast.AST, *, inside: bool = False) -> Iterator[ast.stmt | ast.expr]:
    """What is recorded: statements within functions, bodies of lambdas and guards of cases."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and inside:
            yield node
        if isinstance(node, ast.match_case) and node.guard:
            yield node.guard
        if isinstance(node, ast.Lambda):
            yield node.body
        yield from places(node, inside=inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def place_of(tree: ast.AST, line: int) -> int:
    """The first line of the innermost place around a line; 0 at the level of the module."""
    return max((one.lineno for one in places(tree) if one.lineno <= line <= (one.end_lineno or 0)), default=0)


class _Probes(ast.NodeTransformer):
    """Puts in front of each place that its line is executed."""

    def __init__(self, tree: ast.AST) -> None:
        self.places = {id(one): one.lineno for one in places(tree)}

    def visit(self, node: ast.AST) -> Any:
        """A statement behind its probe, an expression as `None or itself`."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            self.places.pop(id(node.body[0]), None)
        self.generic_visit(node)
        if id(node) not in self.places:
            return node
        line = self.places[id(node)]
        if isinstance(node, ast.expr):
            call = ast.parse(f"{EXECUTED}.__setitem__({line}, 1)", mode="eval").body
            return _located(ast.BoolOp(ast.Or(), [call, node]), node)
        return [_located(ast.parse(f"{EXECUTED}[{line}] = 1").body[0], node), node]


def _located(probe: ast.AST, node: ast.AST) -> ast.AST:
    return ast.fix_missing_locations(ast.copy_location(probe, node))


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the interface's
        """The module's code with probes, never from a compiled file."""
        tree = ast.parse(self.get_data(self.path))
        code: CodeType = compile(_Probes(tree).visit(tree), self.path, "exec", dont_inherit=True)
        return code


class Lines(MetaPathFinder):
    """The lines executed since `start`, by file; only modules of the given packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(f"{package}." for package in packages)
        self.arrays: dict[str, bytearray] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Our modules with probes; all others are left to the next finder."""
        ours = f"{fullname}.".startswith(self.packages)
        spec = PathFinder.find_spec(fullname, path, target) if ours else None
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin)
        array = self.arrays[spec.origin] = bytearray(Path(spec.origin).read_bytes().count(b"\n") + 2)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(module)[EXECUTED] = array
            execute(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def start(self) -> None:
        """Forget what was executed."""
        for array in self.arrays.values():
            if any(array):
                array[:] = bytes(len(array))

    def stop(self) -> dict[str, set[int]]:
        """Return what was executed."""
        return {
            name: {line for line, executed in enumerate(array) if executed}
            for name, array in self.arrays.items()
            if any(array)
        }


class Recorder:
    """Writes the seconds, the outcome and the lines of every test; lines of fixtures for its file."""

    def __init__(self, path: Path, root: Path, folders: tuple[str, ...]) -> None:
        self.path = path
        self.root = root
        self.lines = Lines([folder.replace("/", ".") for folder in folders])
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def _named(self, found: Mapping[str, set[int]]) -> dict[str, list[int]]:
        return {Path(name).relative_to(self.root).as_posix(): sorted(lines) for name, lines in found.items()}

    def _share(self, test: str, found: Mapping[str, set[int]]) -> None:
        for name, lines in found.items():
            self.shared[test.partition("::")[0]][name] |= lines

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Lines that a file of tests executes while it is read."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        self.lines.start()
        try:
            return (yield)
        finally:
            self._share(collector.nodeid, self.lines.stop())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Lines of fixtures, of which those of a module run once."""
        self.tests[item.nodeid] = {"began": time.perf_counter(), "passed": True, "lines": {}}
        self.lines.start()
        try:
            return (yield)
        finally:
            self._share(item.nodeid, self.lines.stop())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Lines of the test."""
        self.lines.start()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid]["lines"] = self._named(self.lines.stop())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The outcome; a skipped test guards nothing."""
        test = self.tests.get(report.nodeid)
        if test is not None:
            test["passed"] &= report.outcome == "passed"
            if report.when == "teardown":
                test["seconds"] = round(time.perf_counter() - test.pop("began"), 3)

    def pytest_sessionfinish(self) -> None:
        """Write what was found, with the digests of the files that were tested and of those that test."""
        shared = {test: self._named(found) for test, found in self.shared.items()}
        called = (name for test in self.tests.values() for name in test["lines"])
        names = {*shared, *called, *(name for found in shared.values() for name in found)}
        digests = {name: digest(self.root / name) for name in sorted(names)}
        told = {"tests": self.tests, "shared": shared, "digests": digests}
        self.path.write_text(json.dumps(told), encoding="utf-8")


USED: Final = "processor seconds: "


def used(said: str) -> float:
    """The processor seconds of a run that said so."""
    return sum(float(line.removeprefix(USED)) for line in said.splitlines() if line.startswith(USED))


class Order:
    """Runs the tests of a list in its order."""

    def __init__(self, listed: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(listed)}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Choose and sort."""
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.place])
        kept = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place[item.nodeid])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The processor seconds."""
        terminalreporter.write_line(f"{USED}{time.process_time():.2f}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our options."""
    for name in ("to", "of", "order"):
        parser.addoption(f"--executed-{name}", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Record: before a conftest imports what is recorded."""
    given = early_config.known_args_namespace
    if given.executed_to:
        recorder = Recorder(Path(given.executed_to), early_config.rootpath, (*given.executed_of.split(","),))
        sys.meta_path.insert(0, recorder.lines)
        early_config.pluginmanager.register(recorder)


def pytest_configure(config: pytest.Config) -> None:
    """Order."""
    if order := config.getoption("--executed-order"):
        config.pluginmanager.register(Order(json.loads(Path(order).read_text(encoding="utf-8"))))
