"""ProgramBuilder: a planned model as LiteRT operators, with QUANTIZE and DEQUANTIZE between types.

Interfaces are float unless the plan fixes their types. Source: docs/specification.md, section 3;
docs/litert.md; plans/rescales.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.common.blocks import Clamp
from planner.exporters.common.layouts import Order, plain
from planner.exporters.common.values import Values, is_cut
from planner.exporters.litert.operations import Operator, Options, Program, Tensor
from planner.exporters.onnx.port_support import short_text
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import full_range
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

ELEMENTS: Final = ("bool", "f32", "i32", "i64")
"""Element types that a value which is not quantized may have."""
CONSTANTS: Final = (*ELEMENTS, "i8")
"""And those of constants: rows of tables are stored in bytes."""

_HINT: Final = (
    "keep the kernel out of the program (another target, or a model cut there), or export another format"
)


class ProgramBuilder:
    """The program, and the tensors that hold each value.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports; its graph has the regions.
      program: what has been written.
      address: of the port being written, for refusals.
      loops: bodies of loops around what is being written.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start with the model's inputs."""
        self.graph, self.plan, self.program = graph, plan, Program()
        self.values, self.address = Values[Tensor](graph, plan, self), ""
        self.loops = 0
        for i, name in enumerate(graph.inputs):
            self.address = port_address(BOUNDARY, "out", i)
            self._feed(name)

    @contextmanager
    def inside(self) -> Iterator[list[Operator]]:
        """Write what follows into a body; values in a form that is made there are not seen around it."""
        stored, reals = self.values.stored, self.values.reals
        self.values.stored, self.values.reals = dict(stored), dict(reals)
        try:
            with self.program.inside() as operators:
                yield operators
        finally:
            self.values.stored, self.values.reals = stored, reals

    def sizes(self, value: str) -> tuple[int, ...]:
        """A value's sizes, as it has been written; else a dimension that the model leaves open is 1.

        Raises:
          UnsupportedExport: its rank is unknown.
        """
        if value in self.values.numbers:
            return self.values.numbers[value].shape
        if isinstance(self.values.bases.get(value), Uniform) or (value, None) in self.values.reals:
            return self.values.form(value).sizes
        shape = self.graph.values[value].shape
        if shape is None:
            raise self.refuse(
                f"value {value!r} has no known shape; litert accepts static ones",
                "give the model's inputs fixed sizes",
            )
        return tuple(size if isinstance(size, int) else 1 for size in shape)

    def refuse(self, problem: str, hint: str = "") -> UnsupportedExport:
        """Make the refusal of what is being written."""
        return UnsupportedExport(f"{self.address}: {problem}", hint=hint or _HINT)

    def operand(self, value: str, kind: PortTyped, order: Order | None = None) -> Tensor:
        """The tensor of a value as a port reads it; constants are stored in an order (the model's)."""
        if not isinstance(kind, Uniform):
            return self.real(value, order=order)
        if not self.values.is_constant(value):
            return self.values.integers(value, kind)
        stored = quantize_array(self.values.array(value), kind)
        order = plain(stored.ndim) if order is None else order
        dimension = 0 if kind.axis is None else order.index(kind.axis)
        return self.program.constant(
            stored, element_of(kind), value, order=order, kind=kind, dimension=dimension
        )

    def real(self, value: str, seen: Uniform | None = None, order: Order | None = None) -> Tensor:
        """The tensor of a value in its own element type, for constants as seen through a type."""
        values, dtype = self.values, self.graph.values[value].dtype
        if (value, None) in values.reals:
            return values.reals[value, None]
        if values.is_constant(value):
            array = values.array(value)
            if dtype not in CONSTANTS:
                raise self.refuse(f"constant {value!r} is {dtype}; litert accepts {', '.join(CONSTANTS)}")
            if seen is not None:
                array = dequantize_array(quantize_array(array, seen), seen)
            return self.program.constant(np.asarray(array), dtype, value, order=order)
        base = values.bases.get(value)
        if not isinstance(base, Uniform):
            raise self.refuse(
                f"{value!r} is read, but not computed here; litert accepts no shape arithmetic at run time"
            )
        values.reals[value, None] = self.dequantize(value, values.form(value), base)
        return values.reals[value, None]

    def realize(self, value: str, kind: Uniform | None) -> Tensor:
        """The same, for what quantizes it."""
        return self.real(value, kind if self.values.is_constant(value) else None)

    def store(self, value: str, kind: Uniform) -> Tensor:
        """A constant in a type."""
        return self.operand(value, kind)

    def quantize(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """QUANTIZE of a float tensor."""
        if tensor.element != "f32":
            raise self.refuse(f"{value!r} is {tensor.element}; litert quantizes f32")
        return self._quantized(value, tensor, kind)

    def dequantize(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """DEQUANTIZE of stored integers."""
        if self.graph.values[value].dtype != "f32":
            raise self.refuse(f"{value!r} is {self.graph.values[value].dtype}; litert dequantizes to f32")
        if not kind.is_per_tensor:
            raise self.refuse(f"{value!r} has {short_text(kind)}; litert dequantizes one scale")
        return self._cast("DEQUANTIZE", tensor, "f32", None, f"{value}_f")

    def rescale(self, value: str, tensor: Tensor, source: Uniform, wanted: Uniform) -> Tensor:
        """QUANTIZE of stored integers, which requantizes them; bounds alone where they stay what they are."""
        if self.values.is_same(source, wanted):
            return tensor
        if is_cut(source, wanted):
            return self.cut(value, source, tensor, Clamp(wanted.storage.qmin, wanted.storage.qmax))
        if self.values.arithmetic not in ARITHMETICS:
            raise self.refuse(f"a rescale of {value!r}: {self._arithmetic_problem()}")
        return self._quantized(value, tensor, wanted)

    def _quantized(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """QUANTIZE, which saturates at the ends of the format, and the bounds of a type with a part of it."""
        low, high = full_range(kind.storage.bits, signed=kind.storage.signed)
        whole = replace(kind, storage=replace(kind.storage, qmin=low, qmax=high))
        made = self._cast("QUANTIZE", tensor, element_of(kind), whole, f"{value}_q")
        return self.cut(value, whole, made, Clamp(kind.storage.qmin, kind.storage.qmax))

    def _cast(self, operator: str, tensor: Tensor, element: str, kind: Uniform | None, stem: str) -> Tensor:
        table = f"{operator.capitalize()}Options"
        like = Tensor(-1, tensor.shape, element, tensor.order, kind)
        return self.program.emit(operator, [tensor], like, stem, (table, {}))

    def settle(
        self,
        value: str,
        kind: PortTyped,
        tensor: Tensor,
        clamp: Clamp | None = None,
        inside: Clamp | None = None,
    ) -> None:
        """Define a value; stored integers are cut to a clamp.

        Args:
          clamp: what the plan leaves of their type.
          inside: what they are cut to already; None: the range of their type.
        """
        if not isinstance(kind, Uniform):
            self.values.define_real(value, tensor)
            return
        if clamp is not None:
            tensor = self.cut(value, kind, tensor, clamp, inside)
        self.values.define_stored(value, kind, tensor)

    def cut(
        self, value: str, kind: Uniform, tensor: Tensor, clamp: Clamp, inside: Clamp | None = None
    ) -> Tensor:
        """Stored integers cut to bounds that they do not have already: those of their type by default."""
        inside = inside or Clamp(kind.storage.qmin, kind.storage.qmax)
        ends = ("MAXIMUM", clamp.low, inside.low), ("MINIMUM", clamp.high, inside.high)
        for operator, bound, end in ends:
            if bound != end:
                number = np.full((1,) * len(tensor.shape), bound)
                limit = self.program.constant(number, element_of(kind), f"{value}_bound", kind=kind)
                options: tuple[str, Options] = ("MaximumMinimumOptions", {})
                tensor = self.program.emit(operator, [tensor, limit], tensor, f"{value}_cut", options)
        return tensor

    def check_arithmetic(self) -> None:
        """Refuse a row whose arithmetic is not the runtime's.

        Raises:
          UnsupportedExport: naming the arithmetics that are.
        """
        if self.values.arithmetic not in ARITHMETICS:
            raise self.refuse(
                self._arithmetic_problem(),
                "use a target whose rows requantize so, such as litert-int8",
            )

    def _arithmetic_problem(self) -> str:
        return (
            f"its row computes in {self.values.arithmetic or 'float'}; litert accepts rows of "
            f"{', '.join(ARITHMETICS)}"
        )

    def result(self, value: str) -> None:
        """Make a value an output of the program: quantized where the model's type is fixed, else float."""
        pinned = self.values.pins.get(value)
        tensor = self.real(value) if pinned is None else self.values.integers(value, pinned)
        self.program.result(value, self.program.ordered(tensor, plain(len(tensor.shape))))

    def _feed(self, name: str) -> None:
        kind, dtype = self.values.pins.get(name), self.graph.values[name].dtype
        if kind is None and dtype not in ELEMENTS:
            raise self.refuse(f"input {name!r} is {dtype}; litert accepts {', '.join(ELEMENTS)}")
        element = dtype if kind is None else element_of(kind)
        self.values.enter(name, kind, self.program.argument(name, self.sizes(name), element, kind))


def element_of(kind: Uniform) -> str:
    """Element type of the tensor that holds a quantized type."""
    return next((f"i{width}" for width in (8, 16, 32) if kind.storage.bits <= width), "i64")


ARITHMETICS: Final = ("gemmlowp", "litert", "litert_16", "tosa_double", "tosa_single")
"""Arithmetics of rows that the runtime's kernels compute in, or come near to; see docs/litert.md."""
