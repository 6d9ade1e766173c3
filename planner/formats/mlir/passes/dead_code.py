"""Dead ops go: those whose results nobody reads and that do nothing else.

Known to do nothing else are the ops listed here and quantizing casts; a loop may never end, so it stays.
Source: StableHLO specification, MLIR arith and tosa dialects.
"""

from typing import Final

from xdsl.dialects import builtin
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from planner.formats.mlir.casts import CastOp
from planner.formats.mlir.stablehlo_ops import name_of

_STABLEHLO: Final = """
    abs add and atan2 batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert broadcast
    broadcast_in_dim cbrt ceil cholesky clamp compare complex concatenate constant convert convolution
    cosine count_leading_zeros divide dot dot_general dynamic_broadcast_in_dim dynamic_conv
    dynamic_gather dynamic_iota dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice
    exponential exponential_minus_one fft floor gather get_dimension_size get_tuple_element imag iota
    is_finite log log_plus_one logistic map maximum minimum multiply negate not or pad popcnt power real
    real_dynamic_slice reduce reduce_precision reduce_window remainder reshape reverse round_nearest_afz
    round_nearest_even rsqrt scatter select select_and_scatter shift_left shift_right_arithmetic
    shift_right_logical sign sine slice sort sqrt subtract tan tanh transpose triangular_solve tuple
    uniform_dequantize uniform_quantize xor
"""
PURE: Final = frozenset(
    {f"stablehlo.{name}" for name in _STABLEHLO.split()} | {"arith.constant", "tosa.const", "tosa.rescale"}
)


def sweep(module: builtin.ModuleOp) -> None:
    """Erase dead ops of a module, last to first, so that ops that only they read go too."""
    for op in reversed(list(module.walk())):
        if _is_dead(op) and op.parent is not None:
            Rewriter.erase_op(op)


def _is_dead(op: Operation) -> bool:
    if any(result.uses for result in op.results) or not (isinstance(op, CastOp) or name_of(op) in PURE):
        return False
    inside = (inner for region in op.regions for inner in region.walk())
    return all(name_of(inner) in PURE or name_of(inner) == "stablehlo.return" for inner in inside)
