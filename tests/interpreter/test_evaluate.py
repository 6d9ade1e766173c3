"""Small plans by hand: the interpreter and the exported file agree on every stored integer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.errors import ModelError, SampleError, UnknownName
from planner.interpreter.evaluate import Interpreter, evaluate
from planner.ir.graph import Constant, Graph
from planner.ir.types.qtypes import NoneType, storage, uniform
from planner.target.records import Row
from tests.formats.plans import i8, model, op, plan_of, u8, weight
from tests.interpreter.exported import assert_file_agrees, unshaped
from tests.interpreter.one_op import seeded

X = (1, 4, 6, 6)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def branches(**facts: Any) -> tuple[Graph, Any, dict[str, np.ndarray]]:
    """Two convs, their sum and their concat, with rescales on some edges and a float island."""
    rng = seeded("branches")
    w, v = floats(rng, 4, 4, 1, 1), floats(rng, 4, 4, 3, 3)
    ops = [
        op("Conv", "x w", "a"),
        op("Conv", "x v", "b", pads=(1, 1, 1, 1)),
        op("Add", "a b", "s"),
        op("Concat", "a b s", "c", axis=1),
        op("Erf", "c", "f"),
        op("Sigmoid", "f", "g"),
        op("Mul", "g c", "y"),
    ]
    graph = unshaped(
        model(ops, inputs={"x": X}, outputs={"y": (), "s": ()}, constants={"w": w, "v": v}, facts=facts)
    )
    types = {
        "x": u8(0.03, 128),
        "b.in[0]": u8(0.02, 100),
        "w": weight(w),
        "v": weight(v),
        "a": u8(0.04, 120),
        "b": u8(0.11, 130),
        "s": u8(0.12, 126),
        "s.in[0]": u8(0.05, 121),
        "c": u8(0.1, 128),
        "c.in[0]": u8(0.1, 128),
        "c.in[1]": u8(0.1, 128),
        "c.in[2]": u8(0.1, 128),
        "g": None,
        "y": u8(0.1, 128),
        "y.in[0]": u8(1 / 255, 0),
    }
    kernels = [
        (("a",), "x w", "a"),
        (("b",), "x v", "b"),
        (("s",), "a b", "s"),
        (("c",), "a b s", "c"),
        (("f",), "c", "f"),
        (("g",), "f", "g"),
        (("y",), "g c", "y"),
    ]
    return graph, plan_of(graph, kernels, types), {"x": 2 * floats(rng, *X)}


def test_rescales_on_use_edges():
    graph, plan, sample = branches()
    assert len(plan.rescales) > 5
    assert assert_file_agrees(graph, plan, [sample, {"x": -sample["x"]}]) == 5
    evaluation = evaluate(graph, plan, sample, arithmetic="float32_even")
    assert set(evaluation.reals) == {"x", "a", "b", "s", "c", "f", "g", "y"}
    real = (evaluation.stored["s"].astype(np.float32) - 126) * np.float32(0.12)
    np.testing.assert_array_equal(evaluation.reals["s"], real)


@pytest.mark.parametrize(
    "facts",
    [{"a": (u8(0.06, 110),)}, {"a": (NoneType(),)}, {"s": (i8(0.1, 3),)}, {"f": (u8(0.008, 128),)}],
    ids=["rescaled behind its kernel", "kept in float", "pinned output", "float result pinned"],
)
def test_pins(facts):
    graph, plan, sample = branches(**facts)
    assert_file_agrees(graph, plan, [sample])


def test_pinned_inputs_are_given_stored_or_real():
    pin = u8(0.025, 128)
    graph, plan, sample = branches(x=(pin,))
    stored = {"x": np.clip(np.rint(sample["x"] / np.float32(0.025)) + 128, 0, 255).astype(np.uint8)}
    assert_file_agrees(graph, plan, [stored])
    from_reals, from_stored = (evaluate(graph, plan, s, arithmetic="float32_even") for s in (sample, stored))
    np.testing.assert_array_equal(from_reals.stored["x"], stored["x"])
    np.testing.assert_array_equal(from_reals.stored["y"], from_stored.stored["y"])


@pytest.mark.parametrize(
    "kind", [uniform(storage("i8", -8, 7), 0.2), uniform(storage("u16", 9, 800), 3e-3, 400)]
)
def test_a_value_quantized_at_its_use_keeps_to_a_narrow_range(kind):
    graph = unshaped(model([op("Tanh", "x", "y")], inputs={"x": X}, outputs={"y": ()}, constants={}))
    plan = plan_of(graph, [(("y",), "x", "y")], {"x": kind, "y": u8(0.01, 128)})
    sample = {"x": 5 * floats(seeded("narrow"), *X)}
    assert_file_agrees(graph, plan, [sample])
    outputs = evaluate(graph, plan, sample, arithmetic="float32_even").reals["y"]
    assert np.abs(outputs).max() <= np.tanh(max(-kind.lo, kind.hi)) + 0.01


def test_shape_arithmetic_beside_integers():
    """Shape, Gather and Concat of indices have no types; the Reshape they steer moves stored integers."""
    ops = [
        op("Relu", "x", "r"),
        op("Shape", "r", "s"),
        op("Gather", "s zero", "n", axis=0),
        op("Concat", "n rest", "t", axis=0),
        op("Reshape", "r t", "y"),
    ]
    dtypes = dict.fromkeys(("s", "n", "t"), "i64")
    constants = {"zero": ints(0), "rest": ints(-1)}
    graph = unshaped(
        model(ops, inputs={"x": (2, 3, 4)}, outputs={"y": ()}, constants=constants, dtypes=dtypes)
    )
    kind = u8(0.02, 100)
    kernels = [(("r",), "x", "r"), (("s",), "", ""), (("n",), "", ""), (("t",), "", ""), (("y",), "r", "y")]
    plan = plan_of(graph, kernels, {"x": kind, "r": kind, "y": kind})
    assert assert_file_agrees(graph, plan, [{"x": floats(seeded("shape"), 2, 3, 4)}]) == 2


def test_halves_are_quantized_through_float32():
    graph, plan, sample = branches()
    values = {name: type(v)(name, v.shape, "f16", v.facts) for name, v in graph.values.items()}
    halves = {name: Constant(c.array.astype(np.float16)) for name, c in graph.constants.items()}
    graph = Graph("half", values, graph.ops, graph.inputs, graph.outputs, halves, opsets=graph.opsets)
    evaluation = evaluate(graph, plan, sample, arithmetic="float32_even")
    assert evaluation.outputs["y"].dtype == np.float16
    assert_file_agrees(graph, plan, [{"x": sample["x"].astype(np.float16)}])


def test_one_interpreter_for_many_samples():
    graph, plan, sample = branches()
    other = {"x": np.flip(sample["x"], 2).copy()}
    interpreter = Interpreter(graph, plan, arithmetic="float32_even")
    first, _, again = (interpreter.run(s).stored for s in (sample, other, sample))
    for name, stored in first.items():
        np.testing.assert_array_equal(again[name], stored)


def test_integer_arithmetic_by_hand():
    """One weight of 3 steps at 0.5, x at 0.25, y at 1: acc * 0.125, half up, where half to even differs."""
    graph = unshaped(
        model(
            [op("Conv", "x w", "y")],
            inputs={"x": (1, 1, 1, 4)},
            outputs={"y": ()},
            constants={"w": np.full((1, 1, 1, 1), 1.5, np.float32)},
        )
    )
    types = {"x": i8(0.25), "w": uniform(storage("i8", -127, 127), 0.5), "y": i8(1.0, 10)}
    plan = plan_of(graph, [(("y",), "x w", "y")], types)
    sample = {"x": np.array([[[[1.0, 3.0, -1.0, -3.0]]]], np.float32)}
    got = {
        name: evaluate(graph, plan, sample, arithmetic=name).stored["y"].reshape(-1).tolist()
        for name in (
            "float32_even",
            "float32_spec",
            "exact_even",
            "power_of_two",
            "tosa_single",
            "tosa_double",
            "gemmlowp",
        )
    }
    # reals 1.5, 4.5, -1.5, -4.5
    even, half_up, away = [12, 14, 8, 6], [12, 15, 9, 6], [12, 15, 8, 5]
    assert got == {
        "exact_even": even,
        "float32_even": even,
        "float32_spec": even,
        "gemmlowp": away,
        "power_of_two": half_up,
        "tosa_double": away,
        "tosa_single": half_up,
    }


def test_a_constant_without_axes_moves_like_any_other():
    """Of numpy's arrays without axes arithmetic makes plain numbers, which onnxruntime refuses."""
    graph = unshaped(
        model(
            [op("Where", "m c x", "y")],
            inputs={"m": (4,), "x": (4,)},
            outputs={"y": ()},
            constants={"c": np.array(0.5, np.float32)},
            dtypes={"m": "bool"},
        )
    )
    plan = plan_of(graph, [(("y",), "- c x", "y")], {name: i8(0.25, 3) for name in "cxy"})
    sample = {"m": np.array([True, False, True, False]), "x": floats(seeded("where"), 4)}
    got = evaluate(graph, plan, sample).stored["y"]
    steps = np.clip(np.rint(sample["x"] / np.float32(0.25)) + 3, -128, 127)
    np.testing.assert_array_equal(got, np.where(sample["m"], 5, steps))


def test_row_arithmetic_is_the_default():
    graph, plan, sample = branches()
    row = Row("conv", (), (), requantize="tosa_single")
    plan = replace(plan, target=replace(plan.target, rows={"row@1": row}))
    wanted = evaluate(graph, plan, sample, arithmetic="tosa_single").stored
    other = evaluate(graph, plan, sample, arithmetic="float32_even").stored
    got = evaluate(graph, plan, sample).stored
    for name, stored in wanted.items():
        np.testing.assert_array_equal(got[name], stored)
    assert any(not np.array_equal(other[name], stored) for name, stored in wanted.items())


def test_unknown_arithmetic():
    graph, plan, sample = branches()
    with pytest.raises(UnknownName) as error:
        evaluate(graph, plan, sample, arithmetic="tosa")
    assert str(error.value).startswith("unknown arithmetic 'tosa' (did you mean ")


def test_a_sample_that_does_not_fit():
    graph, plan, _ = branches()
    with pytest.raises(SampleError) as error:
        evaluate(graph, plan, {"x": np.zeros((1, 4, 6), np.float32)}, arithmetic="float32_even")
    assert str(error.value).startswith("sample: input 'x' has shape")


def test_weights_must_be_known():
    graph, plan, sample = branches()
    hollow = {name: Constant(lo=(-1.0,), hi=(1.0,)) for name in graph.constants}
    graph = Graph("hollow", graph.values, graph.ops, graph.inputs, graph.outputs, hollow, opsets=graph.opsets)
    with pytest.raises(ModelError, match=r"value 'w' is read, but neither computed nor known in numbers"):
        evaluate(graph, plan, sample, arithmetic="float32_even")
