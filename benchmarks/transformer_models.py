"""Small models of one operator each: those that transformers are made of, as ONNX and onnxruntime spell them.

Shapes are fixed, so that targets of fixed shapes serve them; numbers are drawn.
Source: the operators' schemas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT: Final = "com.microsoft"
SAMPLES: Final = 4
SEED: Final = 11
ROWS: Final = 8
HEADS: Final = 4
HEAD: Final = 16
WIDTH: Final = HEADS * HEAD
ROOM: Final = 12
"""Rows of a cache."""

Shape = tuple[int, ...]
Given = Shape | np.ndarray
"""Of an operand: a shape to draw normal numbers of, or what it always is."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A model of one operator.

    Attributes:
      operands: in order; those of `weights` are constants, "" is left out.
      given: shape or numbers of each operand by name.
      results: number of results.
    """

    type: str
    operands: tuple[str, ...]
    given: Mapping[str, Given]
    weights: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21
    domain: str = ""
    results: int = 1

    @property
    def name(self) -> str:
        """As ONNX writes it, with its domain."""
        return f"{self.domain or 'ai.onnx'}.{self.type}"


ROW: Final[Shape] = (1, ROWS, WIDTH)
GROUP: Final[Shape] = (1, ROWS, 2 * HEAD)
BY_HEAD: Final[Shape] = (1, HEADS, ROWS, HEAD)
CACHE: Final[Shape] = (1, 2, ROOM, HEAD)
IMAGE: Final[Shape] = (1, 8, 6, 6)
ANGLES: Final = np.outer(np.arange(32), 0.3 ** np.arange(HEAD // 2))
QKV: Final[Mapping[str, Given]] = {"q": ROW, "k": ROW, "v": ROW}
TURNS: Final[Mapping[str, Given]] = {
    "cos": np.cos(ANGLES).astype(np.float32),
    "sin": np.sin(ANGLES).astype(np.float32),
    "ids": np.arange(ROWS)[None],
}
GROUPED: Final[Mapping[str, Given]] = {
    "q": (1, 1, WIDTH),
    "k": (1, 1, 2 * HEAD),
    "v": (1, 1, 2 * HEAD),
    "pk": CACHE,
    "pv": CACHE,
    "last": np.asarray([5], np.int32),
    "total": np.asarray(6, np.int32),
}
X: Final = ("x",)


def _contrib(kind: str, operands: tuple[str, ...], given: Mapping[str, Given], **more: Any) -> Operator:
    return Operator(kind, operands, given, domain=MICROSOFT, **more)


def _nbits() -> Operator:
    rng = np.random.default_rng(SEED)
    packed = rng.integers(0, 256, (32, 2, 16)).astype(np.uint8)
    scales = (rng.random(64) * 0.1).astype(np.float32)
    return _contrib(
        "MatMulNBits",
        ("x", "w", "s"),
        {"x": ROW, "w": packed, "s": scales},
        weights=("w", "s"),
        attributes={"K": WIDTH, "N": 32, "bits": 4, "block_size": 32},
    )


def _table() -> Operator:
    rng = np.random.default_rng(SEED)
    scales = (rng.random((7, 2)) * 0.1).astype(np.float32)
    return _contrib(
        "GatherBlockQuantized",
        ("t", "i", "s"),
        {"t": np.asarray(rng.integers(0, 16, (7, 64))), "i": np.asarray([[1, 3, 6]]), "s": scales},
        weights=("t", "s"),
        attributes={"block_size": 32, "quantize_axis": 1},
    )


_NORM: Final = {"x": ROW, "g": (WIDTH,), "c": (WIDTH,)}
_SKIP: Final = {"x": ROW, "s": ROW, "g": (WIDTH,), "c": (WIDTH,)}
_GQA: Final = ("q", "k", "v", "pk", "pv", "last", "total")
OPERATORS: Final[tuple[Operator, ...]] = (
    Operator(
        "Attention", ("q", "k", "v"), QKV, attributes={"q_num_heads": HEADS, "kv_num_heads": HEADS}, opset=23
    ),
    Operator(
        "RotaryEmbedding",
        ("x", "cos", "sin", "ids"),
        {"x": ROW, **TURNS},
        weights=("cos", "sin"),
        attributes={"num_heads": HEADS},
        opset=23,
    ),
    Operator("RMSNormalization", ("x", "g"), _NORM, weights=("g",), opset=23),
    Operator("SimplifiedLayerNormalization", ("x", "g"), _NORM, weights=("g",)),
    Operator("LayerNormalization", ("x", "g", "c"), _NORM, weights=("g", "c")),
    Operator(
        "GroupNormalization",
        ("x", "g", "c"),
        {"x": IMAGE, "g": (8,), "c": (8,)},
        weights=("g", "c"),
        attributes={"num_groups": 2},
    ),
    Operator(
        "InstanceNormalization", ("x", "g", "c"), {"x": IMAGE, "g": (8,), "c": (8,)}, weights=("g", "c")
    ),
    Operator("LRN", X, {"x": IMAGE}, attributes={"size": 3}),
    Operator("Softmax", X, {"x": ROW}),
    Operator("Gelu", X, {"x": ROW}),
    Operator("Swish", X, {"x": ROW}, opset=24),
    Operator(
        "Einsum",
        ("a", "b"),
        {"a": (1, ROWS, HEADS, HEAD), "b": (1, ROWS, HEADS, HEAD)},
        attributes={"equation": "bqhd,bkhd->bhqk"},
    ),
    Operator("CumSum", ("x", "axis"), {"x": ROW, "axis": np.asarray(1)}, weights=("axis",)),
    Operator("ReduceL2", ("x", "axes"), {"x": ROW, "axes": np.asarray([-1])}, weights=("axes",)),
    Operator(
        "TensorScatter",
        ("x", "u", "i"),
        {"x": CACHE, "u": (1, 2, 1, HEAD), "i": np.asarray([4])},
        opset=24,
    ),
    _contrib(
        "Attention",
        ("x", "w", "c"),
        {"x": ROW, "w": (WIDTH, 3 * WIDTH), "c": (3 * WIDTH,)},
        weights=("w", "c"),
        attributes={"num_heads": HEADS},
    ),
    _contrib("MultiHeadAttention", ("q", "k", "v"), QKV, attributes={"num_heads": HEADS}),
    _contrib(
        "GroupQueryAttention", _GQA, GROUPED, attributes={"num_heads": HEADS, "kv_num_heads": 2}, results=3
    ),
    _contrib("RotaryEmbedding", ("x", "ids", "cos", "sin"), {"x": ROW, **TURNS}, weights=("cos", "sin")),
    _contrib("SkipLayerNormalization", ("x", "s", "g", "c"), _SKIP, weights=("g", "c")),
    _contrib("SkipSimplifiedLayerNormalization", ("x", "s", "g"), _SKIP, weights=("g",)),
    _contrib("Gelu", X, {"x": ROW}),
    _contrib("FastGelu", X, {"x": ROW}),
    _contrib("QuickGelu", X, {"x": ROW}),
    _contrib("BiasGelu", ("x", "c"), {"x": ROW, "c": (WIDTH,)}, weights=("c",)),
    _contrib(
        "FusedMatMul",
        ("x", "w"),
        {"x": ROW, "w": (32, WIDTH)},
        weights=("w",),
        attributes={"transB": 1, "alpha": 0.5},
    ),
    _nbits(),
    _table(),
)
"""In the order of the page: ONNX's own, then onnxruntime's."""


def model_of(operator: Operator) -> bytes:
    """The file."""
    rng = np.random.default_rng(SEED)
    inputs, constants = [], []
    for name, given in _used(operator).items():
        array = _drawn(given, rng)
        if name == "t":
            constants.append(helper.make_tensor("t", TensorProto.UINT4, array.shape, array.reshape(-1)))
        elif name in operator.weights:
            constants.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    names = [f"y{i}" if i else "y" for i in range(operator.results)]
    node = helper.make_node(
        operator.type, operator.operands, names, "op", domain=operator.domain, **operator.attributes
    )
    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], operator.type, inputs, outputs, constants)
    opsets = [helper.make_opsetid("", operator.opset), helper.make_opsetid(MICROSOFT, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


def samples_of(operator: Operator) -> list[dict[str, np.ndarray]]:
    """Inputs to calibrate with."""
    rng = np.random.default_rng(SEED + 1)
    given = {name: item for name, item in _used(operator).items() if name not in operator.weights}
    return [{name: _drawn(item, rng) for name, item in given.items()} for _ in range(SAMPLES)]


def _used(operator: Operator) -> dict[str, Given]:
    return {name: operator.given[name] for name in operator.operands}


def _drawn(given: Given, rng: np.random.Generator) -> np.ndarray:
    if isinstance(given, np.ndarray):
        return given
    return rng.standard_normal(given).astype(np.float32)
