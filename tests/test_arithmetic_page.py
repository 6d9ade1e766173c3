"""docs/arithmetic.md: its formulas give the integers that `evaluate` stores."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import planner

PAGE = Path("docs/arithmetic.md").read_text(encoding="utf-8")
TARGET = """
apiVersion: planner/v1
kind: Target
id: page
version: 1.0.0
types:
  a8: {storage: i8}
  w8: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true}
  b32: {storage: i32, symmetric: true}
defaults: {port: a8, requantize: ARITHMETIC}
fusions: [{kernel: fc, pattern: "Gemm(x, w, b)", where: {w: constant}}]
kernels:
  - kernel: fc
    in: {x: a8, w: w8, b: b32}
    out: {y: a8}
    axis: {w: out_channel}
    rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]
  - {kernel: Add, in: {a: a8, b: a8}, out: {y: a8}}
"""


def drawn(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def small_model():
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Add", ["h", "z"], ["y"])]
    numbers = {"w": drawn(48, 24, seed=1), "b": drawn(24, seed=2)}
    weights = [numpy_helper.from_array(number, name) for name, number in numbers.items()]
    shapes = {"x": [64, 48], "z": [64, 24], "y": [64, 24]}
    sides = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "page", sides[:2], sides[2:], weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return numbers, planner.load_model(model.SerializeToString())


OWN = {
    rounding: f"{{multiplier: 12, rounding: {rounding}, shift: [0, 34]}}"
    for rounding in ("half_up", "half_away", "half_even", "floor")
}
"""Rows with multipliers of their own, of so few bits that their results are not those of 32."""


def formulas_for(name):
    """The product's and the addition's formula of an arithmetic."""
    formulas: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], formulas)  # noqa: S102
    if name in OWN:
        own = partial(formulas["own"], bits=12, shifts=(0, 34), rounding=name)
        return own, partial(formulas["own_add"], rounded=own)
    # LiteRT's additions are those of TFLite, rounded twice.
    adding = formulas["tosa_double" if name == "litert_16" else name]
    return formulas[name], partial(formulas["tosa_add"], rounded=adding)


@pytest.mark.parametrize("name", ["tosa_single", "tosa_double", "litert_16", *OWN])
def test_the_formulas_give_what_is_stored(name):
    product, addition = formulas_for(name)
    numbers, model = small_model()
    sample = {"x": drawn(64, 48, seed=3), "z": 0.3 * drawn(64, 24, seed=4)}
    model = planner.annotate(model, stats=planner.calibrate(model, [sample]))
    plan = planner.plan(model, planner.load_target(TARGET.replace("ARITHMETIC", OWN.get(name, name))))
    fc, add = plan.kernels["Gemm_0"], plan.kernels["Add_1"]
    stored = planner.evaluate(model, plan, sample).stored

    def quantized(real, kind):
        scale, zero = np.array(kind.scales, np.float32), np.array(kind.zero_points)
        return np.clip(np.rint(real / scale) + zero, kind.storage.qmin, kind.storage.qmax).astype(int)

    x, w, b = (port.type for port in fc.inputs)
    y = fc.outputs[0].type
    sums = (quantized(sample["x"], x) - x.zero_point) @ quantized(numbers["w"], w)
    sums = sums + np.rint(numbers["b"].astype(float) / np.array(b.scales)).astype(int)
    wanted = np.array(
        [
            [product(int(s), x.scale * scale / y.scale) for s, scale in zip(row, w.scales, strict=True)]
            for row in sums
        ]
    )
    assert np.array_equal(np.clip(wanted + y.zero_point, -128, 127), stored["h"])

    left, right = (port.type for port in add.inputs)
    y = add.outputs[0].type
    ratios = left.scale / y.scale, right.scale / y.scale
    operands = stored["h"].astype(int) - left.zero_point, quantized(sample["z"], right) - right.zero_point
    wanted = np.array(
        [
            addition(int(p), int(q), *ratios)
            for p, q in zip(*(side.reshape(-1) for side in operands), strict=True)
        ]
    )
    assert np.array_equal(np.clip(wanted + y.zero_point, -128, 127), stored["y"].reshape(-1))


def test_every_arithmetic_is_told():
    with pytest.raises(planner.PlannerError) as caught:
        planner.load_target(TARGET.replace("ARITHMETIC", "shift"))
    known = re.search(r"is none of (.*?)(?: \(| \||$)", str(caught.value))[1].split(", ")
    assert len(known) == 10
    assert all(f"| `{name}` |" in PAGE for name in known)
