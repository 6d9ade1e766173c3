"""The benchmark of mutants: what it changes, and which tests it runs."""

import ast
import json
import os
import subprocess
import sys

import pytest

from benchmarks import mutants
from benchmarks.executed import digest, place_of
from benchmarks.mutants import (
    FEW,
    ROOT,
    Fate,
    Known,
    Mutant,
    drawn,
    equivalents,
    folders_of,
    function_of,
    guarded_by,
    guards_of,
    mutants_of,
    order,
    page,
    recorded,
)

TEXT = """def f(a, b):
    \"\"\"A number 3 in a text stays.\"\"\"
    if a < b and not b:
        return a - 2 * b
    return -a - (a - b)
"""


def test_each_place_is_changed_alone():
    found = {(one.line, one.before, one.after) for one in mutants_of(TEXT, "f.py")}
    assert found == {
        (3, "a < b and (not b)", "((a < b) or (not b))"),
        (3, "a < b", "(a <= b)"),
        (3, "not b", "(b)"),
        (4, "a - 2 * b", "(2 * b - a)"),
        (4, "2 * b", "(2)"),
        (4, "2 * b", "(b)"),
        (4, "2", "(3)"),
        (5, "-a - (a - b)", "(a - b - -a)"),
        (5, "a - b", "(b - a)"),
        (5, "-a", "(a)"),
    }
    changed = next(one for one in mutants_of(TEXT, "f.py") if one.after == "(2 * b - a)")
    assert changed.applied(TEXT).splitlines()[3] == "        return (2 * b - a)"


def test_the_same_seed_draws_the_same_and_every_mutant_compiles():
    one, other = (drawn(30, 7, "planner/fusion") for _ in range(2))
    assert one == other
    for mutant in one:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        changed = mutant.applied(text)
        assert changed != text
        compile(changed, mutant.file, "exec")


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("planner/formats/litert/writer/movement.py", ("tests/formats/litert/writer",)),
        ("planner/fusion/fuse.py", ("tests/fusion",)),
        ("planner/costs.py", ("tests",)),
        ("planner/formats/onnx/read.py", ("tests/formats/onnx/reader", "tests/conversion")),
        ("planner/client/__init__.py", ("tests/api/test_client.py", "tests/api/test_client_tls.py")),
    ],
)
def test_a_file_is_guarded_by_the_folder_of_its_package(file, tests):
    assert guards_of(file) == tests


FOLDERS = sorted({path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "planner").rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_guards_that_record_it(folder):
    file = f"{folder}/any.py"
    guards = guards_of(file)
    assert guards
    for one in (one for tests in guards for one in folders_of(tests)):
        assert any(file.startswith(f"{package}/") for package in guarded_by(one))
        assert (ROOT / one).exists()


def test_the_page_lists_what_survives():
    mutant = Mutant("planner/fusion/fuse.py", 3, 0, 1, "a < b", "(a <= b)")
    said = page(
        [Fate(mutant, "survived", "", 2.0), Fate(mutant, "killed", "test", 1.0)], 1, 60.0, "planner", 5
    )
    assert "--count 5 --seed 1 --within planner" in said
    assert "- Dead: 1 of 2; 0 are equivalent. 3 more were drawn and not run." in said
    assert "- Processor seconds, beside the records: 3." in said
    assert "| fusion | 1 | 1 | 0 | 0 | 0 |" in said
    assert "- planner/fusion/fuse.py:3: `a < b` becomes `(a <= b)` (survived)" in said


def test_tests_that_execute_the_line_come_first_and_quick_ones_before_slow_ones():
    mutant = Mutant("planner/fusion/fuse.py", 3, 0, 1, "a < b", "(a <= b)")

    def said(lines, seconds, *, passed=True):
        return {"lines": {mutant.file: lines} if lines else {}, "seconds": seconds, "passed": passed}

    tests = {
        "tests/fusion/test_a.py::slow": said([3], 20.0),
        "tests/fusion/test_a.py::quick": said([3, 4], 0.1),
        "tests/fusion/test_a.py::fails": said([3], 0.1, passed=False),
        "tests/fusion/test_b.py::of_the_file": said([4], 0.1),
        "tests/fusion/test_b.py::of_another": said([], 0.1),
        "tests/fusion/test_c.py::by_a_fixture": said([], 1.0),
    }
    record = {"tests": tests, "shared": {"tests/fusion/test_c.py": {mutant.file: [3]}}}
    text = "def f():\n    def g(a, b):\n        return a < b\n"
    of_the_line = ["test_a.py::quick", "test_c.py::by_a_fixture", "test_a.py::slow"]
    found = [
        [test.removeprefix("tests/fusion/") for test in stage] for stage in order(mutant, [record], text)
    ]
    assert found == [of_the_line, [], ["test_b.py::of_the_file"]]
    module_level = "\n\nLIMIT = a < b\n"
    assert order(mutant, [record], module_level)[-1][-1] == "tests/fusion/test_b.py::of_another"


def test_the_quickest_files_run_before_the_others_are_read():
    mutant = Mutant("planner/fusion/fuse.py", 2, 0, 1, "a < b", "(a <= b)")
    tests = {
        f"tests/fusion/test_{n}.py::test": {"lines": {mutant.file: [2]}, "seconds": 10.0 + n, "passed": True}
        for n in range(FEW + 2)
    }
    stages = order(mutant, [{"tests": tests, "shared": {}}], "def f(a, b):\n    return a < b\n")
    assert [len(stage) for stage in stages] == [FEW, 2, 0]


@pytest.mark.parametrize(
    ("line", "place"),
    [(1, 0), (2, 2), (3, 0), (4, 4), (5, 4), (6, 6), (7, 7), (8, 7), (9, 9), (10, 10)],
)
def test_a_line_belongs_to_the_innermost_statement_guard_or_lambda(line, place):
    text = """A = 3
B = lambda a: a + 1
def f(a):
    match a:
        case 1 if (
            a > 2):
            g(a,
              2)
        case _ if a > 3:
            h()
"""
    assert place_of(ast.parse(text), line) == place


def test_records_follow_the_text_of_a_changed_file(tmp_path, monkeypatch):
    """A line that moved is found again; a new one belongs to the line before."""
    then, now = (
        "def f(a):\n    b = a\n    return b\n",
        "C = 1\n\ndef f(a):\n    b = a\n    b += C\n    return b\n",
    )
    cache = tmp_path / "cache"
    (cache / "texts").mkdir(parents=True)
    (cache / "texts" / "before").write_text(then)
    for name, text in {"tests/fusion/test_a.py": "", "planner/fusion/a.py": now}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    test = tmp_path / "tests/fusion/test_a.py"
    record = {
        "tests": {"tests/fusion/test_a.py::test": {"lines": {"planner/fusion/a.py": [2]}, "passed": True}},
        "shared": {"tests/fusion/test_a.py": {"planner/fusion/a.py": [3]}},
        "digests": {
            "tests/fusion/test_a.py": {
                "planner/fusion/a.py": "before",
                "tests/fusion/test_a.py": digest(test),
            }
        },
        "of": ["planner/fusion"],
    }
    (cache / "tests.fusion.json").write_text(json.dumps(record))
    found = recorded("tests/fusion", ["planner/fusion/a.py"], cache)
    assert found["tests"]["tests/fusion/test_a.py::test"]["lines"] == {"planner/fusion/a.py": {4, 5}}
    assert found["shared"] == {"tests/fusion/test_a.py": {"planner/fusion/a.py": {6}}}


def test_a_stopped_run_goes_on_with_what_it_found(tmp_path):
    fates = [
        Fate(Mutant("planner/fusion/fuse.py", line, 0, 1, "a < b", "(a <= b)"), "killed", "test", 1.5)
        for line in (3, 4)
    ]
    for one in fates:
        Known(tmp_path).add(one)
    assert Known(tmp_path).fates == {one.mutant: one for one in fates}


def test_the_innermost_function_of_a_line_is_found():
    text = "A = 1\ndef f():\n    def g():\n        return 2\n    return 3\n"
    assert [function_of(text, line) for line in (1, 4, 5)] == ["", "g", "f"]


def test_equivalent_mutants_are_those_of_the_files_as_they_are():
    """Each names one place: a number that stands twice in a function is none."""
    for file, function, before, after in equivalents():
        text = (ROOT / file).read_text(encoding="utf-8")
        found = [(one.before, one.after, function_of(text, one.line)) for one in mutants_of(text, file)]
        assert found.count((before, after, function)) == 1, (file, function, before, after)


def test_the_recorder_tells_lines_of_tests_from_those_of_fixtures(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("def f(a):\n    if a:\n        return 1\n    return 2\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom package.code import f\n\n"
        "@pytest.fixture(scope='module')\ndef one():\n    return f(1)\n\n"
        "def test_both(one):\n    assert f(0) == 2 * one\n\ndef test_neither(one):\n    assert one == 2\n"
    )
    to = tmp_path / "executed.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.executed", f"--executed-to={to}"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    subprocess.run(
        [*command, "--executed-of=package", "--rootdir=.", "test_it.py"],
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    found = json.loads(to.read_text(encoding="utf-8"))
    both, neither = (found["tests"][f"test_it.py::test_{name}"] for name in ("both", "neither"))
    assert both["lines"] == {"package/code.py": [2, 4]}
    assert neither["lines"] == {}
    assert (both["passed"], neither["passed"]) == (True, False)
    assert found["shared"]["test_it.py"]["package/code.py"] == [2, 3]
    assert found["digests"].keys() == {"package/code.py", "test_it.py"}
