"""Draft: a graph of ONNX ops while an importer of another format builds it, constants moved at once.

Constants are moved in numpy, their fixed types with them; everything else gets an op.
Source: ONNX operators, opset 21.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from planner.formats.onnx.dtypes import NUMPY, dtype_of, enum_of
from planner.ir.graph import Constant, Facts, Op, Value
from planner.ir.types.qtypes import Uniform

OPSET: Final = 21


class State(Protocol):
    """The parts of a model that have been read so far.

    Attributes:
      stated: facts of values, by name.
    """

    values: dict[str, Value]
    constants: dict[str, Constant]
    ops: list[Op]
    stated: dict[str, Facts]

    def fresh(self, base: str) -> str:
        """Make a name no value has yet."""


StateT = TypeVar("StateT", bound=State)


@dataclass
class Draft(Generic[StateT]):
    """The graph that is built, with the state of its importer.

    Attributes:
      notes: ops that stay opaque, and why.
    """

    read: StateT
    notes: list[str] = field(default_factory=list, kw_only=True)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a value; None where a size is unknown."""
        shape = self.read.values[name].shape
        if shape is None or not all(isinstance(size, int) for size in shape):
            return None
        return tuple([size for size in shape if isinstance(size, int)])

    def array(self, name: str) -> np.ndarray | None:
        """The numbers of a constant; None for any other value."""
        known = self.read.constants.get(name)
        return None if known is None else known.array

    def number(self, name: str) -> float | None:
        """The one number that all elements of a constant are; None where there is none."""
        array = self.array(name)
        if array is None or array.size == 0:
            return None
        first = array.reshape(-1)[0]
        return float(first) if np.all(array == first) else None

    def between(
        self,
        kind: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        dtype: str = "",
    ) -> str:
        """Add an op whose result is on the way to one, of the first input's element type or another."""
        source = self.read.values[inputs[0]]
        name = self.read.fresh(inputs[0])
        self.read.values[name] = Value(name, tuple(shape), dtype or source.dtype)
        self.read.ops.append(Op(name, kind, tuple(inputs), (name,), attributes or {}))
        return name

    def constant(self, array: np.ndarray, base: str = "c", facts: Facts = ()) -> str:
        """Add a constant."""
        name = self.read.fresh(base.partition("#")[0])
        self.read.values[name] = Value(name, array.shape, dtype_of(array))
        self.read.constants[name] = Constant(array)
        if facts:
            self.read.stated[name] = facts
        return name

    def integers(self, numbers: Sequence[int]) -> str:
        """Add a constant of 64-bit integers, an operand of ONNX's ops that move data."""
        return self.constant(np.array(numbers, np.int64), "shape")

    def cast(self, name: str, dtype: str) -> str:
        """A value in an element type: itself, a constant cast now, others by a Cast."""
        value, array = self.read.values[name], self.array(name)
        if value.dtype == dtype:
            return name
        if array is not None:
            return self.constant(array.astype(NUMPY[dtype]), name)
        return self.between("Cast", [name], self.shape(name) or (), {"to": enum_of(dtype)}, dtype)

    def transposed(self, name: str, order: Sequence[int]) -> str:
        """A value with its axes in another order: a constant moved now, others by a Transpose."""
        if list(order) == sorted(order):
            return name
        array, shape = self.array(name), self.shape(name)
        if array is not None:
            moved = self.moved(name, {axis: place for place, axis in enumerate(order)})
            if moved is not None:
                return self.constant(np.ascontiguousarray(array.transpose(order)), name, moved)
        if shape is None:
            raise ValueError(f"{name} has no known shape")
        return self.between("Transpose", [name], [shape[axis] for axis in order], {"perm": tuple(order)})

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """A value in another shape of as many elements."""
        known = self.shape(name)
        if known == tuple(shape):
            return name
        array = self.array(name)
        if array is not None and known is not None:
            kept = [(axis, size) for axis, size in enumerate(known) if size != 1]
            places = [axis for axis, size in enumerate(shape) if size != 1]
            same = [size for _, size in kept] == [shape[axis] for axis in places]
            axes = dict(zip([axis for axis, _ in kept], places, strict=False)) if same else {}
            moved = self.moved(name, axes)
            if moved is not None:
                return self.constant(array.reshape(shape), name, moved)
        return self.between("Reshape", [name, self.integers(shape)], shape)

    def moved(self, name: str, axes: Mapping[int, int]) -> Facts | None:
        """Facts of a constant whose axes move; None where a fact cannot follow."""
        found: list[Any] = []
        facts: tuple[Any, ...] = self.read.stated.get(name, ())
        for fact in facts:
            axis = getattr(fact, "axis", None)
            if isinstance(fact, Uniform) and fact.is_sub_channel:
                return None
            if axis is not None and axis not in axes:
                return None
            found.append(fact if axis is None else replace(fact, axis=axes[axis]))
        return tuple(found)

    def producer(self, name: str, kind: str) -> Op | None:
        """The op that gives a value, where it is the last of its kind made and of this kind."""
        found = next((op for op in reversed(self.read.ops) if name in op.outputs), None)
        return found if found is not None and found.type == kind else None
