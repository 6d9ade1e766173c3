"""Movers that rescale inside, between float ops: they stay float, as movers of one class do."""

import pytest

from planner.checker.check import check
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = target_of("""
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: u8}, out: {y: u8}, rules: [{free_scale: [xs, y]}]}
""")
MOVES = {"cat": "Concat", "v1": "Reshape", "v2": "Reshape"}


def plan_of(before, after, *, fact="", at="c"):
    """From x through `before` and a view to a concat, and through a view to `after`; `fact` is of `at`."""
    ins = {"add": "{0} {0}", "gelu": "{0}"}
    graph = graph_of(
        {name: f"[-1, 1] & {fact}" if name == at else "[-1, 1]" for name in "xabcdy"},
        [
            ("k1", before, ins[before].format("x"), "a"),
            ("v1", "view", "a", "b"),
            ("cat", "join", "b b", "c"),
            ("v2", "view", "c", "d"),
            ("k2", after, ins[after].format("d"), "y"),
        ],
        outputs="y",
        moves=MOVES,
    )
    plan = propagate(graph, ROWS)
    check(plan)
    return plan


def test_between_float_ops_nothing_is_cast():
    plan = plan_of("gelu", "gelu")
    assert {name: plan.kernels[name].reason for name in ("v1", "cat", "v2")} == dict.fromkeys(
        ("v1", "cat", "v2"), "moves data between float ops"
    )
    assert plan.rescales == ()
    assert (plan.cost, plan.optimal) == (0.0, True)


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("add", "gelu", ""),
        ("gelu", "add", ""),
        ("gelu", "gelu", "!quant.uniform<u8:f32, 0.0078125:128>"),
        ("gelu", "gelu", "!quant.any<i8>"),
    ],
)
def test_an_integer_neighbour_a_pin_or_an_any_keep_it_quantized(before, after, fact):
    assert plan_of(before, after, fact=fact).kernels["cat"].row is not None


@pytest.mark.parametrize(
    ("before", "after", "at", "cast"), [("add", "gelu", "a", "xa"), ("gelu", "add", "d", "dy")]
)
def test_a_value_that_stays_float_is_float_around_it(before, after, at, cast):
    """Whatever the kernel that writes or reads it: it is cast there."""
    plan = plan_of(before, after, fact="!quant.none", at=at)
    assert [plan.kernels[name].row for name in ("v1", "cat", "v2")] == [None] * 3
    assert [rescale.value for rescale in plan.rescales] == list(cast)


def test_from_a_model_input_to_a_model_output():
    graph = graph_of({"x": "[-1, 1]", "c": ""}, [("cat", "join", "x x", "c")], outputs="c", moves=MOVES)
    assert propagate(graph, ROWS).kernels["cat"].row is None
