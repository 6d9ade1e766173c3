"""Operands: constants with channels of a seam along one of their dimensions, and giving ops new ones.

An operand says under which view of its array a vector of factors, one a channel, broadcasts: groups of a
convolution are a dimension of their own there. Nothing here decides a factor. Source: ONNX operator schemas.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Constant, Graph, Op

Reals: TypeAlias = npt.NDArray[Any]
Key: TypeAlias = tuple[str, int]
"""An operand's place: the name of its op, its index."""
COPY: Final = "@"


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A constant operand whose channels are those of a seam.

    Attributes:
      op, index: its consumer, and its place there.
      view: the shape under which factors broadcast.
      factors: their shape there, one element a channel.
      channels: channel of the seam that each of its own is, shape `(n_channels,)`.
      is_weight: multiplied with the activation, not added to a result.
    """

    op: Op
    index: int
    view: tuple[int, ...]
    factors: tuple[int, ...]
    channels: npt.NDArray[np.int64]
    is_weight: bool

    @property
    def key(self) -> Key:
        """Its place."""
        return self.op.name, self.index

    def scaled(self, array: Reals, factors: Reals) -> Reals:
        """The array times the factors of the seam's channels, which may spread it over more dimensions."""
        own = factors[self.channels].reshape(self.factors)
        # An addend grows where it was one number for all channels; it comes as it grew the next time.
        result: Reals = (array.reshape(self.view) if self.is_weight else array) * own
        return result.reshape(array.shape) if result.size == array.size else result

    def greatest(self, array: Reals) -> Reals:
        """The greatest magnitude in each of its channels, shape `(n_channels,)`; 0 without numbers."""
        whole = np.abs(array.reshape(self.view) if self.is_weight else array)
        # Dimensions of 1 and those in front broadcast: aligned from the end, as numpy does.
        spread = np.broadcast_to(whole, np.broadcast_shapes(whole.shape, self.factors))
        behind = spread.ndim - len(self.factors)
        others = (*range(behind), *(behind + i for i, size in enumerate(self.factors) if size == 1))
        return np.asarray(spread.max(axis=others, initial=0.0)).reshape(-1)


def sink_of(op: Op, shape: tuple[int, ...]) -> Operand | None:
    """The weight of a linear op as what the channels of its input are multiplied with.

    Args:
      shape: of the weight.
    """
    groups = int(op.attributes.get("group", 1))
    if op.type == "Conv":
        n_in = shape[1] * groups
        view = (groups, shape[0] // groups, *shape[1:])
        return _operand(op, 1, view, (groups, 1, shape[1], *(1,) * (len(shape) - 2)), n_in)
    if op.type == "ConvTranspose":
        return _operand(op, 1, shape, (shape[0], *(1,) * (len(shape) - 1)), shape[0])
    if len(shape) != 2:
        return None
    is_rows = op.type == "MatMul" or not op.attributes.get("transB", 0)
    return _operand(op, 1, shape, (shape[0], 1) if is_rows else (1, shape[1]), shape[0 if is_rows else 1])


def source_of(op: Op, shape: tuple[int, ...]) -> Operand | None:
    """The weight of a linear op as what gives the channels of its result; see `sink_of`."""
    groups = int(op.attributes.get("group", 1))
    if op.type == "Conv":
        return _operand(op, 1, shape, (shape[0], *(1,) * (len(shape) - 1)), shape[0])
    if op.type == "ConvTranspose":
        view = (groups, shape[0] // groups, *shape[1:])
        n_out = groups * shape[1]
        return _operand(op, 1, view, (groups, 1, shape[1], *(1,) * (len(shape) - 2)), n_out)
    if len(shape) != 2:
        return None
    is_columns = op.type == "MatMul" or not op.attributes.get("transB", 0)
    at = 1 if is_columns else 0
    return _operand(op, 1, shape, (1, shape[1]) if is_columns else (shape[0], 1), shape[at])


def along(op: Op, index: int, shape: tuple[int, ...], behind: int, channels: int) -> Operand:
    """A constant that broadcasts against a value with `behind` dimensions behind its channels."""
    factors = (channels, *(1,) * behind)
    return Operand(op, index, shape, factors, np.arange(channels), is_weight=False)


def _operand(op: Op, index: int, view: tuple[int, ...], factors: tuple[int, ...], channels: int) -> Operand:
    return Operand(op, index, view, factors, np.arange(channels), is_weight=True)


def with_operands(graph: Graph, arrays: Mapping[Key, Reals]) -> Graph:
    """Give operands other numbers; an op gets a constant of its own where another reads the old one too.

    Args:
      graph: of ops, not of regions.
      arrays: by place, in any float type; each becomes the type of the old one.
    """
    values, constants = dict(graph.values), dict(graph.constants)
    ops = {op.name: op for op in graph.ops}
    for (op_name, index), array in arrays.items():
        op = ops[op_name]
        old = new = op.inputs[index]
        if _is_shared(graph, old):
            new = f"{old}{COPY}{op_name}"
            while new in values:
                new += "'"
        held = constants[old].array
        numbers = np.ascontiguousarray(array, None if held is None else held.dtype)
        numbers.setflags(write=False)
        values[new] = replace(values[old], name=new, shape=numbers.shape)
        constants[new] = Constant(numbers)
        inputs = (*op.inputs[:index], new, *op.inputs[index + 1 :])
        ops[op_name] = replace(op, inputs=inputs)
    changed = replace(graph, values=values, constants=constants, ops=tuple(ops[op.name] for op in graph.ops))
    before = {op.name: op for op in graph.ops}
    return without_unread(changed, {before[name].inputs[index] for name, index in arrays})


def _is_shared(graph: Graph, name: str) -> bool:
    readers = sum(op.inputs.count(name) + op.captures.count(name) for op in graph.all_ops())
    return readers > 1 or name in graph.outputs


def without_unread(graph: Graph, names: Iterable[str]) -> Graph:
    """Drop those of the constants that nothing reads any more."""
    read = {*graph.outputs}
    for op in graph.all_ops():
        read.update(op.inputs, op.captures)
    for region in graph.regions:
        read.update(region.inputs)
    gone = set(names) - read
    return replace(
        graph,
        values={name: value for name, value in graph.values.items() if name not in gone},
        constants={name: constant for name, constant in graph.constants.items() if name not in gone},
    )


def numbers_of(graph: Graph, op: Op, index: int) -> Reals | None:
    """The numbers of a constant operand that may change: finite reals without facts; else None."""
    if index >= len(op.inputs):
        return None
    constant = graph.constants.get(op.inputs[index])
    if constant is None or constant.array is None or graph.values[op.inputs[index]].facts:
        return None
    array = constant.array
    if array.dtype.kind != "f" or not array.size or not math.isfinite(float(np.abs(array).max())):
        return None
    return array
