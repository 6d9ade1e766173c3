"""Types that constants had in training: pins where the rows of all readers hold them, else their width."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import planner
from planner.checker.check import check
from planner.errors import QTypeError
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import AnyType, sub_channel
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = """
- {kernel: fc, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: fc, in: {x: a8, w: u8}, out: {y: a8}}
- {kernel: narrow, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: asked, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: asked, in: {x: a16, w: u8}, out: {y: a16}}
"""
DEVICE = target_of(ROWS)
W = np.linspace(-4.5, 8.25, 256).reshape(16, 16).astype(np.float32)
GRID = "!quant.any<u8:f32, 0.05:90>"
TRAINED = parse_type("!quant.uniform<u8:f32, 0.05:90>")


def graph(*kernels, fact=GRID, **facts):
    values = {"x": "[-1, 1]", "w": W, **{f"y{i}": "[-9, 9]" for i in range(len(kernels))}}
    made = graph_of(
        values,
        [(f"k{i}", kernel, "x w", f"y{i}") for i, kernel in enumerate(kernels)],
        outputs=" ".join(f"y{i}" for i in range(len(kernels))),
    )
    told = {"w": fact, **facts}
    given = {
        name: replace(value, facts=(*value.facts, *([parse_type(told[name])] if name in told else ())))
        for name, value in made.values.items()
    }
    return replace(made, values=given)


def weight(plan, kernel="k0"):
    return plan.kernels[kernel].inputs[1].type


@pytest.mark.parametrize(
    ("kernels", "kept"),
    [
        (("fc",), True),
        (("narrow",), False),  # no row stores a u8
        (("fc", "fc"), True),
        (("fc", "narrow"), False),  # one reader cannot: one weight has one type
        (("fc", "unknown"), True),  # what runs in float anyway reads its numbers
    ],
)
def test_kept_where_all_readers_hold_it(kernels, kept):
    model = graph(*kernels)
    plan = propagate(model, DEVICE, model=model_digest(model))
    assert plan.kernels["k0"].row is not None
    assert (weight(plan) == TRAINED) == kept
    check(plan, model, DEVICE)
    again = propagate(read_mlir(plan.to_mlir()), DEVICE)
    assert again.kernels["k0"].row == plan.kernels["k0"].row
    assert weight(again) == weight(plan)


def test_a_row_that_takes_it_is_preferred_and_a_wish_for_another_is_met():
    """The weight's row computes in 16 bits here: both hold, and the grid is a pin like any other."""
    plan = propagate(graph("asked"), DEVICE)
    assert (weight(plan), str(plan.kernels["k0"].inputs[0].type.storage)) == (TRAINED, "i16")


def test_a_width_alone_is_typed_by_the_numbers():
    plan = propagate(graph("fc", fact="!quant.any<u8:f32>"), DEVICE)
    assert str(weight(plan).storage) == "i8<-127:127>"


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_written_is_read(fused):
    """The model as MLIR and JSON; and a plan's own, which has the pin beside."""
    model = graph("fc")
    carried = propagate(model, DEVICE).graph if fused else model
    facts = carried.values["w"].facts
    assert (TRAINED in facts) == fused
    assert read_mlir(write_mlir(carried)).values["w"].facts == facts
    assert read_annotated(write_annotated(carried)).values["w"].facts == facts


def test_refused():
    blocks = sub_channel(TRAINED.storage, [0.5, 0.25], 0, blocks={0: 8}, grid=(2, 1))
    with pytest.raises(QTypeError, match="is no type per tensor or axis in u8:f32"):
        AnyType(TRAINED.storage, "f32", blocks)


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "qnn-htp", "tosa-int8"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_matrix_with_a_scale_a_channel_keeps_its_numbers(op, transposed, target):
    """As onnxruntime's quantizer writes it (`per_channel=True`): where no row holds it, its width counts."""
    data, sample = file_of_channels(op, transposed=transposed, along="out")
    wanted = onnxruntime.InferenceSession(data).run(None, sample)[0]
    model = planner.load_model(data)
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    kernel = next(one for one in plan.kernels_in_order if len(one.inputs) > 1)
    assert kernel.row is not None
    rows = planner.load_target(target).rows[kernel.kernel]
    holds = any(port.type.granularity == "axis" for row in rows for port in row.inputs)
    kind = kernel.inputs[1].type
    assert (kind.axis == (0 if transposed and op == "Gemm" else 1)) == holds
    if holds:
        np.testing.assert_array_equal(planner.evaluate(model, plan, sample).outputs["y"], wanted)


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_scales_along_the_sum_cost_no_row(target):
    """No row has a scale for each number that a sum adds up: the width counts alone."""
    model = planner.load_model(file_of_channels("MatMul", transposed=False, along="in")[0])
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    kernel = next(one for one in plan.kernels_in_order if len(one.inputs) > 1)
    assert kernel.row is not None
    assert kernel.inputs[1].type.axis != 0


def file_of_channels(op, *, transposed, along):
    """A product whose weight of i8 has a scale a channel, behind a Transpose or as Gemm reads it."""
    rng = np.random.default_rng(1)
    stored = rng.integers(-128, 128, (16, 8)).astype(np.int8)
    axis = 1 if along == "out" else 0
    if transposed:
        stored, axis = stored.T.copy(), 1 - axis
    arrays = {
        "q": stored,
        "s": rng.uniform(0.001, 0.02, stored.shape[axis]).astype(np.float32),
        "z": np.zeros(stored.shape[axis], np.int8),
        "xs": np.float32(0.02),
        "xz": np.int8(0),
        "ys": np.float32(0.1),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis),
    ]
    if op == "Gemm":
        nodes.append(helper.make_node("Gemm", ["xd", "w"], ["r"], transB=int(transposed)))
    else:
        nodes += [helper.make_node("Transpose", ["w"], ["wt"])] if transposed else []
        nodes.append(helper.make_node("MatMul", ["xd", "wt" if transposed else "w"], ["r"]))
    nodes += [
        helper.make_node("QuantizeLinear", ["r", "ys", "xz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "xz"], ["y"]),
    ]
    return as_file(nodes, arrays, [2, 16], [2, 8]), {"x": rng.normal(size=[2, 16]).astype(np.float32)}


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
@pytest.mark.parametrize("zero", [3, 90])
def test_weights_of_u8_in_onnxruntime(op, zero):
    """As its own quantizer writes them (`weight_type=QUInt8`): planned, written, run, the file's numbers."""
    data, sample = file_of(op, zero)
    wanted = onnxruntime.InferenceSession(data).run(None, sample)[0]
    model = planner.load_model(data)
    plan = planner.plan(model, "onnxruntime-cpu")
    planner.check(plan, model, "onnxruntime-cpu")
    for form in ("onnx-qdq", "onnx-qoperator"):
        session = onnxruntime.InferenceSession(planner.export(model, plan, form))
        np.testing.assert_array_equal(session.run(None, sample)[0], wanted)
    # Nine bits around 0 where any width will do.
    there = planner.plan(model, "hls4ml-fpga")
    stored = next(port.type for one in there.kernels_in_order for port in one.inputs if port.value == "w")
    assert (str(stored.storage), stored.zero_point) == (f"i9<{-zero}:{255 - zero}>", 0)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "k210-kpu", "dpuczdx8g", "litert-int8"])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
def test_a_bias_too_big_for_the_grid_costs_no_row(op, target):
    """The scale of training leaves the bias no room in 32 bits, one of the planner's own does."""
    model = planner.load_model(file_of(op, 90, bias=1e7)[0])
    free = replace(
        model, values={n: replace(v, facts=without_grid(v.facts)) for n, v in model.values.items()}
    )
    plan, wanted = planner.plan(model, target), planner.plan(free, target)
    planner.check(plan, model, target)
    rows = {kernel.name: kernel.row for kernel in plan.kernels_in_order}
    assert rows == {kernel.name: kernel.row for kernel in wanted.kernels_in_order}
    text = replace(
        planner.load_model(plan.to_mlir().encode(), format="mlir"), constants=dict(model.constants)
    )
    again = planner.plan(text, target)
    planner.check(again, text, target)
    types = [
        [[port.type for port in kernel.inputs] for kernel in one.kernels_in_order] for one in (plan, again)
    ]
    assert types[0] == types[1]
    if target == "onnxruntime-cpu":
        step = next(step for step in plan.steps if step.rule == "let go")
        assert "steps of its scale" in step.source
        assert "of the types they had in training" in planner.explain(plan, step.port)


def without_grid(facts):
    return tuple(replace(fact, trained=None) if isinstance(fact, AnyType) else fact for fact in facts)


@pytest.mark.parametrize("zero", [0, 255])
def test_a_zero_point_at_the_end_of_its_storage(zero):
    """All numbers lie on one side of it: on the other is room for finer ones without end."""
    model = planner.load_model(file_of("Gemm", zero, bias=0.3, most=7, rows=1)[0])
    plan = planner.plan(model, "k210-kpu")
    planner.check(plan, model, "k210-kpu")
    kind = next(port.type for one in plan.kernels_in_order for port in one.inputs if port.value == "w")
    assert (str(kind.storage), kind.zero_point) == ("u8", zero)
    assert kind.scale < np.float32(0.01)


def file_of(op, zero, *, bias=None, most=255, rows=2):
    rng = np.random.default_rng(zero)
    shape, inner, out = {
        "MatMul": ((16, 8), [rows, 16], [rows, 8]),
        "Gemm": ((16, 8), [rows, 16], [rows, 8]),
        "Conv": ((8, 4, 3, 3), [1, 4, 6, 6], [1, 8, 4, 4]),
    }[op]
    arrays = {
        "q": ends(rng.permutation(np.linspace(0, 255, np.prod(shape)).round()).reshape(shape), zero, most),
        "z": np.uint8(zero),
        "s": np.float32(0.01),
        "xs": np.float32(0.02),
        "xz": np.uint8(100),
        "ys": np.float32(0.1),
        "yz": np.uint8(120),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
        *product(op, bias is not None),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    if bias is not None:
        arrays["b"] = (bias * rng.normal(size=8)).astype(np.float32)
    return as_file(nodes, arrays, inner, out), {"x": rng.normal(size=inner).astype(np.float32)}


def as_file(nodes, arrays, inner, out):
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, inner)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    file = helper.make_model(made, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return file.SerializeToString()


def ends(integers, zero, most):
    """Integers no farther than `most` from the zero point."""
    return np.clip(integers, max(zero - most, 0), min(zero + most, 255)).astype(np.uint8)


def product(op, has_bias):
    if not has_bias:
        return [helper.make_node(op, ["xd", "w"], ["r"])]
    if op == "MatMul":
        return [helper.make_node(op, ["xd", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["r"])]
    return [helper.make_node(op, ["xd", "w", "b"], ["r"])]
