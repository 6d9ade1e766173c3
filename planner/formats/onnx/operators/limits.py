"""Limits: numbers of attributes and operands that no device can compute with, and onnx lets through.

onnx's inference divides by a group of 0 and ends the process, and axes beyond 32 bits wrap around. The
operators' definitions say which operands do not fit. In: ops as the file has them, of any opset.
Source: ONNX operator pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NAMES
from planner.formats.onnx.structure.subgraph_nodes import graph_of, ops_of, subgraphs
from planner.ir.graph import Graph, Op
from planner.ops import defined
from planner.ops.operands import operands_of

Dims: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """The known facts of the operands of an op of the quantized dialects, which has no definition."""

    graph: Graph
    op: Op

    def shape(self, index: int) -> Dims | None:
        """The dimensions of an operand, open ones None; None where its rank is not known."""
        value = self.graph.values.get(self.op.inputs[index]) if index < len(self.op.inputs) else None
        return None if value is None or value.shape is None else _dims(value.shape)

    def array(self, index: int) -> np.ndarray | None:
        """The numbers of a constant operand."""
        name = self.op.inputs[index] if index < len(self.op.inputs) else ""
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.array


def refuse_attributes(graph: Graph) -> None:
    """Refuse attributes that onnx's inference must not see, in bodies too.

    Raises:
      ModelError: the op, the attribute, and what it may be.
    """
    _refuse_attributes(graph.ops)


def refuse_operands(graph: Graph) -> None:
    """Refuse operands that no engine takes, in a graph whose shapes are known as far as they can be.

    Raises:
      ModelError: the op, what does not fit, and what would.
    """
    for op in graph.ops:
        for limit in defined(op.type).limits:
            for problem in limit(operands_of(op, graph)):
                raise ModelError(f"{op.type} at {op.name!r}: {problem}")


def _refuse_attributes(ops: Sequence[Op]) -> None:
    for op in ops:
        for key, given in op.attributes.items():
            least = LEAST.get(key)
            numbers = given if isinstance(given, tuple) else (given,)
            is_other = "::" in op.type or (op.type, key) == ("Pad", "pads")
            if least is None or is_other or not all(isinstance(number, int) for number in numbers):
                continue
            if any(number < least or number > _MOST for number in numbers):
                raise ModelError(
                    f"{op.type} at {op.name!r}: its attribute {key!r} is {_text(given)}",
                    hint=f"accepted: whole numbers of {least} to {_MOST}",
                )
        if op.type == "Cast" and op.attributes.get("to", 1) not in NAMES:
            raise ModelError(
                f"Cast at {op.name!r}: its attribute 'to' is {op.attributes['to']}",
                hint=f"accepted: an element type of ONNX, {min(NAMES)} to {max(NAMES)}",
            )
        axis = op.attributes.get("axis")
        if isinstance(axis, int) and "::" not in op.type and not -_RANKS <= axis < _RANKS:
            raise ModelError(
                f"{op.type} at {op.name!r}: its attribute 'axis' is {axis}",
                hint="accepted: the number of a dimension, from the end where it is negative",
            )
        for body in subgraphs(op).values():
            _refuse_attributes(ops_of(graph_of(body).node))


def _text(given: object) -> str:
    return str(list(given)) if isinstance(given, tuple) else str(given)


def _dims(shape: Sequence[int | str | None]) -> Dims:
    return tuple(dim if isinstance(dim, int) else None for dim in shape)


_MOST: Final = (1 << 31) - 1
_RANKS: Final = 64

LEAST: Final[Mapping[str, int]] = {
    "batch_dims": 0,
    "blocksize": 1,
    "dilations": 1,
    "group": 1,
    "hidden_size": 1,
    "kernel_shape": 1,
    "num_groups": 1,
    "num_outputs": 1,
    "pads": 0,
    "size": 1,
    "strides": 1,
}
"""The least number of attributes that mean the same in every op of the standard domain."""
