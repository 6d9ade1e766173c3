"""Pointwise: regions that compute on one stored tensor element by element, so that a table says all of them.

Nothing here writes. Source: docs/specification.md, section 8.
"""

from typing import Any

from planner.formats.common.values import Values
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, Operand


def only_stored(values: Values[Any], block: Block) -> Operand | None:
    """The only operand that is not constant, if it is stored with one scale."""
    inner = {name for op in block.core for name in op.outputs}
    found: dict[Operand, None] = {}
    for op in block.core:
        for i, name in enumerate(op.inputs):
            if not name or name in inner or values.is_constant(name):
                continue
            kind = block.kinds.get((op.name, i))
            if not isinstance(kind, Uniform) or not kind.is_per_tensor:
                return None
            found[Operand(name, kind)] = None
    return next(iter(found)) if len(found) == 1 else None


def varying_axis(values: Values[Any], block: Block, rank: int) -> int | None:
    """The axis along which constants vary, -1 where they are single numbers, None where several do."""
    axes: set[int] = set()
    for op in block.core:
        for name in op.inputs:
            if not name or not values.is_constant(name):
                continue
            shape = values.array(name).shape
            if len(shape) > rank:
                return None
            axes.update(i + rank - len(shape) for i, size in enumerate(shape) if size != 1)
    return None if len(axes) > 1 else next(iter(axes), -1)
