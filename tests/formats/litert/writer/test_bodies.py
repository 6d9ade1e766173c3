"""Loops and branches as subgraphs: LiteRT's kernels against the interpreter, and what none says."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.interpreter.evaluate import Interpreter
from tests.formats.bodies import MODELS, REFUSED, loaded, prepared
from tests.formats.litert.writer.running import told
from tests.oracles import litert

OPTIMIZED = ("branch", "deep", "passes")
"""Models with a sum of stored integers, whose reference kernel forgets a zero point."""
BODIES = {
    "branch": {"IF": 1},
    "branch_in_a_loop": {"WHILE": 1},
    "captured": {"WHILE": 1},
    "collected": {"WHILE": 1},
    "columns": {"WHILE": 1},
    "deep": {"IF": 1},
    "passes": {"IF": 1},
    "scan": {"WHILE": 1},
    "shapes": {},
    "times": {"WHILE": 1},
    "until": {"WHILE": 1},
    "while": {"WHILE": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_computes_what_the_interpreter_does(name, tmp_path):
    graph, samples = prepared(*MODELS[name])
    plan = planner.plan(graph, "litert-int8")
    assert any(kernel.row for kernel in plan.kernels_in_order)
    data = planner.export(graph, plan, "litert")
    assert planner.export(graph, plan, "litert") == data
    counts = told(data).counts
    assert {key: counts[key] for key in ("IF", "WHILE") if counts[key]} == BODIES[name]
    kernels = "optimized" if name in OPTIMIZED else "reference"
    found = litert.run(tmp_path, [(data, samples)], kernels=kernels)[0]
    assert not isinstance(found, str), found
    interpreter, seen = Interpreter(graph, plan), set()
    for sample, got in zip(samples, found, strict=True):
        wanted = interpreter.run(sample).outputs
        assert got.keys() == wanted.keys()
        for value, array in wanted.items():
            np.testing.assert_array_equal(got[value], array, err_msg=value)
        seen.add(b"".join(got[key].tobytes() for key in sorted(got)))
    assert len(seen) > 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_fixed_size_is_refused(name):
    text, *words = REFUSED[name]
    graph = loaded(text)
    with pytest.raises(UnsupportedExport) as caught:
        planner.export(graph, planner.plan(graph, "litert-int8"), "litert")
    assert words[0] in str(caught.value)
    assert f"litert {words[1]}" in str(caught.value)


@pytest.mark.parametrize("most", [2**31, 2**63 - 1])
def test_a_count_beyond_32_bits_never_ends_a_loop(most, tmp_path):
    text, *others = MODELS["while"]
    bounded = text.replace('Loop ("",', "Loop (most,").replace(
        "> {\n  first", f", int64 most = {{{most}}}> {{\n  first"
    )
    assert bounded.count("most") == 2
    graph, samples = prepared(bounded, *others)
    plan = planner.plan(graph, "litert-int8")
    (found,) = litert.run(tmp_path, [(planner.export(graph, plan, "litert"), samples)])
    assert not isinstance(found, str), found
    for sample, got in zip(samples, found, strict=True):
        for value, array in Interpreter(graph, plan).run(sample).outputs.items():
            np.testing.assert_array_equal(got[value], array)


def test_an_lstm_in_a_loop_is_refused():
    """Its operator keeps the states of the trip before."""
    graph = loaded("""
g (float[3,1,2] x, float[1,1,2] h) => (float[1,1,2] y)
<int64 most = {2}, bool yes = {1}, float[1,8,2] w = {1,0,0.5,0,1.1,0,0.2,0,1,0,0.5,0,1.1,0,0.2,0},
 float[1,8,2] r = {1,0,0.5,0,1.1,0,0.2,0,1,0,0.5,0,1.1,0,0.2,0}> {
  y = Loop (most, yes, h) <
    body = b (int64 i, bool go, float[1,1,2] s) => (bool on, float[1,1,2] t) {
      on = Identity(go)  l, t = LSTM<hidden_size = 2>(x, w, r) }> }""")
    with pytest.raises(UnsupportedExport, match="LSTM in the body of a loop"):
        planner.export(graph, planner.plan(graph, "litert-int8"), "litert")


def test_a_loop_that_makes_no_trip_collects_nothing():
    """The interpreter gives no slices, as onnxruntime does; a file has no tensor without elements."""
    text = MODELS["collected"][0].replace("int64 most = {3}", "int64 most = {0}")
    graph, samples = prepared(text.replace("[3,4] seen, int64[3]", "[0,4] seen, int64[0]"), {"x": (4,)})
    plan = planner.plan(graph, "litert-int8")
    found = Interpreter(graph, plan).run(samples[0]).outputs
    assert {name: array.shape for name, array in found.items()} == {"y": (4,), "seen": (0, 4), "counts": (0,)}
    assert found["counts"].dtype == np.int64
    with pytest.raises(UnsupportedExport, match="'seen' has a slice of each of 0 trips; litert accepts"):
        planner.export(graph, plan, "litert")
    with pytest.raises(UnsupportedExport, match="'seen' has a slice of each of 0 trips; tosa accepts"):
        planner.export(graph, planner.plan(graph, "tosa-int8"), "tosa")
