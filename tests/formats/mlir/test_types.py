"""Types of the dialect in modules: taken as MLIR takes them, printed canonically, refused at their column."""

import pytest

from planner.formats.mlir.passes.tool import run_parts
from tests.formats.mlir.types import KNOWN, OURS, REFUSED
from tests.oracles.mlir import ask


def used(kind):
    """Print a module that uses a type, and give the type as it stands there."""
    (part,) = run_parts(f'"t.op"() : () -> {kind}')
    assert not part.error, part.error
    return part.text.split("-> ")[1].split("\n")[0]


@pytest.mark.parametrize(("written", "printed"), KNOWN)
def test_a_known_type_is_printed_canonically(written, printed):
    assert used(written) == used(printed) == printed


@pytest.mark.parametrize("kind", OURS)
def test_our_types_come_back(kind):
    spelled = kind.replace("!quant.", "!qplan.")
    assert used(kind) == used(spelled) == spelled


@pytest.mark.parametrize(("written", "error"), REFUSED)
def test_what_is_no_type_is_refused_at_its_column(written, error):
    (part,) = run_parts(f"!q = {written}")
    assert part.text == ""
    assert part.error.lower().startswith(f"1:{error}".lower())


def test_types_may_hold_aliases_and_line_ends():
    assert used("!quant.uniform<i8:f32, // one\n 0.5\n:3>") == "!quant.uniform<i8:f32, 0.5:3>"
    (part,) = run_parts('!real = f16\n"t.op"() : () -> !quant.uniform<i8:!real, 0.5>')
    assert "!quant.uniform<i8:f16, 0.5>" in part.text


def test_torch_mlir_calls_what_we_print_the_same_type():
    (answer,) = ask([{"pairs": KNOWN}])
    assert answer["equal"] == [True] * len(KNOWN)


def test_torch_mlir_refuses_what_we_refuse():
    ours_alone = {
        "{0:1,0:2}",
        "f32:0, {{0.5}}",
        "f32:0, {1.0:1.0}",
    }  # two sizes for an axis; nested per-axis lists
    kinds = [written for written, _ in REFUSED if not any(part in written for part in ours_alone)]
    answers = ask([{"types": [kind]} for kind in kinds])
    assert [kind for kind, answer in zip(kinds, answers, strict=True) if "error" not in answer] == []


def test_torch_mlir_knows_none_of_ours():
    answers = ask([{"types": [kind]} for kind in OURS])
    assert all("error" in answer for answer in answers)
