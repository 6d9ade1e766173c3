"""Take apart: composite operators as calls of the functions they stand for.

Attention, rotary embeddings and what onnxruntime fuses are no kernels of any integer device; their parts are.
The ops of a body bear the scope of a call, so a target that has a kernel for the whole takes it back as
`pattern: "function:com.microsoft.SkipLayerNormalization"`. Knows no target.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from planner.formats.onnx.composites import activation, attention, caches, normalization, products, rotary
from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.naming import unused
from planner.formats.onnx.opsets import TARGET, to_opset_21
from planner.formats.onnx.quantized.dialect import MICROSOFT
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph, Op
from planner.ir.structure import Scope

Rule: TypeAlias = Callable[[Body], None]

_HEADS: Final = "num_heads scale mask_filter_value unidirectional"
_GROUPS: Final = (
    "num_heads kv_num_heads scale softcap causal do_rotary rotary_interleaved local_window_size "
    "smooth_softmax qk_output qk_norm_epsilon sliding_window_cache "
    "kv_cache_bit_width k_quant_type v_quant_type"
)
_ATTENTION: Final = (
    "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale "
    "softcap softmax_precision"
)
_CONTRIB: Final[Mapping[str, tuple[Rule, str]]] = {
    "Attention": (
        attention.contrib_attention,
        f"{_HEADS} qkv_hidden_sizes past_present_share_buffer do_rotary rotary_embedding_dim",
    ),
    "BiasGelu": (activation.bias_gelu, ""),
    "FastGelu": (activation.fast_gelu, ""),
    "FusedMatMul": (products.fused_matmul, "alpha transA transB transBatchA transBatchB"),
    "GatherBlockQuantized": (
        products.gather_block_quantized,
        "bits block_size gather_axis quantize_axis",
    ),
    "Gelu": (activation.gelu, ""),
    "GroupQueryAttention": (
        attention.group_query_attention,
        _GROUPS,
    ),
    "MatMulNBits": (products.matmul_nbits, "K N bits block_size accuracy_level weight_prepacked"),
    "MultiHeadAttention": (attention.multi_head_attention, _HEADS),
    "QuickGelu": (activation.quick_gelu, "alpha"),
    "RotaryEmbedding": (
        rotary.contrib_rotary_embedding,
        "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
    ),
    "SkipLayerNormalization": (normalization.skip_layer_normalization, "epsilon"),
    "SkipSimplifiedLayerNormalization": (normalization.skip_rms_normalization, "epsilon"),
}
_RMS: Final = (normalization.rms_normalization, "axis epsilon stash_type")
BODIES: Final[Mapping[str, tuple[Rule, str]]] = {
    **{f"{MICROSOFT}::{kind}": entry for kind, entry in _CONTRIB.items()},
    "Attention": (
        attention.attention,
        _ATTENTION,
    ),
    "Einsum": (products.einsum, "equation"),
    "GroupNormalization": (normalization.group_normalization, "epsilon num_groups stash_type"),
    "RMSNormalization": _RMS,
    "RotaryEmbedding": (rotary.rotary_embedding, "interleaved num_heads rotary_embedding_dim"),
    "SimplifiedLayerNormalization": _RMS,
    "Swish": (activation.swish, "alpha"),
    "TensorScatter": (caches.tensor_scatter, "axis mode"),
}
"""By the op's type, its domain included: what writes its body, and the attributes it knows."""


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
        if op.type not in BODIES:
            ops.append(op)
            continue
        domain, _, kind = op.type.rpartition("::")
        site = unused(op.name or op.outputs[0], sites)
        body = Body(graph, op, site, taken)
        try:
            _write(body)
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


def _write(body: Body) -> None:
    """Write the body of an operator.

    Raises:
      StaysWhole: nothing is known of such a form.
    """
    rule, attributes = BODIES[body.op.type]
    # A newer operator set may give a meaning to what an older one has not.
    unknown = body.op.attributes.keys() - set(attributes.split())
    if unknown:
        raise StaysWhole(f"its {min(unknown)!r} is not known here")
    rule(body)
