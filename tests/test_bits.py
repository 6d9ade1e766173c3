"""`bits`: one width for all weights and one for all activations, in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import planner
from planner.bits import missed_bits, read_bits
from planner.cli.app import app
from planner.errors import InputError

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
MODEL, DATA = DIGITS / "digits.onnx", DIGITS / "calibration.npz"


def planned(target, bits):
    model = planner.with_bits(planner.load_model(MODEL), target, bits)
    stats = planner.calibrate(model, DATA)
    return planner.plan(planner.annotate(model, stats=stats, target=target), target)


def widths(plan, side):
    """Of what kernels read from one another, or of constants."""
    ends = {*plan.graph.inputs, *plan.graph.outputs}
    ports = [port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    known = [port for port in ports if port.value not in ends and hasattr(port.type, "storage")]
    constants = plan.graph.constants
    return {port.type.storage.bits for port in known if (port.value in constants) == (side == "w")}


@pytest.mark.parametrize(
    ("target", "bits", "weights", "activations"),
    [
        ("finn-fpga", {"w": 4, "a": 4}, {4}, {4}),
        ("finn-fpga", {"w": 3}, {3}, {8}),
        ("finn-fpga", {}, {8}, {8}),
        ("hls4ml-fpga", {"a": 8}, {16, 24}, {8}),
        ("litert-int8", {"w": 8, "a": 16}, {8, 64}, {16}),
    ],
)
def test_widths_are_those_that_were_asked(target, bits, weights, activations):
    """Biases have widths of their own."""
    plan = planned(target, bits)
    assert (widths(plan, "w"), widths(plan, "a")) == (weights, activations)
    assert missed_bits(plan, bits) == ()


def test_inputs_keep_the_type_of_the_target():
    plan = planned("finn-fpga", {"w": 4, "a": 4})
    (first,) = (k.inputs[0] for k in plan.kernels_in_order if k.name == "stem/conv")
    assert str(first.type.storage) == "u8"


def test_what_the_model_says_stands():
    model = planner.annotate(
        planner.load_model(MODEL),
        annotations={"format": "qplan.annotations/1", "values": {"stem/relu_out": "!quant.any<i6>"}},
    )
    asked = planner.with_bits(model, "finn-fpga", {"a": 4})
    assert [str(fact) for fact in asked.values["stem/relu_out"].facts] == ["!quant.any<i6>"]


def test_another_width_that_was_asked_is_not_told_as_missed():
    """The target serves 4 bits there; the annotation has it otherwise."""
    model = planner.annotate(
        planner.load_model(MODEL),
        stats=planner.calibrate(planner.load_model(MODEL), DATA),
        annotations={"format": "qplan.annotations/1", "values": {"separable/relu6_out": "!quant.any<i6>"}},
    )
    bits = {"w": 4, "a": 4}
    plan = planner.plan(planner.with_bits(model, "finn-fpga", bits), "finn-fpga")
    assert widths(plan, "a") == {4, 6}
    assert missed_bits(plan, bits) == ()


def test_bits_as_text_are_refused():
    with pytest.raises(InputError, match=r"bits are a mapping such as .* not a str"):
        planner.with_bits(planner.load_model(MODEL), "finn-fpga", "w=4,a=4")


def test_a_device_without_such_a_width_is_named():
    plan = planned("litert-int8", {"w": 4, "a": 8})
    (text,) = missed_bits(plan, {"w": 4, "a": 8})
    assert text == (
        "litert-int8 holds the weights of 8 of 8 kernels in 8 bits: none of its kernel variants serves 4-bit "
        "weights there"
    )


@pytest.mark.parametrize("text", ["4", "w=4,w=3", "w=1", "a=17", "w=4;a=4", "b=8"])
def test_other_texts_are_refused(text):
    with pytest.raises(InputError):
        read_bits(text)


@pytest.mark.parametrize("verb", ["plan", "quantize"])
def test_the_option_of_both_verbs(verb, tmp_path):
    command = [verb, str(MODEL), "--target", "finn-fpga", "--data", str(DATA), "--bits", "w=4,a=4"]
    command += ["--out", str(tmp_path), *(["--effort", "quick"] if verb == "quantize" else [])]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    plan = planner.plan_from_json((tmp_path / "plan.json").read_text())
    assert (widths(plan, "w"), widths(plan, "a")) == ({4}, {4})
