"""Stand-ins: ops that onnx infers nothing of, as ops whose results have the same shapes and element types.

They go into the copy of a model that is made for inference and nowhere else, so only shapes and types of
their results mean something. A result that no stand-in writes stays unknown. Source: onnxruntime's
`docs/ContribOperators.md`, tested against what onnxruntime itself infers; ONNX operator pages.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto, defs

from planner.formats.onnx.quantized.dialect import ELEMENTWISE, INT_QUANT, MICROSOFT
from planner.ir.graph import Op

StandIn: TypeAlias = Callable[[Op], Sequence[Op]]


def stand_in(op: Op, opset: int) -> Sequence[Op]:
    """The ops to infer an op's results from: itself, where onnx knows it or nothing does."""
    rule = STAND_INS.get(op.type)
    if rule is None or is_inferred(op.type, opset):
        return (op,)
    return rule(op)


@lru_cache(maxsize=1024)
def is_inferred(kind: str, opset: int) -> bool:
    """Whether onnx infers the results of an op of the standard domain."""
    if "::" in kind:
        return False
    try:
        schema = defs.get_schema(kind, opset)
    except defs.SchemaError:
        return False
    # Through a body of ops onnx infers some, not where it depends on types, and refuses its own of
    # MeanVarianceNormalization when it is strict.
    return bool(schema.has_type_and_shape_inference_function)


def _same(*results: int, of: int = 0) -> StandIn:
    """These results are like one operand."""

    def rule(op: Op) -> Sequence[Op]:
        if of >= len(op.inputs):
            return ()  # the checker refuses it, by name
        given = [op.outputs[i] for i in results or (0,) if i < len(op.outputs) and op.outputs[i]]
        return [_op(op, "Identity", (op.inputs[of],), out, number=i) for i, out in enumerate(given)]

    return rule


def _as(kind: str, operands: int, *left_out: str) -> StandIn:
    """The results are those of a standard op on the first operands, some attributes left out."""

    def rule(op: Op) -> Sequence[Op]:
        attributes = {key: item for key, item in op.attributes.items() if key not in left_out}
        return [Op(op.name, kind, op.inputs[:operands], op.outputs, attributes)]

    return rule


def _matmul(op: Op) -> Sequence[Op]:
    """A product whose operands may be turned; `transBatch` moves axes that no equation can name."""
    if op.attributes.get("transBatchA", 0) or op.attributes.get("transBatchB", 0):
        return ()
    steps, sides = [], list(op.inputs[:2])
    for i, key in enumerate(("transA", "transB")):
        if op.attributes.get(key, 0):
            turned = _inner(op, key)
            steps.append(_op(op, "Einsum", sides[i : i + 1], turned, {"equation": "...ij->...ji"}, number=i))
            sides[i] = turned
    return [*steps, _op(op, "MatMul", sides, op.outputs[0])]


def _packed_product(op: Op) -> Sequence[Op]:
    """A product with a weight of K x N whose packed bytes say neither."""
    sizes = np.asarray([op.attributes.get("K", 0), op.attributes.get("N", 0)], np.int64)
    shape, weight = _inner(op, "sizes"), _inner(op, "weight")
    return [
        _op(op, "Constant", (), shape, {"value": sizes}),
        _op(op, "ConstantOfShape", (shape,), weight),
        _op(op, "MatMul", (op.inputs[0], weight), op.outputs[0]),
    ]


def _float_product(op: Op) -> Sequence[Op]:
    real = _inner(op, "real")
    return [
        _op(op, "Cast", op.inputs[:1], real, {"to": TensorProto.FLOAT}),
        _op(op, "MatMul", (real, op.inputs[1]), op.outputs[0]),
    ]


def _attention(op: Op) -> Sequence[Op]:
    """The weight holds those of query, key and value side by side; the result is as wide as the value."""
    real, product = _inner(op, "real"), _inner(op, "product")
    steps = [_op(op, "MatMul", (real, op.inputs[1]), product)]
    kind = "Cast" if op.type.endswith("QAttention") else "Identity"
    steps.insert(0, _op(op, kind, op.inputs[:1], real, {"to": TensorProto.FLOAT} if kind == "Cast" else {}))
    sizes = op.attributes.get("qkv_hidden_sizes")
    if not sizes:
        parts = (_inner(op, "query"), _inner(op, "key"), op.outputs[0])
        return [*steps, Op("", "Split", (product,), parts, {"axis": -1, "num_outputs": 3})]
    picked = _inner(op, "picked")
    steps.append(_op(op, "Constant", (), picked, {"value": np.zeros(sizes[-1], np.int64)}))
    return [*steps, _op(op, "Gather", (product, picked), op.outputs[0], {"axis": -1})]


def _multi_head(op: Op) -> Sequence[Op]:
    _, key, value = (*op.inputs, "", "")[:3]
    if value:
        # A value of four dimensions (of a cache) has none of these forms: its result stays unknown.
        return [_op(op, "Einsum", (op.inputs[0], value), op.outputs[0], {"equation": "bsh,btv->bsv"})]
    if key:
        return [_op(op, "Identity", op.inputs[:1], op.outputs[0])]
    first, query = _inner(op, "first"), _inner(op, "query")
    return [
        _op(op, "Constant", (), first, {"value": np.asarray(0, np.int64)}),
        _op(op, "Gather", (op.inputs[0], first), query, {"axis": 3}),
        *_joined_heads(op, query),
    ]


def _grouped(op: Op) -> Sequence[Op]:
    """Query, key and value may come as one, head behind head; the result has the heads of the query."""
    if op.inputs[1:2] != ("",):
        return [_op(op, "Identity", op.inputs[:1], op.outputs[0])]
    own, groups = op.attributes.get("num_heads", 0), op.attributes.get("kv_num_heads", 0)
    sizes = np.asarray([0, 0, own + 2 * groups, -1], np.int64)
    shape, heads, picked, query = (_inner(op, part) for part in ("sizes", "heads", "picked", "query"))
    return [
        _op(op, "Constant", (), shape, {"value": sizes}),
        _op(op, "Reshape", (op.inputs[0], shape), heads),
        _op(op, "Constant", (), picked, {"value": np.arange(own)}),
        _op(op, "Gather", (heads, picked), query, {"axis": 2}),
        *_joined_heads(op, query),
    ]


def _joined_heads(op: Op, heads: str) -> Sequence[Op]:
    shape = _inner(op, "joined")
    return [
        _op(op, "Constant", (), shape, {"value": np.asarray([0, 0, -1], np.int64)}),
        _op(op, "Reshape", (heads, shape), op.outputs[0]),
    ]


def _embedding(op: Op) -> Sequence[Op]:
    found = [op.outputs[i] for i in (0, 2) if i < len(op.outputs) and op.outputs[i]]
    return [_op(op, "Gather", (op.inputs[2], op.inputs[0]), out, number=i) for i, out in enumerate(found)]


def _halves(op: Op) -> Sequence[Op]:
    parts = (op.outputs[0], _inner(op, "gate"))
    return [Op("", "Split", op.inputs[:1], parts, {"axis": -1, "num_outputs": 2})]


def _op(
    op: Op,
    kind: str,
    inputs: Sequence[str],
    out: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    number: int = 0,
) -> Op:
    return Op(f"{op.name}/{kind}_{number}", kind, tuple(inputs), (out,), attributes or {})


def _inner(op: Op, part: str) -> str:
    """The name of a value between the ops of a stand-in, which no file has."""
    return f"{part} in the stand-in of {op.outputs[0]}"


def _contrib(rules: Mapping[str, StandIn]) -> dict[str, StandIn]:
    return {f"{MICROSOFT}::{kind}": rule for kind, rule in rules.items()}


_ACTIVATION: Final = (
    "activation",
    "activation_alpha",
    "activation_beta",
    "activation_gamma",
    "activation_params",
)
_PACKED: Final[dict[str, StandIn]] = {
    "DynamicQuantizeMatMul": _as("MatMul", 2),
    "MatMulBnb4": _packed_product,
    "MatMulIntegerToFloat": _float_product,
    "MatMulNBits": _packed_product,
}
_FUSED: Final[dict[str, StandIn]] = {
    "BiasSplitGelu": _halves,
    "EmbedLayerNormalization": _embedding,
    "FusedConv": _as("Conv", 3, *_ACTIVATION),
    "FusedGemm": _as("Gemm", 3, *_ACTIVATION),
    "FusedMatMul": _matmul,
    "FusedMatMulActivation": _matmul,
    "GemmFastGelu": _as("MatMul", 2),
    "SkipGroupNorm": _same(0, 1),
    "SkipLayerNormalization": _same(0, 3),
    "SkipSimplifiedLayerNormalization": _same(0, 3),
    "TransposeMatMul": _matmul,
}
_ATTENTIONS: Final[dict[str, StandIn]] = {
    "Attention": _attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
    "QAttention": _attention,
    "RotaryEmbedding": _same(),
}
_ALIKE: Final = (
    "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "GroupNorm", "Inverse",
    "QuickGelu", "Trilu",
)  # fmt: skip
# onnxruntime has these in the standard domain, of any opset; onnx has some of them from a later one on.
_STANDARD: Final = (
    "Affine", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization", "ParametricSoftplus",
    "Scale", "ScaledTanh", "SimplifiedLayerNormalization",
)  # fmt: skip

STAND_INS: Final[Mapping[str, StandIn]] = {
    **_contrib({**_PACKED, **_FUSED, **_ATTENTIONS, **{kind: _same() for kind in _ALIKE}}),
    **{kind: _same() for kind in (*_STANDARD, *ELEMENTWISE, INT_QUANT)},
}
"""By the op's type, its domain included."""
