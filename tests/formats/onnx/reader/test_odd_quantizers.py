"""Quantizers whose operands or attributes mean nothing are refused by name; a fuzzer finds no other end."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from planner.calibration.annotate import annotate
from planner.errors import ModelError, PlannerError
from planner.formats.onnx.quantized.formulas import float_quant
from planner.formats.onnx.read import read_onnx, read_written
from planner.interpreter.models import ModelRunner
from planner.ir.types.qtypes import Calibrated
from planner.plan_model import plan
from tests.formats.onnx.reader.odd_quantizers import BASES, MS, f, feeds, file_of, odd, u8

BY_KIND = {base.kind: base for base in reversed(BASES)}
SCALE = "; accepted: finite numbers above 0"
THREES = np.ones((2, 3, 3, 3), np.float32)
WIDTH = "; accepted: 1 to 64, fractions too"


def changed(kind, *operands, **attributes):
    """A base with some operands and attributes in place of its own; None keeps one."""
    base = BY_KIND[kind]
    rest = (None,) * (len(base.operands) - len(operands))
    both = zip(operands + rest, base.operands, strict=True)
    kept = tuple(old if new is None else new for new, old in both)
    found = dict(base.attributes) | attributes
    return replace(base, operands=kept, attributes=tuple(found.items()))


REFUSED = {
    "bits below none": (changed("Quant", None, None, f(-4.0)), "its bit width is -4" + WIDTH),
    "too many bits": (changed("Quant", None, None, f(2000.0)), "its bit width is 2000" + WIDTH),
    "bits that are none": (changed("Quant", None, None, f(np.nan)), "its bit width is nan" + WIDTH),
    "a zero point of text": (
        changed("Quant", None, np.asarray("a", np.object_)),
        "its zero point holds texts; accepted: finite numbers",
    ),
    "a zero point that is none": (
        changed("Quant", None, f(np.inf)),
        "its zero point is inf; accepted: finite numbers",
    ),
    **{
        f"a scale of {number} of {kind}": (
            changed(kind, f(number)),
            f"its scale is {np.float32(number):g}{SCALE}",
        )
        for kind in ("Quant", "IntQuant", "BipolarQuant", "Trunc", "FloatQuant", "QuantizeLinear")
        for number in (0.0, np.nan, np.inf, -0.5)
        if kind != "QuantizeLinear" or number != 0
    },
    "signs": (changed("Quant", signed=7), "its attribute 'signed' is 7; accepted: 0 and 1"),
    "signs of text": (changed("Quant", narrow="yes"), "its attribute 'narrow' is 'yes'; accepted: 0 and 1"),
    "a scale of other channels": (
        changed("Quant", np.ones((1, 3, 1, 1), np.float32)),
        "parameters of shape [1, 3, 1, 1] do not broadcast to [2, 4, 3, 3]",
    ),
    "a scale of more dimensions": (
        changed("Quant", np.ones((2, 1, 1, 1, 1), np.float32)),
        "parameters of shape [2, 1, 1, 1, 1] do not broadcast to [2, 4, 3, 3]",
    ),
    "integers": (
        replace(BY_KIND["Quant"], dtype=TensorProto.INT8),
        "it quantizes 'x' of i8; accepted: f16, f32, f64",
    ),
    "a list of thresholds": (
        changed("MultiThreshold", np.ones(3, np.float32)),
        "thresholds of shape [3]; accepted: [channels or 1, thresholds]",
    ),
    "thresholds of other channels": (
        changed("MultiThreshold", np.ones((5, 3), np.float32)),
        "thresholds of 5 channels for a tensor [2, 4, 3, 3]",
    ),
    "thresholds that are none": (
        changed("MultiThreshold", np.full((4, 3), np.nan, np.float32)),
        "its list of thresholds is 12 numbers from nan to nan; accepted: finite numbers",
    ),
    "a layout": (
        changed("MultiThreshold", data_layout="CHWN"),
        "its attribute 'data_layout' is 'CHWN'; accepted: NC, NCHW, NCW, NHWC, NWC",
    ),
    "a scale of a result": (
        changed("MultiThreshold", out_scale=float("nan")),
        "its attribute 'out_scale' is nan; accepted: finite numbers",
    ),
    "an exponent": (changed("FloatQuant", None, f(99.0)), "its exponent's width is 99; accepted: 1 to 11"),
    "a scale of an operand": (
        changed("QLinearAdd", f(0.0)),
        "its operand 1, a scale, is 0" + SCALE,
    ),
    "scales of an operand": (
        changed("QLinearSigmoid", np.ones(4, np.float32)),
        "its operand 1, a scale, has the shape [4]; accepted: one number",
    ),
    "an operand left out": (
        replace(BY_KIND["QLinearMul"], operands=("", *BY_KIND["QLinearMul"].operands[1:])),
        "its operand 'A_scale' is left out, and onnxruntime needs it",
    ),
    "too few operands": (
        replace(BY_KIND["QLinearMul"], operands=(f(0.5),)),
        "2 operands are too few; onnxruntime takes 7 to 8",
    ),
    "an attribute": (
        changed("QLinearAdd", axis=1),
        "its attribute 'axis' is unknown to onnxruntime, which has none",
    ),
    "reals": (
        replace(BY_KIND["QLinearAdd"], dtype=TensorProto.FLOAT),
        "its operand 'A' is a tensor(float) (accepted: tensor(int8), tensor(uint8))",
    ),
    "a zero point beside a scale": (
        changed("QuantizeLinear", None, np.zeros(4, np.uint8)),
        "a zero point of shape [4] beside a scale of shape []",
    ),
    "scales along an axis": (
        changed("QuantizeLinear", np.ones(3, np.float32), np.zeros(3, np.uint8), axis=1),
        "scales of shape [3] along axis 1 of [2, 4, 3, 3]",
    ),
    "an axis": (
        changed("QuantizeLinear", np.ones(3, np.float32), np.zeros(3, np.uint8), axis=9),
        "axis 9 of a tensor of 4 dimensions",
    ),
    "blocks": (
        changed("QuantizeLinear", THREES, THREES.astype(np.uint8), block_size=2),
        "scales [2, 3, 3, 3] in blocks of 2; [2, 2, 3, 3] fit [2, 4, 3, 3]",
    ),
    "a scale of none of a value": (
        changed("DequantizeLinear", f(0.0)),
        "its scale is 0; accepted: finite numbers above 0, and 0 for a stored constant",
    ),
    "a zero point of sums": (
        replace(changed("DequantizeLinear", None, np.asarray(3, np.int32)), dtype=TensorProto.INT32),
        "its zero point is 3; accepted: 0, as it reads 32-bit integers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("read", [read_onnx, read_written])
def test_a_quantizer_is_refused(case, read):
    found, why = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        read(file_of(found))
    name = "Quant" if found.kind == "IntQuant" else found.kind
    assert str(caught.value) == f"{name} at 'it': {why}"


@pytest.mark.parametrize("base", BASES, ids=lambda base: f"{base.domain}::{base.kind}")
def test_what_is_changed_is_right_before(base):
    graph = read_written(file_of(base))
    result = ModelRunner(graph).run(feeds(base))["y"]
    assert result.shape == graph.values["y"].shape
    read_onnx(file_of(base))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
@pytest.mark.parametrize("name", ["Quant", "BipolarQuant", "Trunc", "FloatQuant", "MultiThreshold"])
def test_a_result_has_the_element_type_of_what_was_quantized(name, kind):
    base = replace(BY_KIND[name], dtype=kind)
    graph = read_written(file_of(base))
    result = ModelRunner(graph).run(feeds(base))["y"]
    assert result.dtype == feeds(base)["x"].dtype
    assert graph.values["y"].dtype == ("f16" if kind == TensorProto.FLOAT16 else "f64")


def test_a_table_without_a_zero_point_is_run():
    # onnxruntime 1.23 ends the process at one.
    base = replace(BY_KIND["QLinearSigmoid"], operands=(f(0.5), u8(), f(1.0)))
    assert ModelRunner(read_written(file_of(base))).run(feeds(base))["y"].dtype == np.uint8


def test_a_product_without_a_zero_point_gives_reals():
    base = replace(BY_KIND["QGemm"], operands=BY_KIND["QGemm"].operands[:-1])
    assert read_written(file_of(base)).values["y"].dtype == "f32"
    assert ModelRunner(read_written(file_of(base))).run(feeds(base))["y"].dtype == np.float32


def test_a_scale_of_none_of_a_dead_channel_of_a_constant():
    stored = onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["y"], "it", axis=0)
    tensors = [
        onnx.numpy_helper.from_array(np.ones((2, 3), np.int8), "w"),
        onnx.numpy_helper.from_array(f(0.0, 0.5), "s"),
    ]
    sum_of = onnx.helper.make_node("Add", ["x", "y"], ["z"], "sum")
    ports = [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xz"]
    graph = onnx.helper.make_graph([stored, sum_of], "g", ports[:1], ports[1:], tensors)
    opsets = [onnx.helper.make_opsetid("", 21)]
    data = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    assert read_onnx(data).ops


def test_a_scale_near_zero_saturates():
    """Found by a longer run: numpy warned of a quotient beyond float32."""
    x, scale = np.float32([-2.0, 0.0, 3.0, np.inf]), np.float32(1e-45)
    found = float_quant(x, scale, *map(np.float32, (4, 3, 7, 448)))
    assert found.tolist() == pytest.approx([-448 * float(scale), 0.0, 448 * float(scale), 448 * float(scale)])


COUNTS = [60, pytest.param(400, marks=pytest.mark.slow), pytest.param(20_000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("count", COUNTS)
def test_an_odd_quantizer_is_refused_or_computes(count, record_property):
    """Whatever is read computes numbers of the shape that is said, infinite ones at most, and is planned."""
    ended = Counter()
    for seed in range(count):
        found = odd(seed)
        try:
            ended[_end_of(found)] += 1
        except PlannerError as error:
            ended[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} of {found}") from error
    record_property("ended", ", ".join(f"{name} {number}" for name, number in sorted(ended.items())))
    assert min(ended["planned"], ended["ModelError"]) > count // 20


def _end_of(found) -> str:
    data = file_of(found)
    written, graph = read_written(data), read_onnx(data)
    ranges = {name: Calibrated((-2.0,), (2.0,)) for name, value in graph.values.items() if value.is_float}
    values = {
        name: replace(value, facts=value.facts or (ranges[name],)) if name in ranges else value
        for name, value in graph.values.items()
    }
    plan(annotate(replace(graph, values=values)), "onnxruntime-cpu", best_effort=True)
    result = ModelRunner(written).run(feeds(found))["y"]
    if result is None:  # onnxruntime's answer where a tensor of its own domain has no elements
        assert 0 in found.x
        assert MS in found.domain
        return "planned"
    if found.computed < 0 and result.dtype.kind == "f":
        assert not np.isnan(result).any(), "no numbers"
    shape = written.values["y"].shape
    assert shape is None or result.shape == shape or MS in found.domain
    return "planned"
