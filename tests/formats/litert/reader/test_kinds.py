"""Files with 4-bit weights, dynamic-range files, custom operators: read, beside what the runtime computes."""

import numpy as np
import pytest
from flatbuffers import flexbuffers

import planner
from planner.cli.job.summaries import summary_text
from planner.errors import UnsupportedExport
from planner.interpreter.models import run_model
from planner.ir.graph import LEFT_BEHIND
from planner.ir.types.qtypes import Uniform
from tests.formats.litert.reader.by_hand import Hand, halves
from tests.oracles import litert

RNG = np.random.default_rng(11)


def steps(array, scale, zero=0):
    return np.clip(np.rint(array / np.float32(scale)) + zero, -128, 127).astype(np.int8)


def ran(tmp_path, data, samples, kernels="reference"):
    found = litert.run(tmp_path, [(data, samples)], kernels=kernels)[0]
    assert not isinstance(found, str), found
    return found


def test_a_matrix_of_four_bits(tmp_path):
    """FULLY_CONNECTED of version 10: bytes times halves of bytes, 7 in a row, so that one is half empty."""
    hand, scales = Hand(), RNG.uniform(0.01, 0.05, 1).astype(np.float32)
    weights = RNG.integers(-8, 8, (5, 7))
    bias = RNG.integers(-200, 200, 5).astype(np.int32)
    hand.tensor((4, 7), "INT8", scales=[0.02], zeros=[3])
    hand.tensor((5, 7), "INT4", halves(weights), scales=scales)
    hand.tensor((5,), "INT32", bias.tobytes(), scales=[0.02 * float(scales[0])])
    hand.tensor((4, 5), "INT8", scales=[0.03], zeros=[-4])
    hand.operator("FULLY_CONNECTED", 10, (0, 1, 2), (3,), "FullyConnectedOptions", {"KeepNumDims": False})
    data = hand.file([0], [3])
    graph = planner.load_model(data)
    (name,) = [key for key in graph.constants if graph.values[key].shape == (7, 5)]
    assert [str(fact.storage) for fact in graph.values[name].facts if isinstance(fact, Uniform)] == ["i4"]
    np.testing.assert_allclose(graph.constants[name].array, weights.T * scales[0], rtol=1e-6)
    x = RNG.integers(-128, 128, (4, 7)).astype(np.int8)
    (got,) = ran(tmp_path, data, [{"t0": x}])
    reals = {"t0": (x.astype(np.float32) - 3) * np.float32(0.02)}
    off = steps(run_model(data, reals)["t3"], 0.03, -4).astype(int) - got["t3"]
    assert np.abs(off).max() <= 1
    assert np.unique(got["t3"]).size > 10
    plan = planner.plan(graph, "litert-int8")
    # No row of litert-int8 has 4 bits: the plan widens the weights or stays float, and says so.
    planner.check(plan, graph)


def test_a_filter_of_four_bits(tmp_path):
    """CONV_2D of version 7, with a scale per output channel."""
    hand, scales = Hand(), RNG.uniform(0.01, 0.05, 6).astype(np.float32)
    weights = RNG.integers(-7, 8, (6, 3, 3, 4))
    hand.tensor((1, 8, 8, 4), "INT8", scales=[0.02], zeros=[-1])
    hand.tensor((6, 3, 3, 4), "INT4", halves(weights), scales=scales)
    hand.tensor((6,), "INT32", np.zeros(6, np.int32).tobytes(), scales=scales * np.float32(0.02))
    hand.tensor((1, 8, 8, 6), "INT8", scales=[0.05], zeros=[0])
    hand.operator("CONV_2D", 7, (0, 1, 2), (3,), "Conv2DOptions", {"Padding": 0, "StrideW": 1, "StrideH": 1})
    data = hand.file([0], [3])
    graph = planner.load_model(data)
    kinds = [fact for value in graph.values.values() for fact in value.facts if isinstance(fact, Uniform)]
    assert {4} == {kind.storage.bits for kind in kinds if kind.axis == 0 and len(kind.scales) == 6}
    x = RNG.integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    (got,) = ran(tmp_path, data, [{"t0": x}])
    reals = {"t0": (x.astype(np.float32) + 1) * np.float32(0.02)}
    off = steps(run_model(data, reals)["t3"], 0.05).astype(int) - got["t3"]
    assert np.abs(off).max() <= 1
    assert np.unique(got["t3"]).size > 10


def in_both(tmp_path, data, samples):
    """The runtime's answers, the interpreter's under a plan of the file, and the runtime's of our file."""
    graph = planner.load_model(data)
    plan = planner.plan(graph, "litert-int8")
    planner.check(plan, graph, "litert-int8")
    assert not any("has no effect" in warning for warning in plan.warnings)
    mine = [planner.evaluate(graph, plan, sample).outputs for sample in samples]
    again = ran(tmp_path, planner.export(graph, plan, "litert"), samples)
    return ran(tmp_path, data, samples), mine, again, plan


def compared(found, *others):
    """Assert that outputs are those of others within the rounding of float32 sums."""
    for other in others:
        for one, two in zip(found, other, strict=True):
            for name in one:
                np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("scales", [1, 6])
@pytest.mark.parametrize("shape", [(5, 32), (2, 3, 32)])
def test_a_hybrid_matrix_quantizes_row_by_row(scales, shape, tmp_path):
    hand, own = Hand(), RNG.uniform(0.01, 0.05, scales).astype(np.float32)
    weights, bias = RNG.integers(-127, 128, (6, 32)).astype(np.int8), RNG.normal(size=6).astype(np.float32)
    hand.tensor(shape, "FLOAT32")
    hand.tensor((6, 32), "INT8", weights.tobytes(), scales=own)
    hand.tensor((6,), "FLOAT32", bias.tobytes())
    hand.tensor((*shape[:-1], 6), "FLOAT32")
    options = {"KeepNumDims": len(shape) > 2, "FusedActivationFunction": 1}
    hand.operator("FULLY_CONNECTED", 12, (0, 1, 2), (3,), "FullyConnectedOptions", options)
    data = hand.file([0], [3])
    x = RNG.normal(size=shape).astype(np.float32) * (10.0 ** np.arange(shape[-2]))[:, None]
    samples = [{"t0": x.astype(np.float32)}, {"t0": np.zeros(shape, np.float32)}]
    wanted, mine, again, plan = in_both(tmp_path, data, samples)
    assert next(iter(plan.kernels_in_order)).row.startswith("fully_connected@")
    compared(wanted, mine, again)


@pytest.mark.parametrize(
    ("operator", "channels", "scales"), [("CONV_2D", 4, 1), ("CONV_2D", 4, 4), ("DEPTHWISE_CONV_2D", 3, 3)]
)
def test_a_hybrid_convolution_quantizes_image_by_image(operator, channels, scales, tmp_path):
    """Around zero where weights have one scale, else with a zero point; padding is real zero."""
    hand, own = Hand(), RNG.uniform(0.01, 0.05, scales).astype(np.float32)
    is_deep = operator.startswith("DEPTHWISE")
    shape = (1, 3, 3, channels) if is_deep else (channels, 3, 3, 3)
    weights = RNG.integers(-127, 128, shape).astype(np.int8)
    bias = RNG.normal(size=channels).astype(np.float32)
    hand.tensor((2, 6, 5, 3), "FLOAT32")
    hand.tensor(shape, "INT8", weights.tobytes(), scales=own, axis=3 if is_deep else 0)
    hand.tensor((channels,), "FLOAT32", bias.tobytes())
    hand.tensor((2, 6, 5, channels), "FLOAT32")
    options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    table = "DepthwiseConv2DOptions" if is_deep else "Conv2DOptions"
    options |= {"DepthMultiplier": 1} if is_deep else {}
    hand.operator(operator, 6 if is_deep else 5, (0, 1, 2), (3,), table, options)
    data = hand.file([0], [3])
    x = RNG.uniform(-0.5, 2, (2, 6, 5, 3)) * np.array([1, 30]).reshape(2, 1, 1, 1)
    samples = [{"t0": x.astype(np.float32)}, {"t0": np.zeros((2, 6, 5, 3), np.float32)}]
    wanted, mine, again, plan = in_both(tmp_path, data, samples)
    assert sum(kernel.row is not None for kernel in plan.kernels_in_order) == 1
    compared(wanted, mine, again)


def test_zero_points_row_by_row_stay_float():
    hand = Hand()
    weights = RNG.integers(-127, 128, (6, 32)).astype(np.int8)
    hand.tensor((5, 32), "FLOAT32")
    hand.tensor((6, 32), "INT8", weights.tobytes(), scales=[0.013])
    hand.tensor((5, 6), "FLOAT32")
    options = {"KeepNumDims": False, "AsymmetricQuantizeInputs": True}
    hand.operator("FULLY_CONNECTED", 9, (0, 1, -1), (2,), "FullyConnectedOptions", options)
    graph = planner.load_model(hand.file([0], [2]))
    assert not graph.values["t0"].facts
    assert planner.plan(graph, "litert-int8").kernels_in_order[0].reason == "no range"


def test_codes_in_the_later_field_alone(tmp_path):
    """Some files have no older field: its default would be ADD."""
    hand = Hand(later=True)
    hand.tensor((2, 3), "FLOAT32")
    hand.tensor((2, 3), "FLOAT32")
    hand.tensor((2, 3), "FLOAT32")
    hand.operator("MUL", 1, (0, 1), (2,), "MulOptions", {})
    data, (a, b) = hand.file([0, 1], [2]), RNG.normal(size=(2, 2, 3)).astype(np.float32)
    assert [op.type for op in planner.load_model(data).ops] == ["Mul"]
    np.testing.assert_array_equal(ran(tmp_path, data, [{"t0": a, "t1": b}])[0]["t2"], a * b)


@pytest.mark.parametrize(("bound", "steps"), [(0.4, 5), (7.0, 5)])
def test_an_lstm_with_a_bound_of_its_cell(bound, steps, tmp_path):
    """Read as its steps where the state may reach the bound, else as an LSTM."""
    hand, size, width = Hand(), 3, 4
    hand.tensor((2, steps, width), "FLOAT32")
    for count in (width,) * 4 + (size,) * 4:
        hand.tensor((size, count), "FLOAT32", RNG.normal(size=(size, count)).astype(np.float32).tobytes())
    for _ in range(4):
        hand.tensor((size,), "FLOAT32", RNG.normal(size=size).astype(np.float32).tobytes())
    states = [hand.tensor((2, size), "FLOAT32") for _ in range(2)]
    hand.variables.update(states)
    out = hand.tensor((2, steps, size), "FLOAT32")
    inputs = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, *states, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": bound, "TimeMajor": False}
    table = "UnidirectionalSequenceLSTMOptions"
    hand.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", 1, inputs, (out,), table, options)
    data = hand.file([0], [out])
    graph = planner.load_model(data)
    assert ("LSTM" in {op.type for op in graph.ops}) == (bound > steps)
    assert not graph.notes
    samples = [{"t0": 2 * RNG.normal(size=(2, steps, width)).astype(np.float32)}]
    wanted, mine, again, _ = in_both(tmp_path, data, samples)
    compared(wanted, mine, again)


@pytest.mark.parametrize("bound", [0.0, 0.75, 10.0])
def test_gates_with_scales_of_their_own(bound, tmp_path):
    """An LSTM of bytes as converters write it; a bound that acts is an end of the cell state's type."""
    hand, size, width, steps, cell_scale = Hand(), 6, 5, 7, 2.0**-11
    hand.tensor((2, steps, width), "INT8", scales=[0.03], zeros=[-7])
    scales = RNG.uniform(0.01, 0.03, 8)
    for i, scale in enumerate(scales):
        weights = RNG.integers(-127, 128, (size, width if i < 4 else size)).astype(np.int8)
        hand.tensor(weights.shape, "INT8", weights.tobytes(), scales=[scale])
    for scale in scales[:4]:
        bias = RNG.integers(-900, 900, size).astype(np.int32)
        hand.tensor((size,), "INT32", bias.tobytes(), scales=[np.float32(0.03) * np.float32(scale)])
    states = [
        hand.tensor((2, size), "INT8", scales=[1 / 128], zeros=[-3]),
        hand.tensor((2, size), "INT16", scales=[cell_scale]),
    ]
    hand.variables.update(states)
    gates = [hand.tensor((1,), "INT16", scales=[2.0**-12]) for _ in range(4)]
    hand.inner = (*gates, hand.tensor((1,), "INT8", scales=[1 / 128], zeros=[-3]))
    out = hand.tensor((2, steps, size), "INT8", scales=[1 / 128], zeros=[-3])
    inputs = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, *states, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": bound, "TimeMajor": False}
    table = "UnidirectionalSequenceLSTMOptions"
    hand.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", 1, inputs, (out,), table, options)
    data = hand.file([0], [out])
    samples = [{"t0": RNG.integers(-128, 128, (2, steps, width)).astype(np.int8)}]
    wanted, mine, again, plan = in_both(tmp_path, data, samples)
    (row,) = {kernel.row for kernel in plan.kernels_in_order if kernel.kernel == "LSTM"}
    assert row.startswith("LSTM@")
    for (name, numbers), one, other in zip(wanted[0].items(), mine, again, strict=True):
        np.testing.assert_array_equal(one[name], numbers)
        np.testing.assert_array_equal(other[name], numbers)


@pytest.mark.parametrize("kernels", ["reference", "optimized"])
def test_a_dynamic_range_file(kernels, tmp_path):
    """Float in and out, weights in bytes: the runtime quantizes each row of activations while it runs."""
    hand, scale = Hand(), np.float32(0.013)
    weights, bias = RNG.integers(-127, 128, (6, 32)).astype(np.int8), RNG.normal(size=6).astype(np.float32)
    hand.tensor((5, 32), "FLOAT32")
    hand.tensor((6, 32), "INT8", weights.tobytes(), scales=[scale])
    hand.tensor((6,), "FLOAT32", bias.tobytes())
    hand.tensor((5, 6), "FLOAT32")
    hand.operator("FULLY_CONNECTED", 3, (0, 1, 2), (3,), "FullyConnectedOptions", {"KeepNumDims": False})
    data = hand.file([0], [3])
    graph = planner.load_model(data)
    pins = [fact for value in graph.values.values() for fact in value.facts if isinstance(fact, Uniform)]
    assert {str(pin.storage) for pin in pins} == {"i8<-127:127>"}
    assert [str(fact) for fact in graph.values["t0"].facts] == ["!quant.any<i8>"]
    x = RNG.normal(size=(5, 32)).astype(np.float32)
    (got,) = ran(tmp_path, data, [{"t0": x}], kernels)
    mine = run_model(data, {"t0": x})["t3"]
    np.testing.assert_allclose(mine, x @ (weights * scale).T + bias, rtol=1e-5, atol=1e-5)
    # Half a step of a row's own scale, times what it is multiplied by.
    bound = np.abs(x).max(1)[:, None] / 127 / 2 * np.abs(weights * scale).sum(1)[None]
    assert (np.abs(got["t3"] - mine) <= bound * 1.01).all()
    assert np.abs(got["t3"] - mine).max() > 0
    stats = planner.calibrate(graph, [{"t0": x}])
    plan = planner.plan(planner.annotate(graph, stats=stats), "litert-int8")
    assert [kernel.row is None for kernel in plan.kernels_in_order] == [False]


def test_a_custom_operator(tmp_path):
    """AudioSpectrogram comes with the runtime, as a custom operator: it stays opaque and float."""
    options = flexbuffers.Builder()
    with options.Map():
        options.Int("window_size", 16)
        options.Int("stride", 8)
        options.Bool("magnitude_squared", value=True)
    hand = Hand()
    hand.tensor((64, 1), "FLOAT32")
    hand.tensor((64, 1), "FLOAT32")
    hand.tensor((1, 7, 9), "FLOAT32")
    hand.tensor((1, 7, 9), "FLOAT32")
    hand.operator("TANH", 1, (0,), (1,))
    hand.operator("AudioSpectrogram", 1, (1,), (2,), custom=bytes(options.Finish()))
    hand.operator("LOGISTIC", 1, (2,), (3,))
    data = hand.file([0], [1, 3])
    x = RNG.normal(size=(64, 1)).astype(np.float32)
    (got,) = ran(tmp_path, data, [{"t0": x}])
    assert got["t3"].shape == (1, 7, 9)
    graph = planner.load_model(data)
    assert [op.type for op in graph.ops] == ["Tanh", "tflite.custom::AudioSpectrogram", "Sigmoid"]
    assert any("AudioSpectrogram" in note and "stays opaque and float" in note for note in graph.notes)
    plan = planner.plan(graph, "litert-int8")
    kernel = next(kernel for kernel in plan.kernels_in_order if "AudioSpectrogram" in kernel.kernel)
    assert kernel.row is None
    with pytest.raises(UnsupportedExport, match=r"tflite\.custom::AudioSpectrogram"):
        planner.export(graph, plan, "litert")


@pytest.mark.parametrize("names", [("min_runtime_version",), ("TFLITE_METADATA", "min_runtime_version")])
def test_metadata_that_are_not_written_again_are_told(names):
    """Labels and normalisation for MediaPipe, say; what converters note for themselves is of no use."""
    hand = Hand(metadata=names)
    hand.tensor((1, 4), "FLOAT32")
    hand.tensor((1, 4), "FLOAT32")
    hand.operator("LOGISTIC", 1, (0,), (1,))
    data = hand.file([0], [1])
    told = [f"{LEFT_BEHIND}: 'TFLITE_METADATA'"] if len(names) > 1 else []
    graph = planner.load_model(data)
    assert list(graph.notes) == told
    samples = [{"t0": RNG.normal(size=(1, 4)).astype(np.float32)} for _ in range(4)]
    done = planner.quantize(data, samples, target="litert-int8", format="litert", effort="quick")
    assert [text for text in done.warnings if LEFT_BEHIND in text] == told
    assert (f"\n  {LEFT_BEHIND}" in summary_text(done.plan)) == bool(told)
