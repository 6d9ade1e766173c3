"""The arithmetic language: exact, closed, limited."""

import math
import re
from fractions import Fraction

import pytest

from planner.errors import LimitError, RuleError, TargetError
from planner.target.expressions import (
    MAX_DEPTH,
    MAX_TEXT,
    Ref,
    evaluate,
    parse_expression,
    parse_number,
    references,
)

VALUES = {
    Ref("x", "scale"): Fraction(1, 4),
    Ref("x", "zero_point"): Fraction(-3),
    Ref("x", "shape", 1): Fraction(32),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/256", Fraction(1, 256)),
        ("2 ** -7", Fraction(1, 128)),
        ("-2 ** 2", -4),
        ("(-2) ** 2", 4),
        ("2 ** 3 ** 2", 512),
        ("2 ** -2 ** 2", Fraction(1, 16)),
        ("1 - 2 - 3", -4),
        ("8 / 4 / 2", 1),
        ("2 + 3 * 4", 14),
        ("0.1 + 0.2", Fraction(3, 10)),  # doubles say 0.30000000000000004
        ("1e-3", Fraction(1, 1000)),
        (".5", Fraction(1, 2)),
        ("min(1/3, 1/4)", Fraction(1, 4)),
        ("max(x.scale, 1)", 1),
        ("exp2(-8)", Fraction(1, 256)),
        ("1 / sqrt(x.scale) * 2 ** -7", 2 / 128),
        ("x.zero_point * 2", -6),
        ("x.shape[1] / 8", 4),
        ("2 ** 0.5", math.sqrt(2)),
    ],
)
def test_value(text, value):
    assert evaluate(parse_expression(text), VALUES.__getitem__) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a number, a port or '(', found the end in ''"),
        ("(1", "column 3: expected ')', found the end in '(1'"),
        ("1 2", "column 3: expected an operator or the end, found '2' in '1 2'"),
        ("1 +", "column 4: expected a number, a port or '(', found the end in '1 +'"),
        ("x", "column 2: expected '.' and an attribute after the port 'x', found the end in 'x'"),
        ("1 * exp(2)", "column 5: unknown function 'exp'; known: ceil, exp2, floor, max, min, sqrt"),
        ("min(1)", "column 1: min takes 2 operands, 1 given"),
        ("3x", "column 1: expected a number, a port or '(', found '3x' in '3x'"),
        ("x.shape[1.5]", "column 12: expected a whole number, found ']' in 'x.shape[1.5]'"),
        ("x.y()", "column 4: expected an operator or the end, found '()' in 'x.y()'"),
        ("1; 2", "column 2: expected an operator or the end, found '; 2' in '1; 2'"),
    ],
)
def test_refusal(text, message):
    with pytest.raises(TargetError) as caught:
        parse_expression(text)
    assert str(caught.value) == message
    # The same text further to the right is refused further to the right.
    with pytest.raises(TargetError) as shifted:
        parse_expression(f"   {text}")
    assert columns(shifted.value) == [column + 3 for column in columns(caught.value)]


def columns(error):
    """The columns that a message names."""
    return [int(number) for number in re.findall(r"column (\d+)", str(error))]


@pytest.mark.parametrize(
    ("of_length", "most"),
    [
        (lambda n: "1" * 40 + " " * (n - 40), MAX_TEXT),
        (lambda n: "(" * n + "1" + ")" * n, MAX_DEPTH),
        (lambda n: "-" * n + "1", MAX_DEPTH),
        (lambda n: "1" + "**1" * n, MAX_DEPTH),
        (lambda n: "min(" * n + "1" + ",1)" * n, MAX_DEPTH),
    ],
)
def test_limits_are_reached_and_not_passed(of_length, most):
    parse_expression(of_length(most))
    with pytest.raises(TargetError, match=f"at most {most}"):
        parse_expression(of_length(most + 1))


def test_powers_are_bounded_before_they_are_computed():
    """Numbers of 8 bits: as many as twice the bound are computed and then refused by their own bits."""
    assert evaluate(parse_expression("2 ** 2048"), VALUES.__getitem__) == 2**2048
    for text, message in {
        "2 ** 2049": "an exponent of 2049; at most 2048",
        "200 ** 1024": "** gives a number of 7828 bits; at most 4096",
        "200 ** 1025": "a power of more than 4096 bits",
    }.items():
        with pytest.raises(LimitError) as caught:
            evaluate(parse_expression(text), VALUES.__getitem__)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["(" * 99 + "1" + ")" * 99, "-" * 99 + "1", "1+" * 200 + "1", "2**" * 60 + "2"]
)
def test_depth_and_size_are_limited(text):
    with pytest.raises(TargetError):
        parse_expression(text)


@pytest.mark.parametrize("text", ["9 ** 9 ** 9", "2 ** 5000", "1 / 0", "0 ** -1", "sqrt(-1)", "(-8) ** 0.5"])
def test_results_are_limited(text):
    with pytest.raises(RuleError):
        evaluate(parse_expression(text), VALUES.__getitem__)


def test_longest_chain_is_computed():
    """As long as the text may be: no recursion limit on the way."""
    assert evaluate(parse_expression("+".join("1" * 150)), VALUES.__getitem__) == 150


def test_references():
    found = references(parse_expression("x.scale * y.shape[2] + x.scale"))
    assert found == (Ref("x", "scale"), Ref("y", "shape", 2), Ref("x", "scale"))


@pytest.mark.parametrize(("value", "number"), [("1/3", Fraction(1, 3)), (0.1, Fraction(0.1)), (2, 2)])
def test_numbers_are_exact(value, number):
    assert parse_number(value) == number


def test_a_number_asks_no_port():
    with pytest.raises(TargetError, match=r"'x.scale' is not a number; accepted: 0.5, 1/256"):
        parse_number("x.scale")
