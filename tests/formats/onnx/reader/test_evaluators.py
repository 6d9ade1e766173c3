"""QONNX's operators in two spellings: the standard ops that they become, and the formula of their result."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.formats.onnx.quantized.formulas import ROUNDINGS
from planner.formats.onnx.quantized.lowering import EVALUATORS, LOWERINGS
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import GENERAL, file_of

SHAPE = (2, 3, 4, 5)
CHANNELS = {"one": (), "each": (1, 3, 1, 1)}


def numbers(*arrays):
    return {f"p{i}": np.asarray(array, np.float32) for i, array in enumerate(arrays)}


def spread(least, most, shape):
    return np.linspace(least, most, int(np.prod(shape, dtype=int))).reshape(shape)


def quants():
    for rounding in ROUNDINGS:
        for signed, narrow in ((1, 0), (1, 1), (0, 0)):
            flags = {"signed": signed, "narrow": narrow, "rounding_mode": rounding}
            yield "Quant", numbers(0.3, 1.0, 4.0), flags, SHAPE
    for shape in CHANNELS.values():
        operands = numbers(spread(0.1, 0.9, shape), spread(0, 3, shape).round(), 5.0)
        yield "Quant", operands, {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}, SHAPE
        yield "BipolarQuant", numbers(spread(0.1, 0.9, shape)), {}, SHAPE
    for rounding in ("FLOOR", "CEIL", "ROUND"):
        yield "Trunc", numbers(0.25, 1.0, 8.0, 4.0), {"rounding_mode": rounding}, SHAPE
        flags = {"rounding_mode": rounding, "signed": 1, "narrow": 0}
        yield "Trunc", numbers(0.25, 1.0, 8.0, 2.0, 4.0), flags, SHAPE


def thresholds():
    for layout, shape, channel in (
        ("NCHW", SHAPE, 1),
        ("NHWC", SHAPE, 3),
        ("NC", (2, 3), 1),
        ("NCW", (2, 3, 4), 1),
        ("NWC", (2, 3, 4), 2),
        ("", SHAPE, 1),
    ):
        for count in (1, shape[channel]):
            table = np.sort(np.random.default_rng(count).normal(size=(count, 7)), axis=1)
            flags = {"out_scale": 0.5, "out_bias": -1.0, "data_layout": layout}
            yield "MultiThreshold", numbers(table), {key: flag for key, flag in flags.items() if flag}, shape


CASES = [*quants(), *thresholds()]


@pytest.mark.parametrize("case", CASES, ids=[f"{kind}-{i}" for i, (kind, *_) in enumerate(CASES)])
def test_both_spellings_compute_the_same(case):
    kind, operands, flags, shape = case
    node = helper.make_node(kind, ["x", *operands], ["y"], "op", domain=GENERAL, **flags)
    data = file_of([node], {"x": (TensorProto.FLOAT, shape)}, ["y"], operands)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 2
    (op,) = read_written(data).ops
    wanted = EVALUATORS[op.type](op, [x, *operands.values()])
    assert op.type in LOWERINGS
    np.testing.assert_allclose(run_model(data, {"x": x})["y"], wanted, rtol=1e-6)


def test_every_operator_with_two_spellings_is_compared():
    assert {f"{GENERAL}::{kind}" for kind, *_ in CASES} == set(LOWERINGS)
