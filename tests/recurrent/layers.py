"""Recurrent layers in every form ONNX has, each as a model of one node, and samples for it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TIME, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6


@dataclass(frozen=True)
class Layer:
    """One node: which of its operands and results are there, and its attributes.

    Attributes:
      has: operands beside x, w and r: `b`, `lens`, `h`, `c`, `p`; a capital (`H`, `C`) is a constant.
      results: of `y`, `h`, `c`; the others are "".
    """

    kind: str = "LSTM"
    has: str = "b"
    results: str = "y"
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def directions(self) -> int:
        """How many ways the sequence is read."""
        return 2 if self.attributes.get("direction") == "bidirectional" else 1

    @property
    def batch_first(self) -> bool:
        """Whether `layout` is 1."""
        return self.attributes.get("layout") == 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each operand and result by its name."""
        d, gates = self.directions, GATES[self.kind]
        state = (BATCH, d, HIDDEN) if self.batch_first else (d, BATCH, HIDDEN)
        return {
            "x": (BATCH, TIME, WIDTH) if self.batch_first else (TIME, BATCH, WIDTH),
            "w": (d, gates * HIDDEN, WIDTH),
            "r": (d, gates * HIDDEN, HIDDEN),
            "b": (d, 2 * gates * HIDDEN),
            "lens": (BATCH,),
            "h0": state,
            "c0": state,
            "p": (d, 3 * HIDDEN),
            "y": (BATCH, TIME, d, HIDDEN) if self.batch_first else (TIME, d, BATCH, HIDDEN),
            "h": state,
            "c": state,
        }


def data(layer: Layer, seed: int = 0) -> bytes:
    """The model."""
    rng, shapes = np.random.default_rng(seed), layer.shapes()
    weights, inputs = [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes["x"])]
    operands = ["x"]
    words = {"h": "h0", "c": "c0", "H": "h0", "C": "c0"}
    present = {words.get(word, word): word for word in layer.has.split()}
    for name in ("w", "r", "b", "lens", "h0", "c0", "p")[: 5 if layer.kind != "LSTM" else 7]:
        word = present.get(name, name if name in ("w", "r") else "")
        operands.append(name if word else "")
        if word == "lens":
            inputs.append(helper.make_tensor_value_info("lens", TensorProto.INT32, shapes["lens"]))
        elif word in ("h", "c"):
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]))
        elif word:
            numbers = rng.uniform(-0.7, 0.7, shapes[name]).astype(np.float32)
            weights.append(numpy_helper.from_array(numbers, name))
    while not operands[-1]:
        operands.pop()
    outputs = [
        name if name in layer.results else "" for name in ("y", "h", "c")[: 2 + (layer.kind == "LSTM")]
    ]
    node = helper.make_node(layer.kind, operands, outputs, "layer", hidden_size=HIDDEN, **layer.attributes)
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in outputs if n]
    graph = helper.make_graph([node], "layer", inputs, results, weights)
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def sample(layer: Layer, seed: int = 0) -> dict[str, np.ndarray]:
    """One array per model input: the sequence, and the states and lengths that are no constants."""
    rng, shapes = np.random.default_rng(seed), layer.shapes()
    found = {"x": rng.normal(size=shapes["x"]).astype(np.float32)}
    words = layer.has.split()
    if "lens" in words:
        found["lens"] = np.asarray([TIME, 2, 3], np.int32)
    if "h" in words:
        found["h0"] = rng.uniform(-0.9, 0.6, shapes["h0"]).astype(np.float32)
    if "c" in words:
        found["c0"] = rng.uniform(-2.5, 2, shapes["c0"]).astype(np.float32)
    return found


LAYERS = {
    "plain": Layer(has=""),
    "bias": Layer(),
    "reverse": Layer(attributes={"direction": "reverse"}),
    "bidirectional": Layer(has="b h c", results="y h c", attributes={"direction": "bidirectional"}),
    "lengths": Layer(has="b lens", results="y h c"),
    "states": Layer(has="b h c", results="y h c"),
    "states_without_bias": Layer(has="h c", results="y h c"),
    "constant_states": Layer(has="b H C", results="y h c"),
    "hidden_state_only": Layer(has="b h", results="h"),
    "cell_state_only": Layer(has="b c", results="c"),
    "peepholes": Layer(has="b p", results="y c"),
    "everything": Layer(
        has="b lens h c p", results="y h c", attributes={"direction": "bidirectional", "clip": 2.0}
    ),
    "coupled_gates": Layer(attributes={"input_forget": 1}),
    "other_activations": Layer(attributes={"activations": ["HardSigmoid", "Softsign", "Tanh"]}),
    "batch_first": Layer(has="b h c", results="y h c", attributes={"layout": 1}),
    "gru": Layer("GRU"),
    "gru_states": Layer("GRU", "b h", "y h"),
    "gru_linear_before_reset": Layer("GRU", "b h", "y h", {"linear_before_reset": 1}),
    "gru_bidirectional": Layer("GRU", "b lens h", "y h", {"direction": "bidirectional"}),
    "gru_clipped": Layer("GRU", "b H", "y h", {"clip": 1.5}),
    "gru_batch_first": Layer("GRU", "b h", "y h", {"layout": 1}),
    "rnn": Layer("RNN"),
    "rnn_states": Layer("RNN", "b h", "y h"),
    "rnn_relu": Layer("RNN", "b h", "y h", {"activations": ["Relu"]}),
    "rnn_bidirectional": Layer(
        "RNN", "b lens h", "y h", {"direction": "bidirectional", "activations": ["Tanh", "Relu"]}
    ),
    "rnn_batch_first": Layer("RNN", "b h", "y h", {"layout": 1}),
}
