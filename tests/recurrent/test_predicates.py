"""What `when` of a row asks of recurrent ops: attributes, ONNX's where absent, and absent operands."""

from pathlib import Path

import pytest

from planner.checker.check import check
from planner.formats.annotated.document import read_annotated
from planner.formats.onnx.read import read_onnx
from planner.pipeline import annotate, calibrate, plan
from planner.target.load import load_target
from tests.recurrent.layers import LAYERS, data, sample

TEXT = (Path(__file__).parent / "device.yaml").read_text(encoding="utf-8")
ANNOTATED = (Path(__file__).parents[1] / "cases" / "lstm_states_are_classes.json").read_text()


def device(when):
    """The device whose kernels of every kind ask for that."""
    return load_target(TEXT.replace("    out: {y?: a8,", f"    when: {{{when}}}\n    out: {{y?: a8,"))


@pytest.mark.parametrize(
    ("when", "served", "reason"),
    [
        ("LSTM.direction: forward", "bias", ""),
        ("LSTM.direction: forward", "reverse", "LSTM.direction is reverse, must be forward"),
        ("LSTM.direction: [forward, reverse]", "reverse", ""),
        ("LSTM.activations: [[Sigmoid, Tanh, Tanh]]", "bias", ""),
        ("LSTM.activations: [[Sigmoid, Tanh, Tanh]]", "other_activations", "is ['HardSigmoid'"),
        ("LSTM.clip: absent", "bias", ""),
        ("LSTM.clip: absent", "everything", "LSTM.clip is 2.0, must be absent"),
        ("LSTM.sequence_lens: absent", "states", ""),
        ("LSTM.sequence_lens: absent", "lengths", "is not a constant ('lens'), must be absent"),
        ("LSTM.input_forget: 0", "coupled_gates", "LSTM.input_forget is 1, must be 0"),
        ("LSTM.layout: 0", "batch_first", ""),
        ("GRU.linear_before_reset: 0", "gru", ""),
        ("GRU.linear_before_reset: 1", "gru_linear_before_reset", ""),
        ("GRU.linear_before_reset: 0", "gru_linear_before_reset", "GRU.linear_before_reset is 1, must be 0"),
        ("GRU.activations: [[Sigmoid, Tanh]]", "gru", ""),
        ("GRU.clip: absent", "gru_clipped", "GRU.clip is 1.5, must be absent"),
        ("RNN.activations: [[Tanh]]", "rnn", ""),
        ("RNN.activations: [[Tanh]]", "rnn_relu", "RNN.activations is ['Relu'], must be ['Tanh']"),
        ("h_in: absent", "gru", ""),
        ("h_in: absent", "gru_states", "h_in is present ('h0')"),
    ],
)
def test_a_row_serves_what_its_predicates_allow(when, served, reason):
    """The checker reads the same predicates by its own code, and agrees where the row serves."""
    target, graph = device(when), read_onnx(data(LAYERS[served]))
    graph = annotate(graph, stats=calibrate(graph, [sample(LAYERS[served], 1)]))
    made = plan(graph, target)
    check(made, graph, target)
    assert (made.kernels["layer"].row is None) == bool(reason)
    assert reason in (made.kernels["layer"].reason or "")


@pytest.mark.parametrize("when", ["lstm.clip: absent", "LSTM.clip: absent, LSTM.sequence_lens: absent"])
def test_a_kernel_without_ops_has_the_defaults(when):
    """An annotated model says nothing of attributes: ONNX's are taken; an op of another name has none."""
    text = TEXT.replace("kernel: LSTM", f"kernel: lstm\n    when: {{{when}}}", 1)
    target = load_target(text.partition("tests:")[0])
    graph = read_annotated(ANNOTATED)
    made = plan(graph, target)
    check(made, graph, target)
    assert (made.kernels["lstm"].row is None) == when.startswith("lstm")
