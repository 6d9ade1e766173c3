"""Rows whose function is looked up in a table: planned, evaluated, refused where no format says it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import UnsupportedExport
from planner.interpreter.lookup import entry_inputs, stored_results
from planner.ir.types.qtypes import storage, uniform
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.target.records import LookupTable
from planner.target_tests.probe_kit import make_kit

TARGET = """
apiVersion: planner/v1
kind: Target
id: tables
version: 1.0.0
types:
  a8: {storage: i8}
  a16: {storage: i16, symmetric: true}
defaults: {port: a8, requantize: tosa_single}
fusions: [{kernel: gate, pattern: "Relu(Mul(Sigmoid(x), c))", where: {c: constant}}]
kernels:
  - {kernel: Tanh, in: {x: A}, out: {y: a8}, table: TABLE}
  - {kernel: gate, in: {x: A, c: a8}, out: {y: a8}, table: TABLE}
"""
X = np.random.default_rng(0).uniform(-6, 6, (4, 64)).astype(np.float32)


def model_of(*nodes, **constants):
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in ("x", "y")]
    numbers = [
        numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in constants.items()
    ]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "t", sides[:1], sides[1:], numbers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = planner.load_model(made.SerializeToString())
    return planner.annotate(model, stats=planner.calibrate(model, [{"x": X}]))


TANH = (("Tanh", ["x"], ["y"]),)
GATE = (("Sigmoid", ["x"], ["s"]), ("Mul", ["s", "c"], ["m"]), ("Relu", ["m"], ["y"]))


def planned(model, table, *, port="a8"):
    target = planner.load_target(TARGET.replace("TABLE", table).replace("x: A", f"x: {port}"))
    plan = planner.plan(model, target)
    for one in (plan, plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        planner.check(one, model, target)
    return target, plan


def by_hand(table, x, y, function):
    """Each stored input on its own, in exact fractions."""
    lo, hi = (Fraction(end) for end in (table.low, table.high))
    entries = []
    for i in range(table.entries):
        at = np.float32(float(lo + (hi - lo) * Fraction(i, table.entries - 1)))
        steps = np.rint(np.float32(function(at)) / np.float32(y.scale))
        entries.append(int(np.clip(steps + y.zero_point, y.storage.qmin, y.storage.qmax)))
    found = []
    for q in range(x.storage.qmin, x.storage.qmax + 1):
        real = (q - x.zero_point) * Fraction(x.scale)
        place = (real - lo) / (hi - lo) * (table.entries - 1) * 2**table.interpolate + Fraction(1, 2)
        at = min(max(place.numerator // place.denominator, 0), (table.entries - 1) << table.interpolate)
        i, part = at >> table.interpolate, at & ((1 << table.interpolate) - 1)
        after = entries[min(i + 1, table.entries - 1)]
        exact = Fraction(
            entries[i] * ((1 << table.interpolate) - part) + after * part, 1 << table.interpolate
        )
        exact += Fraction(1, 2)
        found.append(exact.numerator // exact.denominator)
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 70),
    st.tuples(st.integers(-40, 39), st.integers(1, 60)),
    st.integers(0, 9),
    st.integers(-128, 127),
    st.sampled_from([0.01, 0.0625, 0.3]),
)
def test_tables_are_exact(entries, ends, bits, zero, scale):
    table = LookupTable(entries, ends[0] / 4, (ends[0] + ends[1]) / 4, bits)
    x, y = uniform(storage("i8"), scale, zero), uniform(storage("i8"), 1 / 128, 0)
    found = stored_results(table, x, y, np.tanh)
    assert found.tolist() == by_hand(table, x, y, np.tanh)


def test_a_table_of_all_integers_is_the_function():
    x, y = uniform(storage("u8"), 0.05, 131), uniform(storage("i8"), 1 / 128, 0)
    table = LookupTable(256)
    reals = (np.arange(256, dtype=np.float32) - 131) * np.float32(0.05)
    assert np.array_equal(entry_inputs(table, x), reals)
    wanted = np.clip(np.rint(np.tanh(reals) * 128), -128, 127)
    assert np.array_equal(stored_results(table, x, y, np.tanh), wanted)


@pytest.mark.parametrize("port", ["a8", "a16"])
@pytest.mark.parametrize(
    "table", ["{entries: 16, input: [-4, 4]}", "{entries: 33, input: [-4, 4], interpolate: 7}"]
)
def test_a_plan_looks_up(table, port):
    model = model_of(*TANH)
    target, plan = planned(model, table, port=port)
    assert plan.row_of("Tanh_0") == target.rows["Tanh"][0]
    x, y = (plan.kernels["Tanh_0"].inputs[0].type, plan.kernels["Tanh_0"].outputs[0].type)
    stored = np.clip(np.rint(X / np.float32(x.scale)) + x.zero_point, x.storage.qmin, x.storage.qmax)
    wanted = np.asarray(by_hand(target.rows["Tanh"][0].table, x, y, np.tanh))
    found = planner.evaluate(model, plan, {"x": X}).stored["y"]
    assert np.abs(found - wanted[stored.astype(int) - x.storage.qmin]).max() <= 1  # tanh of two libraries
    assert len(np.unique(found)) <= (16 if "interpolate" not in table else 256)
    with pytest.raises(UnsupportedExport, match=r"is looked up in .* entries, and no format says"):
        planner.export(model, plan, "onnx-qdq")


def test_a_fused_function_and_its_activation():
    """Relu and a constant are in the table's function or behind it; the constant is one number."""
    model = model_of(*GATE, c=[-1.5])
    _, plan = planned(model, "{entries: 16, input: [-4, 4]}")
    assert plan.kernels["Sigmoid_0"].row is not None
    assert (
        planner.evaluate(model, plan, {"x": X}).stored["y"].min()
        == plan.kernels["Sigmoid_0"].outputs[0].type.zero_point
    )


def test_no_function_of_one_tensor():
    """A constant for each element, or a second tensor, is no table."""
    many = model_of(*GATE, c=np.linspace(-1, 1, 64))
    _, plan = planned(many, "{entries: 16}")
    kernel = next(
        kernel for kernel in plan.kernels_in_order if "Mul" in kernel.name or kernel.kernel == "gate"
    )
    assert kernel.row is None


def test_a_whole_table_is_written():
    model = model_of(*TANH)
    _, plan = planned(model, "{entries: 256}")
    file = planner.export(model, plan, "onnx-qdq")
    assert planner.compare(model, file, [{"x": X}]).samples == 1


def test_a_kit_expects_what_the_table_has():
    target = planner.load_target(
        TARGET.replace("TABLE", "{entries: 8, input: [-2, 2]}").replace("x: A", "x: a8")
    )
    items = {item.kernel: item for item in make_kit(target).items}
    assert items["Tanh"].file is None
    assert "no format says" in items["Tanh"].refusal
    assert all(len(np.unique(array)) <= 8 for array in items["Tanh"].expected.values())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("{entries: 1}", "T014"),
        ("{entries: 16, input: [4, -4]}", "T028 a table from 4 to -4"),
        ("{entries: 16, input: [1, x]}", "T025"),
        ("{entries: 16, interpolate: 16}", "T014"),
        ("{input: [0, 1]}", "T011"),
    ],
)
def test_tables_that_are_none(table, words):
    with pytest.raises(planner.PlannerError) as caught:
        planner.load_target(TARGET.replace("TABLE", table).replace("x: A", "x: a8"))
    assert words in str(caught.value)


def test_a_table_wants_few_integers():
    text = TARGET.replace("TABLE", "{entries: 16}").replace("x: A", "x: {storage: i32}")
    with pytest.raises(
        planner.PlannerError, match="T028 a table takes integers of up to 16 bits, port 'x' has i32"
    ):
        planner.load_target(text)
