"""Element-wise operations on every pair of stored values: both forms in jaxlib, against our interpreter."""

from fractions import Fraction

import numpy as np
import pytest

from planner.ir.types.qtypes import storage, uniform
from tests.formats.plans import i8, model, op, plan_of
from tests.formats.stablehlo.writer.running import job, steps_off
from tests.oracles import hlo

# Scale and zero point of a, b and the result.
SETS = {
    "page": ((0.025, 0), (0.075, 0), (0.15, 0)),  # the add of StableHLO's quantization page
    "shifts": ((0.5, -3), (0.25, 7), (0.125, 1)),  # every sum is exact, ties among them
    "alike": ((0.03, 5), (0.03, 5), (0.03, 5)),
    "far": ((1.7, -128), (0.0009, 127), (1.1, 13)),
    "fine": ((0.013, 17), (0.021, -40), (0.0007, -9)),  # most results saturate
}
OPS = ("Add", "Div", "Max", "Min", "Mul", "Sub")


def pairs_of(kind, name, step=1, *, relu=False):
    """One operation on every stored a, and every `step`-th stored b."""
    a, b, y = (i8(*numbers) for numbers in SETS[name])
    columns = 256 // step
    ops = [op(kind, "a b", "y")] if not relu else [op(kind, "a b", "s"), op("Relu", "s", "y")]
    graph = model(
        ops,
        inputs={"a": (256, 1), "b": (1, columns)},
        outputs={"y": (256, columns)},
        constants={},
        shapes={"s": (256, columns)},
    )
    region = [o.outputs[0] for o in ops]
    plan = plan_of(graph, [(region, "a b", "y")], {"a": a, "b": b, "y": y}, "float32_spec")
    stored = np.arange(-128, 128)
    sample = {
        "a": ((stored - a.zero_point) * np.float32(a.scale)).astype(np.float32).reshape(256, 1),
        "b": ((stored[::step] - b.zero_point) * np.float32(b.scale)).astype(np.float32).reshape(1, -1),
    }
    return graph, plan, sample


def _count(form, arithmetic, cases):
    """Pairs that differ, and by how much at most, of each case."""
    made = [pairs_of(*case) for case in cases]
    jobs = [job(graph, plan, form, sample) for graph, plan, sample in made]
    found = []
    for (graph, plan, sample), results in zip(made, hlo.evaluated(jobs), strict=True):
        stored, _ = steps_off(graph, plan, arithmetic, sample, results)
        found.append((int(np.count_nonzero(stored["y"])), int(stored["y"].max())))
    return dict(zip(cases, found, strict=True))


FULL = [pytest.param(name, 1, marks=pytest.mark.soak, id=name) for name in SETS]


@pytest.mark.parametrize(("name", "step"), [*((name, 16) for name in SETS), *FULL])
def test_integers_equal_exact_even(name, step):
    """Sums, products, quotients and extremes; no pair is off."""
    counts = _count("stablehlo-int", "exact_even", [(kind, name, step) for kind in OPS])
    assert set(counts.values()) == {(0, 0)}


@pytest.mark.parametrize(("name", "step"), [*((name, 16) for name in SETS), *FULL])
def test_quantized_types_equal_float32_spec(name, step):
    """Behind stablehlo-legalize-quantized-op-to-qdq each operation is the specification's three steps.

    0 / 0 is the one pair that may be off: what a NaN is stored as nobody says.
    """
    counts = _count("stablehlo", "float32_spec", [(kind, name, step) for kind in OPS])
    for (kind, *_), (pairs, _) in counts.items():
        assert pairs <= (kind == "Div"), kind


@pytest.mark.parametrize("kind", ["Add", "Sub"])
def test_sums_beyond_64_bits_are_tables(kind, monkeypatch):
    """A mask of -3e38 beside scores of 10: the exact sum of every pair, looked up."""
    monkeypatch.setitem(SETS, "masked", ((0.05, 4), (1.3e36, 127), (0.06, -8)))
    assert _count("stablehlo-int", "exact_even", [(kind, "masked", 16)]) == {(kind, "masked", 16): (0, 0)}


def test_a_fused_relu_cuts_at_the_zero_point():
    graph, plan, sample = pairs_of("Add", "fine", 16, relu=True)
    for form, arithmetic in (("stablehlo", "float32_spec"), ("stablehlo-int", "exact_even")):
        (results,) = hlo.evaluated([job(graph, plan, form, sample)])
        stored, _ = steps_off(graph, plan, arithmetic, sample, results)
        assert not stored["y"].any()
        assert results[0].min() == 0.0


def test_sums_are_what_fractions_say():
    """The interpreter aside: half to even of the exact sum, the zero point added, saturated."""
    name = "shifts"
    (sa, za), (sb, zb), (sy, zy) = SETS[name]
    graph, plan, sample = pairs_of("Add", name, 16)
    ((got,),) = hlo.evaluated([job(graph, plan, "stablehlo-int", sample)])
    rng = np.random.default_rng(0)
    for row, column in rng.integers(0, [256, 16], (500, 2)).tolist():
        a, b = row - 128, column * 16 - 128
        exact = (Fraction(sa) * (a - za) + Fraction(sb) * (b - zb)) / Fraction(sy)
        wanted = min(max(round(exact) + zy, -128), 127)
        assert got[row, column] == np.float32((wanted - zy) * sy)


@pytest.mark.parametrize("scales", [(0.0003, 0.0011, 0.0007), (1e-4, 0.5, 0.37), (1e-6, 0.9, 3e-4)])
def test_words_are_exact_too(scales):
    """Products of 16 bits by 16, and ratios whose fractions need a remainder of two limbs."""
    kinds = {v: uniform(storage("i16"), s, z) for v, s, z in zip("aby", scales, (3, -5, 11), strict=True)}
    graph = model(
        [op("Mul", "a b", "y")], inputs={"a": (4000,), "b": (4000,)}, outputs={"y": (4000,)}, constants={}
    )
    plan = plan_of(graph, [(["y"], "a b", "y")], kinds, "float32_spec")
    stored, rng = np.arange(-(1 << 15), 1 << 15), np.random.default_rng(1)
    sample = {
        v: ((rng.choice(stored, 4000) - kinds[v].zero_point) * np.float32(kinds[v].scale)).astype(np.float32)
        for v in "ab"
    }
    (results,) = hlo.evaluated([job(graph, plan, "stablehlo-int", sample)])
    off, _ = steps_off(graph, plan, "exact_even", sample, results)
    assert not off["y"].any()
    assert len(np.unique(results[0])) > 100


def test_products_of_words_far_beyond_the_result():
    """What no result tells apart is cut before the multiplication, which 64 bits would not hold."""
    kinds = {"a": uniform(storage("i16"), 0.7), "b": uniform(storage("i16"), 0.3), "y": i8(0.05, 3)}
    graph = model([op("Mul", "a b", "y")], inputs={"a": (9,), "b": (9,)}, outputs={"y": (9,)}, constants={})
    plan = plan_of(graph, [(["y"], "a b", "y")], kinds, "float32_spec")
    stored = np.array([-32768, -300, -5, -1, 0, 1, 2, 300, 32767], np.float32)
    sample = {
        v: order * np.float32(kinds[v].scale) for v, order in zip("ab", (stored, stored[::-1]), strict=True)
    }
    (results,) = hlo.evaluated([job(graph, plan, "stablehlo-int", sample)])
    off, _ = steps_off(graph, plan, "exact_even", sample, results)
    assert not off["y"].any()
