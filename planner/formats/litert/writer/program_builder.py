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
from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import Order, plain
from planner.formats.common.ordered import OrderedBuilder
from planner.formats.common.values import Values, is_cut
from planner.formats.litert.writer.operations import Operator, Options, Program, Tensor
from planner.formats.onnx.writer.port_support import short_text
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import full_range
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

ELEMENTS: Final = ("bool", "f32", "i32", "i64")
"""Element types that a value which is not quantized may have."""
CONSTANTS: Final = (*ELEMENTS, "i8")
"""And those of constants: rows of tables are stored in bytes."""


class ProgramBuilder(OrderedBuilder[Tensor]):
    """The program, and the tensors that hold each value.

    Attributes:
      program: what has been written.
      loops: bodies of loops around what is being written.
    """

    format, targets = "litert", "litert-int8"
    arithmetics = ("gemmlowp", "litert", "litert_16", "tosa_double", "tosa_single")

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

    def operand(self, value: str, kind: PortTyped, order: Order | None = None) -> Tensor:
        """The tensor of a value as a port reads it; constants are stored in an order (the model's)."""
        if not isinstance(kind, Uniform):
            return self.real(value, order)
        if not self.values.is_constant(value):
            return self.values.integers(value, kind)
        stored = quantize_array(self.values.array(value), kind)
        order = plain(stored.ndim) if order is None else order
        dimension = 0 if kind.axis is None else order.index(kind.axis)
        return self.program.constant(
            stored, element_of(kind), value, order=order, kind=kind, dimension=dimension
        )

    def constant(self, value: str, order: Order | None, seen: Uniform | None) -> Tensor:
        """A constant in its own element type."""
        array, dtype = self.values.array(value), self.graph.values[value].dtype
        if dtype not in CONSTANTS:
            raise self.refuse_element(f"constant {value!r}", dtype, CONSTANTS)
        if seen is not None:
            array = dequantize_array(quantize_array(array, seen), seen)
        return self.program.constant(np.asarray(array), dtype, value, order=order)

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
        if self.values.arithmetic not in self.arithmetics:
            raise self.refuse(f"a rescale of {value!r}: {self.arithmetic_problem()}")
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

    def result(self, value: str) -> None:
        """Make a value an output of the program: quantized where the model's type is fixed, else float."""
        pinned = self.values.pins.get(value)
        tensor = self.real(value) if pinned is None else self.values.integers(value, pinned)
        self.program.result(value, self.program.ordered(tensor, plain(len(tensor.shape))))

    def _feed(self, name: str) -> None:
        kind, dtype = self.values.pins.get(name), self.graph.values[name].dtype
        if kind is None and dtype not in ELEMENTS:
            raise self.refuse_element(f"input {name!r}", dtype, ELEMENTS)
        element = dtype if kind is None else element_of(kind)
        self.values.enter(name, kind, self.program.argument(name, self.sizes(name), element, kind))


def element_of(kind: Uniform) -> str:
    """Element type of the tensor that holds a quantized type."""
    return next((f"i{width}" for width in (8, 16, 32) if kind.storage.bits <= width), "i64")
