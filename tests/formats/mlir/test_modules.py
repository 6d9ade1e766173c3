"""Modules: what is accepted comes back canonically, what is wrong is refused at its place."""

import re
from pathlib import Path

import pytest

from planner.errors import UnknownName
from planner.formats.mlir.passes.table import PASSES
from planner.formats.mlir.passes.tool import run_parts, split
from tests.oracles.mlir import modules

HERE = Path(__file__).parent
ACCEPTED = (HERE / "accepted.mlir").read_text(encoding="utf-8")
REFUSED = (HERE / "refused.mlir").read_text(encoding="utf-8")
OURS = ("quant.region", "quant.stats", "qplan.region", "qplan.stats")


def test_accepted_modules_come_back_canonically(golden):
    parts = run_parts(ACCEPTED, separate=True)
    assert [part.error for part in parts] == [""] * 9
    golden("accepted.mlir", "// -----\n".join(part.text for part in parts))
    again = run_parts("// -----\n".join(part.text for part in parts), separate=True)
    assert [part.text for part in again] == [part.text for part in parts]


def test_refused_modules_say_where_and_why(golden):
    parts = run_parts(REFUSED, separate=True)
    assert [part.line for part in parts if not part.error] == []
    golden("refused.txt", "".join(f"{part.error}\n" for part in parts))


def test_zero_points_outside_the_storage_are_warned_of():
    warnings = [warning for part in run_parts(ACCEPTED, separate=True) for warning in part.warnings]
    per_axis, odd = (
        "!quant.uniform<u8<1:255>:f16:1, {0.5,0.25:7,1.0}>",
        "!quant.uniform<i8<-8:7>:f32, 0.5:10>",
    )
    assert warnings == [
        f"19:3: zero point 0 of {per_axis} lies outside its storage range 1:255",
        f"96:3: zero point 10 of {odd} lies outside its storage range -8:7",
    ]


def test_torch_mlir_reads_the_same_module_from_what_we_print():
    parts = [part for part in run_parts(ACCEPTED, separate=True) if not any(o in part.text for o in OURS)]
    sources = [text for _, text in split(ACCEPTED) if not any(o in text for o in OURS)]
    assert len(parts) == len(sources) == 7
    assert modules([part.text for part in parts]) == modules(sources)


# What upstream takes and we do not, by a part of our message (docs/mlir.md).
STRICTER = (
    "!quant.any<i8:f32>",
    "does not fit shape",
    "needs a ranked tensor",
    "must have min < max",
    "unknown op",
)


def test_torch_mlir_refuses_what_we_refuse():
    parts = run_parts(REFUSED, separate=True)
    texts = [text for _, text in split(REFUSED)]
    shared = [
        text
        for text, part in zip(texts, parts, strict=True)
        if not any(word in text for word in OURS)
        and ("cast" in part.error.split(": ")[1] or not any(word in part.error for word in STRICTER))
        and "!quant.any<i8:f32>" not in text
    ]
    assert len(shared) > 50
    taken = [
        text for text, found in zip(shared, modules(shared), strict=True) if not found.startswith("ERROR")
    ]
    assert taken == []


@pytest.mark.parametrize("depth", [100_000])
def test_deep_nesting_is_one_error(depth):
    (part,) = run_parts('"a.b"() ({' * depth)
    assert part.error.endswith("nested too deeply")
    (part,) = run_parts('"a.b"() {x = ' + "[" * depth)
    assert part.error.endswith("nested too deeply")


def test_external_resources_in_front_of_a_module_are_one_error():
    """At its end they are carried along; xDSL has not implemented them elsewhere."""
    (part,) = run_parts('{-# external_resources: {a: {b: "x"}} #-}\nfunc.func @f() { return }\n')
    assert part.error.startswith("1:")
    assert "resources" in part.error


@pytest.mark.parametrize("inside", ["}", '{a: {l0: "\\F3"}}', "{a: {l" + "9" * 5000 + ': "x"}}'])
def test_resources_that_are_wrong_are_one_error(inside):
    (part,) = run_parts(f"func.func @f() {{ return }}\n{{-#\n  external_resources: {inside}\n#-}}\n")
    assert "resources" in part.error


def test_parts_know_their_lines():
    source = "// one\n// -----\n\n!q = nothing\n// -----   \nfunc.func @f() { return }\n// ----- not a line\n"
    parts = run_parts(source, separate=True)
    assert [(part.line, part.error) for part in parts] == [
        (1, ""),
        (3, "4:6: attribute expected"),
        (6, ""),
    ]
    (whole,) = run_parts(source)
    assert whole.error.startswith("4:6: ")


def test_a_pass_has_to_be_one():
    with pytest.raises(UnknownName, match=r"unknown pass 'lower-quant-op' \(did you mean 'lower-quant-ops'"):
        run_parts("", ["lower-quant-op"])


def test_a_string_that_never_ends_is_one_error_in_no_time():
    for text in ('"' + "a" * 100_000, '"a.b"() {x = "' + "ab " * 100_000 + "\n}"):
        (part,) = run_parts(text)
        assert part.error.endswith("End of file reached before closing string literal.")


def test_the_page_tells_the_truth():
    page = (HERE.parents[2] / "docs" / "mlir.md").read_text(encoding="utf-8")
    for text in re.findall(r"```mlir\n(.*?)```", page, re.DOTALL):
        (part,) = run_parts(text)
        assert part.error == ""
    assert [name for name in PASSES if f"| `{name}` |" not in page] == []
