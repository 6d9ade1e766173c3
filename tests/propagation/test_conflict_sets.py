"""Conflict sets of nets with several contradictions: each is sufficient, minimal, and named in `str`."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import Conflict
from planner.ir.graph import Graph
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from planner.propagation.selection.conflicts import Fact, hard_facts, said, without
from planner.target.records import Target
from tests.propagation.graphs import seeded
from tests.propagation.small import graph_of, target_of

ROWS = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: same, in: {a: a8, b: a8}, out: {y: a8}, rules: [{same_scale: [a, b, y]}]}
- {kernel: concat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: soft, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]}
- {kernel: wide, in: {a: a16, b: a16}, out: {y: a16}}
"""
FREE = target_of(ROWS)
RIGID, STRICT = replace(FREE, rescale_allowed=False), replace(FREE, on_no_kernel="error")
TARGETS = (RIGID, STRICT, replace(RIGID, on_no_kernel="error"))
KERNELS = ("add",) * 6 + ("concat", "concat", "same", "view", "soft", "wide", "gelu")
MOVES = {"concat": "Concat", "view": "Reshape"}
P, Q, R = (f"!quant.uniform<i8:f32, {scale}>" for scale in (0.5, 0.5009765625, 2.0))
HARD = (P, Q, R, "!quant.uniform<i8:f32, 0.25:3>", "!quant.uniform<i16:f32, 0.25>", "!quant.none")
WISHES = (*HARD, "!quant.any<i16>")


def net(seed: int) -> Graph:
    """One to three nets beside each other, with hard facts here and there."""
    random = seeded(seed)
    values: dict[str, str] = {}
    moves: dict[str, str] = {}
    kernels: list[tuple[str, str, str, str]] = []
    outputs: list[str] = []
    for part in range(random.choice((1, 2, 3))):
        known = [f"x{part}"]
        for i in range(random.choice((3, 5, 8))):
            kind, name = random.choice(KERNELS), f"v{part}_{i}"
            read = [random.choice(known[-4:]), random.choice(known)]
            read = read[:1] if kind in ("view", "gelu", "soft") else read
            kernels.append((f"k{part}_{i}", kind, " ".join(read), name))
            moves |= {f"k{part}_{i}": MOVES[kind]} if kind in MOVES else {}
            known.append(name)
        used = {name for _, _, names, _ in kernels for name in names.split()}
        outputs += [name for name in known if name not in used]
        for name in known:
            values[name] = f"[-{random.choice((1, 1, 2, 4))}, 1]"
            if random.random() < 0.25:
                values[name] += " & " + " & ".join(random.sample(WISHES, random.choice((1, 1, 1, 1, 2))))
    graph = graph_of(values, kernels, outputs=" ".join(outputs), moves=moves)
    regions = list(graph.regions)
    at = random.randrange(len(regions))
    facts = ((parse_type(random.choice(HARD)),), *((),) * (len(regions[at].inputs) - 1))
    regions[at] = replace(regions[at], input_facts=facts, output_facts=((),))
    return replace(graph, regions=tuple(regions))


def met(graph: Graph, target: Target, kept: Sequence[Fact]) -> Conflict | None:
    """What planning with only these hard facts meets; every value has a range of its own."""
    every = hard_facts(graph, next(iter(graph.values)))
    try:
        propagate(without(graph, [fact for fact in every if fact not in kept]), target)
    except Conflict as conflict:
        return conflict
    return None


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 20), st.sampled_from(TARGETS))
def test_a_set_is_sufficient_minimal_and_named(seed: int, target: Target) -> None:
    """Planning with no other facts meets the conflict; without any one of them it does not."""
    graph = net(seed)
    try:
        propagate(graph, target)
    except Conflict as conflict:
        told = conflict
    else:
        return
    known = {said(fact, graph): fact for fact in hard_facts(graph, next(iter(graph.values)))}
    shown = [known[text] for text in told.facts if text in known]
    alone = met(graph, target, shown)
    # What needs no fact at all may be met first: a gelu that no row serves.
    assert alone is not None
    assert (alone.message == told.message) or met(graph, target, ()) is not None
    for fact in shown:
        rest = met(graph, target, [other for other in shown if other != fact])
        assert rest is None or rest.message != told.message
        assert fact[0] in str(told)


def joined(**facts: str) -> Graph:
    """Two pinned values into a concat, and another net beside it."""
    values = {"x": "[-1, 1]", "p": P, "q": Q, "c": "", "y": "[-2, 2]"}
    values |= {"ox": "[-1, 1]", "op": "[-1, 1]", "oq": "[-1, 1]", "oc": "", "og": "[-1, 1]", "oy": "[-1, 1]"}
    return graph_of(
        values | facts,
        [
            ("k1", "add", "x x", "p"),
            ("k2", "add", "x x", "q"),
            ("cat", "concat", "p q", "c"),
            ("k3", "add", "c c", "y"),
            ("o1", "add", "ox ox", "op"),
            ("o2", "add", "ox ox", "oq"),
            ("ocat", "concat", "op oq", "oc"),
            ("og", "gelu" if "og" in facts else "add", "oc" if "og" in facts else "oc oc", "og"),
            ("o3", "add", "og og", "oy"),
        ],
        outputs="y oy",
        moves={"cat": "Concat", "ocat": "Concat"},
    )


@pytest.mark.parametrize("second", [{"op": P, "oq": R}, {"og": "[-1, 1]"}, {"oc": "!quant.none"}])
def test_another_contradiction_takes_no_pin_away(second: dict[str, str]) -> None:
    """Of pins, of rows alone, of a wish: what clashes elsewhere says nothing of this concat."""
    with pytest.raises(Conflict, match="before 'cat'") as caught:
        propagate(joined(**second), RIGID)
    assert set(caught.value.facts[:2]) == {f"value 'p': {P}", f"value 'q': {Q}"}
    assert "'p'" in str(caught.value)
    assert "'q'" in str(caught.value)


def test_the_pin_behind_a_scale_that_no_multiplier_reaches_is_named() -> None:
    """It named the row and "scales around 'k'", and no fact."""
    rule = "{multiplier_scale: {out: y, of: [a, b], range: [1/65536, 1]}}"
    device = target_of(f"- {{kernel: mul, in: {{a: a8, b: a8}}, out: {{y: a8}}, rules: [{rule}]}}")
    device = replace(device, on_no_kernel="error")  # else the kernel runs in float, with that reason
    values = {"x": "[-1, 1]", "z": "[-1, 1]", "y": "[-0.1, 0.1]"}
    graph = graph_of(values, [("k", "mul", "x z", "y")], outputs="y")
    coarse = "!quant.uniform<i8:f32, 4.0>"
    pinned = replace(graph.regions[0], input_facts=((parse_type(coarse),), ()), output_facts=((),))
    with pytest.raises(Conflict, match="the row takes 1/65536 to 1") as caught:
        propagate(replace(graph, regions=(pinned,)), device)
    assert caught.value.facts[0] == f"port k.in[0]: {coarse}"
    assert "'k.in[0]'" in str(caught.value)
