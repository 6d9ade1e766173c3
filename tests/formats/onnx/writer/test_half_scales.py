"""Scales of blocks in float16: planned, checked, interpreted, written, run by onnxruntime, and read again."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

import planner
from planner.errors import PlanInvalid, UnsupportedExport
from planner.ir.dtypes import NUMPY
from planner.ir.types.qtypes import Uniform
from tests.formats.plans import model, op, op_types, run

RNG = np.random.default_rng(16)
HALVES = """
apiVersion: planner/v1
kind: Target
id: halves
version: 1.0.0
title: Scales in float16
mode: fixed
extends: llm-w4
types:
  w4g: {scales: f16}
  a4g: {scales: f16}
  w8g: {scales: f16}
  w3g: {scales: f16}
"""
WIDTH = 172


def net(dtype: str):
    """Rows of a table through a matrix whose sum no block divides."""
    kind = NUMPY[dtype]
    return model(
        [op("Gather", "t i", "x"), op("MatMul", "x w", "y")],
        inputs={"i": (5,)},
        outputs={"x": (5, WIDTH), "y": (5, 10)},
        constants={
            "t": RNG.normal(size=(30, WIDTH)).astype(kind),
            "w": RNG.normal(size=(WIDTH, 10)).astype(kind),
        },
        dtypes={"i": "i64"} | dict.fromkeys(("x", "y", "t", "w"), dtype),
    )


def planned(dtype: str, store: str, target: str):
    graph = net(dtype)
    product = graph.ops[1].name
    given = {"format": "qplan.annotations/1", "values": {"t": "!quant.any<i8>"}}
    ready = planner.annotate(graph, annotations=given, kernels={product: {"in": ["f32", store]}})
    plan = planner.plan(ready, target)
    planner.check(plan, ready, planner.load_target(target))
    return ready, plan


def blocks_in(plan):
    ports = [port for kernel in plan.kernels_in_order for port in kernel.inputs]
    return [port.type for port in ports if isinstance(port.type, Uniform) and port.type.grid]


@pytest.mark.parametrize(("dtype", "target"), [("f16", "llm-w4"), ("f32", HALVES)])
@pytest.mark.parametrize("store", ["i4", "u4", "i8"])
@pytest.mark.parametrize("form", ["onnx-matmulnbits", "onnx-qdq"])
def test_files_hold_scales_in_float16(dtype, target, store, form):
    """Rows are bit for bit the interpreter's; a sum in another order is off by its float's last place."""
    ready, plan = planned(dtype, store, target)
    assert planner.plan_from_json(plan.to_json()).key == plan.key
    kinds = blocks_in(plan)
    assert len(kinds) == 2
    for kind in kinds:
        scales = np.asarray(kind.scales)
        np.testing.assert_array_equal(scales.astype(np.float16), scales)
    data, sample = planner.export(ready, plan, form), {"i": np.asarray([0, 29, 7, 7, 1])}
    floats = [item for item in onnx.load_from_string(data).graph.initializer if item.data_type in (1, 10)]
    assert [item.data_type for item in floats] == [onnx.TensorProto.FLOAT16] * 2
    if form == "onnx-matmulnbits":
        assert [kind for kind in op_types(data) if kind != "Cast"] == ["GatherBlockQuantized", "MatMulNBits"]
        assert ("Cast" in op_types(data)) == (dtype == "f32")
    wanted = planner.evaluate(ready, plan, sample).outputs
    rows, sums = run(data, sample)
    np.testing.assert_array_equal(rows, wanted["x"])
    near = 2e-5 if dtype == "f32" else 2.0**-10 * float(np.abs(wanted["y"]).max())
    np.testing.assert_allclose(sums, wanted["y"], rtol=0, atol=near)
    read = planner.load_model(data)
    again = planner.plan(read, target)
    for name, array in planner.evaluate(read, again, sample).outputs.items():
        np.testing.assert_array_equal(array, wanted[name])
    assert [kind.scales for kind in blocks_in(again)] == [kind.scales for kind in kinds]


@pytest.mark.parametrize("store", ["i4", "u4", "i8"])
@pytest.mark.parametrize("scales", ["bf16", "e8m0"])
@pytest.mark.parametrize("form", ["onnx-matmulnbits", "onnx-qdq"])
def test_other_floats_of_scales_are_values_of_float32(scales, store, form):
    """No format has them as such, so files hold the same numbers in float32; e8m0 has powers of two alone."""
    text = HALVES.replace("f16", scales)
    ready, plan = planned("f32", store, text)
    for kind in blocks_in(plan):
        found = np.asarray(kind.scales, np.float32)
        if scales == "e8m0":
            assert set(np.frexp(found)[0].tolist()) == {0.5}
        else:
            assert not (found.view(np.uint32) & 0xFFFF).any()
    sample = {"i": np.asarray([0, 29, 7, 7, 1])}
    rows, sums = run(planner.export(ready, plan, form), sample)
    wanted = planner.evaluate(ready, plan, sample).outputs
    np.testing.assert_array_equal(rows, wanted["x"])
    np.testing.assert_allclose(sums, wanted["y"], rtol=0, atol=2e-5)


def test_scales_of_another_float_are_refused():
    """The checker: a plan of float32 scales under rows of bfloat16."""
    ready, plan = planned("f32", "i4", "llm-w4")
    told = planner.plan_from_json(plan.to_json())
    rows = planner.load_target(HALVES.replace("f16", "bf16")).rows
    own = {row.key: row for of_kernel in rows.values() for row in of_kernel}
    changed = {key: own.get(key, row) for key, row in told.target.rows.items()}
    assert any(changed[key] != row for key, row in told.target.rows.items())
    with pytest.raises(PlanInvalid, match="its scales are no values of bf16"):
        planner.check(replace(told, target=replace(told.target, rows=changed)), ready)


def test_they_take_half_the_bytes():
    (ready, plan), (same, wide) = planned("f32", "i4", HALVES), planned("f32", "i4", "llm-w4")
    small, large = (
        sum(
            len(item.raw_data)
            for item in onnx.load_from_string(
                planner.export(graph, found, "onnx-matmulnbits")
            ).graph.initializer
            if item.data_type in (1, 10)
        )
        for graph, found in ((ready, plan), (same, wide))
    )
    assert large == 2 * small == 4 * sum(len(kind.scales) for kind in blocks_in(plan))


def test_scales_that_float16_does_not_hold():
    """In a model in float16 only pairs can say them; a pin of such is no match for rows of halves."""
    wide = HALVES.replace("  w4g: {scales: f16}\n", "  h4g: {scales: f32}\n  h8g: {scales: f32}\n")
    ready, plan = planned("f16", "i4", wide)
    kind = blocks_in(plan)[1]
    assert not np.array_equal(np.asarray(kind.scales).astype(np.float16), kind.scales)
    with pytest.raises(UnsupportedExport, match="a model in float16, with scales that float16 does not hold"):
        planner.export(ready, plan, "onnx-matmulnbits")
    sample = {"i": np.asarray([3, 0, 9, 9, 2])}
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    got = run(planner.export(ready, plan, "onnx-qdq"), sample)[1]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2.0**-10 * float(np.abs(wanted).max()))
    given = {"format": "qplan.annotations/1", "values": {"w": str(kind)}}
    pinned = planner.annotate(net("f32"), annotations=given)
    (_, product) = planner.plan(pinned, HALVES).kernels_in_order
    assert product.row is None
    assert "the row has i4 per block symmetric with scales in f16" in product.reason
    assert blocks_in(planner.plan(pinned, "llm-w4")) == [kind]


def test_the_checker_refuses_scales_that_are_no_halves():
    ready, plan = planned("f32", "i4", HALVES)
    text = plan.to_json()
    scale = repr(blocks_in(plan)[1].scales[0])
    off = text.replace(scale, repr(float(np.float32(float(scale) * (1 + 2**-13)))))
    assert off != text
    with pytest.raises(PlanInvalid, match="no values of f16"):
        planner.check(planner.plan_from_json(off), ready, planner.load_target(HALVES))
