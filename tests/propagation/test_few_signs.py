"""Kernels that may have either sign: the fewest changes of sign, beside every choice there is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Uniform
from planner.propagation import decide as module
from planner.propagation.propagate import propagate
from planner.propagation.selection import signs
from planner.what_if.edits import edited
from tests.propagation.small import graph_of, target_of

SIGNED = "!quant.uniform<i8:f32, 0.0078125>"
FIRST = {"either": "us", "rather": "su", "only": "u", "never": "s"}
"""Kernels, and the signs of their rows as they stand: unsigned, signed."""


def table(first=FIRST):
    """A target with these rows; kernels of two inputs are called alike, with a 2."""
    rows = []
    for (name, its), two in itertools.product(first.items(), (False, True)):
        for sign in its:
            kind = "u8" if sign == "u" else "a8"
            ports = f"a: {kind}, b: {kind}" if two else f"a: {kind}"
            rows.append(f"- {{kernel: {name}{2 if two else ''}, in: {{{ports}}}, out: {{y: {kind}}}}}")
    return target_of("\n".join(rows))


def random_net(seed):
    """Kernels that read one or two of what stands before them, values of many sizes, some of them pinned."""
    rng = np.random.default_rng(seed)
    values, kernels, shapes = {"v0": "[-1, 1]"}, [], {"v0": (8,)}
    for n in range(1, int(rng.integers(3, 7))):
        read = [f"v{rng.integers(0, n)}" for _ in range(rng.integers(1, 3))]
        name = rng.choice([*FIRST], p=[0.5, 0.2, 0.15, 0.15])
        kernels.append((f"k{n}", f"{name}{2 if len(read) > 1 else ''}", " ".join(read), f"v{n}"))
        pin = rng.choice(["", SIGNED, "!quant.uniform<u8:f32, 0.0078125:128>"], p=[0.8, 0.1, 0.1])
        values[f"v{n}"] = pin or "[-1, 0.9921875]"
        shapes[f"v{n}"] = (int(rng.integers(1, 40)),)
    values["v0"] = rng.choice(["[-1, 0.9921875]", SIGNED])
    return graph_of(values, kernels, outputs=f"v{n}", shapes=shapes)


def alone(graph, chosen):
    """A target in which every kernel of its own has one row, and the graph with such kernels."""
    regions = tuple(replace(r, kernel=f"{r.name}_{len(r.inputs)}") for r in graph.regions)
    rows = []
    for region, sign in zip(regions, chosen, strict=True):
        kind = "u8" if sign == "u" else "a8"
        ports = ", ".join(f"{name}: {kind}" for name, _ in zip("ab", region.inputs, strict=False))
        rows.append(f"- {{kernel: {region.kernel}, in: {{{ports}}}, out: {{y: {kind}}}}}")
    return replace(graph, regions=regions), target_of("\n".join(rows))


def equals(graph, region):
    """The signs of a kernel's rows that meet the most pins, which comes before any price."""
    facts = [graph.values[name].facts[0] for name in (*region.inputs, *region.outputs)]
    pins = ["s" if fact.storage.signed else "u" for fact in facts if isinstance(fact, Uniform)]
    its = FIRST[region.kernel.rstrip("2")]
    return [sign for sign in its if pins.count(sign) == max(map(pins.count, its))]


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_signs_costs_less(seed):
    graph = random_net(seed)
    plan = propagate(graph, table(), model=model_digest(graph))
    check(plan, graph, table())
    choices = [equals(graph, region) for region in graph.regions]
    costs = {all_: propagate(*alone(graph, all_)).cost for all_ in itertools.product(*choices)}
    assert plan.cost == pytest.approx(min(costs.values()))
    # Of those that cost as little, one with the fewest kernels away from their first row.
    moved = sum(step.rule == "sign" for step in plan.steps)
    least = [all_ for all_, cost in costs.items() if cost == pytest.approx(plan.cost)]
    assert moved == min(sum(a != b[0] for a, b in zip(all_, choices, strict=True)) for all_ in least)


def chain(pin="!quant.uniform<u5:f32, 0.0625>"):
    """A signed input, three kernels with trained values of 5 bits between them, a signed end."""
    kernels = [(f"k{n}", "either", f"v{n}", f"v{n + 1}") for n in range(3)]
    values = {"v0": SIGNED, "v1": pin, "v2": pin, "v3": SIGNED}
    return graph_of(values, kernels, outputs="v3", shapes=dict.fromkeys(values, (4,)))


def test_a_kernel_between_signed_ones_is_signed():
    graph, target = chain(), table()
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert {port.type.storage.name for k in plan.kernels_in_order for port in (*k.inputs, *k.outputs)} == {
        "i8"
    }
    [step] = [step for step in plan.steps if step.rule == "sign"]
    assert (step.port, step.type) == ("k1", target.rows["either"][0].key)
    told = planner.explain(plan, "k1")
    assert "would come first for k1: it differs in the sign of its activations alone" in told


def test_what_moves_data_has_no_sign_of_its_own():
    """A kernel of any storage between one that may have either sign and one that has not."""
    kernels = [("k0", "either", "v0", "v1"), ("move", "Flatten", "v1", "v2"), ("k1", "never", "v2", "v3")]
    values = dict.fromkeys(("v0", "v1", "v2", "v3"), "[-1, 0.9921875]")
    shapes = {"v0": (2, 4), "v1": (2, 4), "v2": (2, 4), "v3": (2, 4)}
    graph = graph_of(values, kernels, outputs="v3", moves={"move": "Flatten"}, shapes=shapes)
    rows = [f"- {{kernel: either, in: {{a: {kind}}}, out: {{y: {kind}}}}}" for kind in ("u8", "a8")]
    rows += ["- {kernel: never, in: {a: a8}, out: {y: a8}}"]
    rows += ['- {kernel: Flatten, in: {a: "*"}, out: {y: "*"}, rules: [{same_scale: [a, y]}]}']
    target = target_of("\n".join(rows))
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert [rescale.kind for rescale in plan.rescales] == ["quantize", "dequantize"]


def test_a_pin_that_is_written_in_float_has_a_sign():
    """The first quantizer of a trained model: its op has no row, its reader moves data, no row is signed."""
    kernels = [("q", "rowless", "x", "v0"), ("move", "Flatten", "v0", "v1"), ("k", "either", "v1", "v2")]
    values = {"x": "[-1, 1]", "v0": SIGNED, "v1": "[-1, 1]", "v2": "[0, 2]"}
    graph = graph_of(
        values, kernels, outputs="v2", moves={"move": "Flatten"}, shapes=dict.fromkeys(values, (2, 4))
    )
    rows = [f"- {{kernel: either, in: {{a: {kind}}}, out: {{y: {kind}}}}}" for kind in ("u8", "a8")]
    rows += ['- {kernel: Flatten, in: {a: "*"}, out: {y: "*"}, rules: [{same_scale: [a, y]}]}']
    target = target_of("\n".join(rows))
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert [rescale.kind for rescale in plan.rescales] == ["quantize", "dequantize"]


def test_signs_that_cost_more_are_refused(monkeypatch):
    """A mirror taken for nothing, one not taken, and a reason that is none."""
    graph, target = chain(), table()
    plan = propagate(graph, target, model=model_digest(graph))
    silent = [replace(s, source="it may") if s.rule == "sign" else s for s in plan.steps]
    with pytest.raises(PlanInvalid, match="k1: is said to mirror either@"):
        check(replace(plan, steps=tuple(silent)), graph, target)
    monkeypatch.setattr(module, "with_few_signs", lambda _graph, choices, _target, _left: (choices, False))
    plan = propagate(graph, target, model=model_digest(graph))
    with pytest.raises(PlanInvalid, match="changes of sign between kernels cost 2 elements; accepted: 0"):
        check(plan, graph, target)

    def all_turned(graph, choices, target, left):
        return [signs._mirrored(graph, choice, target, left) or choice for choice in choices], True

    values = dict.fromkeys(("v0", "v1", "v2"), "[-1, 0.9921875]")
    free = graph_of(values, [("k0", "either", "v0", "v1"), ("k1", "either", "v1", "v2")], outputs="v2")
    monkeypatch.setattr(module, "with_few_signs", all_turned)
    plan = propagate(free, target, model=model_digest(free))
    with pytest.raises(PlanInvalid, match="take 2 kernels off their first rows; accepted: 0"):
        check(plan, free, target)


def test_a_plan_made_again_in_part_has_the_signs_of_the_whole():
    """The edit is at one end of a chain of kernels that may have either sign; it changes all of them."""
    names = [f"v{n}" for n in range(9)]
    kernels = [(f"k{n}", "either", f"v{n}", f"v{n + 1}") for n in range(8)]
    values = dict.fromkeys(names, "[-1, 0.9921875]")
    graph = graph_of(values, kernels, outputs="v8", shapes=dict.fromkeys(names, (4,)))
    target = table()
    before = planner.plan(graph, target)
    for address in ("v1", "v7"):
        again = planner.replan(before, {"values": {address: SIGNED}})
        whole = planner.plan(edited(graph, {"values": {address: SIGNED}}), target)
        assert again.kernels == whole.kernels
        assert again.cost == whole.cost
        before = again
