"""Quantized ops and dequantize-op-quantize, each made from the other.

A quantized op means: dequantize the operands, compute with reals, quantize the results. Which ops may be
written quantized, and with which types, is the specification's to say: the pass towards quantized ops
leaves alone ops that its verifier would refuse. Source: StableHLO specification, "Quantization computations",
passes `stablehlo-legalize-quantized-op-to-qdq` and `stablehlo-legalize-qdq-to-quantized-op`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xdsl.builder import Builder
from xdsl.dialects import builtin
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from planner.formats.mlir.passes.dead_code import sweep
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.stablehlo_ops import PREFIX, expressed_type, like, name_of, put
from planner.formats.mlir.types import uniform_of
from planner.formats.mlir.verbatim_types import WrittenUniform

DEQUANTIZE: Final = "stablehlo.uniform_dequantize"
QUANTIZE: Final = "stablehlo.uniform_quantize"

ELEMENTWISE: Final = frozenset(
    f"{PREFIX}{name}"
    for name in [
        "abs",
        "add",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "cosine",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "power",
        "reduce_precision",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
    ]
)
LINEAR: Final = frozenset({f"{PREFIX}{name}" for name in ("convolution", "dot", "dot_general")})
WHOLE: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "batch_norm_grad",
        "batch_norm_inference",
        "batch_norm_training",
        "cholesky",
        "triangular_solve",
    )
)
"""Ops on whole tensors that are taken apart."""
DECOMPOSED: Final = ELEMENTWISE | LINEAR | WHOLE
"""Ops that the pass towards QDQ rewrites: those that compute; ops that move data keep quantized types."""


def quantized_to_qdq(module: builtin.ModuleOp) -> None:
    """Rewrite every quantized op that computes as dequantize, float op, quantize.

    Raises:
      StuckAt: a type without reals, or whose reals have no constants here.
    """
    for op in list(module.walk()):
        if name_of(op) in DECOMPOSED and is_quantized(op):
            decompose(op)
    sweep(module)


def is_quantized(op: Operation) -> bool:
    """Whether an operand or result of an op is quantized."""
    return any(uniform_of(value.type) is not None for value in (*op.operands, *op.results))


def decompose(op: Operation) -> None:
    """Replace an op by the same on reals, with casts around it.

    Raises:
      StuckAt: a type without reals, or whose reals have no constants here.
    """
    build = Builder(InsertPoint.before(op))
    reals = [dequantize(build, value, op) for value in op.operands]
    wanted = [result.type for result in op.results]
    made = build.insert(like(op, reals, [real_type(kind, op) for kind in wanted]))
    results = [
        value if value.type == kind else put(build, "uniform_quantize", [value], kind)
        for value, kind in zip(made.results, wanted, strict=True)
    ]
    Rewriter.replace_op(op, [], results)


def dequantize(build: Builder, value: SSAValue, op: Operation) -> SSAValue:
    """Insert a dequantize where a value is quantized; raises as `decompose`."""
    kind = real_type(value.type, op)
    return value if kind == value.type else put(build, "uniform_dequantize", [value], kind)


def real_type(kind: Attribute, op: Operation) -> Attribute:
    """The type with reals for quantized elements; raises as `decompose`."""
    uniform = uniform_of(kind)
    real = expressed_type(kind)
    if uniform is not None and (uniform.storage.is_float or real == kind):
        raise StuckAt(op, f"{name_of(op)}: {uniform} is no integer storage of f16, bf16, f32 or f64")
    return real


def qdq_to_quantized(module: builtin.ModuleOp) -> None:
    """Rewrite each op between dequantizes of all its operands and a quantize of its result as one op."""
    for quantize in list(module.walk()):
        if name_of(quantize) != QUANTIZE:
            continue
        op = quantize.operands[0].owner
        if not isinstance(op, Operation) or op.regions or len(op.results) != 1 or not op.operands:
            continue
        sources = [_dequantized(value) for value in op.operands]
        rule = QUANTIZABLE.get(name_of(op))
        if rule is None or None in sources:
            continue
        values = [source for source in sources if source is not None]
        kinds = [uniform_of(value.type) for value in values]
        result = uniform_of(quantize.results[0].type)
        if None in kinds or result is None or not rule([kind for kind in kinds if kind is not None], result):
            continue
        made = like(op, values, [quantize.results[0].type])
        Rewriter.insert_op(made, InsertPoint.after(op))
        quantize.results[0].replace_all_uses_with(made.results[0])
    sweep(module)


def _dequantized(value: SSAValue) -> SSAValue | None:
    owner = value.owner
    if isinstance(owner, Operation) and name_of(owner) == DEQUANTIZE:
        return owner.operands[0]
    return None


def is_same(one: WrittenUniform, other: WrittenUniform) -> bool:
    """Whether two types store the same numbers the same way, whatever axis is quantized."""
    return (one.scales, one.zero_points, _range(one), one.expressed) == (
        other.scales,
        other.zero_points,
        _range(other),
        other.expressed,
    )


def _range(uniform: WrittenUniform) -> tuple[int, int, int, bool]:
    store = uniform.storage
    return store.qmin, store.qmax, store.bits, store.signed


def is_per_tensor(uniform: WrittenUniform) -> bool:
    """One scale for the whole tensor."""
    return uniform.axis is None and uniform.blocks is None


def _per_tensor(operands: Sequence[WrittenUniform], result: WrittenUniform) -> bool:
    """Per tensor, of one storage and one expressed type: "compatible types"."""
    return all(is_per_tensor(kind) and _carrier(kind) == _carrier(result) for kind in (*operands, result))


def _carrier(kind: WrittenUniform) -> tuple[int, bool, str]:
    return kind.storage.bits, kind.storage.signed, kind.expressed


def _one_type(operands: Sequence[WrittenUniform], result: WrittenUniform) -> bool:
    return all(is_same(kind, result) for kind in operands)


def _added(operands: Sequence[WrittenUniform], result: WrittenUniform) -> bool:
    """Per tensor, or along one axis that all three share: spec, `add` C2 to C7."""
    axes = {kind.axis for kind in (*operands, result)}
    plain = all(kind.blocks is None and _carrier(kind) == _carrier(result) for kind in (*operands, result))
    return plain and (axes == {None} or (len(axes) == 1 and _one_type(operands, result)))


def _multiplied(operands: Sequence[WrittenUniform], result: WrittenUniform) -> bool:
    """Weights quantized like the data; a result along an axis only where the weights are: `dot_general`."""
    left, right = operands
    plain = is_per_tensor(left) and right.blocks is None and result.blocks is None
    centred = not any(right.zero_points)
    axes = result.axis is None or right.axis is not None
    same = _carrier(left) == _carrier(right) and left.expressed == result.expressed
    return plain and centred and axes and same


Rule = Callable[[Sequence[WrittenUniform], WrittenUniform], bool]
_MOVEMENT: Final = [
    "broadcast_in_dim",
    "concatenate",
    "dynamic_slice",
    "pad",
    "reshape",
    "reverse",
    "slice",
    "transpose",
]
QUANTIZABLE: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(ELEMENTWISE | WHOLE, _per_tensor),
    **{f"{PREFIX}{name}": _one_type for name in _MOVEMENT},
    **dict.fromkeys(LINEAR, _multiplied),
    "stablehlo.add": _added,
    "stablehlo.clamp": _one_type,
    "stablehlo.select": _one_type,
}
"""Types that an op may have when written quantized."""
