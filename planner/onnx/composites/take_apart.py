"""Take apart: composite operators as calls of the functions they stand for.

Attention, rotary embeddings and what onnxruntime fuses are no kernels of any integer device; their parts are.
The ops of a body bear the scope of a call, so a target that has a kernel for the whole takes it back as
`pattern: "function:com.microsoft.SkipLayerNormalization"`. Knows no target.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from planner.ir.graph import Constant, Graph, Op
from planner.ir.structure import Scope
from planner.onnx.composites import activation, attention, normalization, products, rotary
from planner.onnx.composites.body import Body, StaysWhole
from planner.onnx.naming import unused
from planner.onnx.opsets import TARGET, to_opset_21
from planner.onnx.quantized.dialect import MICROSOFT
from planner.onnx.shapes import infer

Rule: TypeAlias = Callable[[Body], None]

_CONTRIB: Final[Mapping[str, Rule]] = {
    "Attention": attention.contrib_attention,
    "BiasGelu": activation.bias_gelu,
    "FastGelu": activation.fast_gelu,
    "FusedMatMul": products.fused_matmul,
    "GatherBlockQuantized": products.gather_block_quantized,
    "Gelu": activation.gelu,
    "GroupQueryAttention": attention.group_query_attention,
    "MatMulNBits": products.matmul_nbits,
    "MultiHeadAttention": attention.multi_head_attention,
    "QuickGelu": activation.quick_gelu,
    "RotaryEmbedding": rotary.contrib_rotary_embedding,
    "SkipLayerNormalization": normalization.skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": normalization.skip_rms_normalization,
}
BODIES: Final[Mapping[str, Rule]] = {
    **{f"{MICROSOFT}::{kind}": rule for kind, rule in _CONTRIB.items()},
    "Attention": attention.attention,
    "Einsum": products.einsum,
    "RMSNormalization": normalization.rms_normalization,
    "RotaryEmbedding": rotary.rotary_embedding,
    "SimplifiedLayerNormalization": normalization.rms_normalization,
    "Swish": activation.swish,
}
"""By the op's type, its domain included: what writes its body."""


def has_composites(graph: Graph) -> bool:
    """Whether an operator stands for others."""
    return any(op.type in BODIES for op in graph.ops)


def take_apart(graph: Graph, *, told: bool = True) -> Graph:
    """The graph with the ops of composite operators in their place.

    Args:
      told: notes tell of each that stays whole.
    """
    if not has_composites(graph):
        return graph
    graph = infer(graph)
    values, constants, scopes = dict(graph.values), dict(graph.constants), dict(graph.scopes)
    taken, sites, notes = set(values), {*scopes, *(op.name for op in graph.ops)}, list(graph.notes)
    ops: list[Op] = []
    for op in graph.ops:
        rule = BODIES.get(op.type)
        if rule is None:
            ops.append(op)
            continue
        domain, _, kind = op.type.rpartition("::")
        site = unused(op.name or op.outputs[0], sites)
        body = Body(graph, op, site, taken)
        try:
            rule(body)
        except StaysWhole as reason:
            notes += [f"{kind} at {op.name!r} stays whole: {reason}"] if told else []
            ops.append(op)
            continue
        ops += body.ops
        values |= body.values
        constants |= {name: Constant(array) for name, array in body.constants.items()}
        scopes[site] = Scope(
            "call", op.name, op.type, f"{domain or 'ai.onnx'}.{kind}", op.inputs, op.outputs, parent=op.scope
        )
    made = replace(
        graph, ops=tuple(ops), values=values, constants=constants, scopes=scopes, notes=tuple(notes)
    )
    return to_opset_21(made) if made.opsets.get("", TARGET) > TARGET else made
