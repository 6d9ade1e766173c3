"""Ops that compute the same of the same operands become one, and dead ops go.

Within a block and from a block into the regions of its ops, as far as nothing else than the result is known
to come of an op: xDSL's own pass knows that of registered ops only, StableHLO's are none. Source: MLIR `cse`.
"""

from collections.abc import Hashable, Mapping
from typing import Final

from xdsl.dialects import builtin
from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter
from xdsl.traits import IsolatedFromAbove

from planner.formats.mlir.casts import CastOp
from planner.formats.mlir.passes.dead_code import PURE
from planner.formats.mlir.stablehlo_ops import name_of

_PURE_DIALECTS: Final = frozenset({"arith", "linalg", "math", "tensor"})


def cse(module: builtin.ModuleOp) -> None:
    """Replace each op by an equal one before it, and erase what nobody reads then."""
    for region in module.regions:
        for block in region.blocks:
            _in_block(block, {})
    for op in reversed(list(module.walk())):
        if op.parent is not None and _is_pure(op) and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)


def _in_block(block: Block, outer: Mapping[Hashable, list[Operation]]) -> None:
    known = {key: list(ops) for key, ops in outer.items()}
    for op in list(block.ops):
        inside = {} if op.has_trait(IsolatedFromAbove) else known
        for region in op.regions:
            for inner in region.blocks:
                _in_block(inner, inside)
        if not _is_pure(op):
            continue
        alike = known.setdefault(_key(op), [])
        first = next((other for other in alike if _same_regions(op, other)), None)
        if first is None:
            alike.append(op)
            continue
        for result, same in zip(op.results, first.results, strict=True):
            result.replace_all_uses_with(same)
        Rewriter.erase_op(op)


def _is_pure(op: Operation) -> bool:
    name = name_of(op)
    own = isinstance(op, CastOp) or name in PURE or name.partition(".")[0] in _PURE_DIALECTS
    ends = ("stablehlo.return", "linalg.yield", "tensor.yield")
    inner = (name_of(other) in ends or _is_pure(other) for region in op.regions for other in region.walk())
    return own and bool(op.results) and all(inner)


def _key(op: Operation) -> Hashable:
    items = (*sorted(op.attributes.items()), *sorted(op.properties.items()))
    return name_of(op), tuple(op.operands), items, tuple(result.type for result in op.results)


def _same_regions(one: Operation, other: Operation) -> bool:
    pairs = zip(one.regions, other.regions, strict=False)
    return len(one.regions) == len(other.regions) and all(a.is_structurally_equivalent(b) for a, b in pairs)
