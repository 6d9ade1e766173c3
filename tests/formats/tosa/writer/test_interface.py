"""What a TOSA program is given and gives, and what is refused, in words."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.table import EXPORTERS, file_name
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import NoneType, storage, uniform
from tests.formats.plans import i8, model, op, plan_of, u8
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import tosa


def chain(x, h, y, *, arithmetic="tosa_double", facts=None, shape=(2, 3)):
    """X -> Tanh -> h -> Sigmoid -> y with types for each value, None for float."""
    graph = model(
        [op("Tanh", "x", "h"), op("Sigmoid", "h", "y")],
        inputs={"x": shape},
        outputs={"y": shape},
        constants={},
        shapes={"h": shape},
        facts=facts or {},
    )
    kernels = [(("h",), "x", "h"), (("y",), "h", "y")]
    return graph, plan_of(graph, kernels, {"x": x, "h": h, "y": y}, arithmetic)


def heads(data: bytes) -> tuple[str, list[str]]:
    """The function's type and its comment."""
    lines = data.decode().splitlines()
    kind = next(line for line in lines if "function_type" in line)
    return kind.split("function_type = ")[1].split(", sym_name")[0], [
        line.strip()[3:] for line in lines if line.startswith("  // ")
    ]


def test_the_format_has_its_suffix():
    assert EXPORTERS["tosa"] is write_tosa
    assert file_name("tosa") == "tosa.mlir"


def test_arguments_and_results_are_stored_integers():
    kind, comment = heads(write_tosa(*chain(i8(0.1, 3), i8(0.01), i8(1 / 256, -128))))
    assert kind == "(tensor<2x3xi8>) -> (tensor<2x3xi8>)"
    assert comment == [
        "tosa of 'test' for test",
        "argument 'x': !quant.uniform<i8:f32, 0.10000000149011612:3>",
        "result 'y': !quant.uniform<i8:f32, 0.00390625:-128>",
    ]


def test_none_keeps_the_interface_float(tmp_path):
    facts = {"x": (NoneType(),), "y": (NoneType(),)}
    graph, plan = chain(i8(0.1, 3), i8(0.01), i8(1 / 256, -128), facts=facts)
    data = write_tosa(graph, plan)
    kind, comment = heads(data)
    assert kind == "(tensor<2x3xf32>) -> (tensor<2x3xf32>)"
    assert comment[1:] == ["argument 'x': f32", "result 'y': f32"]
    sample = {"x": np.linspace(-3, 2, 6, dtype=np.float32).reshape(2, 3)}
    found = tosa.run(tmp_path, [(data, [fed(graph, plan, sample)])])[0]
    assert not isinstance(found, str), found
    for _, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
        np.testing.assert_array_equal(got, wanted)


def test_unsigned_arguments_are_the_same_bits(tmp_path):
    graph, plan = chain(
        u8(0.02, 128), u8(0.01, 100), u8(1 / 256), facts={"y": (u8(1 / 256),)}, shape=(5, 100)
    )
    sample = {"x": np.random.default_rng(0).normal(size=(5, 100)).astype(np.float32)}
    found = tosa.run(tmp_path, [(write_tosa(graph, plan), [fed(graph, plan, sample)])])[0]
    assert not isinstance(found, str), found
    for _, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
        assert wanted.max() > 127
        np.testing.assert_array_equal(got, wanted)


def test_open_dimensions_are_one():
    kind, comment = heads(write_tosa(*chain(i8(0.5), i8(0.01), i8(0.1), shape=("N", 3))))
    assert kind == "(tensor<1x3xi8>) -> (tensor<1x3xi8>)"
    assert comment[1] == "argument 'x': !quant.uniform<i8:f32, 0.5> (open dimensions are 1)"


ACTIVATIONS = (
    "tosa accepts i8 and u8 (or less) with any zero point, i16 with 0, u16 with 32768, one scale each "
    "(annotate the value with one of these, or use a target whose rows do)"
)
ARITHMETIC = (
    "h.out[0] (row row@1): its row computes in float32_even; tosa accepts rows of gemmlowp, litert, "
    "power_of_two, tosa_double, tosa_single (use a target whose rows requantize so, such as tosa-int8 or "
    "litert-int8)"
)
ZERO_POINT = (
    "h.in[0] ('x', row row@1) is !quant.uniform<i16:f32, 0.5:3>: a zero point on more than 8 bits; "
    f"{ACTIVATIONS}"
)
WIDTH = f"h.in[0] ('x', row row@1) is !quant.uniform<i32:f32, 0.5>: 32 bits; {ACTIVATIONS}"
SHAPE = (
    "@model.out[0]: value 'x' has no known shape; tosa accepts static ones (give the model's inputs fixed "
    "sizes)"
)
REFUSALS = [
    (chain(i8(0.1), i8(0.01), i8(0.1), arithmetic="float32_even"), ARITHMETIC),
    (chain(uniform(storage("i16"), 0.5, 3), i8(0.01), i8(0.1)), ZERO_POINT),
    (chain(uniform(storage("i32"), 0.5), i8(0.01), i8(0.1)), WIDTH),
    (chain(None, None, None, shape=None), SHAPE),
]


@pytest.mark.parametrize(("plans", "message"), REFUSALS)
def test_refusals(plans, message):
    with pytest.raises(UnsupportedExport) as error:
        write_tosa(*plans)
    assert str(error.value) == message


def test_a_factor_that_no_shift_says_is_refused():
    graph = model(
        [op("Add", "a b", "y")], inputs=dict.fromkeys("ab", (2,)), outputs={"y": (2,)}, constants={}
    )
    kinds = {"a": i8(1e6), "b": i8(1e-6), "y": i8(1e-12)}
    plan = plan_of(graph, [(("y",), "a b", "y")], kinds, "tosa_single")
    with pytest.raises(
        UnsupportedExport, match=r"y\.out\[0\] \(row row@1\): a requantize by .* needs a shift"
    ):
        write_tosa(graph, plan)


def test_a_pin_that_no_shift_gets_to_is_refused():
    graph = model(
        [op("Add", "a b", "y")], inputs=dict.fromkeys("ab", (2,)), outputs={"y": (2,)}, constants={}
    )
    plan = plan_of(graph, [(("y",), "a b", "y")], {"a": i8(0.3), "b": i8(0.5), "y": i8(1)}, "power_of_two")
    with pytest.raises(UnsupportedExport) as error:
        write_tosa(graph, plan)
    assert str(error.value) == (
        "y.out[0] (row row@1): a requantize by 0.30000001192092896 is no shift, RESCALE has 31 bits of "
        "other factors (use scales that are powers of two)"
    )


def test_a_tensor_of_more_axes_than_tosa_has_is_refused_while_planned():
    """A Gather by indices of three axes along one of five: tosa-opt refuses seven."""
    indices = np.zeros((2, 1, 2), np.int64)
    graph = model(
        [op("Gather", "x i", "y", axis=-2)],
        inputs={"x": (1, 2, 4, 4, 4)},
        outputs={"y": (1, 2, 4, 2, 1, 2, 4)},
        constants={"i": indices},
    )
    with pytest.raises(UnsupportedExport, match=r"7 axes, and TOSA has 6 at most"):
        planner.plan(graph, "tosa-int8", formats=("tosa",))
