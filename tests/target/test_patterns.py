"""The pattern language: what is read, and what is refused with which words."""

import pytest

from planner.errors import TargetError
from planner.target.patterns import MAX_DEPTH, op_types, other_spellings, parse_pattern, variants


@pytest.mark.parametrize(
    ("text", "ports", "trees"),
    [
        ("Relu?(Conv(x, w, b?))", "x w b?", ["Relu(Conv(x, w, b?))", "Conv(x, w, b?)"]),
        ("Relu|Clip?(Add(a, b))", "a b", ["Relu|Clip(Add(a, b))", "Add(a, b)"]),
        ("Concat(xs*)", "xs*", ["Concat(xs*)"]),
        ("Mul(x, Sigmoid(x))", "x", ["Mul(x, Sigmoid(x))"]),
        (
            "Relu?(Add?(MatMul(x, w), b))",
            "x w b",
            ["Relu(Add(MatMul(x, w), b))", "Relu(MatMul(x, w))", "Add(MatMul(x, w), b)", "MatMul(x, w)"],
        ),
        ("com.microsoft::Gelu(x)", "x", ["com.microsoft::Gelu(x)"]),
        ("function:my.ops.Gelu", "xs*", ["my.ops::Gelu(xs*)"]),
        (" Add ( a , b ) ", "a b", ["Add(a, b)"]),
    ],
)
def test_read(text, ports, trees):
    pattern = parse_pattern(text)
    assert " ".join(map(str, pattern.variables)) == ports
    assert [str(tree) for tree in variants(pattern)] == trees


def test_op_types_are_those_of_all_alternatives():
    assert op_types(parse_pattern("Relu|Clip?(Conv(x, w))")) == {"Relu", "Clip", "Conv"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Relu(Conv(x, w)", "pattern 'Relu(Conv(x, w)': column 16: found the end, expected , or )"),
        ("Relu(x) y", "pattern 'Relu(x) y': column 9: found 'y', expected the end"),
        ("Relu(x, )", "pattern 'Relu(x, )': column 9: found ')', expected an op or a variable"),
        ("Relu()", "pattern 'Relu()': column 6: found ')', expected an op or a variable"),
        ("x", "pattern 'x': column 1: x names no op; write an op such as Relu(x)"),
        ("", "pattern '': column 1: found the end, expected an op or a variable"),
        (
            "Relu(x+1)",
            (
                "pattern 'Relu(x+1)': column 7: found '+', "
                "expected an op, a variable, a number, or one of ( ) , | ? *"
            ),
        ),
        (
            "Cat(xs*, y)",
            "pattern 'Cat(xs*, y)': column 8: found ',', expected ) because xs* takes all remaining operands",
        ),
        ("Add(a|b, c)", "pattern 'Add(a|b, c)': column 8: found ',', expected ( after alternatives of ops"),
        ("Add(b?, Relu(b))", "pattern 'Add(b?, Relu(b))': column 14: b is written both b? and b"),
        ("scope:/", "pattern 'scope:/': column 7: write scope:GLOB, such as scope:encoder/*/attention"),
        ("1.5", "pattern '1.5': column 1: found '1.5', expected an op or a variable"),
        ("Relu(1.5(x))", "pattern 'Relu(1.5(x))': column 9: found '(', expected , or )"),
        ("function:Gelu", "pattern 'function:Gelu': column 10: write function:DOMAIN.NAME"),
    ],
)
def test_refused(text, message):
    with pytest.raises(TargetError) as refusal:
        parse_pattern(text)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Relu(" * (MAX_DEPTH + 2) + "x" + ")" * (MAX_DEPTH + 2), "at most 32 levels"),
        ("Relu(" + "x" * 3000 + ")", "pattern of 3006 characters; at most 2000 are read"),
        ("Relu?(" * 9 + "x" + ")" * 9, "more than 8 optional ops"),
        ("Add(a, " * 11 + "x" + ")" * 11, "more than 10 commutative ops"),
    ],
)
def test_too_much(text, words):
    """A stranger's pattern must not cost exponential time or the stack."""
    with pytest.raises(TargetError, match=words):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("Div(x, 8)", ["Mul(x, 0.125)"]),
        ("Mul(x, 0.5)", ["Div(x, 2)"]),
        ("Mul(0.5, Erf(x))", ["Div(Erf(x), 2)"]),
        ("Neg(x)", ["Mul(x, -1)"]),
        ("Mul(x, -1)", ["Div(x, -1)", "Neg(x)"]),
        ("Div(1, x)", []),
        ("Div(x, 0)", []),
        ("Mul(x, y)", []),
    ],
)
def test_a_product_with_a_number_has_other_spellings(text, others):
    assert [str(other) for other in other_spellings(parse_pattern(text).root)] == others
