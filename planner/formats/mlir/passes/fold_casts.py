"""Cast pairs that undo each other, and casts nobody reads, go.

dcast(qcast(x)) and qcast(dcast(x)) are x where the types meet again, as upstream folds them (the values
between are equal up to rounding, not bit for bit); so is scast(scast(x)). Source: MLIR quant dialect folds.
"""

from typing import Final

from xdsl.dialects import builtin
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.formats.mlir.casts import CastOp, DequantizeCastOp, QuantizeCastOp, StorageCastOp

_UNDOES: Final[dict[type[CastOp], type[CastOp]]] = {
    DequantizeCastOp: QuantizeCastOp,
    QuantizeCastOp: DequantizeCastOp,
    StorageCastOp: StorageCastOp,
}


def canonicalize(module: builtin.ModuleOp) -> None:
    """Fold cast pairs and erase unused casts, until there are none."""
    for op in list(module.walk()):
        if isinstance(op, CastOp):
            source = _folded(op)
            if source is not None:
                op.result.replace_all_uses_with(source)
    for op in reversed(list(module.walk())):
        if isinstance(op, CastOp) and not op.result.uses:
            Rewriter.erase_op(op)


def _folded(op: CastOp) -> SSAValue | None:
    before = op.input.owner
    if not isinstance(before, Operation) or not isinstance(before, _UNDOES[type(op)]):
        return None
    source: SSAValue = before.operands[0]
    return source if source.type == op.result.type else None
