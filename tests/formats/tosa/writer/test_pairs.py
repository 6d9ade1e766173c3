"""Two bytes into one: all 65,536 pairs of each operator and scale set equal the row's arithmetic."""

import numpy as np
import pytest

from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform, storage, uniform
from tests.formats.plans import i8, model, op, plan_of, u8
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import tosa

# Scales and zero points of a, b and the result.
SETS = [
    (i8(0.025, 3), i8(0.075, -5), i8(0.15, 1)),
    (i8(0.5), i8(0.25, 128 - 256), i8(0.125, 127)),
    (i8(0.1, 17), i8(0.1, 17), i8(0.1, 17)),
    (i8(0.003, -128), i8(1.7, 0), i8(0.9, -20)),
    (u8(0.02, 128), u8(0.03, 0), u8(0.04, 255)),
]
SHIFTS = [(i8(0.5, 3), i8(0.25, -5), i8(1.0, 1)), (i8(2.0), i8(0.125), i8(4.0, -3))]
CASES = [
    *((name, kinds) for name in ("gemmlowp", "tosa_double", "tosa_single") for kinds in SETS),
    *(("power_of_two", kinds) for kinds in SHIFTS),
]


def grid(kind: Uniform) -> np.ndarray:
    """The reals of every stored value."""
    stored = np.arange(kind.storage.qmin, kind.storage.qmax + 1)
    return ((stored - kind.zero_point) * np.float32(kind.scale)).astype(np.float32)


def check(folder, cases) -> None:
    """Plans in one run of the reference model."""
    jobs = [(write_tosa(graph, plan), [fed(graph, plan, sample)]) for graph, plan, sample in cases]
    for (graph, plan, sample), found in zip(cases, tosa.run(folder, jobs), strict=True):
        assert not isinstance(found, str), found
        for name, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
            np.testing.assert_array_equal(got, wanted, f"{name} of {plan.kernels_in_order[0].kernel}")


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_every_pair_of_bytes(kind, tmp_path):
    cases = []
    for arithmetic, (a, b, y) in CASES:
        x, z = np.meshgrid(grid(a), grid(b), indexing="ij")
        graph = model(
            [op(kind, "a b", "y")],
            inputs={"a": x.shape, "b": x.shape},
            outputs={"y": x.shape},
            constants={},
        )
        plan = plan_of(graph, [(("y",), "a b", "y")], {"a": a, "b": b, "y": y}, arithmetic)
        cases.append((graph, plan, {"a": x, "b": z}))
    check(tmp_path, cases)


@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_a_clamp_behind(kind, activation, tmp_path):
    a, b, y = i8(0.025, 3), i8(0.075, -5), uniform(storage("i8", -100, 90), 0.15, 1)
    x, z = np.meshgrid(grid(a), grid(b), indexing="ij")
    bounds = {"lo": np.asarray(-1.0, np.float32), "hi": np.asarray(2.0, np.float32)}
    names = "s" if activation == "Relu" else "s lo hi"
    graph = model(
        [op(kind, "a b", "s"), op(activation, names, "y")],
        inputs={"a": x.shape, "b": x.shape},
        outputs={"y": x.shape},
        constants=bounds if activation == "Clip" else {},
    )
    plan = plan_of(graph, [(("s", "y"), "a b", "y")], {"a": a, "b": b, "y": y}, "tosa_double")
    check(tmp_path, [(graph, plan, {"a": x, "b": z})])


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_sixteen_bits(kind, tmp_path):
    rng = np.random.default_rng(0)
    a, b, y = (uniform(storage("i16"), scale) for scale in (0.001, 0.0003, 0.002))
    sample = {name: rng.uniform(-33, 33, 4000).astype(np.float32) for name in "ab"}
    sample["a"][:2], sample["b"][:2] = 99, (-99, 99)
    graph = model(
        [op(kind, "a b", "y")], inputs=dict.fromkeys("ab", (4000,)), outputs={"y": (4000,)}, constants={}
    )
    kinds = {"a": a, "b": b, "y": y}
    plans = [
        plan_of(graph, [(("y",), "a b", "y")], kinds, how)
        for how in ("gemmlowp", "tosa_double", "tosa_single")
    ]
    check(tmp_path, [(graph, plan, sample) for plan in plans])


@pytest.mark.parametrize("arithmetic", ["gemmlowp", "tosa_double", "tosa_single"])
def test_rescales_on_edges(arithmetic, tmp_path):
    """Every value through each change of type: scale, zero point, sign, width, range."""
    kinds = [
        (i8(0.1, 3), i8(0.13, -4)),
        (i8(0.1, 3), u8(0.1, 131)),
        (u8(0.05, 9), i8(0.021, 9)),
        (i8(0.1, 3), uniform(storage("i16"), 0.001)),
        (uniform(storage("i16"), 0.001), i8(0.1, 3)),
        (i8(0.1), uniform(storage("i8", -8, 7), 0.3)),
        (u8(0.5, 3), uniform(storage("u4"), 2.0, 1)),
    ]
    cases = []
    for source, wanted in kinds:
        x = grid(source)
        graph = model(
            [op("Identity", "x", "h"), op("Identity", "h", "y")],
            inputs={"x": x.shape},
            outputs={"y": x.shape},
            constants={},
            shapes={"h": x.shape},
        )
        kernels = [(("h",), "x", "h"), (("y",), "h", "y")]
        plan = plan_of(graph, kernels, {"x": source, "h": source, "y.in[0]": wanted, "y": wanted}, arithmetic)
        cases.append((graph, plan, {"x": x}))
    check(tmp_path, cases)


@pytest.mark.parametrize("scale", [0.5, 0.1, 0.0123, 3.3e-5])
def test_reals_become_integers_as_quantize_linear_has_it(scale, tmp_path):
    """An input kept float: ties, their neighbours, and what saturates."""
    kinds = [
        i8(scale, 7),
        u8(scale, 200),
        uniform(storage("i16"), scale),
        uniform(storage("i8", -7, 7), scale),
    ]
    cases = []
    for kind in kinds:
        steps = np.arange(-400, 401) / 2 * np.float32(scale)
        ties = steps.astype(np.float32)
        near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
        x = np.concatenate([ties, *near, np.float32([1e9, -1e9, 3e38, -3e38])]).astype(np.float32)
        graph = model(
            [op("Neg", "x", "h"), op("Identity", "h", "y")],
            inputs={"x": x.shape},
            outputs={"y": x.shape},
            constants={},
            shapes={"h": x.shape},
        )
        plan = plan_of(
            graph, [(("h",), "x", "h"), (("y",), "h", "y")], {"y.in[0]": kind, "y": kind}, "tosa_double"
        )
        cases.append((graph, plan, {"x": x}))
    check(tmp_path, cases)
