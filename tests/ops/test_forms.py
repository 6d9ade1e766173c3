"""Forms of operators: what a form says of one is what onnx's reference computes."""

from typing import Final

import numpy as np
import pytest
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from planner.ir.graph import Op
from planner.ops import OPERATORS, of_form
from planner.ops.forms import Form

PAIRS: Final = (Form.BINARY, Form.COMPARISON, Form.LOGICAL, Form.PRODUCT, Form.SUM, Form.VARIADIC)
KINDS: Final = {"tensor(bool)": bool, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8}
OTHERS: Final = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": TensorProto.FLOAT}}


def computed(kind: str, *arrays: np.ndarray) -> np.ndarray:
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(kind, names, ["y"], **OTHERS.get(kind, {}))
    ins = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    outs = [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)]
    model = helper.make_model(
        helper.make_graph([node], "g", ins, outs), opset_imports=[helper.make_opsetid("", 22)]
    )
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0])


def operand(kind: str, seed: int) -> np.ndarray:
    """Numbers of a type that the operator takes, each another one."""
    schema = defs.get_schema(kind)
    allowed = {text for one in schema.type_constraints for text in one.allowed_type_strs}
    numbers = np.random.default_rng(seed).permutation(np.arange(1, 7))
    if "tensor(float)" in allowed:
        return (numbers / 8).astype(np.float32)
    found = next(KINDS[text] for text in KINDS if text in allowed)
    return (numbers > 3) if found is bool else numbers.astype(found)


@pytest.mark.parametrize("kind", sorted(of_form(*PAIRS)))
def test_operands_change_places_where_it_commutes(kind):
    a, b = operand(kind, 0), operand(kind, 1)
    assert np.array_equal(computed(kind, a, b), computed(kind, b, a)) == OPERATORS[kind].commutes


@pytest.mark.parametrize("kind", sorted(of_form(Form.UNARY) - {"Swish"}))
def test_a_function_of_one_element_computes_each_for_itself(kind):
    x = operand(kind, 0)
    assert np.array_equal(computed(kind, x[::-1].copy()), computed(kind, x)[::-1], equal_nan=True)


@pytest.mark.parametrize("kind", sorted(of_form(Form.ALONG)))
def test_one_along_an_axis_does_not(kind):
    x = np.array([[1.0, 2.0, 5.0], [3.0, 3.5, 2.0]], np.float32)
    assert not np.array_equal(computed(kind, x)[:, :1], computed(kind, x[:, :1]))
    assert np.array_equal(computed(kind, x[::-1].copy()), computed(kind, x)[::-1])


@pytest.mark.parametrize(
    "kind", sorted(name for name in of_form(Form.UNARY, *PAIRS) - {"Clip"} if OPERATORS[name].monotone)
)
def test_results_rise_and_fall_with_operands_as_it_says(kind):
    operands = [operand(kind, seed) for seed in range(1 if OPERATORS[kind].form is Form.UNARY else 2)]
    before, signs = computed(kind, *operands), OPERATORS[kind].monotone(Op("op", kind, (), ("y",)))
    for i in range(len(operands)):
        more = [x + np.float32(1.5) if at == i else x for at, x in enumerate(operands)]
        change = computed(kind, *more) - before
        assert np.all(change >= 0 if signs[min(i, len(signs) - 1)] == "+" else change <= 0)
        assert np.any(change) or kind in ("Sign", "Min")


@pytest.mark.parametrize("kind", ["HardSigmoid", "LeakyRelu"])
def test_results_do_not_rise_along_a_slope_that_falls(kind):
    asked = OPERATORS[kind].monotone
    assert (asked(Op("op", kind, (), ("y",), {"alpha": -0.2})), asked(Op("op", kind, (), ("y",)))) == (
        "",
        "+",
    )


@pytest.mark.parametrize("kind", sorted(name for name, one in OPERATORS.items() if one.bounds))
def test_results_lie_within_bounds_and_reach_them(kind):
    low, high = OPERATORS[kind].bounds
    y = computed(kind, np.array([*np.linspace(-60, 60, 2401), 90], np.float32))
    assert low <= y.min() <= low + 0.02
    assert high - 0.02 <= y.max() <= high
