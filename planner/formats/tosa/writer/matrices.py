"""Matrices: the operands of a MatMul as MATMUL takes them: three axes each, of one batch.

Batch axes that broadcast are repeated by TILE, a vector becomes a matrix of one row or column, and a matrix
on the right of a stack is multiplied once, by all rows. Source: ONNX MatMul (numpy's); TOSA 1.0, MATMUL.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from planner.formats.common.layouts import plain
from planner.formats.tosa.writer.operations import Program, Tensor


@dataclass(frozen=True, slots=True)
class Matrices:
    """Two operands of three axes, and the sizes of the product as the model has it."""

    left: Tensor
    right: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, program: Program, left: Tensor, right: Tensor) -> "Matrices":
        """Bring the operands of a MatMul into one batch."""
        a, b = (program.ordered(side, plain(len(side.shape))) for side in (left, right))
        rows = a.shape[-2:-1]
        columns = b.shape[-1:] if len(b.shape) > 1 else ()
        a = program.reshaped(a, (1, *a.shape)) if len(a.shape) == 1 else a
        b = program.reshaped(b, (*b.shape, 1)) if len(b.shape) == 1 else b
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        sizes = (*batch, *rows, *columns)
        if prod(b.shape[:-2]) == 1 and prod(a.shape[:-2]) == prod(batch):
            a = program.reshaped(a, (1, prod(a.shape[:-1]), a.shape[-1]))
            return cls(a, program.reshaped(b, (1, *b.shape[-2:])), sizes)
        return cls(_repeated(program, a, batch), _repeated(program, b, batch), sizes)

    def product(self, program: Program, zeros: Sequence[str], element: str, stem: str) -> Tensor:
        """MATMUL of the two, of three axes."""
        shape = (*self.left.shape[:-1], self.right.shape[-1])
        like = Tensor("", shape, element, plain(3))
        return program.emit("matmul", [self.left, self.right, *zeros], like, stem)


def _repeated(program: Program, side: Tensor, batch: tuple[int, ...]) -> Tensor:
    """An operand with all of the batch on its first axis."""
    own = (*(1,) * (len(batch) - len(side.shape) + 2), *side.shape)
    side = program.reshaped(side, own)
    times = [wanted // size for wanted, size in zip(batch, own, strict=False)]
    if any(count != 1 for count in times):
        like = replace(side, shape=(*batch, *own[-2:]))
        side = program.emit("tile", [side, program.shape([*times, 1, 1])], like, f"{side.name}_batch")
    return program.reshaped(side, (prod(batch), *own[-2:]))
