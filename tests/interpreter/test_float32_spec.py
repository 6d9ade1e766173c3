"""`float32_spec`: a dot or convolution sums integers; the sum is dequantized and quantized in float32."""

import numpy as np
import pytest

from planner.interpreter.evaluate import evaluate
from tests.formats.plans import bias, i8, model, op, plan_of, weight

X, Y = i8(0.02, -7), i8(0.7, 11)
RNG = np.random.default_rng(3)


def _sums_of(kind):
    """A graph, its plan, a sample, and the exact sums of products with the bias."""
    channels, depth = 24, 2304
    w = RNG.standard_normal((channels, depth)).astype(np.float32)
    b = RNG.standard_normal(channels).astype(np.float32)
    stored = RNG.integers(-128, 128, (60, depth))
    w_kind = weight(w)
    types = {"x": X, "w": w_kind, "b": bias(X, w_kind), "y": Y}
    shapes = {"Conv": ((60, depth // 9, 3, 3), (channels, depth // 9, 3, 3)), "Gemm": (stored.shape, w.shape)}
    given, wanted = shapes[kind]
    attributes = {"transB": 1} if kind == "Gemm" else {}
    graph = model(
        [op(kind, "x w b", "y", **attributes)],
        inputs={"x": given},
        outputs={"y": None},
        constants={"w": w.reshape(wanted), "b": b},
    )
    scales = np.asarray(w_kind.scales, np.float32)
    kernel = np.clip(np.rint(w / scales[:, None]), -127, 127).astype(np.int64)
    added = np.rint(b.astype(np.float64) / np.asarray(types["b"].scales)).astype(np.int64)
    sample = {"x": ((stored + 7) * np.float32(0.02)).astype(np.float32).reshape(given)}
    total = (stored + 7) @ kernel.T + added
    return graph, plan_of(graph, [(["y"], "x w b", "y")], types), sample, total, scales


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
def test_sums_are_integers_and_what_follows_is_float32(kind):
    """Every element, and no element more than a step from one exact rounding."""
    graph, plan, sample, total, scales = _sums_of(kind)
    real = total.astype(np.float32) * (np.float32(0.02) * scales)
    wanted = np.rint(np.clip(real / np.float32(0.7) + np.float32(11), -128, 127)).astype(int)
    got = evaluate(graph, plan, sample, arithmetic="float32_spec").stored["y"].reshape(wanted.shape)
    np.testing.assert_array_equal(got, wanted)
    exact = evaluate(graph, plan, sample, arithmetic="exact_even").stored["y"].reshape(wanted.shape)
    assert np.abs(exact.astype(int) - got).max() <= 1
    assert np.unique(got).size > 200
