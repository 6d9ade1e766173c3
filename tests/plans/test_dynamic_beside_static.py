"""Rows that quantize at run time beside rows of calibrated ranges: asked for, exact, checked, explained."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import Conflict, PlanInvalid
from planner.plans.read_mlir import plan_from_mlir
from tests.formats.plans import executed, model, op, op_types

TARGET = "onnxruntime-cpu"
WIDTH = 8
AT_DEFAULTS, AS_WRITTEN = "ORT_ENABLE_ALL", "ORT_DISABLE_ALL"


def attention(seed=0):
    """Projections of one input, a product of two activations, a Gemm-like pair, a convolution in front."""
    rng = np.random.default_rng(seed)
    constants = {name: rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 3 for name in "qkvo"}
    constants |= {f"b{name}": rng.normal(size=WIDTH).astype(np.float32) for name in "qkvo"}
    constants["kernel"] = rng.normal(size=(5, 5, 1, 1)).astype(np.float32)
    ops = [
        op("Conv", "i kernel", "f"),
        op("Reshape", "f shape", "x"),
        *(op("MatMul", f"x {name}", f"m{name}") for name in "qkv"),
        *(op("Add", f"m{name} b{name}", f"a{name}") for name in "qkv"),
        op("Transpose", "ak", "kt", perm=[0, 2, 1]),
        op("MatMul", "aq kt", "s"),
        op("Softmax", "s", "p", axis=-1),
        op("MatMul", "p av", "c"),
        op("MatMul", "c o", "mo"),
        op("Add", "mo bo", "ao"),
        op("Relu", "ao", "y"),
    ]
    constants["shape"] = np.asarray([2, 5, WIDTH], np.int64)
    graph = model(ops, inputs={"i": (2, 5, 1, WIDTH)}, outputs={"y": (2, 5, WIDTH)}, constants=constants)
    return ready(graph, [{"i": rng.normal(size=(2, 5, 1, WIDTH)).astype(np.float32)} for _ in range(3)])


def ready(graph, feeds):
    return planner.annotate(graph, stats=planner.calibrate(graph, feeds)), feeds


def asking(graph, kernels):
    return planner.annotate(graph, annotations={"format": "qplan.annotations/1", "kernels": kernels})


def ways(plan):
    """`static`, `dynamic` or `float` of each product."""
    found = {}
    for kernel in plan.kernels_in_order:
        if kernel.kernel in ("conv", "gemm", "matmul"):
            row = plan.row_of(kernel.name)
            found[kernel.name] = "float" if row is None else "dynamic" if row.dynamic else "static"
    return found


def run(file, feed, level):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    return ort.InferenceSession(file, options).run(None, dict(feed))[0]


def same_everywhere(graph, plan, feeds):
    """Files of all formats that say it give the interpreter's numbers, optimised and as written.

    Bit for bit where a static kernel hands on no floats: those QDQ and integer files add up in float ops, one
    rounding apart, and what quantizes them at run time may then take the next integer.
    """
    wanted = [planner.evaluate(graph, plan, feed).outputs["y"] for feed in feeds]
    is_exact = not any(row.hands_on_floats for row in plan.target.rows.values())
    for form in ("onnx-qdq", "onnx-qoperator", "onnx-integer"):
        file = planner.export(graph, plan, form)
        # As written QDQ multiplies floats, and the interpreter integers.
        for level in (AT_DEFAULTS,) if form == "onnx-qdq" else (AT_DEFAULTS, AS_WRITTEN):
            for feed, numbers in zip(feeds, wanted, strict=True):
                got = run(file, feed, level)
                if is_exact or form == "onnx-qoperator":
                    np.testing.assert_array_equal(got, numbers, f"{form}, {level}")
                else:
                    assert np.linalg.norm(got - numbers) <= 0.02 * np.linalg.norm(numbers), (form, level)


def test_nobody_gets_it_unasked():
    """Not for missing ranges, nor for values kept in float: what such kernels do does not change."""
    graph, _ = attention()
    bare = replace(graph, values={name: replace(v, facts=()) for name, v in graph.values.items()})
    for given_graph in (graph, bare, asking(graph, {"*": "float"}), asking(graph, {"*": "f32"})):
        assert "dynamic" not in ways(planner.plan(given_graph, TARGET)).values()


@pytest.mark.parametrize("wish", ["dynamic", {"in": ["f32", "u8"], "out": ["f32"]}])
def test_a_kernel_gets_what_it_is_asked(wish):
    graph, feeds = attention()
    asked = asking(graph, {"op_aq": wish, "op_mo": wish})
    plan = planner.plan(asked, TARGET)
    planner.check(plan, asked, TARGET)
    planner.check(planner.plan_from_json(plan.to_json()), asked)
    found = ways(plan)
    assert [name for name, way in found.items() if way == "dynamic"] == ["op_mq", "op_mo"]
    assert [*found.values()].count("static") == 5
    same_everywhere(asked, plan, feeds)


def test_all_of_them_and_no_convolution():
    graph, feeds = attention()
    asked = asking(graph, {"*": "dynamic"})
    plan = planner.plan(asked, TARGET)
    planner.check(plan, asked, TARGET)
    found = ways(plan)
    assert [name for name, way in found.items() if way == "dynamic"] == ["op_mq", "op_mk", "op_mv", "op_mo"]
    assert found["op_f"] == "static"
    assert any("'*' asks for dynamic" in warning and "'op_f'" in warning for warning in plan.warnings)
    same_everywhere(asked, plan, feeds)


def test_onnxruntime_makes_its_kernels_of_them(tmp_path):
    """Of what shares its input one quantizer and MatMulIntegerToFloat; alone DynamicQuantizeMatMul."""
    graph, _ = attention()
    asked = asking(graph, {"op_m[qkvo]": "dynamic"})
    file = planner.export(asked, planner.plan(asked, TARGET), "onnx-qdq")
    assert op_types(file).count("DynamicQuantizeLinear") == 4
    fused = executed(file, tmp_path)
    assert fused.count("DynamicQuantizeLinear") == 1
    assert fused.count("DynamicQuantizeMatMul") == 1
    assert fused.count("MatMulIntegerToFloat") >= 3
    assert "MatMulInteger" not in fused


def test_a_convolution_by_name_is_refused():
    graph, _ = attention()
    with pytest.raises(Conflict, match="'op_f' has to run as dynamic, and no row of conv does"):
        planner.plan(asking(graph, {"op_f": "dynamic"}), TARGET)


def test_products_of_two_activations_are_refused():
    graph, _ = attention()
    with pytest.raises(Conflict, match=r"'op_s' has to run as dynamic.*w .* is not a constant"):
        planner.plan(asking(graph, {"op_s": "dynamic"}), TARGET)


def test_what_if_switches_both_ways():
    graph, _ = attention()
    plan = planner.plan(graph, TARGET)
    there = planner.replan(plan, {"kernels": {"op_mo": "dynamic"}})
    scratch = planner.plan(asking(graph, {"op_mo": "dynamic"}), TARGET)
    assert ways(there)["op_mo"] == "dynamic"
    assert there.key == scratch.key
    back = planner.replan(there, {"kernels": {"op_mo": "any"}})
    assert ways(back) == ways(plan)
    assert back.work == plan.work
    assert ways(planner.replan(there, {"kernels": {"op_mo": "float"}}))["op_mo"] == "float"
    assert planner.diff(plan, there)


def test_it_is_explained():
    graph, _ = attention()
    told = planner.explain(planner.plan(asking(graph, {"op_mo": "dynamic"}), TARGET), "op_mo")
    assert "op_mo.in[0] is quantized at run time, to u8 by the range of each call" in told
    assert "op_mo is annotated: dynamic, by 'op_mo'" in told
    assert "op_mo.in[1] (o): i8<-127:127> with 8 scales along axis 1" in told


def test_work_counts_products_of_bytes_and_reading_twice():
    graph, _ = attention()
    static, asked = planner.plan(graph, TARGET), planner.plan(asking(graph, {"op_mo": "dynamic"}), TARGET)
    in_float = planner.plan(asking(graph, {"op_mo": "float"}), TARGET)
    assert static.work.total < asked.work.total
    row = asked.kernels["op_mo"].row
    rates, floats = asked.target.rows[row].work, asked.target.float_work
    macs, elements = 2 * 5 * WIDTH * WIDTH, 2 * 2 * 5 * WIDTH
    apart = macs * (rates.mac - floats.mac) + elements * (rates.element - floats.element)
    assert asked.work.total - in_float.work.total == pytest.approx(apart)


def unasked(plan):
    return replace(plan, graph=replace(plan.graph, wanted={}))


def statically(plan):
    """The row of another kernel of the kind."""
    other = plan.kernels["op_mq"].row
    kernels = (replace(k, row=other) if k.name == "op_mo" else k for k in plan.kernels_in_order)
    return replace(plan, kernels_in_order=tuple(kernels))


def by(change):
    def changed(plan):
        key = plan.kernels["op_mo"].row
        rows = {**plan.target.rows, key: change(plan.target.rows[key])}
        return replace(plan, target=replace(plan.target, rows=rows))

    return changed


def typed(port, kind):
    def changed(plan):
        def retyped(kernel):
            ports = tuple(replace(p, type=kind(plan)) if p.address == port else p for p in kernel.inputs)
            return replace(kernel, inputs=ports)

        return replace(plan, kernels_in_order=tuple(map(retyped, plan.kernels_in_order)))

    return changed


MUTATIONS = {
    "nobody asks": unasked,
    "another row": statically,
    "not at run time": by(lambda row: replace(row, dynamic=None)),
    "without its condition": by(lambda row: replace(row, when={})),
    "stored activation": typed("op_mo.in[0]", lambda plan: plan.kernels["op_mq"].inputs[0].type),
    "float weight": typed("op_mo.in[1]", lambda _: None),
    "another weight": typed("op_mo.in[1]", lambda plan: plan.kernels["op_mq"].inputs[1].type),
}


@pytest.mark.parametrize("change", MUTATIONS)
def test_the_checker_finds_mutations(change):
    graph, _ = attention()
    asked = asking(graph, {"op_mo": "dynamic"})
    plan = planner.plan(asked, TARGET)
    with pytest.raises(PlanInvalid):
        planner.check(MUTATIONS[change](plan), asked, TARGET)


def test_a_plan_file_keeps_it():
    graph, _ = attention()
    plan = planner.plan(asking(graph, {"op_mo": "dynamic"}), TARGET)
    told = json.loads(plan.to_json())
    assert [r["when"]["asked"] for r in told["target"]["rows"].values() if "dynamic" in r] == [True]
    assert planner.plan_from_json(plan.to_json()).key == plan.key
    assert plan_from_mlir(plan.to_mlir()).key == plan.key


@st.composite
def nets(draw):
    """A chain of linear layers, residuals and attentions over (batch, rows, WIDTH) or (rows, WIDTH)."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    shape = draw(st.sampled_from([(3, WIDTH), (2, 3, WIDTH)]))
    ops, constants, at, wishes = [], {}, "x", {}

    def linear(source, number, tail=""):
        weight, spread = f"w{number}", draw(st.sampled_from([0.1, 1.0]))
        constants[weight] = (rng.normal(size=(WIDTH, WIDTH)) * spread).astype(np.float32)
        name = f"m{number}{tail}"
        if len(shape) == 2 and draw(st.booleans()):
            constants[f"b{number}"] = rng.normal(size=WIDTH).astype(np.float32)
            ops.append(op("Gemm", f"{source} {weight} b{number}", name, transB=draw(st.integers(0, 1))))
        else:
            ops.append(op("MatMul", f"{source} {weight}", name))
            if draw(st.booleans()):
                constants[f"b{number}"] = rng.normal(size=WIDTH).astype(np.float32)
                ops.append(op("Add", f"{name} b{number}", f"{name}b"))
                name = f"{name}b"
        wishes[f"op_m{number}{tail}"] = draw(st.sampled_from(["any", "dynamic", "dynamic", "float"]))
        return name

    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["linear", "relu", "residual", "attention"]))
        if kind == "attention" and len(shape) == 3:
            q, k, v = (linear(at, f"{number}{tail}") for tail in "qkv")
            ops.append(op("Transpose", k, f"t{number}", perm=[0, 2, 1]))
            ops.append(op("MatMul", f"{q} t{number}", f"s{number}"))
            ops.append(op("Softmax", f"s{number}", f"p{number}", axis=-1))
            ops.append(op("MatMul", f"p{number} {v}", f"c{number}"))
            at = f"c{number}"
            continue
        before, at = at, linear(at, str(number))
        if kind == "relu":
            ops.append(op("Relu", at, f"r{number}"))
            at = f"r{number}"
        elif kind == "residual":
            ops.append(op("Add", f"{at} {before}", f"z{number}"))
            at = f"z{number}"
    last = ops[-1]
    ops[-1] = replace(last, name="op_last", outputs=("y",))
    wishes["op_last" if last.name in wishes else last.name] = wishes.pop(last.name, "any")
    graph = model(ops, inputs={"x": shape}, outputs={"y": None}, constants=constants)
    feeds = [{"x": (rng.normal(size=shape) * 2).astype(np.float32)} for _ in range(2)]
    names = {o.name for o in ops}
    return graph, feeds, {name: wish for name, wish in wishes.items() if name in names}


def mixed_nets_agree(net):
    graph, feeds, wishes = net
    annotated, _ = ready(graph, feeds)
    asked = asking(annotated, wishes)
    plan = planner.plan(asked, TARGET)
    planner.check(plan, asked, TARGET)
    # A product whose Add is fused into it is asked by its own name all the same.
    for name, wish in wishes.items():
        kernel = next(k for k in plan.fused.regions if any(o.name == name for o in k.ops))
        row = plan.row_of(kernel.name)
        assert (wish == "dynamic") == (row is not None and row.dynamic is not None)
    same_everywhere(asked, plan, feeds)


@settings(max_examples=8, deadline=None)
@given(nets())
def test_mixed_nets_run_as_the_interpreter_says(net):
    mixed_nets_agree(net)


@pytest.mark.soak
@given(nets())
def test_many_mixed_nets_run_as_the_interpreter_says(net):
    mixed_nets_agree(net)
