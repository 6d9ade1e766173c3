"""QONNX's ops that are several standard ops: run as the qonnx executor does, read, converted and planned."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.calibration.run import calibrate
from planner.conversion.convert import convert
from planner.errors import ModelError
from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.compare import compare
from planner.interpreter.models import run_model
from planner.pipeline import annotate, check, evaluate, plan
from tests.conversion.files import GENERAL, op_types, run_onnxruntime
from tests.oracles.executor import ask

RNG = np.random.default_rng(4)
CHANNELS_LAST = "qonnx.custom_op.channels_last"


def im2col(shape, kernel, *, stride=(1, 1), pads=(0, 0, 0, 0), value=0, dilations=(1, 1)):
    said = f"({','.join(map(str, shape))})"
    given = {"kernel_size": kernel, "stride": stride, "pad_amount": pads, "dilations": dilations}
    return "Im2Col", shape, {**given, "pad_value": value, "input_shape": said}, "INT8"


def max_pool(shape, kernel, strides, pads, ceil_mode=0):
    given = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
    return "MaxPoolNHWC", shape, given, "INT8"


def average_pool(shape, kernel, stride, bits, *, signed=0, layout="NCHW"):
    ibits, obits = bits
    given = {"kernel": kernel, "stride": stride, "ibits": ibits, "obits": obits, "signed": signed}
    return "QuantAvgPool2d", shape, {**given, "data_layout": layout}, f"{'INT' if signed else 'UINT'}{ibits}"


CASES = (
    im2col((1, 5, 5, 2), (2, 2)),
    im2col((1, 5, 6, 2), (2, 3), stride=(2, 1), pads=(1, 0, 2, 1), value=-3),
    im2col((1, 7, 5, 3), (3, 2), pads=(1, 1, 1, 1), dilations=(2, 3)),
    im2col((1, 8, 1, 2), (3, 1), stride=(2, 1), pads=(1, 0, 1, 0)),
    im2col((1, 6, 6, 1), (6, 6)),
    max_pool((2, 6, 7, 3), (2, 2), (2, 2), (0, 0, 0, 0)),
    max_pool((1, 7, 7, 2), (3, 2), (2, 1), (1, 1, 1, 1)),
    max_pool((1, 7, 8, 2), (3, 3), (2, 2), (0, 0, 0, 0), ceil_mode=1),
    average_pool((2, 3, 6, 6), 2, 2, (4, 4)),
    average_pool((1, 2, 7, 7), 3, 2, (8, 3)),
    average_pool((1, 7, 7, 2), 7, 1, (4, 8), layout="NHWC"),
    average_pool((1, 3, 5, 5), 3, 1, (4, 4), signed=1),
    average_pool((1, 3, 4, 4), 2, 2, (2, 16)),
)


def file_of(case, *, wide=0, shaped=True):
    """The file of one op, with FINN's annotation of its input, and an input of such numbers."""
    kind, shape, attributes, datatype = case
    node = helper.make_node(kind, ["x"], ["y"], "op", domain=GENERAL, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    annotated(graph, "x", datatype)
    bits = int(datatype.removeprefix("U")[3:])
    low, high = (0, 2**bits) if datatype[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    x = RNG.integers(low - wide, high + wide, shape).astype(np.float32)
    return finished(graph, shaped=shaped), x


def annotated(graph, name, datatype):
    entry = graph.quantization_annotation.add()
    entry.tensor_name = name
    pair = entry.quant_parameter_tensor_names.add()
    pair.key, pair.value = "finn_datatype", datatype


def finished(graph, *, shaped=True):
    """The bytes; the executor wants the shapes of outputs, which the reader finds by itself."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(GENERAL, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    if shaped:
        read = read_written(model.SerializeToString(), opened=False)
        del model.graph.output[:]
        for op in read.ops:
            shape = read.values[op.outputs[0]].shape
            info = helper.make_tensor_value_info(op.outputs[0], TensorProto.FLOAT, shape)
            (model.graph.output if info.name in read.outputs else model.graph.value_info).append(info)
    return model.SerializeToString()


def xnor(shape, columns, *, computed=False):
    """A product of bits, the second operand a constant or an input's transpose."""
    weight = RNG.integers(0, 2, (shape[-1], columns)).astype(np.float32)
    node = helper.make_node("XnorPopcountMatMul", ["x", "w"], ["y"], "op", domain=GENERAL)
    nodes = [node]
    if computed:
        nodes = [helper.make_node("Transpose", ["x"], ["w"], "turn", perm=[1, 0]), node]
    graph = helper.make_graph(
        nodes,
        "bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [] if computed else [numpy_helper.from_array(weight, "w")],
    )
    annotated(graph, "x", "BINARY")
    return finished(graph), RNG.integers(0, 2, shape).astype(np.float32)


def test_they_equal_the_qonnx_executor(tmp_path):
    files = [file_of(case) for case in CASES]
    files += [xnor((3, 70), 5), xnor((2, 4, 9), 3), xnor((4, 6), 4, computed=True)]
    jobs = []
    for number, (data, x) in enumerate(files):
        path = tmp_path / f"model_{number}.onnx"
        path.write_bytes(data)
        jobs.append({"model": str(path), "treatment": "as it is", "arrays": {"x": x}})
    for (data, x), answer in zip(files, ask(tmp_path, jobs), strict=True):
        assert not isinstance(answer, str), answer
        got = run_model(data, {"x": x})["y"]
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, answer["y"])
        np.testing.assert_array_equal(run_onnxruntime(convert(data, "onnx"), {"x": x})["y"], answer["y"])


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}{i}" for i, case in enumerate(CASES)])
def test_numbers_beyond_the_width_and_shapes_that_are_not_said(case):
    data, x = file_of(case, wide=40, shaped=False)
    read = read_written(data)
    got = run_model(data, {"x": x})["y"]
    assert read.values["y"].shape == got.shape
    done = convert(data, "cleaned")
    assert op_types(done) == [case[0]]
    np.testing.assert_array_equal(run_model(done, {"x": x})["y"], got)


def test_im2col_is_the_convolution_it_came_from():
    """Of several images too, which the qonnx executor mixes."""
    case = im2col((1, 6, 5, 3), (3, 2), stride=(2, 1), pads=(1, 0, 0, 1), dilations=(1, 2))
    kind, _, attributes, _ = case
    weight = RNG.normal(size=(4, 3, 3, 2)).astype(np.float32)
    x = RNG.normal(size=(3, 6, 5, 3)).astype(np.float32)
    node = helper.make_node(kind, ["x"], ["y"], "op", domain=GENERAL, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    columns = run_model(finished(graph), {"x": x})["y"]
    product = columns @ weight.transpose(2, 3, 1, 0).reshape(-1, 4)
    plain = helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2], kernel_shape=[3, 2]
    )
    graph = helper.make_graph(
        [plain],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 3, 6, 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    wanted = run_model(finished(graph), {"x": x.transpose(0, 3, 1, 2)})["y"]
    np.testing.assert_allclose(product.transpose(0, 3, 1, 2), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        (CASES[0], {"stride": (0, 1)}, "its attribute 'stride' is [0, 1]; accepted: 2 integers of 1 or more"),
        (CASES[0], {"kernel_size": (2,)}, "'kernel_size' is [2]; accepted: 2 integers of 1 or more"),
        (CASES[0], {"pad_amount": (0, -1, 0, 0)}, "'pad_amount' is [0, -1, 0, 0]; accepted: 4 integers of 0"),
        (CASES[0], {"kernel_size": (9, 9)}, "a window of 9 places does not fit 5 with its pads"),
        (CASES[0], {"input_shape": "5x5"}, "its attribute 'input_shape' is '5x5'; accepted: (N, H, W, C)"),
        (CASES[0], {"input_shape": "(1,4,5,2)"}, "is (1,4,5,2) for a tensor of [1, 5, 5, 2]"),
        (CASES[0], {"depthwise": 3}, "its attribute 'depthwise' is 3; accepted: 0 and 1"),
        (CASES[5], {"strides": (2, 2, 2)}, "'strides' is [2, 2, 2]; accepted: 2 integers of 1 or more"),
        (CASES[5], {"ceil_mode": 2}, "'ceil_mode' is 2; accepted: 0 and 1"),
        (CASES[0], {"pad_amount": (1 << 40,) * 4}, "accepted: 4 integers of 0 or more, up to 2147483647"),
        (
            CASES[0],
            {"pad_amount": (1 << 30, 0, 0, 0), "stride": (1 << 29, 1)},
            "its padded image has 10737418290 elements for each image (accepted: up to 2147483647)",
        ),
        (
            CASES[0],
            {"kernel_size": (8000, 8000), "pad_amount": (6000,) * 4},
            "4006 windows of 8000 places along its height (accepted: up to 4194304 places in all windows)",
        ),
        (
            CASES[0],
            {"kernel_size": (1000, 1000), "pad_amount": (1000,) * 4},
            "its result has 2024072000000 elements for each image (accepted: up to 2147483647)",
        ),
        (CASES[8], {"kernel": 0}, "its attribute 'kernel' is 0; accepted: an integer of 1 or more"),
        (CASES[8], {"obits": 64}, "its attribute 'obits' is 64; accepted: 1 to 32"),
        (CASES[8], {"data_layout": "CHWN"}, "'data_layout' is 'CHWN'; accepted: NCHW, NHWC"),
    ],
)
@pytest.mark.parametrize("read", [read_onnx, read_written])
def test_parameters_that_mean_nothing_are_refused(case, change, message, read):
    kind, shape, attributes, datatype = case
    with pytest.raises(ModelError) as caught:
        read(file_of((kind, shape, {**attributes, **change}, datatype), shaped=False)[0])
    assert message in str(caught.value)


W = np.ones((3, 2, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("kind", "shape", "operands", "attributes", "message"),
    [
        ("MaxPool", (1, 4), {}, {"kernel_shape": (2, 2)}, "port op.in[0] has 2 dimensions; accepted: 4"),
        ("MaxPool", (1, 4), {}, {}, "port op.in[0] has 2 dimensions; accepted: 3 or more"),
        ("MaxPool", (1, 4, 4, 2), {"w": W}, {}, "port op.in[1] is one too many; accepted: 1 operands"),
        ("Conv", (1, 4, 4, 2), {}, {}, "port op.in[1] is missing; accepted: 2 to 3 operands"),
        ("Conv", (1, 4, 4, 2), {"w": W}, {"kernel_shape": 3}, "'kernel_shape' is 3; accepted: a list of"),
        ("Conv", (1, 4, 4, 2), {"w": W[0]}, {}, "port op.in[1] has 3 dimensions; accepted: 4"),
        ("BatchNormalization", (1, 4), {"w": W}, {}, "port op.in[2] is missing; accepted: 5 operands"),
    ],
)
def test_channels_last_ops_that_cannot_be_turned_are_refused(kind, shape, operands, attributes, message):
    node = helper.make_node(kind, ["x", *operands], ["y"], "op", domain=CHANNELS_LAST, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in operands.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CHANNELS_LAST, 1)]
    data = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    for read in (read_onnx, read_written):
        with pytest.raises(ModelError) as caught:
            read(data)
        assert f"{kind} at 'op': " in str(caught.value)
        assert message in str(caught.value)


@pytest.mark.parametrize("missing", ["kernel_size", "stride"])
def test_what_im2col_cannot_do_without_is_asked_for(missing):
    kind, shape, attributes, datatype = CASES[0]
    given = {key: item for key, item in attributes.items() if key != missing}
    with pytest.raises(ModelError, match=f"its attribute '{missing}' is missing"):
        read_written(file_of((kind, shape, given, datatype), shaped=False)[0])


def test_a_weight_of_other_numbers_than_bits_is_refused():
    model = onnx.load_from_string(xnor((3, 7), 5)[0])
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[0, 0] = 3
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    with pytest.raises(ModelError, match="operand 1 holds other numbers than bits; accepted: 0 and 1"):
        read_written(model.SerializeToString())


def test_bits_and_sums_bear_their_types():
    graph = read_onnx(xnor((3, 70), 5)[0])
    product = next(op for op in graph.ops if op.type == "Gemm")
    bits, weight, _ = ([str(fact) for fact in graph.values[name].facts] for name in product.inputs)
    # The half of the count is in the weight.
    assert (bits, weight) == (["!quant.bipolar<f32, 1.0>"], ["!quant.any<i2<-1:1>>"])
    pooled = read_onnx(file_of(average_pool((1, 2, 8, 8), 8, 1, (4, 6)))[0])
    assert [str(fact) for fact in pooled.values["y"].facts] == ["!quant.uniform<u6:f32, 1.0>"]


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "finn-fpga"])
@pytest.mark.parametrize(
    "case", [CASES[1], CASES[6], CASES[8]], ids=["Im2Col", "MaxPoolNHWC", "QuantAvgPool2d"]
)
def test_they_are_planned(case, target):
    data, _ = file_of(case)
    model = read_onnx(data)
    samples = [{"x": file_of(case)[1]} for _ in range(4)]
    facts = annotate(model, stats=calibrate(model, samples))
    done = plan(facts, target)
    check(done, facts, target)
    got = evaluate(facts, done, samples[0]).reals["y"]
    np.testing.assert_allclose(got, run_model(data, samples[0])["y"], atol=1e-4)
    assert compare(facts, data, samples).worst_sqnr > 60
