"""Types on values inside a kernel: kept by its clamp, or the kernel is split there, or a warning says so."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.fusion.fuse import fuse
from planner.ir.inner_types import intervals, passes, unkept_types
from planner.ir.types.qtypes import Storage, uniform
from planner.ir.types.typetext import parse_type

PRODUCTS = ("Conv", "ConvBN", "ConvTranspose", "Add", "Mul", "Sub", "MatMul", "AddMatMul", "Gemm")
ACTIVATIONS = ("Relu", "Clip", "Relu6", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh")
INNER = {"soft": 0.02, "hard": 0.004}
TARGETS = ("litert-int8", "onnxruntime-cpu", "tensorrt-int8", "tosa-int8")
SHAPE = (1, 4, 6, 6)
I8 = Storage(8, True, -128, 127)


class Source:
    """A QDQ file: a product, a quantizer, an activation."""

    def __init__(self, product, activation, scale):
        self.nodes, self.constants, self.numbers = [], [], np.random.default_rng(3)
        x = self.quantized("x", 0.025)
        made = self.quantized(self.product(product, x), scale)
        result = self.activation(activation, made)
        self.nodes[-1].output[0] = "y"
        assert result
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
        graph = helper.make_graph(self.nodes, "source", ports[:1], ports[1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        self.data = model.SerializeToString()

    def constant(self, array):
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind, *inputs, **attributes):
        """Add an op of one result."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{name}", **attributes))
        return name

    def quantized(self, x, scale):
        """Put QuantizeLinear and DequantizeLinear behind a value."""
        grid = self.constant(np.float32(scale)), self.constant(np.int8(0))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *grid), *grid)

    def weight(self, *shape):
        """Add a weight of 8 bits."""
        stored = self.constant(self.numbers.integers(-127, 128, shape).astype(np.int8))
        grid = self.constant(np.float32(0.004)), self.constant(np.int8(0))
        return self.op("DequantizeLinear", stored, *grid)

    def product(self, kind, x):
        """Add an op that computes."""
        if kind.startswith("Conv"):
            op = "ConvTranspose" if kind == "ConvTranspose" else "Conv"
            made = self.op(op, x, self.weight(4, 4, 3, 3), pads=[1, 1, 1, 1])
            if kind == "ConvBN":
                made = self.quantized(made, 0.03)
                numbers = [self.constant(np.full(4, n, np.float32)) for n in (1.1, 0.1, 0.05, 0.9)]
                made = self.op("BatchNormalization", made, *numbers)
            return made
        if kind in ("Add", "Mul", "Sub"):
            return self.op(kind, x, self.quantized(self.op("Sigmoid", x), 0.01))
        if kind == "Gemm":
            flat = self.op("Reshape", x, self.constant(np.array([24, 6])))
            made = self.op("Gemm", flat, self.weight(6, 6))
            return self.op("Reshape", made, self.constant(np.array(SHAPE)))
        made = self.op("MatMul", x, self.weight(6, 6))
        if kind == "AddMatMul":
            made = self.op("Add", self.quantized(made, 0.03), self.constant(np.full(6, 0.3, np.float32)))
        return made

    def activation(self, kind, x):
        """Add an activation."""
        bounds = {"Clip": (-0.5, 1.2), "Relu6": (0.0, 6.0)}.get(kind)
        if bounds:
            return self.op("Clip", x, *(self.constant(np.float32(bound)) for bound in bounds))
        return self.op(kind, x, **({"alpha": 0.1} if kind == "LeakyRelu" else {}))


def samples(shape=SHAPE):
    numbers = np.random.default_rng(5)
    return [{"x": (numbers.normal(size=shape) * 1.5).astype(np.float32)} for _ in range(2)]


def on(data, target):
    """The model, its plan on a target, and dB of the file against the source."""
    model = planner.load_model(data)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples()))
    plan = planner.plan(ready, target)
    planner.check(plan, ready, target)
    return ready, plan, planner.compare(model, planner.export(ready, plan, "onnx-qdq"), samples())


@pytest.mark.parametrize("cut", INNER)
@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("product", ["Conv", "MatMul", "AddMatMul", "Add"])
def test_a_quantizer_inside_a_fusion_is_kept(product, activation, cut):
    """A type fixed between a product and its activation: the file gives the source's numbers."""
    _, plan, found = on(Source(product, activation, INNER[cut]).data, "litert-int8")
    assert found.worst_sqnr > 100 or plan.warnings


@pytest.mark.soak
@pytest.mark.parametrize("target", planner.target_ids())
@pytest.mark.parametrize("cut", INNER)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_quantizer_inside_a_fusion_is_kept_everywhere(product, activation, cut, target):
    try:
        _, plan, found = on(Source(product, activation, INNER[cut]).data, target)
    except planner.UnsupportedExport as error:
        pytest.skip(str(error))
    assert found.worst_sqnr > 60 or plan.warnings


@pytest.mark.parametrize("target", TARGETS)
def test_the_file_of_a_hard_cut_in_front_of_a_relu_is_the_source(target):
    """13.8 dB, and -5.9 dB with a hard cut, where the type was dropped with the fusion."""
    ready, plan, found = on(Source("Conv", "Relu", 0.004).data, target)
    assert found.worst_sqnr == np.inf
    assert plan.warnings == ()
    # Losses are counted against the file as it was written, with its quantizers.
    assert planner.losses(ready, plan, samples()).sqnr > 40


def test_the_log_says_why_a_kernel_is_split():
    _, plan, _ = on(Source("Conv", "Relu", 0.02).data, "litert-int8")
    told = "inside it is fixed to !quant.uniform<i8:f32, 0.019999999552965164>"
    assert [step.rule for step in plan.steps if told in step.source] == ["apart", "apart"]
    relu = next(kernel.name for kernel in plan.kernels_in_order if kernel.kernel == "Relu")
    assert told in planner.explain(plan, relu)


def test_a_clamp_on_the_same_grid_keeps_a_type_inside():
    """The same scale before and behind a Relu: the kernel stays whole, and gives the same numbers."""
    source = Source("Conv", "Relu", 0.02)
    model = onnx.load_from_string(source.data)
    grid = model.graph.node[-2].input[1:]
    model.graph.node[-1].output[0] = "r"
    model.graph.node.append(helper.make_node("QuantizeLinear", ["r", *grid], ["q"], name="q"))
    model.graph.node.append(helper.make_node("DequantizeLinear", ["q", *grid], ["d"], name="d"))
    model.graph.node.append(helper.make_node("Sigmoid", ["d"], ["y"], name="s"))
    _, plan, found = on(model.SerializeToString(), "litert-int8")
    assert [kernel.kernel for kernel in plan.kernels_in_order] == ["Identity", "conv2d", "Sigmoid"]
    (warning,) = plan.warnings
    assert "leave 1 value ('y') float" in warning
    assert found.worst_sqnr > 25  # the sigmoid's own rounding, which the source does not have


@pytest.mark.parametrize("text", ["!quant.any<i4>", "!quant.none", "f16", "!quant.bipolar<f32, 0.5>"])
def test_a_fact_without_effect_is_a_step_and_a_warning(text):
    model = planner.load_model(Source("Conv", "Relu", 0.02).data)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples()), annotations=None)
    inner = next(op.outputs[0] for op in ready.ops if op.type == "Conv")
    pinned = replace(ready.values[inner], facts=(parse_type(text),))
    ready = replace(ready, values={**ready.values, inner: pinned})
    plan = planner.plan(ready, "litert-int8")
    planner.check(plan, ready, "litert-int8")
    if "bipolar" in text:
        assert len(plan.kernels) > 2
        return
    assert f"{text} on {inner!r} has no effect: it is inside kernel 'Conv_{inner}'" in plan.warnings
    assert [step.port for step in plan.steps if step.rule == "no effect"] == [inner]
    assert "have no effect" in planner.explain(plan, inner)


@settings(max_examples=200, deadline=None)
@given(st.integers(-128, 127), st.integers(-128, 127), st.integers(1, 40), st.floats(-3, 3), st.floats(-3, 3))
def test_what_a_clamp_is_said_to_keep_it_keeps(zero, after, steps, one, other):
    """Round and cut, clamp, round and cut; or clamp, round and cut: the same wherever it is said to be."""
    scale = float(np.float32(steps / 200))
    first, second = uniform(I8, scale, zero), uniform(I8, scale, after)
    low, high = sorted((float(np.float32(one)), float(np.float32(other))))
    pairs = zip(intervals(first), intervals(second), strict=True)
    if not all(passes(own, behind, (low, high), scale) for own, behind in pairs):
        return
    numbers = np.linspace(-6, 6, 1201, dtype=np.float32)

    def rounded(array, zero):
        return (np.clip(np.rint(array / np.float32(scale)) + zero, -128, 127) - zero) * np.float32(scale)

    inner = rounded(np.clip(rounded(numbers, zero), low, high).astype(np.float32), after)
    assert np.allclose(inner, rounded(np.clip(numbers, low, high).astype(np.float32), after), atol=scale / 4)


def test_types_are_kept_apart_only_where_a_fusion_would_miss_them():
    model = planner.load_model(Source("Conv", "Relu", 0.02).data)
    fused = fuse(model, planner.load_target("litert-int8"))
    missed = [name for region in fused.regions for name, _ in unkept_types(region, fused)]
    assert missed == [op.outputs[0] for op in model.ops if op.type == "Conv"]


def test_bounds_between_two_steps_are_named():
    """A Clip alone on a fixed grid gives the nearest step, where the source gives the bound."""
    _, plan, found = on(Source("Conv", "Clip", 0.3).data, "teaching-npu")
    assert found.worst_sqnr < 100
    clip = next(kernel.name for kernel in plan.kernels_in_order if kernel.kernel == "Clip")
    grid = "!quant.uniform<i8:f32, 0.30000001192092896>"
    assert plan.warnings == (f"{clip!r} cuts 't3' at -0.5, between two steps of {grid}: at -0.6",)


def test_fewer_steps_than_a_value_is_fixed_to_are_named():
    """A file of 16 bits on a device of 8."""
    model = onnx.load_from_string(Source("Conv", "Relu", 0.02).data)
    for constant in model.graph.initializer:
        if constant.name == model.graph.node[0].input[2]:
            constant.CopyFrom(numpy_helper.from_array(np.int16(0), constant.name))
        if constant.name == model.graph.node[0].input[1]:
            constant.CopyFrom(numpy_helper.from_array(np.float32(1e-4), constant.name))
    _, plan, _ = on(model.SerializeToString(), "teaching-npu")
    assert any("is fixed to !quant.uniform<i16:f32" in text for text in plan.warnings), plan.warnings
