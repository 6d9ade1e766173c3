"""Grids of weights: pinned where devices have such, kept where a BatchNormalization scales channels."""

import numpy as np
import pytest

import planner
from planner.formats.onnx.grids import is_common, scaled
from planner.formats.onnx.read import read_onnx
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.typetext import parse_type

S = "!quant.uniform"


@pytest.mark.parametrize(
    ("bits", "low", "high", "common"),
    [
        (3, -4, 3, True),
        (8, -127, 127, True),
        (8, -128, 127, False),  # many devices have no -128: its weights get a scale of their own
        (8, 0, 127, True),
        (8, 0, 255, False),
        (12, -2048, 2047, True),
        (16, -32768, 32767, False),
        (24, -(1 << 20), 1 << 20, False),
    ],
)
def test_grids_that_symmetric_storage_holds_are_pinned(bits, low, high, common):
    assert is_common(Storage(bits, low < 0, low, high)) == common


def columns(*factors):
    return np.array(factors, np.float64).reshape(-1, 1)


STEPS = np.array([[1, -2], [3, 0]], np.float32)


@pytest.mark.parametrize(
    ("fact", "factors", "biases", "wanted"),
    [
        (f"{S}<i3:f32, 0.5>", (2.0, 0.25), (0.0, 1.0), f"{S}<i3:f32:0, {{1.0,0.125}}>"),
        (f"{S}<i3:f32, 0.5>", (2.0, -0.25), (0.0, 1.0), f"{S}<i4<-4:4>:f32:0, {{1.0,0.125}}>"),
        (f"{S}<i4<-7:7>:f32:0, {{0.5,0.5}}>", (0.1, -1.0), (0, 0), f"{S}<i4<-7:7>:f32:0, {{0.05,0.5}}>"),
        (
            f"{S}<i3:f32, 0.5>",
            (1.0, 1e-30),
            (0.0, 1.0),
            f"{S}<i3:f32:0, {{0.5,0.5}}>",
        ),  # all but its bias is gone
        (
            f"{S}<i3:f32, 0.5>",
            (1.0, 1e-7),
            (0.0, 1.0),
            "!quant.any<i3>",
        ),  # too fine for its bias: it may grow
        (f"{S}<i3:f32, 0.5:1>", (2.0, 0.25), (0.0, 0.0), f"{S}<i4<-5:2>:f32:0, {{1.0,0.125}}>"),
        (f"{S}<i3:f32:1, {{0.5,0.5}}>", (2.0, 0.25), (0.0, 0.0), "!quant.any<i3>"),  # along the other axis
    ],
)
def test_scaled_channels_keep_their_integers(fact, factors, biases, wanted):
    facts, array = scaled(
        (parse_type(fact),), STEPS * 0.5, columns(*factors), biases=np.array(biases, float), per_axis=True
    )
    assert facts == (parse_type(wanted),)
    if isinstance(facts[0], Uniform):
        stored = array / np.asarray(facts[0].scales, np.float32)[:, None]
        assert np.array_equal(stored, np.rint(stored))
        assert np.array_equal(np.abs(stored[0]), np.abs(STEPS[0]))
    else:
        assert np.array_equal(array, (STEPS * 0.5 * columns(*factors)).astype(np.float32))


def test_of_other_kernels_the_bits_are_asked_for():
    """Most devices have one scale for the weights of a matrix product."""
    facts, _ = scaled(
        (parse_type("!quant.bipolar<f32, 0.5>"),),
        np.array([[0.5, -0.5]], np.float32),
        np.array([[2.0, 3.0]]),
        biases=np.zeros(2),
        per_axis=False,
    )
    assert list(map(str, facts)) == ["!quant.any<i2<-1:1>>"]


@pytest.mark.parametrize(
    ("name", "pinned"),
    [("qkeras_jettagging", 4), ("separable_conv_model_ch_last", 4), ("branched_model_ch_last", 14)],
)
def test_trained_weights_are_the_same_numbers_on_a_device_of_bytes(models, name, pinned):
    """Read, planned for int8 weights alone, exported, read back: every weight as it was."""
    graph = read_onnx(models / "qonnx" / f"{name}.onnx")
    weights = {
        constant
        for constant in graph.constants
        if any(isinstance(fact, Uniform) for fact in graph.values[constant].facts)
    }
    assert len(weights) == pinned
    rng = np.random.default_rng(7)
    shapes = {n: [d if isinstance(d, int) else 1 for d in graph.values[n].shape] for n in graph.inputs}
    sample = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    plan = planner.plan(graph, "litert-int8")
    ports = [port for kernel in plan.kernels_in_order for port in kernel.inputs if port.value in weights]
    assert {str(port.type.storage) for port in ports} == {"i8<-127:127>"}
    again = read_onnx(planner.export(graph, plan, "onnx-qcdq"))
    found = [constant.array for constant in again.constants.values() if constant.array is not None]
    for weight in weights:
        wanted = graph.constants[weight].array
        assert any(array.shape == wanted.shape and np.array_equal(array, wanted) for array in found), weight
