"""The benchmark of mutants: what it changes, and which tests it runs."""

import pytest

from benchmarks.mutants import ROOT, Fate, Mutant, drawn, guards_of, mutants_of, page

TEXT = """def f(a, b):
    \"\"\"A number 3 in a text stays.\"\"\"
    if a < b and not b:
        return a - 2 * b
    return -a
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
        ("planner/exporters/litert/movement.py", ("tests/exporters/litert",)),
        ("planner/fusion/fuse.py", ("tests/fusion",)),
        ("planner/onnx/read.py", ("tests/onnx_import", "tests/conversion")),
        ("planner/pipeline.py", ()),
    ],
)
def test_a_file_is_guarded_by_the_folder_of_its_package(file, tests):
    assert guards_of(file) == tests


def test_the_page_lists_what_survives():
    mutant = Mutant("planner/fusion/fuse.py", 3, 0, 1, "a < b", "(a <= b)")
    said = page([Fate(mutant, "survived", "", 2.0), Fate(mutant, "killed", "test", 1.0)], 1, 60.0)
    assert "- Dead: 1 of 2." in said
    assert "| fusion | 1 | 1 | 0 | 0 |" in said
    assert "- planner/fusion/fuse.py:3: `a < b` becomes `(a <= b)` (survived)" in said
