"""Limits of expressions: of their steps and numbers, said by lint, and kept by planning with the place."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import LimitError, PlannerError, TargetError
from planner.formats.annotated.document import annotated_from_data
from planner.plan_model import plan
from planner.target.expressions import MAX_BITS, Ref, Steps, evaluate, parse_expression
from planner.target.load import load_target
from planner.target.predicates import failing
from tests.api.documents import chain

HEAD = """apiVersion: planner/v1
kind: Target
id: bomb
version: 1.0.0
types: {a8: {storage: i8}, w8: {storage: i8, symmetric: true}}
kernels:
"""
ROW = "  - {{kernel: add, in: {{a: a8, b: a8}}, out: {{y: a8}}, when: {{holds: [{}]}}}}\n"
LAST = "  - {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}\n"


def target_text(*conditions: str, rows: int = 1) -> str:
    listed = ", ".join(f'"{condition}"' for condition in conditions)
    return HEAD + ROW.format(listed) * rows + LAST


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("a.shape[1] ** 4000 + a.shape[1] ** 3999 == 10", "an exponent of 4000; at most 2048"),
        ("1 / a.shape[1] ** -4000 == 10", "an exponent of -4000; at most 2048"),
        ("exp2(3000) < a.rank", "an exponent of 3000; at most 2048"),
        ("3 ** 1000 * 3 ** 1000 * 3 ** 1000 < a.rank", "* gives a number of 4755 bits; at most 4096"),
        ("a.rank == 7 and not 2 ** 2 ** 12 < 3", "an exponent of 4096; at most 2048"),
    ],
)
def test_lint_refuses_what_no_model_makes_short(condition, message):
    """A file is refused before anything is planned, with a stable code and the line."""
    with pytest.raises(TargetError) as caught:
        load_target(target_text(condition), trusted=False, name="bomb.yaml")
    assert [(error.code, error.line) for error in caught.value.errors] == [("L044", 7)]
    assert str(caught.value).startswith(f"bomb.yaml:7:60: L044 when of add holds: {message} | ")


def test_lint_refuses_a_derive_beyond_the_limits():
    """The arithmetic of rules has the limits of conditions."""
    rule = "rules: [{derive: {port: y, scale: 'a.scale ** 5000'}}]"
    text = HEAD + f"  - {{kernel: add, in: {{a: a8, b: a8}}, out: {{y: a8}}, {rule}}}\n"
    with pytest.raises(TargetError, match=r"L044 derive of add, scale: an exponent of 5000; at most 2048"):
        load_target(text, name="bomb.yaml")


def test_lint_refuses_many_trees_and_many_conditions_of_fusions():
    """Optional ops double the trees of a pattern, and a target may have many patterns."""
    tree = "x"
    for i in range(8):
        tree = f"Add?({tree}, x{i})"
    many = [f"{tree[:-1]}, z{i})".replace(f", z{i})", ")") for i in range(8)]
    listed = ", ".join(f'"{one}"' for one in many)
    fusions = f"fusions:\n  - {{kernel: add, pattern: [{listed}]}}\n"
    with pytest.raises(TargetError, match=r"L045 the patterns of 1 fusions stand for 2,\d+ trees of ops"):
        load_target(HEAD.replace("kernels:", f"{fusions}kernels:") + LAST)


POWER = "(a.shape[1] + 1/3) ** 200"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (" * ".join([POWER] * 5) + " == 3", r"\* gives a number of \d+ bits; at most 4096"),
        ("exp2(a.shape[1] * 500) == 3", "an exponent of 4000; at most 2048"),
    ],
)
def test_planning_ends_at_a_limit_with_the_place(condition, message):
    """What depends on the model's sizes is a typed error of planning: which limit, and `file:line`."""
    device = load_target(target_text(condition), trusted=False, name="bomb.yaml")
    model = annotated_from_data(chain(5))
    with pytest.raises(LimitError, match=message) as caught:
        plan(model, device)
    assert [(error.file, error.line, error.code) for error in caught.value.errors] == [
        ("bomb.yaml", 7, "L044")
    ]


def test_combinations_of_variadic_terms_are_counted():
    """Eight terms of a port with ten values have 10^8 combinations: an evaluation ends before."""
    names = tuple(f"item{i}" for i in range(10))
    data = chain(1)
    values = [*data["values"], *({"name": name, "shape": [1, 8] * 4} for name in names)]
    graph = annotated_from_data(data | {"values": values})
    terms = " + ".join(f"xs.shape[{i}]" for i in range(8))
    with pytest.raises(LimitError, match="more than 100,000 steps") as caught:
        failing(
            {"holds": f"{terms} > 0"},
            ports={"xs": names},
            ops=(),
            attributes={},
            graph=graph,
            place=("bomb.yaml:9", "when of concat"),
        )
    assert str(caught.value).startswith("bomb.yaml:9:1: L044 when of concat holds: more than 100,000 steps")


NUMBERS = st.integers(0, 5000).map(str) | st.sampled_from(["x.scale", "1/3", "2.5e-300"])
TREES = st.recursive(
    NUMBERS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "*", "/", "**", "%"]), inner)
        | st.builds("exp2({})".format, inner)
    ),
    max_leaves=16,
)


@given(TREES, st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
@settings(max_examples=200, deadline=None)
def test_an_evaluation_stays_within_its_limits(text, scale):
    """Whatever the expression: a bounded number after a bounded count of steps, or a typed error."""
    try:
        expression = parse_expression(text)
    except TargetError:
        return  # too long
    steps = Steps(10_000)
    try:
        found = evaluate(expression, lambda _: scale, steps)
    except PlannerError:
        return
    assert steps.left >= 0
    if isinstance(found, Fraction):
        assert max(found.numerator.bit_length(), found.denominator.bit_length()) <= MAX_BITS


def test_steps_are_shared():
    """Expressions that take from the same steps end together."""
    steps, lookup = Steps(9), {"x": Fraction(2)}
    expression = parse_expression("x.scale + 1")
    assert evaluate(expression, lambda ref: lookup[ref.port], steps) == 3
    evaluate(expression, lambda _: Fraction(1), steps)
    evaluate(expression, lambda _: Fraction(1), steps)
    with pytest.raises(LimitError, match="more than 9 steps"):
        evaluate(Ref("x", "scale"), lambda _: Fraction(1), steps)
