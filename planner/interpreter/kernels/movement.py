"""Stored integers of ops that only move data, moved by the op's definition.

Filling is the zero point. Ops that pick by value (TopK, Scatter) or at places computed with them have no
movement and run in onnxruntime. Source: `ops.steps`.
"""

from planner.interpreter.memory import Memory
from planner.interpreter.requantize import Array
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.ops import defined, find_movements
from planner.ops.operands import Operands
from planner.ops.steps import apply


def moved_integers(memory: Memory, block: Block, kind: Uniform) -> dict[str, Array] | None:
    """The results of an op with operands of one integer type; None where its definition does not say them."""
    op = block.core[0]
    if defined(op.type).indices is None:
        return None
    types = {name: block.kinds.get((op.name, i)) for i, name in enumerate(op.inputs)}
    stored = {
        name: memory.stored(name, typed, block.arithmetic)
        for name, typed in types.items()
        if isinstance(typed, Uniform)
    }
    shapes = {name: array.shape for name, array in stored.items()}
    movements = find_movements(Operands(op, shapes.get, memory.real)) or ()
    found: dict[str, Array] = {}
    for name, movement in zip(op.outputs, movements, strict=False):
        operands = [stored[op.inputs[i]] for i in movement.operands]
        try:
            found[name] = apply(movement, operands, kind.zero_point)
        except ValueError:
            # onnxruntime says what is wrong with such an op.
            return None
    return found or None
