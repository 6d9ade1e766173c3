"""The numbers of kernels for formats of one's own; `examples/own_format.py` writes such a format."""

import ctypes
import os
import re
import runpy
import shutil
import subprocess

import numpy as np
import onnx
import pytest

import planner
from planner.errors import InputError, RuleError
from planner.interpreter.fixed_point import ratios, scaled_sum
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"
OWN = runpy.run_path(str(ROOT / "examples" / "own_format.py"))

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None and os.environ.get("CI") != "true", reason="no gcc, which CI requires"
)


def digits(outputs=None):
    model = planner.load_model(DIGITS / "digits.onnx", dims={"N": 1}, outputs=outputs)
    return planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))


@pytest.fixture(scope="module")
def kernels():
    model = digits()
    plan = planner.plan(model, "litert-int8")
    return plan, {kernel.plan.name: kernel for kernel in planner.integer_kernels(model, plan)}


def test_kernels_come_in_the_order_of_the_plan(kernels):
    plan, found = kernels
    assert list(found) == [kernel.name for kernel in plan.kernels_in_order]
    assert found["separable/depthwise"].arithmetic == plan.row_of("separable/depthwise").requantize


def test_activations_are_bounds(kernels):
    _, found = kernels
    # Relu6 in steps of 0.0191 ends at 255 steps, that is beyond 6 / 0.0191 = 313: the type cuts first.
    assert [op.type for op in found["separable/depthwise"].ops] == ["Conv"]
    zero = found["plain/conv"].plan.outputs[0].type.zero_point
    assert (found["plain/conv"].low, found["plain/conv"].high) == (zero, 127)
    assert (found["separable/pointwise"].low, found["separable/pointwise"].high) == (-128, 127)


def test_constants_are_as_a_file_stores_them(kernels):
    _, found = kernels
    weight, bias = (found["stem/conv"].constants[f"stem/conv.in[{i}]"] for i in (1, 2))
    kinds = [port.type for port in found["stem/conv"].plan.inputs]
    assert (weight.dtype, bias.dtype) == (np.int8, np.int32)
    assert abs(weight).max() == 127
    float_weight = digits().constants["stem/conv_weight"].array
    wanted = np.rint(float_weight / np.float32(kinds[1].scales).reshape(-1, 1, 1, 1))
    np.testing.assert_array_equal(weight, wanted)


def test_multipliers_are_those_of_the_sum(kernels):
    _, found = kernels
    kernel = found["res/conv2"]
    x, w, _ = (port.type for port in kernel.plan.inputs)
    y = kernel.plan.outputs[0].type
    wanted = [float(ratio) for ratio in ratios(w.scales, x.scale, y.scale)]
    reals = [m / 2**s for m, s in zip(kernel.multipliers, kernel.shifts, strict=True)]
    np.testing.assert_allclose(reals, wanted, rtol=2**-31)
    assert all(2**30 <= m < 2**31 for m in kernel.multipliers)
    assert (found["res/add"].multipliers, found["res/add"].shifts) == ((), ())


def test_kernels_in_float_have_none():
    model = planner.annotate(digits(), kernels={"head/gemm": "float"})
    plan = planner.plan(model, "litert-int8")
    kernel = next(k for k in planner.integer_kernels(model, plan) if k.plan.name == "head/gemm")
    assert (kernel.plan.row, kernel.arithmetic, kernel.low, kernel.high) == (None, "", 0, 0)
    assert (kernel.constants, kernel.multipliers) == ({}, ())


@pytest.mark.parametrize(
    "arithmetic",
    [
        "gemmlowp",
        "litert",
        "litert_16",
        "tosa_double",
        "tosa_single",
        "16-bit multiplier, half_up, shift 0..30",
    ],
)
def test_a_multiplier_computes_what_the_interpreter_does(arithmetic):
    """Shifts of at most 31 are rounded once in all of them."""
    ratio = ratios([0.0371], 1.0, 0.05)
    factor, shift = planner.multiplier(float(ratio[0]), arithmetic)
    numbers = np.arange(-3000, 3000)
    once = (numbers * factor + (1 << (shift - 1))) >> shift
    np.testing.assert_array_equal(once, scaled_sum([(numbers, ratio)], arithmetic))


def test_a_shift_is_a_multiplier_of_a_power_of_two():
    factor, shift = planner.multiplier(0.125, "power_of_two")
    assert factor / 2**shift == 0.125


def test_an_arithmetic_without_multipliers_is_refused():
    said = (
        "'exact_even' scales by no multiplier and shift; accepted: gemmlowp, litert, litert_16, power_of_two"
    )
    with pytest.raises(RuleError, match=said):
        planner.multiplier(0.5, "exact_even")
    with pytest.raises(RuleError, match=r"2\^29|below 2"):
        planner.multiplier(2.0**30, "tosa_single")
    with pytest.raises(InputError, match="a plan is the result of"):
        next(planner.integer_kernels(digits(), None))


def one_op(text, shapes, **constants):
    """A calibrated model of operators in ONNX's text, from inputs of some shapes to `y`."""
    ends = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({ends}) => (float y) {{ {text} }}'
    )
    held = [onnx.numpy_helper.from_array(np.float32(array), name) for name, array in constants.items()]
    model.graph.initializer.extend(held)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    graph = planner.load_model(model.SerializeToString())
    return planner.annotate(graph, stats=planner.calibrate(graph, feeds(shapes, 4)))


def feeds(shapes, count):
    rng = np.random.default_rng(5)
    return [
        {name: np.float32(rng.uniform(-1, 1, shape)) for name, shape in shapes.items()} for _ in range(count)
    ]


def last(array):
    """Numbers with channels last."""
    return np.moveaxis(array, 1, -1).ravel()


def assert_computes_the_plans_integers(model, plan, samples, folder):
    """Compile the example's file, and compare every stored value of every kernel; their count."""
    writer = OWN["Writer"](model, plan)
    (folder / "own.c").write_text(writer.write(), encoding="utf-8")
    library = folder / "own.so"
    line = f"gcc -O1 -Wall -Wextra -Werror -Wno-unused-function -shared -fPIC -o {library} {folder / 'own.c'}"
    subprocess.run(line.split(), check=True, capture_output=True, timeout=120)
    loaded = ctypes.CDLL(str(library))

    def array(key, size):
        return np.ctypeslib.as_array((ctypes.c_int8 * size).in_dll(loaded, writer.names[key]))

    given = [(r.value, r.to_type) for r in plan.rescales if r.kind == "quantize"]
    for sample in samples:
        for name, kind in given:
            stored = np.rint(sample[name] / np.float32(kind.scale)) + kind.zero_point
            array((name, kind), stored.size)[:] = np.clip(last(stored), -128, 127)
        loaded.run()
        wanted = planner.evaluate(model, plan, sample).stored
        for value, integers in wanted.items():
            found = array((value, plan.values[value].type), integers.size)
            np.testing.assert_array_equal(found, last(integers), value)
    return len(wanted)


@needs_gcc
def test_the_format_of_the_example_computes_the_plans_integers(tmp_path):
    """Every stored value of every kernel, for 20 pictures."""
    model = digits(["head/gemm_out"])
    pictures = [{"image": image[None]} for image in np.load(DIGITS / "test.npz")["image"][:20]]
    plan = planner.plan(model, "litert-int8")
    assert assert_computes_the_plans_integers(model, plan, pictures, tmp_path) == 14


@needs_gcc
@pytest.mark.parametrize("target", ["litert-int8", "tosa-int8"])
def test_the_example_divides_a_mean_as_its_arithmetic_does_and_takes_a_conv_without_a_bias(target, tmp_path):
    """LiteRT divides the multiplier by 49, TOSA the ratio, which differs in one of 20 numbers."""
    weight = np.random.default_rng(3).uniform(-1, 1, (32, 4, 1, 1))
    model = one_op("c = Conv(a, w) y = GlobalAveragePool(c)", {"a": (1, 4, 7, 7)}, w=weight)
    plan = planner.plan(model, target)
    samples = feeds({"a": (1, 4, 7, 7)}, 10)
    assert assert_computes_the_plans_integers(model, plan, samples, tmp_path) == 2


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (one_op("y = Add(a, b)", {"a": (1, 4, 3, 3), "b": (1, 4, 1, 1)}), "'Add_0' repeats an operand"),
        (one_op("y = Add(a, c)", {"a": (1, 4)}, c=[[1, 2, 3, 4]]), "'c' is a constant or float at"),
        (one_op("y = Add(a, b)", {"a": (), "b": ()}), r"'a' is \[\]; accepted"),
    ],
    ids=["broadcast", "constant", "no axes"],
)
def test_the_format_of_the_example_refuses_operands_that_it_has_no_call_for(model, said):
    """It read beyond the end of the smaller array, or ended in a KeyError."""
    with pytest.raises(OWN["RefusedError"], match=said):
        OWN["Writer"](model, planner.plan(model, "litert-int8")).write()


@pytest.mark.parametrize(
    ("target", "kernels", "said"),
    [
        ("litert-int8", {"res/conv1": "float"}, "'res/conv1': Conv in float"),
        ("litert-int8", {"res/add": "i16"}, "'res/bn2_out' is .*i16.*; accepted: i8 with one scale"),
        ("onnxruntime-cpu", {}, "'image' is .*u8.*; accepted: i8 with one scale"),
    ],
)
def test_the_format_of_the_example_refuses_what_it_has_no_call_for(target, kernels, said):
    model = planner.annotate(digits(["head/gemm_out"]), kernels=kernels)
    with pytest.raises(OWN["RefusedError"], match=said):
        OWN["Writer"](model, planner.plan(model, target)).write()


def test_the_format_of_the_example_is_short_and_needs_public_names_alone():
    text = (ROOT / "examples" / "own_format.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    imported = re.findall(r"^(?:from|import) (planner[\w.]*)(?: import (.+))?$", text, re.MULTILINE)
    assert {module for module, _ in imported} == {"planner"}
    names = {name for _, line in imported for name in line.split(", ") if name}
    names |= set(re.findall(r"\bplanner\.(\w+)", text))
    assert names <= set(planner.__all__)
