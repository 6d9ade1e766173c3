"""Ops of a graph as a TOSA function is read; stored integers are computed with as TOSA does, exactly.

ONNX's runtime has few kernels for 8 and 16 bits, so integers are computed in 32 or 64 bits and cast back.
Shapes are operands in TOSA, and known. Source: TOSA specification 1.0; ONNX operators, opset 21.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.ir import Operation, SSAValue

from planner.formats.mlir.stablehlo_ops import items_of
from planner.formats.onnx.dtypes import enum_of
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform

CENTRE: Final = 128
LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    name: (
        0 if name[0] == "u" else -(1 << (int(name[1:]) - 1)),
        (1 << (int(name[1:]) - (name[0] != "u"))) - 1,
    )
    for name in ("i16", "i32", "i4", "i64", "i8", "u16", "u32", "u8")
}
"""Least and greatest number of an element type."""
_WIDE: Final = frozenset({"bf16", "bool", "f16", "f32", "f64", "i32", "i64"})


class Unread(Exception):
    """An op that no ops of ONNX equal; the reason."""


@dataclass
class Builder(GraphBuilder):
    """The graph that is built while TOSA is read.

    Attributes:
      sizes: numbers of `tosa.const_shape`, by their SSA values.
      functions: regions of the program's loops and branches, by name.
    """

    sizes: dict[SSAValue, tuple[int, ...]] = field(default_factory=dict)
    functions: dict[str, Graph] = field(default_factory=dict)

    def operand(self, op: Operation, index: int) -> str:
        """The name of an operand.

        Raises:
          Unread: it is absent.
        """
        if index >= len(op.operands):
            raise Unread(f"it has no operand {index}")
        return self.name(op.operands[index])

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a value.

        Raises:
          Unread: it is not known.
        """
        shape = self.shape(name)
        if shape is None:
            raise Unread(f"the shape of {name!r} is not known")
        return shape

    def made(self, op: Operation, index: int = 0) -> tuple[int, ...]:
        """The shape of a result; raises as `shape_of`."""
        shape = tuple([int(size) for size in op.results[index].type.get_shape()])  # type: ignore[attr-defined]
        if min(shape, default=0) < 0:
            raise Unread("the shape of its result is not known")
        return shape

    def dtype(self, name: str) -> str:
        """The element type of a value."""
        return self.read.values[name].dtype

    def is_real(self, name: str) -> bool:
        """Whether a value holds reals: floats, or a quantized element type, which stands for them."""
        return self.read.values[name].is_float

    def numbers(self, op: Operation, index: int, attribute: str = "") -> tuple[int, ...]:
        """Integers of a shape operand, of a constant one, or of an attribute in older modules.

        Raises:
          Unread: they are computed when the program runs.
        """
        if index < len(op.operands):
            value = op.operands[index]
            if value in self.sizes:
                return self.sizes[value]
            array = self.array(self.name(value))
            if array is None:
                raise Unread(f"operand {index} is computed when the program runs")
            return tuple([int(item) for item in array.reshape(-1)])
        found: Any = items_of(op).get(attribute)
        if not isinstance(found, DenseArrayBase):
            raise Unread(f"it has no operand {index}")
        return tuple([int(item) for item in found.get_values()])

    def zero(self, op: Operation, index: int) -> int:
        """A zero point; 0 where it is absent."""
        if index >= len(op.operands) or self.is_real(self.name(op.operands[index])):
            return 0
        return self.numbers(op, index)[0]

    def fixed(self, value: Any, dtype: str = "i64") -> str:
        """A constant of integers."""
        kinds = {"bool": np.bool_, "i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8}
        return self.constant(np.asarray(value, kinds[dtype]))

    def wide(self, name: str, at_least: str = "i32") -> str:
        """Integers of a value in a type that ONNX's runtime computes with; floats as they are."""
        dtype = self.dtype(name)
        if dtype in _WIDE and (at_least in (dtype, "i32") or self.is_real(name)):
            return name
        return self.cast(name, at_least)

    def unsigned(self, name: str) -> str:
        """Integers whose bits are those of unsigned ones, as those."""
        dtype = self.dtype(name)
        return self.cast(name, f"u{dtype[1:]}") if dtype[0] == "i" else name

    def through(
        self,
        value: SSAValue,
        kind: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        dtype: str = "",
    ) -> None:
        """Add an op, and give its result the element type of a value of the function."""
        wanted, has = self.element(value), dtype or self.dtype(inputs[0])
        if has == wanted:
            self.result(kind, inputs, value, attributes)
            return
        name = self.between(kind, inputs, shape, attributes, dtype)
        self.result("Cast", [name], value, {"to": enum_of(wanted)})

    def element(self, value: SSAValue) -> str:
        """The element type of a value of the function that is not read yet."""
        from_type = getattr(value.type, "element_type", None)
        text = str(from_type)
        if text.startswith("!quant"):
            return "f32"
        return "bool" if text == "i1" else text.replace("ui", "u")

    def saturated(self, name: str, low: int, high: int) -> str:
        """Integers in 64 bits cut to a range."""
        return self.between("Clip", [name, self.fixed(low), self.fixed(high)], self.shape_of(name))

    def shifted(self, name: str, shifts: Any) -> str:
        """Integers in 64 bits, shifted right by constants: the floor of a division by a power of two."""
        shape = self.shape_of(name)
        shape = np.broadcast_shapes(shape, np.shape(shifts))
        powers = self.fixed(np.left_shift(np.int64(1), np.asarray(shifts, np.int64)))
        rest = self.between("Mod", [name, powers], shape)
        return self.between("Div", [self.between("Sub", [name, rest], shape), powers], shape)

    def has_type(self, name: str) -> bool:
        """Whether a value has a quantized element type."""
        return any(isinstance(fact, Uniform) for fact in self.read.stated.get(name, ()))


def integer(op: Operation, name: str, otherwise: int = 0) -> int:
    """An attribute of one integer, or of a truth value."""
    found = items_of(op).get(name)
    return int(found.value.data) if isinstance(found, IntegerAttr) else otherwise


def flag(op: Operation, name: str) -> bool:
    """An attribute that is true or false."""
    return bool(integer(op, name))


def word(op: Operation, name: str) -> str:
    """The word of an enumeration, or a string: `SINGLE_ROUND`; "" where it is not there."""
    text = str(items_of(op).get(name, "")).rstrip('>"')
    return text.rpartition("<")[2].rpartition('"')[2].strip().rpartition(" ")[2]


def several(op: Operation, name: str) -> tuple[int, ...]:
    """An attribute of several integers.

    Raises:
      Unread: it is not there.
    """
    found: Any = items_of(op).get(name)
    if found is None:
        raise Unread(f"it has no attribute {name!r}")
    return tuple([int(item) for item in found.get_values()])
