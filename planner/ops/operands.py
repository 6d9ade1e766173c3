"""Operands: what is known of one op's operands before it runs, wherever it comes from.

A graph, a checker's plan and an exporter with sizes of its own answer the same three questions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Graph, Op, Shape

Array: TypeAlias = npt.NDArray[Any]
Dims: TypeAlias = tuple[int | None, ...]
OPSET: Final = 21
"""The one that models are brought to."""


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """Shapes and numbers of an op's operands and results.

    Attributes:
      shape_of: of a value by its name, open sizes included; None where its rank is unknown.
      array_of: the numbers of a value by its name; None where they come at run time.
      opset: that the op is written in.
    """

    op: Op
    shape_of: Callable[[str], Shape | None]
    array_of: Callable[[str], Array | None]
    opset: int = OPSET

    def is_given(self, index: int) -> bool:
        """Whether an optional operand is there."""
        return index < len(self.op.inputs) and bool(self.op.inputs[index])

    def shape(self, index: int = 0) -> Shape | None:
        """Shape of an operand; None of one that is not there too."""
        return self.shape_of(self.op.inputs[index]) if self.is_given(index) else None

    def sizes(self, index: int) -> Dims | None:
        """The same, open sizes None."""
        return _dims(self.shape(index))

    def result(self, index: int = 0) -> Shape | None:
        """Shape of a present result, as it was inferred."""
        return self.shape_of(self.op.outputs[index])

    def result_sizes(self) -> Dims | None:
        """The same of the first result, open sizes None."""
        return _dims(self.result())

    def array(self, index: int) -> Array | None:
        """Numbers of an operand; None of one that is not there too."""
        return self.array_of(self.op.inputs[index]) if self.is_given(index) else None

    def integers(self, index: int, attribute: str = "", default: list[int] | None = None) -> list[int] | None:
        """Integers of an operand, or of the attribute that older operator sets have.

        Returns:
          The default where there is neither, None where they come at run time.
        """
        if not self.is_given(index):
            given = self.op.attributes.get(attribute) if attribute else None
            return default if given is None else [int(item) for item in given]
        array = self.array(index)
        return None if array is None else [int(item) for item in np.asarray(array).reshape(-1)]


def operands_of(op: Op, graph: Graph) -> Operands:
    """Facts of a graph about an op's operands."""

    def array_of(name: str) -> Array | None:
        constant = graph.constants.get(name)
        return None if constant is None else constant.array

    def shape_of(name: str) -> Shape | None:
        value = graph.values.get(name)
        return None if value is None else value.shape

    return Operands(op, shape_of, array_of, graph.opsets.get("", OPSET))


def reduced_axes(known: Operands, rank: int) -> tuple[int, ...] | None:
    """The axes that a reduction is over, ascending; None where they come at run time.

    Args:
      known: the operands of a reduction, or of a pool over all spatial axes.
      rank: of the first.
    """
    if known.op.type.startswith("Global"):
        return tuple(range(2, rank))
    axes = known.integers(1, "axes", [])
    if axes is None:
        return None
    whole = () if known.op.attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes})) if axes else whole


def _dims(shape: Shape | None) -> Dims | None:
    return None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
