"""Ops of a graph as a StableHLO function is read: values by name, constants folded, broadcasts put off.

ONNX's element-wise ops broadcast by themselves, so a `broadcast_in_dim` is a reshape that lines axes up,
and only a reader that needs the whole tensor makes it an Expand. Constants are moved in numpy, their
pinned types with them. Source: ONNX operators, opset 21; StableHLO specification, `broadcast_in_dim`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from xdsl.ir import Operation, SSAValue

from planner.ir.graph import Constant, Facts, Op, Value
from planner.ir.types.qtypes import Uniform
from planner.mlir.text.reading import ReadState
from planner.onnx.dtypes import NUMPY, enum_of

OPSET: Final = 21


@dataclass
class GraphBuilder:
    """The graph that is built while StableHLO is read, with the state of its function.

    Attributes:
      aligned: values that are broadcasts of a smaller value, with that value's name; not yet expanded.
      notes: ops that stay opaque, and why.
    """

    read: ReadState
    aligned: dict[SSAValue, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def name(self, value: SSAValue) -> str:
        """The name of a value of full shape."""
        if value in self.aligned:
            small = self.aligned.pop(value)
            shape = [int(size) for size in value.type.get_shape()]  # type: ignore[attr-defined]
            self.result("Expand", [small, self.integers(shape)], value)
        return self.read.names[value]

    def loose(self, value: SSAValue) -> str:
        """The name of a value, or of the smaller one that it is a broadcast of."""
        return self.aligned.get(value) or self.read.names[value]

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

    def result(
        self, kind: str, inputs: Sequence[str], value: SSAValue, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Add an op whose result is a value of the function."""
        (name,) = self.read.define(self.op(value), [value], None)
        self.read.ops.append(Op(name, kind, tuple(inputs), (name,), attributes or {}))

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

    def alias(self, value: SSAValue, name: str) -> None:
        """Let a value of the function be another by name, with the facts its own type states."""
        probe = self.read.fresh(name)
        self.read.names[value] = name
        self.read.add(self.op(value), probe, value.type)
        del self.read.values[probe]
        stated = self.read.stated.pop(probe, ())
        if stated:
            self.read.stated.setdefault(name, stated)

    def constant(self, array: np.ndarray, base: str = "c", facts: Facts = ()) -> str:
        """Add a constant."""
        name = self.read.fresh(base.partition("#")[0])
        dtype = _NAMES[array.dtype]
        self.read.values[name] = Value(name, array.shape, dtype)
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

    @staticmethod
    def op(value: SSAValue) -> Operation:
        """The op that a value is a result of."""
        owner = value.owner
        if not isinstance(owner, Operation):
            raise TypeError("an argument has no op")
        return owner


_NAMES: Final = {
    np.dtype(kind): name
    for name, kind in {
        "bool": np.bool_,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "i8": np.int8,
        "u16": np.uint16,
        "u32": np.uint32,
        "u64": np.uint64,
        "u8": np.uint8,
    }.items()
}
