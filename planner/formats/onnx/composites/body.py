"""Body: the ops that an operator stands for, written one by one; values, constants and names of their own.

A rule writes the body of one operator into a `Body`. It raises `StaysWhole` for a form that it does not know;
nothing of what it wrote is kept then. It knows no target.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np

from planner.formats.onnx.dtypes import NUMPY, dtype_of, enum_of
from planner.formats.onnx.naming import unused
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Dim, Graph, Op, Value

_F32: Final = "f32"


class StaysWhole(Exception):
    """The operator has a form that has no body here; the text says which."""


@dataclass(slots=True)
class Body:
    """The ops written so far for one operator.

    Attributes:
      op: the operator.
      site: path of its scope, which the ops bear.
      taken: names of values, those of the graph among them.
    """

    graph: Graph
    op: Op
    site: str
    taken: set[str]
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def __call__(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Append an op of one result; `out` is its name, by default a free one."""
        result = out or self._fresh(kind)
        self._append(kind, inputs, (result,), attributes)
        return result

    def parts(self, kind: str, *inputs: str, count: int, **attributes: Any) -> tuple[str, ...]:
        """Append an op of several results, and give their names."""
        results = tuple(self._fresh(kind) for _ in range(count))
        self._append(kind, inputs, results, attributes)
        return results

    def input(self, index: int) -> str:
        """An operand, "" where it is left out."""
        return self.op.inputs[index] if index < len(self.op.inputs) else ""

    def output(self, index: int) -> str:
        """A result, "" where it is left out or nothing reads it."""
        return self.op.outputs[index] if index < len(self.op.outputs) else ""

    def attribute(self, key: str, default: Any) -> Any:
        """An attribute as the file has it."""
        return self.op.attributes.get(key, default)

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Dimensions of a value of the graph, None where even their number is unknown."""
        value = self.values.get(name) or self.graph.values.get(name)
        return None if value is None else value.shape

    def rank(self, name: str) -> int:
        """Number of dimensions.

        Raises:
          StaysWhole: it is unknown.
        """
        shape = self.shape(name)
        if shape is None:
            raise StaysWhole(f"the number of dimensions of {name!r} is unknown")
        return len(shape)

    def fixed(self, name: str, axis: int) -> int:
        """A size.

        Raises:
          StaysWhole: it is unknown.
        """
        shape = self.shape(name)
        size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        if not isinstance(size, int):
            raise StaysWhole(f"dimension {axis} of {name!r} has no fixed size")
        return size

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """The numbers of a constant.

        Raises:
          StaysWhole: it is computed.
        """
        if name in self.constants:
            return self.constants[name]
        constant = self.graph.constants.get(name)
        if constant is None or constant.array is None:
            raise StaysWhole(f"{name!r} is computed")
        return constant.array

    def dtype(self, name: str) -> str:
        """The element type of a value of the graph; f32 where it is unknown."""
        value = self.values.get(name) or self.graph.values.get(name)
        return value.dtype if value is not None and value.dtype != UNKNOWN else _F32

    def constant(self, part: str, array: np.ndarray[Any, Any]) -> str:
        """Add a constant."""
        name = unused(f"{self.site}/{part}", self.taken)
        self.constants[name] = array
        self.values[name] = Value(name, array.shape, dtype_of(array))
        return name

    def integers(self, *numbers: int) -> str:
        """A list of 64-bit integers, as shapes and axes are written."""
        return self.constant("sizes", np.asarray(numbers, np.int64))

    def integer(self, number: int) -> str:
        """A 64-bit integer without dimensions."""
        return self.constant("size", np.asarray(number, np.int64))

    def real(self, number: float, like: str) -> str:
        """A number without dimensions, of the element type of `like`."""
        return self.constant("number", np.asarray(number, NUMPY[self.dtype(like)]))

    def lowest(self, like: str) -> str:
        """A quarter of the least number of an element type, without dimensions: what a mask adds."""
        # A row that is masked whole comes out even, not as NaN, and the sum with a score stays finite.
        kind = NUMPY[self.dtype(like)]
        # A quarter of it, as further masks may be added.
        most = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
        return self.constant("masked", np.asarray(-most / 4, kind))

    def size(self, name: str, axis: int) -> str:
        """A size as an integer without dimensions, computed where it is not fixed."""
        # The last axis has no end: -1 + 1 is the first.
        sizes = (
            self("Shape", name, start=axis) if axis == -1 else self("Shape", name, start=axis, end=axis + 1)
        )
        return self("Squeeze", sizes, self.integers(0))

    def cast(self, name: str, dtype: str) -> str:
        """A value in another element type."""
        return self("Cast", name, to=enum_of(dtype))

    def joined(self, *names: str, axis: int, out: str = "") -> str:
        """Values one behind the other along an axis."""
        return self("Concat", *names, out=out, axis=axis)

    def same(self, name: str, out: str) -> None:
        """Let a result be a value."""
        if out:
            self("Identity", name, out=out)

    def _append(self, kind: str, inputs: Sequence[str], outputs: tuple[str, ...], attributes: Any) -> None:
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        name = f"{self.site}/{kind}_{len(self.ops)}"
        self.ops.append(Op(name, kind, tuple(given), outputs, attributes, scope=self.site))

    def _fresh(self, kind: str) -> str:
        name = unused(f"{self.site}/{kind.lower()}", self.taken)
        self.values[name] = Value(name, None, UNKNOWN)
        return name
