"""SQNR and largest errors against numpy, and what cannot be compared."""

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.accuracy.quality import Quality
from planner.errors import ModelError, SampleError
from planner.formats.onnx.write import write_graph
from planner.formats.onnx.writer.qdq import write_qdq
from planner.formats.onnx.writer.qoperator import write_qoperator
from planner.formats.qonnx.qonnx import write_qonnx
from planner.interpreter.compare import Comparison, compare
from planner.interpreter.evaluate import evaluate
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from tests.formats.plans import i8, model, op, plan_of, u8, weight
from tests.interpreter.exported import session, unshaped


def small(**facts) -> tuple[Graph, Plan, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((3, 2, 1, 1)).astype(np.float32)
    ops = [op("Conv", "x w", "a"), op("Tanh", "a", "t"), op("Neg", "t", "y")]
    graph = unshaped(
        model(ops, inputs={"x": (1, 2, 4, 4)}, outputs={"y": (), "a": ()}, constants={"w": w}, facts=facts)
    )
    kernels = [(("a",), "x w", "a"), (("t",), "a", "t"), (("y",), "t", "y")]
    types = {"x": u8(0.03, 128), "w": weight(w), "a": u8(0.07, 128), "t": u8(0.01, 128), "y": None}
    plan = plan_of(graph, kernels, types)
    return graph, plan, [{"x": rng.standard_normal((1, 2, 4, 4)).astype(np.float32)} for _ in range(5)]


def sqnr(wanted: list[np.ndarray], got: list[np.ndarray]) -> float:
    pairs = list(zip(wanted, got, strict=True))
    noise = sum(float(((w.astype(float) - g) ** 2).sum()) for w, g in pairs)
    return 10 * math.log10(sum(float((w.astype(float) ** 2).sum()) for w, _ in pairs) / noise)


def test_sqnr_over_all_samples():
    """Sums over samples, not a mean of figures; the worst output is the model's figure."""
    graph, plan, samples = small()
    comparison = compare(graph, write_qoperator(graph, plan), samples)
    reference = session(write_graph(graph))
    wanted = [dict(zip(("y", "a"), reference.run(["y", "a"], s), strict=True)) for s in samples]
    got = [evaluate(graph, plan, s, arithmetic="float32_even").outputs for s in samples]
    assert (comparison.samples, list(comparison.outputs), comparison.values) == (5, ["y", "a"], {})
    for name, quality in comparison.outputs.items():
        a, b = [w[name] for w in wanted], [g[name] for g in got]
        assert quality.sqnr == pytest.approx(sqnr(a, b), abs=1e-9)
        assert quality.max_error == pytest.approx(max(np.abs(p - q).max() for p, q in zip(a, b, strict=True)))
        assert quality.elements == 5 * 48
    assert comparison.worst_sqnr == min(q.sqnr for q in comparison.outputs.values())
    assert 20 < comparison.worst_sqnr < 60


def test_inner_values_where_asked_for():
    graph, plan, samples = small()
    comparison = compare(graph, write_qdq(graph, plan), samples, values=True)
    assert list(comparison.values) == ["t"]
    assert comparison.values["t"].sqnr == pytest.approx(comparison.outputs["y"].sqnr)


def test_a_file_from_a_path_and_with_optimisations(tmp_path):
    graph, plan, samples = small()
    path = tmp_path / "quantized.onnx"
    path.write_bytes(write_qdq(graph, plan))
    plain = compare(graph, path, samples, values=True)
    optimised = compare(graph, path, samples, optimisation="all")
    assert plain.samples == optimised.samples == 5
    assert optimised.worst_sqnr == pytest.approx(plain.worst_sqnr, abs=3)


def test_the_float_model_itself_is_exact():
    graph, _, samples = small()
    comparison = compare(graph, write_graph(graph), samples)
    assert comparison == Comparison(5, {n: Quality(math.inf, 0.0, 240) for n in ("y", "a")})
    assert comparison.worst_sqnr == math.inf


def test_pinned_boundaries_are_read_as_reals():
    """Stored inputs are quantized for the file, stored outputs are read by their type."""
    graph, plan, samples = small(x=(u8(0.03, 128),), a=(i8(0.08, 1),))
    comparison = compare(graph, write_qoperator(graph, plan), samples)
    assert 20 < comparison.outputs["a"].sqnr < 60


def test_a_stored_input_needs_a_pin():
    graph, plan, samples = small(x=(u8(0.03, 128),))
    bare = replace(graph, values={name: replace(v, facts=()) for name, v in graph.values.items()})
    with pytest.raises(ModelError) as error:
        compare(bare, write_qoperator(graph, plan), samples)
    assert str(error.value) == (
        "'x' is stored as uint8 in the file, and the model has no fixed type to write it with "
        "(compare with the annotated model the plan was made from)"
    )


def test_a_stored_output_needs_a_pin():
    graph, plan, samples = small(a=(i8(0.08, 1),))
    bare = replace(graph, values={name: replace(v, facts=()) for name, v in graph.values.items()})
    with pytest.raises(ModelError) as error:
        compare(bare, write_qoperator(graph, plan), samples)
    assert str(error.value) == (
        "'a' is stored as int8 in the file, and the model has no fixed type to read it with "
        "(compare with the annotated model the plan was made from)"
    )


def test_infinities_and_nan():
    """At the same places they are no error; elsewhere all is lost."""
    ops = [op("Log", "x", "y")]
    graph = unshaped(model(ops, inputs={"x": (4,)}, outputs={"y": ()}, constants={}))
    sample = {"x": np.array([0, -1, 1, 2], np.float32)}
    assert compare(graph, write_graph(graph), [sample]).outputs["y"] == Quality(math.inf, 0.0, 4)
    other = replace(graph, ops=(op("Sqrt", "x", "y"),))
    assert compare(graph, write_graph(other), [sample]).outputs["y"] == Quality(-math.inf, math.inf, 4)


def test_another_models_file():
    graph, _, samples = small()
    other = unshaped(model([op("Neg", "z", "y")], inputs={"z": (2,)}, outputs={"y": ()}, constants={}))
    with pytest.raises(ModelError) as error:
        compare(graph, write_graph(other), samples)
    assert str(error.value) == (
        "the file has the input 'z', the model does not (is it another model's? the model has 'x')"
    )
    fewer = replace(graph, outputs=("y",))
    with pytest.raises(ModelError) as error:
        compare(graph, write_graph(fewer), samples)
    assert str(error.value) == (
        "the model has the output 'a', the file does not (is it another model's? the file has 'y')"
    )


def test_bytes_that_are_no_model(tmp_path):
    graph, _, samples = small()
    with pytest.raises(ModelError, match=r"^onnxruntime cannot load the quantized file: "):
        compare(graph, b"not a model", samples)
    with pytest.raises(ModelError, match=r"^11 bytes that are no ONNX model$"):
        compare(graph, b"not a model", samples, values=True)
    with pytest.raises(ModelError, match=r"missing\.onnx: no such file$"):
        compare(graph, tmp_path / "missing.onnx", samples)


def test_no_samples():
    graph, plan, _ = small()
    with pytest.raises(SampleError) as error:
        compare(graph, write_qdq(graph, plan), [])
    assert str(error.value) == "no samples to compare on (the calibration samples will do)"


def test_a_qonnx_file_runs_as_it_is_written(tmp_path):
    """Its Quants are no operators of onnxruntime."""
    graph, plan, samples = small()
    path = tmp_path / "quants.onnx"
    path.write_bytes(write_qonnx(graph, plan))
    comparison = compare(graph, path, samples, values=True)
    got = [evaluate(graph, plan, s, arithmetic="float32_quant").outputs["y"] for s in samples]
    wanted = [session(write_graph(graph)).run(["y"], s)[0] for s in samples]
    assert comparison.outputs["y"].sqnr == pytest.approx(sqnr(wanted, got), abs=1e-9)
