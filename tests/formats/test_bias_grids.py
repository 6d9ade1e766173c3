"""Biases on a grid of their own, finer than that of the sums: one rounding of the whole, in every format."""

from fractions import Fraction

import numpy as np
import pytest

from planner.constants.quantize import quantize_array
from planner.formats.onnx.read import read_written
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.types.qtypes import Uniform, storage, uniform
from tests.formats.plans import i8, model, op, plan_of

RNG = np.random.default_rng(3)
X = RNG.integers(-128, 128, (40, 6)).astype(np.float32) / 64
W = (RNG.integers(-3, 4, (6, 5)) / np.float32(4)).astype(np.float32)
B = RNG.normal(size=5).astype(np.float32)
FINE = uniform(storage("i24"), 2.0**-20)
TYPES = {"x": i8(1 / 64), "w": uniform(storage("i3"), 0.25), "b": FINE, "y": uniform(storage("i4"), 0.5)}
PER_CHANNEL = {**TYPES, "w": Uniform(storage("i3"), (0.25,) * 5, (0,) * 5, axis=1)}
GEMM = ([op("Gemm", "x w b", "y")], [(["y"], "x w b", "y")])
ADDED = ([op("MatMul", "x w", "m"), op("Add", "m b", "y")], [(["m", "y"], "x w b", "y")])


def planned(ops, kernels, types, arithmetic="exact_even"):
    shapes = {"inputs": {"x": X.shape}, "outputs": {"y": (40, 5)}}
    graph = model(ops, **shapes, constants={"w": W, "b": B})
    return graph, plan_of(graph, kernels, types, arithmetic)


def exact():
    """Reals of the exact sums on the grid of the result, ties to even."""
    x, w = (np.rint(a * n).astype(int).tolist() for a, n in ((X, 64), (W, 4)))
    bias = [Fraction(int(one), 2**20) for one in quantize_array(B, FINE)]
    sums = [
        [sum(Fraction(a * row[k], 256) for a, row in zip(line, w, strict=True)) + bias[k] for k in range(5)]
        for line in x
    ]
    return np.clip([[round(one * 2) for one in line] for line in sums], -8, 7) * np.float32(0.5)


@pytest.mark.parametrize(("ops", "kernels"), [GEMM, ADDED])
@pytest.mark.parametrize("types", [TYPES, PER_CHANNEL], ids=["tensor", "channel"])
@pytest.mark.parametrize("form", ["onnx-integer", "finn"])
def test_the_sum_is_rounded_once(ops, kernels, types, form):
    graph, plan = planned(ops, kernels, types)
    wanted = exact()
    np.testing.assert_array_equal(Interpreter(graph, plan).run({"x": X}).outputs["y"], wanted)
    (got,) = ModelRunner(read_written(EXPORTERS[form](graph, plan))).run({"x": X}).values()
    np.testing.assert_array_equal(got, wanted)


def test_other_arithmetic_computes_such_a_kernel_in_float():
    """Integer kernels of onnxruntime add a bias on the grid of the products alone."""
    graph, plan = planned(*GEMM, TYPES, "float32_even")
    got = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    reals = X @ W + np.asarray(quantize_array(B, FINE) * 2.0**-20, np.float32)
    np.testing.assert_array_equal(got, np.clip(np.rint(reals * 2), -8, 7) * np.float32(0.5))
