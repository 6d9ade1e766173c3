"""A table in bytes whose rows float ops read: every format beside the interpreter, bit for bit."""

import numpy as np
import onnxruntime
import pytest

import planner
from planner.formats.onnx.sessions import session_options
from planner.formats.table import EXPORTERS
from planner.target.modeltext import read_model_text
from tests.formats.plans import model, op
from tests.formats.stablehlo.writer.running import job
from tests.oracles import hlo, litert, tosa

RNG = np.random.default_rng(16)
TABLE = (RNG.normal(size=(700, 32)) * RNG.gamma(2, size=(700, 1))).astype(np.float32)
IDS = np.asarray([[3, 699, 0], [17, 17, 250]])
ONNX = ("onnx-integer", "onnx-matmulnbits", "onnx-qcdq", "onnx-qdq", "onnx-qoperator", "onnx-qoperator-clip")
TARGET = """
apiVersion: planner/v1
kind: Target
id: tables
version: 1.0.0
title: Tables of bytes
mode: fixed
defaults: {{on_no_kernel: float}}
types:
  t: {}
kernels:
  - {{kernel: Gather, in: {{t: t}}, out: {{y: {{storage: f32}}}}, axis: {{t: 0}}, when: {{t: constant}}}}
"""
TYPES = {
    "a scale a row": "{storage: i8, range: [-127, 127], granularity: axis, symmetric: true}",
    "a scale and a zero point a row": "{storage: u8, granularity: axis}",
    "one scale": "{storage: i8, range: [-127, 127], symmetric: true}",
    "one scale and zero point": "{storage: u8}",
}


def embedding(table=TABLE, dtype="f32", shape=(2, 3), **attributes):
    """A model of one Gather."""
    return model(
        [op("Gather", "t i", "y", **attributes)],
        inputs={"i": shape},
        outputs={"y": (*shape, *table.shape[1:])},
        constants={"t": table},
        dtypes={"i": "i64", "y": dtype, "t": dtype},
    )


def planned(graph, target):
    """The plan, checked; its only kernel has a row."""
    plan = planner.plan(graph, target)
    planner.check(plan, graph, target)
    assert [kernel.row is not None for kernel in plan.kernels_in_order] == [True]
    return plan


def ran(data, ids, *, optimised):
    """What onnxruntime gives, at its defaults or with nothing optimised."""
    options = session_options()
    if optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(data, options).run(None, {"i": ids})[0]


@pytest.mark.parametrize("form", [form for form in ONNX if form not in ("onnx-matmulnbits", "onnx-integer")])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_onnx_reads_rows_of_the_stored_table(form, kind, dtype):
    graph = embedding(TABLE.astype(np.dtype("f4" if dtype == "f32" else "f2")), dtype)
    target = planner.load_target(TARGET.format(TYPES[kind]))
    plan = planned(graph, target)
    wanted = planner.evaluate(graph, plan, {"i": IDS}).outputs["y"]
    data = planner.export(graph, plan, form)
    assert len(data) < TABLE.size * 1.3
    for optimised in (False, True):
        np.testing.assert_array_equal(ran(data, IDS - 700 * (IDS % 2), optimised=optimised), wanted)


@pytest.mark.parametrize("shape", [(), (4,), (2, 1, 2)])
def test_indices_of_any_rank(shape):
    graph, ids = embedding(shape=shape), RNG.integers(0, 700, shape)
    plan = planned(graph, "onnxruntime-cpu")
    wanted = planner.evaluate(graph, plan, {"i": ids}).outputs["y"]
    np.testing.assert_array_equal(ran(planner.export(graph, plan, "onnx-qdq"), ids, optimised=True), wanted)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "onnxruntime-dynamic", "llm-w4", "litert-int8"])
def test_a_row_of_its_own_scale_costs_next_to_nothing(target):
    graph = embedding()
    found = planner.evaluate(graph, planned(graph, target), {"i": IDS}).outputs["y"]
    reals = TABLE[IDS]
    assert 10 * np.log10((reals**2).sum() / ((reals - found) ** 2).sum()) > 40


def test_litert_gathers_bytes(tmp_path):
    graph = embedding()
    plan = planned(graph, "litert-int8")
    data, sample = EXPORTERS["litert"](graph, plan), {"i": IDS}
    assert len(data) < TABLE.size * 1.3
    found = litert.run(tmp_path, [(data, [sample])])[0][0]["y"]
    np.testing.assert_array_equal(found, planner.evaluate(graph, plan, sample).outputs["y"])


def test_tosa_gathers_bytes(tmp_path):
    graph = embedding()
    plan = planned(graph, "tosa-int8")
    text = EXPORTERS["tosa"](graph, plan)
    assert b"1x700x32xi8" in text
    ((found,),) = tosa.run(tmp_path, [(text, [[IDS.astype(np.int32)]])])
    np.testing.assert_array_equal(found[0], planner.evaluate(graph, plan, {"i": IDS}).outputs["y"])


SHARED = {
    "nobody else reads it": ("", True),
    "a float kernel reads it too": ("b = Asinh(t) : f32[600,32] {-2, 2}", False),
    "another Gather reads it too": ("b = Gather(t, ids) : f32[2,8,32] {-1, 1}", True),
    "a product reads it in integers": ("b = Gemm(x, t) [transB=1] : f32[4,600] {-9, 9}", True),
    "a product asked to run in float": ("b = Gemm(x, t) [transB=1] : f32[4,600] {-9, 9}", False),
}


@pytest.mark.parametrize("case", SHARED)
def test_a_table_that_is_float_anyway_stays_so(case):
    """A second copy in bytes would make the file bigger."""
    line, is_stored = SHARED[case]
    text = f"""ids : i64[2,8]
x : f32[4,32] {{-3, 3}}
t = constant : f32[600,32] {{-1, 1}}
a = Gather(t, ids) : f32[2,8,32] {{-1, 1}}
{line}
y = Asinh(a) : f32[2,8,32] {{-1, 1}}
z = Mul(x, x) : f32[4,32] {{0, 9}}
"""
    graph = read_model_text(text, case)
    if "asked" in case:
        graph = planner.annotate(graph, kernels={"b": "float"})
    for target in map(planner.load_target, ("onnxruntime-cpu", "stablehlo")):
        plan = planner.plan(graph, target)
        planner.check(plan, graph, target)
        table = plan.kernels["a"].inputs[0].type
        assert (table is not None and table.axis == 0) == is_stored


@pytest.mark.parametrize(("price", "is_table"), [(2.0, True), (0.5, False)])
def test_a_consumer_that_stores_the_rows_anew_keeps_the_table_in_bytes(price, is_table):
    """Prices decide whether rows are stored on one scale for all, or dequantized first."""
    text = """ids : i64[2,8]
t = constant : f32[600,32] {-1, 1}
w = constant : f32[32,4] {-1, 1}
a = Gather(t, ids) : f32[2,8,32] {-1, 1}
b = Asinh(a) : f32[2,8,32] {-1, 1}
y = MatMul(a, w) : f32[2,8,4] {-9, 9}
"""
    graph, target = read_model_text(text, "mixed"), planner.load_target("onnxruntime-cpu")
    plan = planner.plan(graph, target, dequantize=price)
    planner.check(plan, graph, target)
    row = plan.row_of("a")
    assert (row is not None, row.reads_table, plan.kernels["y"].row is not None) == (True, is_table, True)
    again = planner.replan(plan, {"format": "qplan.annotations/1", "values": {"y": "!quant.none"}})
    planner.check(again, again.annotated, target)


@pytest.mark.parametrize("form", ["stablehlo", "stablehlo-int"])
def test_stablehlo_gathers_bytes(form):
    graph = embedding()
    plan = planned(graph, "stablehlo")
    assert b"700x32xi8" in EXPORTERS[form](graph, plan)
    ((found,),) = hlo.evaluated([job(graph, plan, form, {"i": IDS})])
    np.testing.assert_array_equal(found, planner.evaluate(graph, plan, {"i": IDS}).outputs["y"])
