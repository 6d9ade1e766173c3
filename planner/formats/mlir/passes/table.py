"""The passes of `qplan mlir --pass`, of MLIR's quant dialect and of StableHLO, under upstream's names."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from xdsl.dialects import builtin

from planner.formats.mlir.passes.cse import cse
from planner.formats.mlir.passes.fold_casts import canonicalize
from planner.formats.mlir.passes.inline import inline
from planner.formats.mlir.passes.lower_quant_ops import lower_quant_ops
from planner.formats.mlir.passes.normalize_quant_types import normalize_quant_types
from planner.formats.mlir.passes.qdq_to_quantized import qdq_to_quantized, quantized_to_qdq
from planner.formats.mlir.passes.quant_to_math import quant_to_math
from planner.formats.mlir.passes.strip_func_quant_types import strip_func_quant_types
from planner.formats.mlir.passes.tosa_rescale import quant_to_rescale
from planner.formats.mlir.passes.tosa_rescale_to_math import rescale_to_math

Pass: TypeAlias = Callable[[builtin.ModuleOp, bool], None]
"""Rewrites a module in place; the flag asks for the upstream, truncating form of quantizing casts."""

QUANT_PASSES: Final[Mapping[str, Pass]] = {
    "canonicalize": lambda module, _: canonicalize(module),
    "cse": lambda module, _: cse(module),
    "inline": lambda module, _: inline(module),
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
