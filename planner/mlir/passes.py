"""The passes of `qplan mlir --pass`, under the names upstream gives them."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from xdsl.dialects import builtin

from planner.mlir.folding import canonicalize
from planner.mlir.lowering import lower_quant_ops
from planner.mlir.normalizing import normalize_quant_types
from planner.mlir.stripping import strip_func_quant_types

Pass: TypeAlias = Callable[[builtin.ModuleOp, bool], None]
"""Rewrites a module in place; the flag asks for the upstream, truncating form of quantizing casts."""

PASSES: Final[Mapping[str, Pass]] = {
    "canonicalize": lambda module, _: canonicalize(module),
    "lower-quant-ops": lambda module, truncating: lower_quant_ops(module, truncating=truncating),
    "normalize-quant-types": lambda module, _: normalize_quant_types(module),
    "strip-func-quant-types": lambda module, _: strip_func_quant_types(module),
}
