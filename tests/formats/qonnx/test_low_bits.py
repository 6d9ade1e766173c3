"""Storages under 8 bits, narrow ranges, signs, zero points and scales per axis, by format."""

import numpy as np
import onnx
import pytest

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_onnx, read_written
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.types.qtypes import Bipolar, Uniform, storage, uniform
from tests.formats.plans import bias, loaded, model, op, plan_of, run, weight

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32)
W = RNG.normal(size=(3, 4, 3, 3)).astype(np.float32) * 0.2
B = RNG.normal(size=3).astype(np.float32)
STORAGES = [
    (name, narrow, where)
    for name in ("i2", "i3", "i4", "i7", "i8", "u1", "u2", "u4", "u6", "u8")
    for narrow in (False, True)
    for where in (0.0, 0.3, -0.3)
    if not (name == "u1" and narrow)
]
ARITHMETICS = {"onnx-qcdq": "float32_qdq", "onnx-qoperator-clip": "float32_even", "qonnx": "float32_quant"}
FORMS = tuple(ARITHMETICS)


def grid(name: str, *, narrow: bool, where: float, reach: float = 2.0) -> Uniform:
    """A type with its zero point at a share of its range from the middle (signed) or the bottom."""
    full = storage(name)
    low, high = full.qmin + (narrow and full.signed), full.qmax - (narrow and not full.signed)
    zero = 0 if full.signed and not where else round((low + high) / 2 + where * (high - low))
    return uniform(storage(name, low, high), reach / (high - low), min(max(zero, low), high))


def conv_of(x: Uniform, y: Uniform, w: Uniform, activation: str = "Relu"):
    ops = [op("Conv", "x w b", "c", pads=[1] * 4), op(activation, "c", "y")]
    graph = model(ops, inputs={"x": X.shape}, outputs={"y": (2, 3, 6, 6)}, constants={"w": W, "b": B},
                  shapes={"c": (2, 3, 6, 6)})  # fmt: skip
    types = {"x": x, "w": w, "b": bias(x, w), "y": y}
    return graph, plan_of(graph, [(["c", "y"], "x w b", "y")], types)


def computed(form: str, data: bytes, sample: dict) -> np.ndarray:
    return ModelRunner(read_written(data)).run(sample)["y"] if form == "qonnx" else run(data, sample)[0]


@pytest.mark.parametrize(("name", "narrow", "where"), STORAGES)
@pytest.mark.parametrize("form", FORMS)
def test_a_conv_in_any_storage_equals_the_interpreter(form, name, narrow, where):
    x, y = grid(name, narrow=narrow, where=where), grid(name, narrow=narrow, where=where, reach=4.0)
    graph, plan = conv_of(x, y, weight(W, store=storage("i4", -7, 7)))
    data = EXPORTERS[form](graph, plan)
    wanted = Interpreter(graph, plan, arithmetic=ARITHMETICS[form]).run({"x": X}).outputs["y"]
    got = computed(form, data, {"x": X})
    np.testing.assert_array_equal(got, wanted)
    on_grid = dequantize_array(quantize_array(got, y), y)
    np.testing.assert_array_equal(got, on_grid)


@pytest.mark.parametrize(
    ("store", "bits", "signed", "narrow"),
    [
        ("u8", 8, 0, 0),
        ("u4", 4, 0, 0),
        ("i8", 8, 1, 0),
        ("i3", 3, 1, 0),
        ("i4<-7:7>", 4, 1, 1),
        ("u4<0:14>", 4, 0, 1),
    ],
)
def test_a_quant_says_width_sign_and_narrowness(store, bits, signed, narrow):
    head, _, ends = store.partition("<")
    low, high = (int(end) for end in ends.rstrip(">").split(":")) if ends else (None, None)
    kind = uniform(storage(head, low, high), 0.1)
    graph = model([op("Neg", "x", "y")], inputs={"x": (4,)}, outputs={"y": (4,)}, constants={})
    proto = loaded(EXPORTERS["qonnx"](graph, plan_of(graph, [(["y"], "x", "y")], dict.fromkeys("xy", kind))))
    node = next(node for node in proto.graph.node if node.op_type == "Quant")
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    width = np.frombuffer(arrays[node.input[3]].raw_data, np.float32)
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    assert (node.domain, width.tolist()) == ("qonnx.custom_op.general", [bits])
    assert attributes == {"signed": signed, "narrow": narrow, "rounding_mode": b"ROUND"}


def test_qonnx_reads_back_as_the_types_it_was_written_from():
    x, y, w = grid("u4", narrow=False, where=0.0), grid("i5", narrow=True, where=0.0), weight(W)
    data = EXPORTERS["qonnx"](*conv_of(x, y, w, activation="Identity"))
    read = read_onnx(data)
    facts = [fact for value in read.values.values() for fact in value.facts]
    assert {str(kind) for kind in (x, y, w)} <= {str(fact) for fact in facts}


def test_qcdq_reads_back_as_the_types_it_was_written_from():
    x, y = grid("u4", narrow=False, where=0.0), grid("i5", narrow=True, where=0.0)
    data = EXPORTERS["onnx-qcdq"](*conv_of(x, y, weight(W, store=storage("i4", -7, 7))))
    facts = [fact for value in read_onnx(data).values.values() for fact in value.facts]
    ranges = {(fact.storage.qmin, fact.storage.qmax) for fact in facts if isinstance(fact, Uniform)}
    assert {(0, 15), (-15, 15)} <= ranges


def test_signs_are_bipolar_quants():
    signs = np.where(RNG.normal(size=(6, 5)) >= 0, 0.5, -0.5).astype(np.float32)
    facts = {"w": (Bipolar("f32", 0.5),)}
    ops = [op("MatMul", "x w", "y")]
    graph = model(ops, inputs={"x": (3, 6)}, outputs={"y": (3, 5)}, constants={"w": signs}, facts=facts)
    u4 = uniform(storage("u4"), 0.2)
    types = {"x": u4, "w": uniform(storage("i2", -1, 1), 0.5), "y": uniform(storage("i8"), 0.1)}
    plan = plan_of(graph, [(["y"], "x w", "y")], types)
    data = EXPORTERS["qonnx"](graph, plan)
    assert [n.op_type for n in loaded(data).graph.node].count("BipolarQuant") == 1
    x = RNG.uniform(0, 3, (3, 6)).astype(np.float32)
    wanted = Interpreter(graph, plan, arithmetic="float32_quant").run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(computed("qonnx", data, {"x": x}), wanted)


def test_scales_and_widths_per_channel_are_broadcast():
    store = storage("i6", -32, 31)
    kind = Uniform(store, (0.125, 0.25, 0.0625), (0, 0, 0), axis=1, ranges=((-4, 3), (-32, 31), (-8, 7)))
    graph = model([op("Neg", "x", "y")], inputs={"x": (2, 3, 4)}, outputs={"y": (2, 3, 4)}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"y": kind})
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32) * 2
    got = computed("qonnx", EXPORTERS["qonnx"](graph, plan), {"x": x})
    wanted = Interpreter(graph, plan, arithmetic="float32_quant").run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(got, wanted)
    assert np.abs(got[:, 0]).max() == 0.5
    with pytest.raises(UnsupportedExport, match="a storage range per slice; onnx-qcdq accepts"):
        EXPORTERS["onnx-qcdq"](graph, plan)


def test_a_range_that_no_width_has_is_refused():
    kind = uniform(storage("i8", -100, 90), 0.1)
    graph = model([op("Neg", "x", "y")], inputs={"x": (4,)}, outputs={"y": (4,)}, constants={})
    plan = plan_of(graph, [(["y"], "x", "y")], {"y": kind})
    with pytest.raises(
        UnsupportedExport, match=r"y.out\[0\] .*row@1.* no width has the storage range -100:90; qonnx"
    ):
        EXPORTERS["qonnx"](graph, plan)
    assert (
        np.abs(run(EXPORTERS["onnx-qcdq"](graph, plan), {"x": np.float32([99, -99, 0, 1])})[0]).max() == 10.0
    )
