"""The grammar of conditions: what each text means, and where a text that is none stops being one."""

import pytest

from planner.errors import TargetError
from planner.target.conditions.grammar import (
    SUBJECT,
    Compared,
    Joined,
    Negated,
    Text,
    is_condition,
    parse_condition,
    refs_of,
)
from planner.target.expressions import Apply, Number, Ref


def number(value):
    return Number(value)


X = Ref("x", "shape", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">= 2", Compared(">=", SUBJECT, number(2))),
        ("<3", Compared("<", SUBJECT, number(3))),
        ("== x.shape[1]", Compared("==", SUBJECT, X)),
        ("!= linear", Compared("!=", SUBJECT, Text("linear"))),
        ("== 'NOT SET'", Compared("==", SUBJECT, Text("NOT SET"))),
        ("% 8 == 0", Compared("==", Apply("%", (SUBJECT, number(8))), number(0))),
        ("not 3", Negated(Compared("==", SUBJECT, number(3)))),
        ("1..4", Joined("and", (Compared("<=", number(1), SUBJECT), Compared("<=", SUBJECT, number(4))))),
        ("in 1..4", Joined("and", (Compared("<=", number(1), SUBJECT), Compared("<=", SUBJECT, number(4))))),
        (
            "-1 .. 4",
            Joined(
                "and",
                (Compared("<=", Apply("negate", (number(1),)), SUBJECT), Compared("<=", SUBJECT, number(4))),
            ),
        ),
    ],
)
def test_behind_a_key_its_term_may_be_left_out(text, expected):
    assert is_condition(text)
    assert parse_condition(text, of_key=True) == expected


@pytest.mark.parametrize("text", ["linear", "NOTSET", "8", "notable", "inside", "constant", "1.5"])
def test_text_that_is_compared_as_it_is(text):
    assert not is_condition(text)


def test_or_binds_less_than_and_and_not_most():
    a, b, c = (Compared("==", Ref(name, "rank"), number(1)) for name in "abc")
    text = "a.rank == 1 or not b.rank == 1 and c.rank == 1"
    assert parse_condition(text, of_key=False) == Joined("or", (a, Joined("and", (Negated(b), c))))
    text = "(a.rank == 1 or b.rank == 1) and c.rank == 1"
    assert parse_condition(text, of_key=False) == Joined("and", (Joined("or", (a, b)), c))


def test_a_parenthesis_holds_a_side_or_a_condition():
    side = Apply("*", (Apply("+", (X, number(1))), number(2)))
    assert parse_condition("(x.shape[1] + 1) * 2 == 4", of_key=False) == Compared("==", side, number(4))
    assert parse_condition("((x.shape[1])) == 4", of_key=False) == Compared("==", X, number(4))
    assert parse_condition("((x.shape[1] == 4))", of_key=False) == Compared("==", X, number(4))


def test_terms():
    text = "Conv.strides[0] * x.shape[-1] < com.microsoft::Gelu.a or in.rank in x.rank..x.rank"
    found = [str(ref) for ref in refs_of(parse_condition(text, of_key=False))]
    assert found == ["Conv.strides[0]", "x.shape[-1]", "com.microsoft::Gelu.a", "x.rank", "in.rank"]


@pytest.mark.parametrize(
    ("text", "of_key", "message"),
    [
        ("=2", True, "column 1: expected one of ==, !=, <=, >=, <, >, found '=2' in '=2'"),
        ("<", True, "column 2: expected a number, a port or '(', found the end in '<'"),
        ("1..", True, "column 4: expected a number, a port or '(', found the end in '1..'"),
        ("1..2..3", True, "column 5: expected 'and', 'or' or the end, found '..3' in '1..2..3'"),
        (
            "1..4",
            False,
            "column 2: expected a comparison (==, !=, <=, >=, <, >, in 1..8), found '..4' in '1..4'",
        ),
        ("x.rank in 3", False, "column 12: expected '..', found the end in 'x.rank in 3'"),
        ("(x.rank == 3", False, "column 13: expected ')', found the end in '(x.rank == 3'"),
        ("x.rank == 3 x", False, "column 13: expected 'and', 'or' or the end, found 'x' in 'x.rank == 3 x'"),
        (
            "x.rank == 3 or",
            False,
            "column 15: expected a number, a port or '(', found the end in 'x.rank == 3 or'",
        ),
    ],
)
def test_refused(text, of_key, message):
    with pytest.raises(TargetError) as refusal:
        parse_condition(text, of_key=of_key)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "text", ["not " * 60 + "3", "(" * 60 + "x.rank == 1" + ")" * 60, "x.rank == " + "1" * 400]
)
def test_length_and_depth_are_bounded(text):
    with pytest.raises(TargetError, match=r"nesting of at most 32|at most 300"):
        parse_condition(text, of_key=True)
