"""Products of 8 and 16 bits: more than 10^5 random results each, saturated ones among them."""

import numpy as np
import pytest

from planner.formats.tosa.writer.scaling import ARITHMETICS
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform, storage, uniform
from tests.formats.plans import bias, i8, model, op, plan_of, u8, weight
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import tosa

ROUNDED = [name for name in ARITHMETICS if name != "power_of_two"]


def conv(x: Uniform, y: Uniform, arithmetic: str):
    """A convolution of 8 channels into 32, with a bias and a weight scale per channel."""
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(32, 8, 3, 3)).astype(np.float32), rng.normal(size=32).astype(np.float32)
    w *= np.exp(rng.uniform(-3, 0, (32, 1, 1, 1))).astype(np.float32)
    graph = model(
        [op("Conv", "x w b", "y", pads=(1, 1, 1, 1))],
        inputs={"x": (1, 8, 60, 60)},
        outputs={"y": (1, 32, 60, 60)},
        constants={"w": w, "b": b},
    )
    kind = weight(w)
    types = {"x": x, "w": kind, "b": bias(x, kind, "i32" if x.storage.bits <= 8 else "i48"), "y": y}
    return graph, plan_of(graph, [(("y",), "x w b", "y")], types, arithmetic)


def gemm(x: Uniform, y: Uniform, arithmetic: str):
    """A product with a matrix of 64 x 256."""
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(64, 256)).astype(np.float32), rng.normal(size=256).astype(np.float32)
    graph = model(
        [op("Gemm", "x w b", "y")],
        inputs={"x": (400, 64)},
        outputs={"y": (400, 256)},
        constants={"w": w, "b": b},
    )
    kind = weight(w, 1)
    types = {"x": x, "w": kind, "b": bias(x, kind, "i32" if x.storage.bits <= 8 else "i48"), "y": y}
    return graph, plan_of(graph, [(("y",), "x w b", "y")], types, arithmetic)


@pytest.mark.parametrize("make", [conv, gemm])
def test_results_are_exact_sums_rounded_once(make, tmp_path):
    word = [uniform(storage("i16"), scale) for scale in (1e-4, 3e-4)]
    kinds = [
        (i8(0.03, -7), i8(0.05, 9)),
        (u8(0.02, 3), u8(0.07, 128)),
        (word[0], word[1]),
        (i8(0.03), word[1]),
    ]
    cases = [make(x, y, arithmetic) for x, y in kinds for arithmetic in ROUNDED]
    rng = np.random.default_rng(1)
    shape = cases[0][0].values["x"].shape
    sample = {"x": rng.normal(size=shape).astype(np.float32) * 1.5}
    jobs = [(write_tosa(graph, plan), [fed(graph, plan, sample)]) for graph, plan in cases]
    for (graph, plan), found in zip(cases, tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), found
        for _, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
            np.testing.assert_array_equal(got, wanted)
            ends = np.iinfo(wanted.dtype)
            assert wanted.size > 100_000
            assert (wanted == ends.min).any()
            assert (wanted == ends.max).any()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_convolution_in_groups(axes, tmp_path):
    rng = np.random.default_rng(axes)
    shape, sizes = (2, 6, *(5, 6, 7)[:axes]), (8, 3, *(2,) * axes)
    w, b = rng.normal(size=sizes).astype(np.float32), rng.normal(size=8).astype(np.float32)
    result = (2, 8, *(size - 1 for size in shape[2:]))
    graph = model(
        [op("Conv", "x w b", "y", group=2)],
        inputs={"x": shape},
        outputs={"y": result},
        constants={"w": w, "b": b},
    )
    kind = weight(w)
    types = {"x": i8(0.03, -7), "w": kind, "b": bias(i8(0.03), kind), "y": i8(0.1, 9)}
    plan = plan_of(graph, [(("y",), "x w b", "y")], types, "tosa_double")
    sample = {"x": rng.normal(size=shape).astype(np.float32)}
    found = tosa.run(tmp_path, [(write_tosa(graph, plan), [fed(graph, plan, sample)])])[0]
    assert not isinstance(found, str), found
    for _, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
        np.testing.assert_array_equal(got, wanted)
