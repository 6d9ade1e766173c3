"""LSTMs as UNIDIRECTIONAL_SEQUENCE_LSTM: LiteRT's kernels against the interpreter, call after call."""

import numpy as np
import onnx
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.litert.writer.write import write_litert
from planner.interpreter.evaluate import Interpreter
from tests.formats.litert.writer.running import integers, told
from tests.oracles import litert

STEPS, BATCH, ELEMENTS, HIDDEN = 6, 2, 5, 4
RESULTS = ("y", "h", "c")


def lstm(direction="forward", *, holes=False, results=RESULTS, more="", operands="", bias=True):
    """The bytes of a model with one LSTM, all of its weights drawn."""
    ways, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(3)
    shapes = dict.fromkeys(("h", "c"), f"float[{ways},{BATCH},{HIDDEN}]")
    shapes["y"] = f"float[{STEPS},{ways},{BATCH},{HIDDEN}]"
    outputs = ", ".join(f"{shapes[name]} {name}" for name in results)
    named = ", ".join(name if name in results else "" for name in RESULTS)
    given = operands or (", , , , p" if holes else "")
    given = f", b{given}" if bias else given and f", {given}"
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{STEPS},{BATCH},{ELEMENTS}] x) => ({outputs}) '
        f'{{ {named} = LSTM <hidden_size={HIDDEN}, direction="{direction}"{more}> (x, w, r{given}) }}'
    )
    model = onnx.parser.parse_model(text)
    sizes = {"w": (4 * HIDDEN, ELEMENTS), "r": (4 * HIDDEN, HIDDEN), "b": (8 * HIDDEN,), "p": (3 * HIDDEN,)}
    for name, shape in sizes.items():
        if {"p": holes, "b": bias}.get(name, True):
            array = rng.normal(0, 0.6, (ways, *shape)).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    if operands:
        state = np.full((ways, BATCH, HIDDEN), 0.5, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(state, "h0"))
    return model.SerializeToString()


def samples(count=5):
    rng = np.random.default_rng(4)
    return [{"x": rng.normal(0, 1, (STEPS, BATCH, ELEMENTS)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("kernels", ["reference", "optimized"])
@pytest.mark.parametrize(
    ("model", "counts"),
    [
        (lstm(), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 1}),
        (lstm(holes=True), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 1}),
        (lstm("reverse"), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 1, "REVERSE_V2": 2}),
        (lstm("bidirectional"), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 2, "REVERSE_V2": 2}),
        (lstm(results=("c",)), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 1}),
        (lstm(results=("h",)), {"UNIDIRECTIONAL_SEQUENCE_LSTM": 1, "SLICE": 1}),
    ],
)
def test_in_float(model, counts, kernels, tmp_path):
    graph = planner.load_model(model)
    plan = planner.plan(graph, "litert-int8")
    data = write_litert(graph, plan)
    assert counts.items() <= told(data).counts.items()
    given, interpreter = samples(), Interpreter(graph, plan)
    found = litert.run(tmp_path, [(data, given)], kernels=kernels)[0]
    for sample, got in zip(given, found, strict=True):
        for value, array in interpreter.run(sample).outputs.items():
            np.testing.assert_allclose(got[value], array, rtol=0, atol=1e-6, err_msg=value)


@pytest.mark.parametrize("results", [RESULTS, ("y",), ("h",)])
@pytest.mark.parametrize(("holes", "bias"), [(False, True), (True, True), (False, False)])
def test_in_integers(holes, bias, results, tmp_path):
    """Every integer, also where nobody reads the cell state, which the plan has a type of all the same."""
    graph, given = planner.load_model(lstm(holes=holes, results=results, bias=bias)), samples(16)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, given))
    plan = planner.plan(graph, "litert-int8")
    assert [kernel.row is None for kernel in plan.kernels_in_order] == [False]
    data = write_litert(graph, plan)
    assert told(data).counts["UNIDIRECTIONAL_SEQUENCE_LSTM"] == 1
    interpreter = Interpreter(graph, plan)
    for kernels in ("reference", "optimized"):
        folder = tmp_path / kernels
        folder.mkdir()
        found = litert.run(folder, [(data, given)], kernels=kernels)[0]
        assert not isinstance(found, str), found
        for sample, got in zip(given, found, strict=True):
            for value, array in interpreter.run(sample).outputs.items():
                pair = [integers(plan, value, item) for item in (got[value], array)]
                np.testing.assert_array_equal(*pair, err_msg=value)


@pytest.mark.parametrize("gain", [1, 5])
def test_words_that_saturate(gain, tmp_path):
    """Cell states on every power of two that the runtime has, weights and inputs beyond what words hold."""
    jobs, wanted = [], []
    for power in range(-15, -8):
        model, rng = onnx.load_from_string(lstm(holes=power % 2 == 0)), np.random.default_rng(-power)
        for weights in model.graph.initializer:
            drawn = rng.normal(0, gain, tuple(weights.dims)).astype(np.float32)
            weights.CopyFrom(onnx.numpy_helper.from_array(drawn, weights.name))
        given = [{"x": (gain * sample["x"]).astype(np.float32)} for sample in samples(4)]
        graph = planner.load_model(model.SerializeToString())
        kind = f"!quant.uniform<i16:f32, {2.0**power:.20f}>"
        graph = planner.annotate(
            graph,
            stats=planner.calibrate(graph, given),
            annotations={"format": "qplan.annotations/1", "values": {"c": kind}},
        )
        plan = planner.plan(graph, "litert-int8")
        assert [kernel.row is None for kernel in plan.kernels_in_order] == [False]
        interpreter = Interpreter(graph, plan)
        jobs.append((write_litert(graph, plan), given))
        wanted.append((plan, [interpreter.run(sample).outputs for sample in given]))
    for found, (plan, others) in zip(litert.run(tmp_path, jobs), wanted, strict=True):
        assert not isinstance(found, str), found
        for got, outputs in zip(found, others, strict=True):
            for value, array in outputs.items():
                pair = [integers(plan, value, item) for item in (got[value], array)]
                np.testing.assert_array_equal(*pair, err_msg=value)


def test_what_the_operator_has_not_is_refused():
    graph = planner.load_model(lstm(more=", clip=1.5"))
    with pytest.raises(UnsupportedExport, match="runs LSTM in float"):
        write_litert(graph, planner.plan(graph, "litert-int8"))


def test_a_state_that_the_operator_does_not_start_at_unrolls_the_layer(tmp_path):
    graph, given = planner.load_model(lstm(operands=", , h0")), samples(4)
    plan = planner.plan(graph, "litert-int8")
    data = write_litert(graph, plan)
    assert told(data).counts["UNIDIRECTIONAL_SEQUENCE_LSTM"] == 0
    interpreter = Interpreter(graph, plan)
    for sample, got in zip(given, litert.run(tmp_path, [(data, given)])[0], strict=True):
        for value, array in interpreter.run(sample).outputs.items():
            np.testing.assert_allclose(got[value], array, rtol=1e-5, atol=1e-6, err_msg=value)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_file_is_read_again(direction, is_stored, tmp_path):
    """Planned as it is read, it computes what it did."""
    graph, given = planner.load_model(lstm(direction)), samples(4)
    if is_stored:
        graph = planner.annotate(graph, stats=planner.calibrate(graph, given))
    data = write_litert(graph, planner.plan(graph, "litert-int8"))
    read = planner.load_model(data)
    assert [op.type for op in read.ops].count("LSTM") == told(data).counts["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    plan = planner.plan(read, "litert-int8")
    again = write_litert(read, plan)
    if is_stored and direction == "forward":
        assert told(again).counts == told(data).counts
    before, after = litert.run(tmp_path, [(data, given), (again, given)])
    for one, other in zip(before, after, strict=True):
        for value in RESULTS:
            np.testing.assert_array_equal(other[value], one[value], err_msg=value)
