"""Programs on integers and with ops that ONNX lacks: run to the bit, or refused with the op and its line."""

import itertools
import re

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.ir.dtypes import NUMPY

KINDS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32")
RAW = re.compile(r"NOT_IMPLEMENTED|INVALID_GRAPH|ONNXRuntimeError|FAIL|\(-1\)")


def program(kinds, body, result):
    """A function of arguments a, b, ... in generic form, whose `%r` is returned."""
    names = [f"%{letter}" for letter in "abc"[: len(kinds)]]
    args = ", ".join(f"{name}: tensor<{kind}>" for name, kind in zip(names, kinds, strict=True))
    types = ", ".join(f"tensor<{kind}>" for kind in kinds)
    return f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = ({types}) -> tensor<{result}>, sym_name = "main"}}> ({{
  ^bb0({args}):
    %r = {body} : ({types}) -> tensor<{result}>
    "func.return"(%r) : (tensor<{result}>) -> ()
  }}) : () -> ()
}}) : () -> ()
"""


def numpy_of(kind):
    return NUMPY[kind.replace("ui", "u")]


def drawn(kind, shape, rng):
    """Numbers of the whole type, its ends among them, so that sums and products wrap."""
    ends = np.iinfo(numpy_of(kind))
    array = rng.integers(ends.min, ends.max, shape, endpoint=True, dtype=numpy_of(kind))
    array.reshape(-1)[:2] = ends.min, ends.max
    return array


def evaluated(text, arrays):
    model = planner.load_model(text.encode(), format="mlir")
    sample = dict(zip(model.inputs, arrays, strict=True))
    planner.calibrate(model, [sample])
    return next(iter(planner.evaluate(model, planner.plan(model, "stablehlo"), sample).outputs.values()))


@pytest.mark.parametrize("result", KINDS)
@pytest.mark.parametrize(("a", "b"), list(itertools.combinations_with_replacement(("i8", "i16", "ui8"), 2)))
def test_a_dot_sums_in_the_type_of_its_result(a, b, result):
    rng = np.random.default_rng(0)
    x, y = drawn(a, (2, 5), rng), drawn(b, (5, 3), rng)
    dims = "<{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
    body = f'"stablehlo.dot_general"(%a, %b) {dims}rhs_contracting_dimensions = [0]>}}>'
    found = evaluated(program((f"2x5x{a}", f"5x3x{b}"), body, f"2x3x{result}"), (x, y))
    wanted = (x.astype(np.int64) @ y.astype(np.int64)).astype(numpy_of(result))
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_a_dot_of_halves_into_f32_is_exact():
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-900, 900, (4, 4)).astype(np.float16) for _ in range(2))
    dims = "<{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
    body = f'"stablehlo.dot_general"(%a, %b) {dims}rhs_contracting_dimensions = [0]>}}>'
    found = evaluated(program(("4x4xf16", "4x4xf16"), body, "4x4xf32"), (x, y))
    np.testing.assert_array_equal(found, x.astype(np.float32) @ y.astype(np.float32))


CONVOLUTION = (
    '"stablehlo.convolution"(%a, %b) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, '
    "padding = dense<[[1, 0], [1, 1]]> : tensor<2x2xi64>, window_strides = array<i64: 1, 1>, "
    "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>}>"
)


UNARY = {"abs": np.abs, "negate": np.negative, "sign": np.sign}
BINARY = {
    "add": np.add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_elementwise_ops_on_every_integer_wrap_or_are_refused(name, kind):
    rng = np.random.default_rng(0)
    count = 1 if name in UNARY else 2
    arrays = [drawn(kind, (3, 4), rng) for _ in range(count)]
    shape, operands = f"3x4x{kind}", ", ".join(("%a", "%b")[:count])
    text = program((shape,) * count, f'"stablehlo.{name}"({operands})', shape)
    try:
        found = evaluated(text, arrays)
    except ModelError as error:
        assert kind in ("i64", "ui32")  # nothing wider to fall back to, or an op that wide integers lack
        assert not RAW.search(str(error))  # noqa: PT017
        return
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, (UNARY | BINARY)[name](*arrays))


@pytest.mark.parametrize(
    ("body", "kinds", "message"),
    [
        (
            '"stablehlo.custom_call"(%a) <{call_target_name = "foo"}>',
            ("2x4xf32",),
            "5:5: stablehlo.custom_call 'r' stays opaque and float: no ONNX op means the same",
        ),
        (
            CONVOLUTION,
            ("1x5x5x2xi8", "2x2x2x3xi8"),
            "5:5: stablehlo.convolution 'r' stays opaque and float: ONNX convolves no i8 and i8 into i32",
        ),
    ],
)
def test_what_nothing_can_run_is_refused_by_name_and_line(body, kinds, message):
    text = program(kinds, body, "1x5x6x3xi32" if len(kinds) == 2 else kinds[0])
    model = planner.load_model(text.encode(), format="mlir")
    values = [model.values[name] for name in model.inputs]
    sample = {value.name: np.zeros(value.shape, NUMPY[value.dtype]) for value in values}
    plan = planner.plan(model, "stablehlo")
    calls = [lambda: planner.evaluate(model, plan, sample)]
    if values[0].is_float:
        calls.append(lambda: planner.calibrate(model, [sample]))
    for call in calls:
        with pytest.raises(ModelError) as caught:
            call()
        assert str(caught.value).startswith(f"{message}, so nothing here can run it")
        assert not RAW.search(str(caught.value))
