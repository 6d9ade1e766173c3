"""Products on integers with a float result: each format beside the interpreter, in onnxruntime."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.sessions import session_options
from planner.formats.table import EXPORTERS
from planner.ir.types.qtypes import NoneType
from planner.ir.types.typetext import parse_type
from planner.propagation.network.float_islands import ISLAND
from planner.propagation.selection.choice import NO_RANGE
from tests.formats.plans import model, op
from tests.propagation.test_needed import random_chain

RNG = np.random.default_rng(11)
W, T = (RNG.normal(size=size).astype(np.float32) for size in ((8, 5), (5, 8)))
B = RNG.normal(size=5).astype(np.float32)
BOUNDS = {"lo": np.float32(-1), "hi": np.float32(2)}
FORMATS = ("onnx-integer", "onnx-qcdq", "onnx-qdq", "onnx-qoperator", "onnx-qoperator-clip")
I8 = parse_type("!quant.uniform<i8:f32, 0.03125:5>")
PRODUCT = "MatMulIntegerToFloat"


def net(*ops, x=(2, 8), y=(2, 5), facts=None, **constants):
    """`x` through ops to `y`, with shapes of their own for what is on the way."""
    inner = {name: y for one in ops for name in one.outputs}
    inputs = (
        {"x": x}
        if "v" in constants or not any("v" in one.inputs for one in ops)
        else {"x": x, "v": (3, 8, 5)}
    )
    return model(ops, inputs=inputs, outputs={"y": y}, constants=constants, shapes=inner, facts=facts)


NETS = {
    "matmul in front of a float op": (
        net(op("MatMul", "x w", "a"), op("Erf", "a", "y"), w=W),
        (PRODUCT, "Erf"),
    ),
    "matmul of any rank": (net(op("MatMul", "x w", "y"), x=(3, 2, 8), y=(3, 2, 5), w=W), (PRODUCT,)),
    "two activations": (net(op("MatMul", "x v", "y"), x=(3, 2, 8), y=(3, 2, 5)), (PRODUCT,)),
    "a stack of weights": (
        net(op("MatMul", "x v", "y"), x=(3, 2, 8), y=(3, 2, 5), v=np.stack([W, 2 * W, -W])),
        (PRODUCT,),
    ),
    "gemm": (net(op("Gemm", "x w b", "y"), w=W, b=B), ("QGemm",)),
    "gemm without a bias, turned": (net(op("Gemm", "x w", "y", transB=1), w=T), ("QGemm",)),
    "gemm and relu": (net(op("Gemm", "x w b", "a"), op("Relu", "a", "y"), w=W, b=B), ("QGemm", "Relu")),
    "matmul, add and clip": (
        net(
            op("MatMul", "x w", "a"),
            op("Add", "b a", "c"),
            op("Clip", "c lo hi", "y"),
            x=(3, 2, 8),
            y=(3, 2, 5),
            w=W,
            b=B,
            **BOUNDS,
        ),
        ("Reshape", "QGemm", "Reshape", "Clip"),
    ),
    "matmul and add with two open dimensions": (
        net(op("MatMul", "x w", "a"), op("Add", "a b", "y"), x=("N", "T", 8), y=("N", "T", 5), w=W, b=B),
        (PRODUCT, "Add"),
    ),
    "an add of floats behind": (
        net(
            op("MatMul", "x w", "a"),
            op("Add", "a m", "c"),
            op("Erf", "c", "y"),
            facts={"m": (NoneType(),)},
            w=W,
            m=RNG.normal(size=(2, 5)).astype(np.float32),
        ),
        (PRODUCT, "Max", "Add", "Erf"),
    ),
}


def planned(graph, pins=None, on="onnxruntime-cpu"):
    """The plan, checked, with its model and a sample."""
    samples = []
    for k in range(4):
        rng = np.random.default_rng(k)
        sizes = {n: [d if isinstance(d, int) else 3 for d in graph.values[n].shape] for n in graph.inputs}
        samples.append({n: rng.normal(size=size).astype(np.float32) for n, size in sizes.items()})
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    if pins:
        values = {name: str(kind) for name, kind in pins.items()}
        ready = planner.annotate(ready, annotations={"format": "qplan.annotations/1", "values": values})
    plan = planner.plan(ready, on)
    planner.check(plan, ready, on)
    return ready, plan, samples[0]


def outcome(data, feeds, optimised, tmp_path):
    """Results of a file in onnxruntime, and the types of its nodes as they run."""
    options, path = session_options(), tmp_path / "optimised.onnx"
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(path)
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(feeds))
    return found, [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("name", NETS)
def test_every_file_gives_what_the_interpreter_gives_bit_for_bit(name, tmp_path):
    """Files with pairs say so where optimised; without, they are the float op on what is stored."""
    graph, nodes = NETS[name]
    ready, plan, sample = planned(graph)
    handing = [kernel.name for kernel in plan.kernels_in_order if kernel.row]
    assert [plan.row_of(kernel).hands_on_floats for kernel in handing] == [True]
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    floats = planner.evaluate(ready, plan, sample, arithmetic="float32_qdq").outputs["y"]
    for form in FORMATS:
        data = EXPORTERS[form](ready, plan)
        for optimised in (True, False):
            (found,), types = outcome(data, sample, optimised, tmp_path)
            pairs = form in ("onnx-qcdq", "onnx-qdq") and not optimised
            np.testing.assert_array_equal(found, floats if pairs else wanted, err_msg=f"{form} {optimised}")
            if form == "onnx-qdq" and optimised:
                quantizers = ("QuantizeLinear", "DequantizeLinear")
                assert tuple(kind for kind in types if kind not in quantizers) == nodes


@pytest.mark.parametrize("name", ["matmul in front of a float op", "gemm and relu", "matmul of any rank"])
def test_signed_activations(name, tmp_path):
    """Files with pairs are left out: on x86 onnxruntime fuses no i8 that comes stored from outside."""
    ready, plan, sample = planned(NETS[name][0], {"x": I8})
    kernel = next(kernel for kernel in plan.kernels_in_order if kernel.row)
    assert (kernel.inputs[0].type, plan.row_of(kernel.name).hands_on_floats) == (I8, True)
    stored = {"x": np.clip(np.rint(sample["x"] / np.float32(0.03125)) + 5, -128, 127).astype(np.int8)}
    wanted = planner.evaluate(ready, plan, stored).outputs["y"]
    for form in ("onnx-integer", "onnx-qoperator"):
        (found,), _ = outcome(EXPORTERS[form](ready, plan), stored, True, tmp_path)
        np.testing.assert_array_equal(found, wanted, err_msg=form)


def test_signed_activations_between_kernels(tmp_path):
    graph = net(op("LeakyRelu", "x", "a"), op("MatMul", "a w", "y"), x=(2, 8), w=W)
    graph = replace(graph, values={**graph.values, "a": replace(graph.values["a"], shape=(2, 8))})
    ready, plan, sample = planned(graph, {"a": I8})
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    for form in ("onnx-integer", "onnx-qdq", "onnx-qoperator"):
        (found,), types = outcome(EXPORTERS[form](ready, plan), sample, True, tmp_path)
        np.testing.assert_array_equal(found, wanted, err_msg=form)
        assert form == "onnx-integer" or PRODUCT in types


def test_a_quantizer_far_behind_does_not_round_the_result(tmp_path):
    """It would be carried over the view, which no row serves here, and fused into the product."""
    graph = net(
        op("MatMul", "x w", "a"),
        op("Transpose", "a", "t", perm=(1, 0)),
        op("MatMul", "t u", "y"),
        w=W,
        u=W[:2, :4],
    )
    shapes = {"t": (5, 2), "y": (5, 4)}
    values = {
        name: replace(value, shape=shapes.get(name, value.shape)) for name, value in graph.values.items()
    }
    target = planner.load_target("onnxruntime-cpu")
    bare = replace(
        target, rows={kernel: rows for kernel, rows in target.rows.items() if kernel != "Transpose"}
    )
    ready, plan, sample = planned(replace(graph, values=values), on=bare)
    assert [plan.row_of(name).hands_on_floats for name in ("op_a", "op_y")] == [True, True]
    (found,), types = outcome(EXPORTERS["onnx-qdq"](ready, plan), sample, True, tmp_path)
    np.testing.assert_array_equal(found, planner.evaluate(ready, plan, sample).outputs["y"])
    assert (types.count(PRODUCT), types.count("Max"), "QLinearMatMul" in types) == (2, 1, False)


FINN = {
    "gemm": ("MatMul", "Mul", "Add"),
    "gemm and relu": ("MatMul", "Mul", "Add", "Relu"),
    "gemm without a bias, turned": ("MatMul", "Mul"),
    "matmul, add and clip": ("MatMul", "Mul", "Add", "Clip"),
    "matmul in front of a float op": ("MatMul", "Mul", "Erf"),
    "convolution": ("Conv", "Mul", "Add"),
}
CONVOLUTION = net(
    op("Conv", "x w b", "y", pads=(1, 1, 1, 1)),
    x=(1, 3, 6, 6),
    y=(1, 5, 6, 6),
    w=RNG.normal(size=(5, 3, 3, 3)).astype(np.float32),
    b=B,
)
LONG = net(op("MatMul", "x w", "y"), x=(2, 8192), w=RNG.normal(size=(8192, 5)).astype(np.float32))
"""Sums beyond 2^24, which no float32 holds."""


@pytest.mark.parametrize(
    ("name", "on"),
    [
        *((name, "finn-fpga") for name in FINN),
        # A convolution of onnxruntime's stores its results.
        *((name, "onnxruntime-cpu") for name in FINN if name != "convolution"),
    ],
)
def test_finn_scales_the_sums_of_a_last_layer(name, on, tmp_path):
    """Integers times integers, then the scales and the bias: bit for bit what the interpreter gives."""
    ready, plan, sample = planned(CONVOLUTION if name == "convolution" else NETS[name][0], on=on)
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    path = tmp_path / "model.onnx"
    path.write_bytes(EXPORTERS["finn"](ready, plan))
    kinds = tuple(node.op_type for node in onnx.load(path).graph.node)
    if on == "finn-fpga":
        assert kinds[kinds.index(FINN[name][0]) : -1] == FINN[name]  # an Identity gives the result its name
    np.testing.assert_array_equal(planner.run(path, sample)["y"], wanted)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("finn", "op_y.out[0] (row matmul@43): thresholds do not compute MatMul"),
        ("tosa", "op_y.out[0] (row gemm@32): no TOSA operators compute Gemm"),
    ],
)
def test_formats_that_cannot_say_it_name_the_row(form, text):
    ready, plan, _ = planned(LONG if form == "finn" else NETS["gemm"][0])
    assert plan.kernels["op_y"].row == ("matmul@43" if form == "finn" else "gemm@32")
    with pytest.raises(UnsupportedExport) as refused:
        EXPORTERS[form](ready, plan)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize("form", ["onnx-qcdq", "onnx-qdq"])
@pytest.mark.parametrize(
    ("ops", "kernel"),
    [
        ((op("MatMul", "x w", "a"), op("Relu", "a", "c"), op("Erf", "c", "y")), PRODUCT),
        ((op("Gemm", "x w b", "a"), op("Relu", "a", "c"), op("Erf", "c", "y")), "QGemm"),
        ((op("Gemm", "x w b", "a"), op("Clip", "a lo hi", "c"), op("Erf", "c", "y")), "QGemm"),
    ],
)
def test_a_clamp_that_is_read_in_float_leaves_the_product_one_kernel(ops, kernel, form, tmp_path):
    """It was kept apart, and summed up in float: digits differed, and no integer was multiplied."""
    ready, plan, sample = planned(net(*ops, w=W, b=B, **BOUNDS))
    options = session_options("all")
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    session = onnxruntime.InferenceSession(EXPORTERS[form](ready, plan), options)
    kinds = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    assert kinds == ["QuantizeLinear", kernel, "Max", ops[1].type, "Erf"]
    wanted = planner.evaluate(ready, plan, sample).outputs["y"]
    np.testing.assert_array_equal(session.run(None, sample)[0], wanted)


@pytest.mark.parametrize("name", ["gemm and relu", "matmul of any rank"])
def test_a_file_is_read_and_planned_as_it_was(name):
    """The result has no range in the file, and needs none."""
    ready, plan, sample = planned(NETS[name][0])
    for form in ("onnx-qdq", "onnx-qoperator"):
        read = planner.load_model(EXPORTERS[form](ready, plan))
        again = planner.plan(read, "onnxruntime-cpu")
        rows = [kernel.row for kernel in again.kernels_in_order if kernel.row]
        assert rows == [kernel.row for kernel in plan.kernels_in_order if kernel.row]
        found = planner.evaluate(read, again, sample).outputs["y"]
        np.testing.assert_array_equal(found, planner.evaluate(ready, plan, sample).outputs["y"])


def files_of_random_chains(seeds):
    """Files at onnxruntime's defaults beside the interpreter; how many chains have a float result.

    Of a target with rows for products and views alone, whose products are between float ops, and of all rows.
    """
    whole = planner.load_target("onnxruntime-cpu")
    products = replace(whole, rows={kernel: whole.rows[kernel] for kernel in ("gemm", "matmul", "Reshape")})
    found = 0
    for seed in seeds:
        graph, samples = random_chain(seed)
        ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
        for target in (whole, products):
            rounding = {
                kernel: tuple(r for r in rows if not r.hands_on_floats)
                for kernel, rows in target.rows.items()
            }
            plan = planner.plan(ready, target)
            other = planner.plan(ready, replace(target, rows=rounding))
            # A kernel whose result has no range is in float without such a row, and its casts are saved.
            unranged = {kernel.name for kernel in other.kernels_in_order if kernel.reason == NO_RANGE}
            gained = any(kernel.row and kernel.name in unranged for kernel in plan.kernels_in_order)
            assert gained or plan.cost <= other.cost
            rows = [plan.row_of(kernel.name) for kernel in plan.kernels_in_order if kernel.row]
            if not any(row.hands_on_floats for row in rows):
                continue
            found += 1
            wanted = planner.evaluate(ready, plan, samples[0]).outputs
            for form in ("onnx-integer", "onnx-qdq", "onnx-qoperator"):
                session = onnxruntime.InferenceSession(EXPORTERS[form](ready, plan), session_options("all"))
                for name, array in zip(graph.outputs, session.run(None, samples[0]), strict=True):
                    np.testing.assert_array_equal(array, wanted[name], err_msg=f"{seed} {form} {name}")
    return found


def test_a_float_result_makes_no_neighbour_of_an_island():
    """A sum behind the Tanh of a product with a float result, before an output: two casts for one."""
    graph, samples = random_chain(242)
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "onnxruntime-cpu")
    planner.check(plan, ready, "onnxruntime-cpu")
    assert plan.row_of("op_v2").hands_on_floats
    assert plan.kernels["op_v6"].reason == ISLAND
    assert [rescale.value for rescale in plan.rescales] == ["x"]


def test_files_of_random_chains_give_what_the_interpreter_gives():
    assert files_of_random_chains(range(20)) > 5


@pytest.mark.soak
def test_files_of_many_random_chains_give_what_the_interpreter_gives():
    assert files_of_random_chains(range(100, 1000)) > 400
