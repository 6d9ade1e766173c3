"""Pictures as files hold them: bytes, and channels last."""

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from planner.calibration.odd_samples import odd_samples
from planner.calibration.sources.channels import moved_hint
from planner.errors import SampleError

FLOAT = onnx.TensorProto.FLOAT
RNG = np.random.default_rng(5)
RAW = (
    "input 'x' is f32, and the samples are uint8, 0 to 255: scale them as in training (x / 255, or less a "
    "mean and by a deviation), and give float32"
)


def convolved(shape, *before):
    """A convolution of three channels, behind other ops or not."""
    weight = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    scale = onnx.numpy_helper.from_array(np.asarray(1 / 255, np.float32), "s")
    names = ["x", *(f"b{k}" for k in range(len(before)))]
    nodes = [helper.make_node(op, [names[k], "s"], [names[k + 1]]) for k, op in enumerate(before)]
    nodes.append(helper.make_node("Conv", [names[-1], "w"], ["y"]))
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return planner.load_model(model.SerializeToString())


def raw(*shape):
    array = RNG.integers(0, 256, shape).astype(np.uint8)
    array.reshape(-1)[:2] = 0, 255
    return array


def test_bytes_at_an_input_of_reals_are_told():
    model, data = convolved([1, 3, 8, 8]), [{"x": raw(1, 3, 8, 8)} for _ in range(3)]
    assert odd_samples(model, data) == (RAW,)
    assert odd_samples(model, {"x": raw(5, 3, 8, 8)}) == (RAW,)
    assert RAW in planner.quantize(model, data, target="onnxruntime-cpu").warnings


@pytest.mark.parametrize(
    ("before", "array"),
    [
        ((), lambda: raw(1, 3, 8, 8).astype(np.float32)),
        ((), lambda: raw(1, 3, 8, 8).astype(np.float32) / 255),
        ((), lambda: (raw(1, 3, 8, 8) > 9).astype(np.uint8)),
        (("Mul",), lambda: raw(1, 3, 8, 8)),
        (("Sub", "Mul"), lambda: raw(1, 3, 8, 8)),
    ],
)
def test_other_numbers_are_not(before, array):
    assert odd_samples(convolved([1, 3, 8, 8], *before), [{"x": array()} for _ in range(3)]) == ()


def test_bytes_are_right_where_somebody_wrote_their_range():
    model = planner.annotate(
        convolved([1, 3, 8, 8]),
        annotations={"format": "qplan.annotations/1", "values": {"x": "!quant.calibrated<f32<0.0:255.0>>"}},
    )
    assert odd_samples(model, [{"x": raw(1, 3, 8, 8)} for _ in range(3)]) == ()


@pytest.mark.parametrize(
    ("wanted", "shape", "moved"),
    [
        ([1, 3, 8, 8], (1, 8, 8, 3), "[1, 3, 8, 8]"),
        ([1, 3, 8, 8], (8, 8, 3), "[3, 8, 8]"),
        ([1, 3, 8, 8], (5, 1, 8, 8, 3), "[5, 1, 3, 8, 8]"),
        (["N", 3, "H", "W"], (4, 8, 9, 3), "[4, 3, 8, 9]"),
    ],
)
def test_channels_last_samples_get_a_hint(wanted, shape, moved):
    model, samples = convolved(wanted), {"x": np.zeros(shape, np.float32)}
    for source in (samples, [samples]):
        with pytest.raises(SampleError) as caught:
            planner.calibrate(model, source)
        assert caught.value.hint == f"transpose to NCHW: np.moveaxis(x, -1, -3) has shape {moved}, which fits"
        assert np.moveaxis(samples["x"], -1, -3).shape == tuple(eval(moved))  # noqa: S307 - of this table


@pytest.mark.parametrize(
    ("shape", "wanted", "hint"),
    [
        (
            (1, 3, 8, 9),
            (1, 8, 9, 3),
            "transpose to NHWC: np.moveaxis(x, -3, -1) has shape [1, 8, 9, 3], which fits",
        ),
        (
            (1, 9, 3),
            ("N", 3, None),
            "transpose to NCW: np.moveaxis(x, -1, -2) has shape [1, 3, 9], which fits",
        ),
        ((1, 4, 8, 9), (1, 3, 8, 9), ""),
        ((1, 8), (1, 9), ""),
        ((7,), (1, 3, 8, 8), ""),
    ],
)
def test_a_hint_is_given_where_moving_the_channels_helps(shape, wanted, hint):
    assert moved_hint(shape, wanted) == hint


def test_what_fits_only_since_sizes_are_open_is_told():
    """The engine's own words speak of a kernel; the hint, of the sample."""
    with pytest.raises(SampleError) as caught:
        planner.calibrate(convolved(["N", "C", "H", "W"]), [{"x": np.ones((1, 8, 9, 3), np.float32)}])
    assert caught.value.hint == (
        "the model reads 3 channels, and axis 1 of shape [1, 8, 9, 3] has 8: transpose to NCHW: "
        "np.moveaxis(x, -1, -3) has shape [1, 3, 8, 9], which fits"
    )


def test_pictures_that_nothing_refuses_are_told():
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", "C", "H", "W"])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, ["N", "C", "H", "W"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = planner.load_model(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    (told,) = odd_samples(model, [{"x": RNG.random((1, 8, 9, 3), np.float32)} for _ in range(2)])
    assert told.startswith("input 'x' seems to have its channels last: few models read so many channels")
    assert odd_samples(model, [{"x": RNG.random((1, 3, 8, 9), np.float32)} for _ in range(2)]) == ()
