"""Recurrent layers in both forms: jaxlib against the interpreter, which has onnxruntime compute them.

Inside a layer all is float32, so two engines agree but for the order of their sums.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_onnx
from planner.formats.table import EXPORTERS
from planner.target.load import load_target
from tests.formats.stablehlo.writer.running import job, steps_off, with_all_results
from tests.oracles import hlo
from tests.recurrent import layers
from tests.recurrent.layers import LAYERS, Layer, data, sample

DEVICE = load_target(Path(layers.__file__).parent / "device.yaml")
MORE = {
    "all_activations": Layer(attributes={"activations": ["Relu", "Softplus", "Softsign"], "clip": 1.5}),
    "gru_backwards": Layer("GRU", "b lens h", "y h", {"direction": "reverse", "linear_before_reset": 1}),
}
FORMS = {"stablehlo": "float32_spec", "stablehlo-int": "exact_even"}
EVERY = {**LAYERS, **MORE}


@cache
def planned(name):
    layer = EVERY[name]
    graph = read_onnx(data(layer))
    graph = planner.annotate(
        graph, stats=planner.calibrate(graph, [sample(layer, seed) for seed in range(1, 5)])
    )
    return graph, planner.plan(graph, DEVICE)


@pytest.mark.parametrize("form", FORMS)
def test_every_layer_computes_what_the_interpreter_does(form):
    """Here no stored result is off; where a sum ends next to a tie it may be, by one step."""
    made = {name: (*with_all_results(*planned(name)), sample(layer, 9)) for name, layer in EVERY.items()}
    assert all(plan.kernels["layer"].row for _, plan, _ in made.values())
    jobs = [job(graph, plan, form, feeds) for graph, plan, feeds in made.values()]
    off = total = 0
    for (name, (graph, plan, feeds)), results in zip(made.items(), hlo.evaluated(jobs), strict=True):
        stored, floats = steps_off(graph, plan, FORMS[form], feeds, results)
        assert set(graph.outputs) - set(stored) == set(floats)
        assert stored, name
        for steps in stored.values():
            assert steps.max() <= 1, name
            off, total = off + np.count_nonzero(steps), total + steps.size
    assert total > 3000
    assert off <= total / 500


def test_a_loop_is_written_once_however_long_the_sequence_is():
    graph, plan = planned("bidirectional")
    text = EXPORTERS["stablehlo"](graph, plan).decode()
    assert text.count('"stablehlo.while"') == 2
    assert text.count('"stablehlo.tanh"') == 4


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (
            {"activations": ["Sigmoid", "ScaledTanh", "Tanh"]},
            "layer.out[0] (in float): LSTM at 'layer': activation 'ScaledTanh'; hardsigmoid, relu, ",
        ),
        (
            {"activation_alpha": [0.1]},
            "activation one with parameters of its own; hardsigmoid, relu, sigmoid",
        ),
    ],
)
def test_an_activation_it_has_no_words_for_is_refused(attributes, words):
    layer = Layer(attributes=attributes)
    graph = read_onnx(data(layer))
    with pytest.raises(UnsupportedExport) as caught:
        EXPORTERS["stablehlo"](graph, planner.plan(graph, DEVICE))
    assert words in str(caught.value)
