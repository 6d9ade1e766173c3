"""Cell states at every step: equal to those of the sequence cut there, and in the statistics."""

from dataclasses import replace

import numpy as np
import pytest

from planner.calibration.recurrent import cell_states, followed, gate_products, read_by
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.sessions import open_session
from planner.formats.onnx.write import write_graph
from tests.recurrent.layers import LAYERS, TIME, data, sample

FORWARD = [
    name
    for name, layer in LAYERS.items()
    if layer.kind == "LSTM" and "direction" not in layer.attributes and "lens" not in layer.has
]
CELLS = [name for name, layer in LAYERS.items() if layer.kind == "LSTM"]


def loose(graph, names):
    """The graph without claims about the shapes of some values."""
    return replace(graph, values={**graph.values, **{n: replace(graph.values[n], shape=None) for n in names}})


def run(graph, feeds, names):
    session = open_session(write_graph(replace(loose(graph, names), outputs=tuple(names))))
    used = {port.name for port in session.get_inputs()}
    return dict(zip(names, session.run(None, {k: v for k, v in feeds.items() if k in used}), strict=True))


def states_of(name, feeds):
    graph = read_onnx(data(LAYERS[name]))
    (cell,) = followed(graph, [out for op in graph.ops for out in op.outputs])
    names = [n for n in read_by(cell) if n not in graph.inputs]
    return cell.op, cell_states(cell, {**feeds, **run(graph, feeds, names)}, gate_products(1))


@pytest.mark.parametrize("name", CELLS)
def test_the_last_state_is_that_of_the_op(name):
    graph = read_onnx(data(LAYERS[name]))
    feeds = sample(LAYERS[name], 3)
    op, states = states_of(name, feeds)
    wanted = run(graph, feeds, [op.outputs[2]])[op.outputs[2]]
    direction = LAYERS[name].attributes.get("direction", "forward")
    ends = {"forward": [-1], "reverse": [0], "bidirectional": [-1, 0]}[direction]
    for d, end in enumerate(ends):
        np.testing.assert_allclose(states[d, end], wanted[d], atol=2e-6)


@pytest.mark.parametrize("name", sorted(set(FORWARD) - {"batch_first"}))
def test_a_state_on_the_way_is_that_of_a_shorter_sequence(name):
    feeds = sample(LAYERS[name], 3)
    _, states = states_of(name, feeds)
    graph = read_onnx(data(LAYERS[name]))
    graph = loose(graph, graph.inputs)
    op = next(op for op in graph.ops if op.type == "LSTM")
    for t in range(1, TIME):
        found = run(graph, {**feeds, "x": feeds["x"][:t]}, [op.outputs[2]])[op.outputs[2]]
        np.testing.assert_allclose(found[0], states[0, t - 1], atol=2e-6)


@pytest.mark.parametrize("method", ["minmax", "percentile:100"])
@pytest.mark.parametrize("name", ["states", "everything", "peepholes", "plain"])
def test_statistics_of_a_cell_state_are_those_of_all_steps(name, method):
    graph = read_onnx(data(LAYERS[name]))
    samples = [sample(LAYERS[name], seed) for seed in range(3)]
    op = next(op for op in graph.ops if op.type == "LSTM")
    every = [states_of(name, feeds)[1] for feeds in samples]
    found = calibrate(graph, samples, method=method).values[op.outputs[2]]
    assert found.lo == float(min(states.min() for states in every))
    assert found.hi == float(max(states.max() for states in every))


def test_states_on_the_way_are_wider_than_the_last():
    """A sequence that ends in silence: the op's own result would claim a range that its steps leave."""
    graph = read_onnx(data(LAYERS["peepholes"]))
    feeds = sample(LAYERS["peepholes"], 0)
    feeds["x"][:2] *= 20
    feeds["x"][2:] = 0
    last = run(graph, feeds, ["c"])["c"]
    found = calibrate(graph, [feeds]).values["c"]
    assert found.hi - found.lo > 1.2 * (last.max() - last.min())
