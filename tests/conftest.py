"""Fixtures of every test: goldens and the folder of test models."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

from tests.exact_products import use_exact_products

ROOT = Path(__file__).resolve().parent.parent

PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
settings.register_profile("few", max_examples=10, deadline=None, phases=PHASES, database=None)
settings.register_profile("everyday", max_examples=40, deadline=None, phases=PHASES, database=None)
settings.register_profile("soak", max_examples=2000, deadline=None, phases=PHASES, database=None)
settings.load_profile(os.environ.get("QPLAN_HYPOTHESIS", "everyday"))


use_exact_products()


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files from what is made"
    )


LONG = frozenset(Path(__file__).with_name("long.txt").read_text(encoding="utf-8").splitlines())
"""Tests that `make check` leaves out; see `benchmarks.long_tests`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.partition("[")[0] in LONG:
            item.add_marker("long")


def pytest_collection():
    """Collect no garbage among tests that stay: 20,000 of them are looked through again and again."""
    gc.disable()


def pytest_collection_finish():
    """Look through what tests make alone, and as rarely as the server does: that took a fifth of planning."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            drawn = [one for one in vars(module).values() if isinstance(one, np.random.Generator)]
            STARTS.extend((one, one.bit_generator.state) for one in drawn)


STARTS: list[tuple[np.random.Generator, object]] = []
"""Generators of modules, with their states after the import."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Draw the same numbers whichever tests ran before: several processes take tests in any order."""
    for generator, state in STARTS:
        generator.bit_generator.state = state


@pytest.fixture
def golden(request) -> Callable[[str, str], None]:
    """`golden(name, text)`: text must equal `golden/name` beside the test; --update-golden rewrites it."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{path} is missing: run pytest --update-golden and review the diff"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def models() -> Path:
    """Folder of the test models (`QPLAN_MODELS`, default `../shared/models`); skips where there is none."""
    folder = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
    if not folder.is_dir():
        pytest.skip(f"no test models at {folder}: set QPLAN_MODELS")
    return folder
