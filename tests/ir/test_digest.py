"""The digest of a model: kept where no number can change, taken anew where one can."""

from dataclasses import replace

import numpy as np

from planner.ir.graph import Constant, Graph, Value, model_digest


def _graph(array):
    value = Value("w", array.shape, "f32")
    return Graph("g", {"w": value}, (), (), ("w",), constants={"w": Constant(array)})


def test_digest_follows_numbers_that_can_be_written():
    graph = _graph(np.zeros(3, np.float32))
    before = model_digest(graph)
    graph.constants["w"].array[1] = 1.0
    assert model_digest(graph) != before


def test_a_kept_digest_is_that_of_the_numbers():
    loose, fixed = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32)
    fixed.setflags(write=False)
    graph = _graph(fixed)
    assert model_digest(graph) == model_digest(graph) == model_digest(_graph(loose))
    assert model_digest(replace(graph, name="other")) != model_digest(graph)
