"""Sums and choices of values of one quantized type, on their stored integers.

`add` and `subtract` give `q +- p -+ zero_point`, clamped, as dequantizing and quantizing again would
give, but exact for storages beyond the digits of a float. Choices (`maximum`, `minimum`, `clamp`, `select`)
pick one of their operands. Source: StableHLO specification, "Quantization computations".
"""

from xdsl.builder import Builder
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.formats.mlir.passes.qdq_to_quantized import is_per_tensor, is_same
from planner.formats.mlir.stablehlo_ops import (
    I32,
    I64,
    Known,
    Sharing,
    bitcast,
    constant,
    convert,
    is_static,
    like,
    name_of,
    parameters,
    put,
    stored_type,
)
from planner.formats.mlir.types import element_of, uniform_of
from planner.formats.mlir.verbatim_types import WrittenUniform

_NARROW = 30


def one_type(op: Operation) -> WrittenUniform | None:
    """The quantized type of all quantized operands and results; None where there are several."""
    kinds = [uniform_of(value.type) for value in (*op.operands, *op.results)]
    found = [kind for kind in kinds if kind is not None]
    is_one = all(is_same(kind, found[0]) and kind.axis == found[0].axis for kind in found)
    return found[0] if is_one else None


def lower_choice(op: Operation, known: Known) -> bool:
    """Let an op choose between stored integers; False where types differ."""
    uniform = one_type(op)
    chosen = op.operands[1:] if name_of(op) == "stablehlo.select" else op.operands
    if uniform is None or any(uniform_of(value.type) is None for value in (*chosen, *op.results)):
        return False
    build = Sharing(op, known)
    kind = op.results[0].type
    made = build.insert(like(op, [_stored(build, value) for value in op.operands], [stored_type(kind)]))
    Rewriter.replace_op(op, [], [bitcast(build, made.results[0], kind)])
    return True


def lower_sum(op: Operation, known: Known) -> bool:
    """Add or subtract stored integers; False where types differ."""
    uniform = one_type(op)
    if uniform is None or any(uniform_of(value.type) is None for value in (*op.operands, *op.results)):
        return False
    if not (is_per_tensor(uniform) or uniform.axis is not None or is_static(op.results[0].type)):
        return False
    build = Sharing(op, known)
    kind, store = op.results[0].type, uniform.storage
    # A sum of two n-bit integers less a zero point needs n + 2 bits.
    wide = I32 if store.bits <= _NARROW else I64
    left, right = (convert(build, _stored(build, value), wide) for value in op.operands)
    is_add = name_of(op) == "stablehlo.add"
    result = put(build, "add" if is_add else "subtract", [left, right], left.type)
    if any(uniform.zero_points):
        zeros = parameters(build, uniform.zero_points, uniform, result, wide)
        result = put(build, "subtract" if is_add else "add", [result, zeros], result.type)
    low, high = (constant(build, [bound], wide, ()) for bound in (store.qmin, store.qmax))
    result = put(build, "clamp", [low, result, high], result.type)
    result = convert(build, result, element_of(stored_type(kind)))
    Rewriter.replace_op(op, [], [bitcast(build, result, kind)])
    return True


def _stored(build: Builder, value: SSAValue) -> SSAValue:
    return bitcast(build, value, stored_type(value.type))
