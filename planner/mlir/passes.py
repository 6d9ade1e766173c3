"""The passes of `qplan mlir --pass`, of MLIR's quant dialect and of StableHLO, under upstream's names."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from xdsl.dialects import builtin

from planner.mlir.folding import canonicalize
from planner.mlir.lowering import lower_quant_ops
from planner.mlir.normalizing import normalize_quant_types
from planner.mlir.qdq import qdq_to_quantized, quantized_to_qdq
from planner.mlir.quantmath import quant_to_math
from planner.mlir.rescale import quant_to_rescale
from planner.mlir.rescalemath import rescale_to_math
from planner.mlir.stripping import strip_func_quant_types

Pass: TypeAlias = Callable[[builtin.ModuleOp, bool], None]
"""Rewrites a module in place; the flag asks for the upstream, truncating form of quantizing casts."""

QUANT_PASSES: Final[Mapping[str, Pass]] = {
    "canonicalize": lambda module, _: canonicalize(module),
    "lower-quant-ops": lambda module, truncating: lower_quant_ops(module, truncating=truncating),
    "normalize-quant-types": lambda module, _: normalize_quant_types(module),
    "strip-func-quant-types": lambda module, _: strip_func_quant_types(module),
}
HLO_PASSES: Final[Mapping[str, Pass]] = {
    "stablehlo-legalize-qdq-to-quantized-op": lambda module, _: qdq_to_quantized(module),
    "stablehlo-legalize-quant-to-math": lambda module, _: quant_to_math(module),
    "stablehlo-legalize-quantized-op-to-qdq": lambda module, _: quantized_to_qdq(module),
    "stablehlo-quant-legalize-to-tosa-rescale": lambda module, _: quant_to_rescale(module),
    "tosa-rescale-legalize-to-stablehlo": lambda module, _: rescale_to_math(module),
}
PASSES: Final[Mapping[str, Pass]] = {**QUANT_PASSES, **HLO_PASSES}
