"""Recurrent layers as TOSA programs: the reference model against the interpreter, which asks onnxruntime.

Inside a layer all is float32, so two engines agree but for the order of their sums.
"""

from pathlib import Path

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_onnx
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from planner.target.load import load_target
from tests.formats.tosa.writer.running import agreed, fed, with_all_results
from tests.oracles import tosa
from tests.recurrent import layers
from tests.recurrent.layers import LAYERS, Layer, data, sample

DEVICE = load_target(Path(layers.__file__).parent / "device.yaml")
MORE = {
    "relu": Layer(attributes={"activations": ["Relu", "Tanh", "Relu"], "clip": 1.5}),
    "gru_backwards": Layer("GRU", "b h", "y h", {"direction": "reverse", "linear_before_reset": 1}),
}
REFUSED = {
    "lengths": "LSTM at 'layer': lengths of sequences; tosa accepts whole ones",
    "everything": "lengths of sequences",
    "other_activations": "LSTM at 'layer': activation 'HardSigmoid'; tosa accepts Relu, Sigmoid, Tanh",
    "gru_bidirectional": "lengths of sequences",
    "rnn_bidirectional": "lengths of sequences",
}
EVERY = {name: layer for name, layer in {**LAYERS, **MORE}.items() if name not in REFUSED}


def planned(layer):
    graph = read_onnx(data(layer))
    graph = planner.annotate(
        graph, stats=planner.calibrate(graph, [sample(layer, seed) for seed in range(4)])
    )
    return graph, planner.plan(graph, DEVICE)


def test_every_layer_computes_what_the_interpreter_does(tmp_path):
    """Here no stored result is off; where a sum ends next to a tie it may be, by one step."""
    made = {name: (*with_all_results(*planned(layer)), sample(layer, 9)) for name, layer in EVERY.items()}
    jobs = [(write_tosa(graph, plan), [fed(graph, plan, feeds)]) for graph, plan, feeds in made.values()]
    off = total = 0
    for (name, (graph, plan, feeds)), found in zip(made.items(), tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), f"{name}: {found}"
        for value, wanted, got in agreed(Interpreter(graph, plan).run(feeds), plan, found[0]):
            assert got.shape == wanted.shape, f"{name}: {value}"
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(got, wanted, atol=1e-6, err_msg=f"{name}: {value}")
                continue
            steps = np.abs(got.astype(int) - wanted.astype(int))
            assert steps.max() <= 1, f"{name}: {value}"
            off, total = off + np.count_nonzero(steps), total + steps.size
    assert total > 2500
    assert off <= total / 500


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_has_no_words_for_is_refused(name):
    with pytest.raises(UnsupportedExport) as caught:
        write_tosa(*planned(LAYERS[name]))
    assert REFUSED[name] in str(caught.value)
