"""Scalar factors at random places: no kernel in float for one on any shipped target, and engines agree."""

from dataclasses import replace

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest

import planner
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from tests.formats.litert.writer.running import integers
from tests.formats.tosa.writer.running import agreed, fed, led, with_all_results
from tests.oracles import litert, tosa

SIZE = 8
SHAPE = (1, 4, SIZE)
TARGETS = ("dpuczdx8g", "edgetpu", "ethos-u55", "finn-fpga", "hexagon-a16w8", "hls4ml-fpga", "litert-int8",
           "onnxruntime-cpu", "qnn-htp", "stablehlo", "tosa-int8")  # fmt: skip
"""Those that multiply integers by a constant. `tensorrt-int8` has no such layer, `k210-kpu` no sum of two."""
NUMBERS = (8.0, 3.0, 255.0, 0.125, -2.0, float(np.sqrt(SIZE)))


class Draft:
    """An ONNX model that grows from its input, with scalar factors wherever the dice say so."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.factors = 0

    def constant(self, array: np.ndarray) -> str:
        """Add a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add an op of one result."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def dense(self, x: str) -> str:
        """Multiply with a weight, add a bias."""
        weight = self.rng.normal(size=(SIZE, SIZE)).astype(np.float32) / 3
        bias = self.rng.normal(size=SIZE).astype(np.float32) / 4
        return self.op("Add", self.scaled(self.op("MatMul", x, self.constant(weight))), self.constant(bias))

    def scaled(self, x: str) -> str:
        """The value, or a product with a scalar in one of its spellings."""
        kind = self.rng.choice(["", "", "Div", "Mul", "Neg"])
        if not kind:
            return x
        self.factors += 1
        if kind == "Neg":
            return self.op("Neg", x)
        number = self.constant(np.float32(self.rng.choice(NUMBERS)))
        return (
            self.op(kind, number, x)
            if kind == "Mul" and self.rng.random() < 0.5
            else self.op(kind, x, number)
        )

    def attention(self, x: str) -> str:
        """One head over the rows of a value."""
        query, key, value = (self.scaled(self.dense(x)) for _ in range(3))
        scores = self.op("MatMul", query, self.scaled(self.op("Transpose", key, perm=[0, 2, 1])))
        return self.op("MatMul", self.op("Softmax", self.scaled(scores), axis=-1), value)

    def layer(self, x: str) -> str:
        """Any layer."""
        kind = self.rng.choice(["attention", "dense", "gate", "relu", "residual"])
        if kind == "attention":
            return self.scaled(self.attention(x))
        if kind == "gate":
            return self.op("Mul", self.scaled(x), self.scaled(self.op("Sigmoid", self.scaled(x))))
        if kind == "residual":
            return self.op("Add", self.scaled(self.dense(x)), self.scaled(x))
        made = self.scaled(self.dense(x))
        return self.scaled(self.op("Relu", made)) if kind == "relu" else made


def drawn(seed: int) -> bytes:
    draft = Draft(seed)
    x = draft.scaled("x")
    for _ in range(int(draft.rng.integers(2, 4))):
        x = draft.layer(x)
    x = draft.dense(x)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE) for name in ("x", x)]
    graph = onnx.helper.make_graph(draft.nodes, f"drawn_{seed}", ends[:1], ends[1:], draft.constants)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


def prepared(seed: int):
    """The model, annotated, and samples on which engines are asked."""
    graph = planner.load_model(drawn(seed))
    rng = np.random.default_rng(seed)
    samples = [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(4)]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples


def floats_for_a_factor(graph, plan) -> list[str]:
    """Kernels in float that multiply by a constant, all neighbours of which are quantized."""
    makers = {port.value: k for k in plan.kernels_in_order for port in k.outputs if port.value}
    found = []
    for name, kernel in plan.kernels.items():
        ops = next(region.ops for region in plan.graph.regions if region.name == name)
        is_factor = len(ops) == 1 and ops[0].type in ("Div", "Mul", "Neg")
        if kernel.row is not None or not is_factor or graph.constants.keys().isdisjoint(ops[0].inputs):
            continue
        written = {port.value for port in kernel.outputs}
        readers = [k for k in plan.kernels_in_order if written & {port.value for port in k.inputs}]
        around = [*readers, *(makers[port.value] for port in kernel.inputs if port.value in makers)]
        if around and all(k.row is not None for k in around):
            found.append(name)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_is_float_for_a_factor(target):
    for seed in range(4):
        _no_kernel_is_float(target, seed)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_is_float_for_a_factor_of_many(target):
    for seed in range(4, 200):
        _no_kernel_is_float(target, seed)


def _no_kernel_is_float(target: str, seed: int) -> None:
    graph, _ = prepared(seed)
    plan = planner.plan(graph, target)
    planner.check(plan, graph)
    assert floats_for_a_factor(graph, plan) == [], (target, seed)


def _in_onnxruntime(seed: int) -> None:
    graph, samples = prepared(seed)
    plan = planner.plan(graph, "onnxruntime-cpu")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = planner.export(graph, plan, "onnx-qoperator")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    interpreter = Interpreter(graph, plan)
    for sample in samples:
        wanted = interpreter.run(sample).outputs
        for name, got in zip(wanted, session.run(list(wanted), sample), strict=True):
            np.testing.assert_array_equal(got, wanted[name], err_msg=f"{seed}: {name}")


def test_onnxruntime_computes_the_same():
    for seed in range(4):
        _in_onnxruntime(seed)


@pytest.mark.soak
def test_onnxruntime_computes_the_same_of_many():
    for seed in range(4, 200):
        _in_onnxruntime(seed)


def _planned(target: str, seeds: range):
    for seed in seeds:
        graph, samples = prepared(seed)
        plan = planner.plan(graph, replace(planner.load_target(target), islands="integer"))
        ready, whole = with_all_results(graph, plan)
        yield seed, ready, whole, samples


def _in_litert(folder, seeds: range) -> None:
    made = list(_planned("litert-int8", seeds))
    jobs = [(EXPORTERS["litert"](graph, plan), samples) for _, graph, plan, samples in made]
    for (seed, graph, plan, samples), answers in zip(made, litert.run(folder, jobs), strict=True):
        interpreter = Interpreter(graph, plan)
        kinds = {port.value: kernel.kernel for kernel in plan.kernels_in_order for port in kernel.outputs}
        for sample, got in zip(samples, answers, strict=True):
            given = {name: integers(plan, name, array) for name, array in got.items()}
            for name, own, array in led(interpreter, graph, plan, sample, given):
                off = np.abs(own.astype(np.int64) - array.astype(np.int64)).max()
                # A step at most in these two: docs/litert.md says where.
                assert off <= (kinds[name] in ("Sigmoid", "Softmax")), (seed, name)


def _in_tosa(folder, seeds: range) -> None:
    made = list(_planned("tosa-int8", seeds))
    jobs = [
        (EXPORTERS["tosa"](graph, plan), [fed(graph, plan, sample) for sample in samples])
        for _, graph, plan, samples in made
    ]
    for (seed, graph, plan, samples), answers in zip(made, tosa.run(folder, jobs), strict=True):
        interpreter = Interpreter(graph, plan)
        for sample, got in zip(samples, answers, strict=True):
            for name, wanted, array in agreed(interpreter.run(sample), plan, got):
                np.testing.assert_array_equal(array, wanted, err_msg=f"{seed}: {name}")


@pytest.mark.parametrize("asked", [_in_litert, _in_tosa])
def test_native_engines_compute_the_same(asked, tmp_path):
    asked(tmp_path, range(4))


@pytest.mark.soak
@pytest.mark.parametrize("asked", [_in_litert, _in_tosa])
def test_native_engines_compute_the_same_of_many(asked, tmp_path):
    asked(tmp_path, range(4, 80))
