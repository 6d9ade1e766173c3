"""Which tests execute which lines of the planner, recorded and used for an order: a plugin of pytest.

Usage: `pytest -p benchmarks.executed --executed-to FILE --executed-of planner/ir,planner/ops TESTS`
records, `--executed-order FILE` runs only the tests that the file lists, in its order. `benchmarks.mutants`
does both.
"""

import hashlib
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

CALLS: Final = 40
"""Calls of a function that are traced within a test: later ones rarely reach another line."""


def digest(path: Path) -> str:
    """A digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(slots=True)
class Lines:
    """The lines executed since `start`, by file; only files below the given folders."""

    roots: tuple[str, ...]
    now: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    calls: Counter[CodeType] = field(default_factory=Counter)
    ours: dict[str, bool] = field(default_factory=dict)

    def start(self) -> None:
        """Forget what was executed."""
        self.now = defaultdict(set)
        self.calls.clear()
        self.resume()

    def resume(self) -> None:
        """Trace this thread and those that it starts."""
        threading.settrace(self.called)
        sys.settrace(self.called)

    def stop(self) -> dict[str, set[int]]:
        """Trace no more, and return what was executed."""
        sys.settrace(None)
        threading.settrace(None)
        return self.now

    def called(self, frame: FrameType, _: str, __: object) -> Any:
        """Trace a call of one of our functions."""
        code = frame.f_code
        name = code.co_filename
        own = self.ours.get(name)
        if own is None:
            own = self.ours[name] = name.startswith(self.roots)
        # A module's own lines run for the first test that imports it, which says nothing of the others.
        if not own or code.co_name == "<module>" or self.calls[code] >= CALLS:
            return None
        self.calls[code] += 1
        lines = self.now[name]
        lines.add(frame.f_lineno)

        def traced(_: FrameType, event: str, __: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return traced

        return traced


class Recorder:
    """Writes the seconds, the outcome and the lines of every test; lines of fixtures for its file."""

    def __init__(self, path: Path, root: Path, folders: tuple[str, ...]) -> None:
        self.path = path
        self.root = root
        self.lines = Lines(tuple(f"{root / folder}/" for folder in folders))
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


class Order:
    """Runs the tests of a list in its order."""

    def __init__(self, listed: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(listed)}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Choose and sort."""
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.place])
        kept = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place[item.nodeid])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our options."""
    for name in ("to", "of", "order"):
        parser.addoption(f"--executed-{name}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Record, or order."""
    if to := config.getoption("--executed-to"):
        folders = tuple(config.getoption("--executed-of").split(","))
        config.pluginmanager.register(Recorder(Path(to), config.rootpath, folders))
    if order := config.getoption("--executed-order"):
        config.pluginmanager.register(Order(json.loads(Path(order).read_text(encoding="utf-8"))))
