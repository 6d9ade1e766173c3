"""The program against all choices there are, on tables with noise of any size; greedy and forecasts."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from planner.accuracy.own_noise import own_noise
from planner.ir.kernel_requests import with_wanted
from planner.plan_model import plan as plan_model
from planner.plan_search.followers import settled
from planner.plan_search.forecast import forecast, net_of
from planner.plan_search.greedy import greedy, raised
from planner.plan_search.options import Table, levels_of, store_text, table_of
from planner.plan_search.program import bounds_of, propose
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from planner.target.records import Target
from tests.conftest import ROOT

MODELS = {
    "chain": """
x : f32[1,8] {-1, 1}
w = constant : f32[8,8] {-1, 1}
a = MatMul(x, w) : f32[1,8] {-3, 3}
b = Sigmoid(a) : f32[1,8] {0, 1}
c = MatMul(b, w) : f32[1,8] {-4, 4}
d = Tanh(c) : f32[1,8] {-1, 1}
""",
    "diamond": """
x : f32[1,8] {-1, 1}
w = constant : f32[8,8] {-1, 1}
a = MatMul(x, w) : f32[1,8] {-3, 3}
b = Sigmoid(a) : f32[1,8] {0, 1}
c = Tanh(a) : f32[1,8] {-1, 1}
d = Add(b, c) : f32[1,8] {-1, 2}
e = MaxPool(y0) [kernel_shape=[1,1]] : f32[1,1,1,8] {-1, 2}
y0 = Reshape(d, s) : f32[1,1,1,8] {-1, 2}
s = constant [1,1,1,8] : i64[4]
return e, c
""",
    # What moves data beside kernels that run in float.
    "movers": """
x : f32[1,8] {-1, 1}
e = Erf(x) : f32[1,8] {-1, 1}
s = constant [8,1] : i64[2]
b = Reshape(e, s) : f32[8,1] {-1, 1}
a = Sigmoid(b) : f32[8,1] {0, 1}
c = Transpose(a) [perm=[1,0]] : f32[1,8] {0, 1}
d = Erf(c) : f32[1,8] {-1, 1}
""",
}


COSTS = (
    "{requantize: 3.0, zero_point: 0.2, clamp: 0.1, widen: 0.5, narrow: 6.0, quantize: 2.0, dequantize: 0.7}"
)


def _device(costs: str = "") -> Target:
    """litert-int8, with prices of rescales of one's own."""
    if not costs:
        return load_target("litert-int8")
    text = (ROOT / "targets" / "litert-int8.yaml").read_text()
    return load_target(f"rescale: {{allowed: true, cost: {costs}}}\n{text}")


def _table(name: str, seed: int, costs: str = "") -> Table:
    """A real table whose noise is drawn anew, over many orders of size."""
    rng = np.random.default_rng(seed)
    text = MODELS[name]
    model = read_model_text(text, name)
    array = rng.normal(size=(8, 8)).astype(np.float32)
    constants = {
        key: replace(one, array=array) if key == "w" else one for key, one in model.constants.items()
    }
    model = replace(model, constants=constants)
    levels = levels_of(model, _device(costs))
    feeds = [{"x": rng.uniform(-1, 1, (1, 8)).astype(np.float32)}]
    table = table_of(model, levels, lambda some: own_noise(model, levels[""], some, feeds))
    size = len(table.parts)
    drawn = {}
    for kernel, options in table.kernels.items():
        powers = [tuple(float(p) for p in 10 ** rng.uniform(-6, 0, size)) for _ in options]
        drawn[kernel] = tuple(
            replace(option, noise=power if any(option.noise) else option.noise, rounding=power)
            for option, power in zip(options, powers, strict=True)
        )
    return replace(table, kernels=drawn, signal=(1.0,) * size)


def _all_choices(table: Table):
    places = [range(len(options)) for options in table.kernels.values()]
    for chosen in itertools.product(*places):
        yield dict(zip(table.kernels, chosen, strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("costs", ["", COSTS], ids=["alike", "apart"])
@pytest.mark.parametrize("seed", range(6))
def test_no_choice_within_the_bounds_works_less(name, seed, costs):
    table = _table(name, seed, costs)
    net = net_of(table)
    told = [(forecast(table, net, chosen), chosen) for chosen in _all_choices(table)]
    assert len(told) > 16
    for sqnr in (-20.0, 0.0, 5.0, 10.0, 20.0, 40.0):
        bounds = bounds_of(table, sqnr)
        legal = [one.work for one, _ in told if all(n <= b for n, b in zip(one.noise, bounds, strict=True))]
        start = greedy(table, net, bounds, weight_bits=math.inf)
        found = propose(table, net, bounds, start[0] if start else {}, nodes=10_000)
        if not legal:
            assert found is None or forecast(table, net, found.chosen).sqnr(table) >= sqnr - 1e-3
            continue
        assert found is not None
        got = forecast(table, net, found.chosen)
        assert all(n <= b * (1 + 1e-6) for n, b in zip(got.noise, bounds, strict=True))
        assert got.work == pytest.approx(min(legal), rel=1e-6)
        assert found.bound <= min(legal) * (1 + 1e-6)
        if start is not None:
            assert got.work <= start[1].work * (1 + 1e-9)


def test_bounds_on_weight_bits_are_kept():
    table = _table("chain", 1)
    net = net_of(table)
    plain = forecast(table, net, {})
    assert plain.weight_bits == 8
    assert propose(table, net, bounds_of(table, -100), {}, weight_bits=7.9) is None
    found = propose(table, net, bounds_of(table, -100), {}, weight_bits=8)
    assert found is not None
    assert forecast(table, net, found.chosen).weight_bits <= 8


def test_a_bound_that_equals_the_noise_holds():
    table = _table("chain", 2)
    net = net_of(table)
    plain = forecast(table, net, {})
    found = propose(table, net, tuple(noise * (1 + 1e-6) for noise in plain.noise), {})
    assert found is not None
    assert forecast(table, net, found.chosen).work <= plain.work


def test_greedy_raises_as_few_as_will_do():
    table = _table("diamond", 3)
    net = net_of(table)
    for level in table.levels:
        order = raised(table, level)
        if not order:
            continue
        most = forecast(table, net, order)
        found = greedy(table, net, most.noise, weight_bits=math.inf)
        assert found is not None
        assert all(n <= b for n, b in zip(found[1].noise, most.noise, strict=True))
    assert greedy(table, net, (0.0,) * len(table.parts), weight_bits=math.inf) is not None  # all in float


def test_forecast_counts_a_rescale_for_readers_that_want_the_same_once():
    table = _table("diamond", 4)
    net = net_of(table)
    floats = raised(table, "float")
    plain = forecast(table, net, {}).work
    both = forecast(table, net, {name: floats[name] for name in ("b", "c")}).work
    kernels = table.kernels
    own = sum(kernels[name][floats[name]].work - kernels[name][0].work for name in ("b", "c"))
    # `a` is dequantized once for both; `b` and `c` are quantized for `d`, `c` leaves the model as it is.
    assert both - plain - own == pytest.approx(8 + 8 + 8 - 8)


def test_forecast_prices_a_change_as_the_plan_does():
    model = read_model_text(MODELS["chain"], "chain")
    array = np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32)
    model = replace(model, constants={"w": replace(model.constants["w"], array=array)})
    device = _device(COSTS)
    levels = levels_of(model, device)
    feeds = [{"x": np.full((1, 8), 0.5, np.float32)}]
    table = table_of(model, levels, lambda some: own_noise(model, levels[""], some, feeds))
    net, wide, floats = net_of(table), raised(table, "i16"), raised(table, "float")
    for chosen in (
        {},
        {"b": floats["b"]},
        {"c": wide["c"]},
        {"a": wide["a"]},
        {"a": floats["a"], "c": wide["c"]},
    ):
        wishes = {name: table.kernels[name][at].wish for name, at in chosen.items()}
        plan = plan_model(with_wanted(model, wishes), device)
        assert forecast(table, net, chosen).work == pytest.approx(plan.work.total), chosen
        kinds = {rescale.kind for rescale in plan.rescales}
        assert bool(chosen) == bool(kinds - {"quantize", "dequantize"}) or "float" in wishes.values()


def test_what_follows_is_stored_as_what_is_around_it():
    table = _table("movers", 5)
    net = net_of(table)
    model, device = table.base.annotated, _device()
    assert net.followers.keys() == {"b", "c"}
    told = 0
    for chosen in _all_choices(table):
        if settled(table, net.followers, chosen) != chosen:
            continue
        wishes = {name: table.kernels[name][at].wish for name, at in chosen.items()}
        asked = {name: wish for name, wish in wishes.items() if wish is not None}
        plan = plan_model(with_wanted(model, asked), device)
        made = {name: store_text(plan.kernels[name].outputs[0].type) for name in "abc"}
        stores = {name: table.kernels[name][at].stores[name] for name, at in chosen.items()}
        if all(made[name] == stores[name] for name in "bc"):
            assert forecast(table, net, chosen).work == pytest.approx(plan.work.total)
            told += made["b"] != "float"
        assert plan.work.total <= forecast(table, net, chosen).work
    assert told > 1
    # Nobody can ask for 16 bits where nothing around has them.
    (wide,) = (at for at, one in enumerate(table.kernels["b"]) if "i16" in one.levels)
    (plain,) = (at for at, one in enumerate(table.kernels["b"]) if "float" in one.levels)
    assert settled(table, net.followers, {"b": wide})["b"] == plain


def test_a_kernel_that_integers_ruin_hides_no_weights():
    """Planned in float, measured in 8 bits all the same; weights beside it are told from their rounding."""
    text = """
x : f32[1,8] {-1, 1}
w = constant : f32[8,8] {-1, 1}
a = MatMul(x, w) : f32[1,8] {-3, 3}
b = MatMul(a, w) : f32[1,8] {-3, 3}
t : f32[1,8] {-1, 1}
e = Erf(t) : f32[1,8] {-1, 1}
p = Sigmoid(e) : f32[1,8] {0, 1}
return b, p
"""
    rng = np.random.default_rng(4)
    model = read_model_text(text, "ruined")
    array = rng.normal(size=(8, 8)).astype(np.float32)
    constants = {
        key: replace(one, array=array) if key == "w" else one for key, one in model.constants.items()
    }
    model = replace(model, constants=constants)
    levels = levels_of(model, load_target("qnn-htp"))
    assert levels[""].row_of("p") is None
    feeds = [{name: rng.uniform(-1, 1, (1, 8)).astype(np.float32) for name in ("x", "t")}]

    def measure(choices):
        found = own_noise(model, levels[""], choices, feeds)
        ruined = tuple(
            {part: 1e9 if choice.name == "p" else power for part, power in powers.items()}
            for choice, powers in zip(found.choices, found.power, strict=True)
        )
        return replace(found, power=ruined)

    table = table_of(model, levels, measure)
    at = table.parts.index(("b", 0))
    own = {store_text(option.types["w"]): option for option in table.kernels["a"]}
    coarse, fine = (own[store].noise[at] - own[store].rounding[at] for store in ("i4<-7:7>", "i8<-127:127>"))
    assert coarse > 100 * fine > 0
