"""ProgramBuilder: a planned model as a TOSA program, with RESCALE between types.

TOSA computes on signed integers, so unsigned types are held with their zero point moved down; only arguments
and results of the function have the model's own sign. Source: docs/specification.md, section 3;
plans/rescales.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import RuleError
from planner.formats.common.layouts import Order, plain
from planner.formats.common.linear_operands import INT32
from planner.formats.common.ordered import OrderedBuilder
from planner.formats.common.values import Values, is_cut
from planner.formats.onnx.writer.port_support import short_text
from planner.formats.tosa.writer.float_conversion import dequantized, problem_of, quantized
from planner.formats.tosa.writer.operations import Body, Program, Tensor
from planner.formats.tosa.writer.scaling import ARITHMETICS, UNIT, clamp, factor_of, rescale
from planner.interpreter.fixed_point import ratios
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.types.qtypes import Storage, Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import uses

_Key = TypeVar("_Key", bound=Hashable)

PLAIN_ELEMENTS: Final[Mapping[str, str]] = {
    "f32": "f32",
    "bool": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i32",
}
"""Elements of tensors that are not quantized, by the model's element type; TOSA's indices have 32 bits."""


class ProgramBuilder(OrderedBuilder[Tensor]):
    """The program, and the tensors that hold each value.

    Attributes:
      program: what has been written.
      in_f32: whether floats of the kernel being written are float32, whatever the model's are.
    """

    format, targets = "tosa", "tosa-int8 or litert-int8"
    arithmetics = ARITHMETICS

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start with the model's inputs."""
        self.graph, self.plan, self.program = graph, plan, Program()
        self.values, self.address = Values[Tensor](graph, plan, self, held), ""
        self.in_f32 = False
        self.notes = [f"tosa of {graph.name!r} for {plan.target.id}"]
        readers = uses(plan.graph, plan.kernels_in_order)
        for i, name in enumerate(graph.inputs):
            self.address = port_address(BOUNDARY, "out", i)
            try:
                self._feed(name, {use.type for use in readers.get(name, ())})
            except RuleError as error:
                raise self.refuse(error.message, error.hint) from error

    @contextmanager
    def inside(self) -> Iterator[Body]:
        """Write what follows into a body; what it reads from around it becomes an argument."""
        values = self.values
        stored, reals = values.stored, values.reals
        with self.program.inside() as body:

            def seen(tensor: Tensor) -> Tensor:
                return self.program.captured(body, tensor)

            values.stored, values.reals = _Seen(stored, seen), _Seen(reals, seen)
            try:
                yield body
            finally:
                values.stored, values.reals = stored, reals

    def operand(self, value: str, wanted: Uniform, order: Order | None = None) -> Tensor:
        """The stored tensor of a value in a type, or a constant stored in an order."""
        if not self.values.is_constant(value):
            return self.values.integers(value, wanted)
        array = quantize_array(self.values.array(value), held(wanted))
        return self.program.tensor(array, element_of(wanted), order or plain(array.ndim), value)

    def constant(self, value: str, order: Order | None, _: Uniform | None = None) -> Tensor:
        """A constant in its own element type."""
        array, dtype = self.values.array(value), self.graph.values[value].dtype
        if self.in_f32 and self.graph.values[value].is_float:
            array, dtype = array.astype(np.float32), "f32"
        if dtype not in PLAIN_ELEMENTS:
            raise self.refuse_element(f"constant {value!r}", dtype, PLAIN_ELEMENTS)
        if dtype == "i64" and array.size and max(-int(array.min()), int(array.max())) > INT32:
            raise self.refuse(f"constant {value!r} has integers beyond 32 bits; tosa accepts none")
        return self.program.tensor(array, PLAIN_ELEMENTS[dtype], order or plain(array.ndim), value)

    def store(self, value: str, kind: Uniform) -> Tensor:
        """A constant that a kernel reads as it reads activations: quantized by the program."""
        return self.quantize(value, self.real(value), kind)

    def seen(self, value: str, kind: PortTyped) -> Tensor:
        """A value's reals as a port reads them: through its integer type, if it has one."""
        if not isinstance(kind, Uniform):
            return self.real(value)
        if not self.values.is_constant(value):
            return self.dequantize(value, self.values.integers(value, kind), kind)
        reals = dequantize_array(quantize_array(self.values.array(value), kind), kind)
        return self.program.tensor(reals, "f32", plain(reals.ndim), value)

    def result(self, value: str) -> Tensor:
        """The function's result for a model output, stored as the model has it."""
        base = self.values.bases.get(value)
        if not isinstance(base, Uniform):
            tensor = self.real(value)
            self.notes.append(f"result {value!r}: {tensor.element}")
            return self.program.ordered(tensor, plain(len(tensor.shape)))
        self.notes.append(f"result {value!r}: {short_text(base)}")
        stored = self.values.form(value)
        tensor = self.program.ordered(stored, plain(len(stored.shape)))
        if not _is_moved(base):
            return tensor
        zeros = 0, base.storage.offset
        return rescale(
            self.program, tensor, UNIT, zeros, tensor.element, f"{value}_unsigned", unsigned=(False, True)
        )

    def settle(self, value: str, kind: Uniform, tensor: Tensor, low: int, high: int) -> None:
        """Clamp a stored result to [low, high] in units of `held(kind)`, and define the value."""
        self.values.define_stored(value, kind, clamp(self.program, tensor, low, high, f"{value}_clamped"))

    def _feed(self, name: str, wanted: set[PortTyped]) -> None:
        """Add an argument: quantized where its type is fixed or all its consumers need one, else float."""
        value, kind = self.graph.values[name], self.values.pins.get(name)
        if name not in self.values.pins and len(wanted) == 1:
            only = next(iter(wanted))
            kind = only if isinstance(only, Uniform) else None
        if kind is not None:
            self._feed_stored(name, kind)
            return
        if value.dtype not in PLAIN_ELEMENTS:
            raise self.refuse_element(f"input {name!r}", value.dtype, PLAIN_ELEMENTS)
        element = PLAIN_ELEMENTS[value.dtype]
        self.values.enter(name, None, self.program.argument(name, self.sizes(name), element))
        self._note(name, f"{element}, i64 in the model" if value.dtype == "i64" else element)

    def _feed_stored(self, name: str, kind: Uniform) -> None:
        self._note(name, short_text(kind))
        tensor = self.program.argument(name, self.sizes(name), element_of(kind))
        if _is_moved(kind):
            zeros = kind.storage.offset, 0
            tensor = rescale(
                self.program, tensor, UNIT, zeros, tensor.element, f"{name}_signed", unsigned=(True, False)
            )
        self.values.enter(name, kind, tensor)

    def _note(self, name: str, what: str) -> None:
        is_open = not all(isinstance(size, int) for size in self.graph.values[name].shape or ())
        self.notes.append(f"argument {name!r}: {what}{' (open dimensions are 1)' if is_open else ''}")

    def rescale(self, value: str, tensor: Tensor, source: Uniform, wanted: Uniform) -> Tensor:
        """Stored integers of one type as those of another, in the arithmetic of the row being written."""
        if self.values.is_same(source, wanted):
            return tensor
        a, b = held(source), held(wanted)
        if is_cut(a, b):
            return clamp(self.program, tensor, b.storage.qmin, b.storage.qmax, f"{value}_clamped")
        if not (a.is_per_tensor and b.is_per_tensor):
            raise self.refuse(f"a rescale from {short_text(source)} to {short_text(wanted)}: scales per axis")
        arithmetic = self.checked_arithmetic()
        self.program.remark(f"rescale {value!r} to {short_text(wanted)}")
        try:
            factor = factor_of(ratios((a.scale,), 1.0, b.scale), arithmetic)
            factor.check(a.storage.qmin - a.zero_point, a.storage.qmax - a.zero_point)
        except RuleError as error:
            raise self.refuse(f"a rescale of {value!r}: {error.message}", error.hint) from error
        zeros = a.zero_point, b.zero_point
        result = rescale(self.program, tensor, factor, zeros, element_of(wanted), f"{value}_rescaled")
        return clamp(self.program, result, b.storage.qmin, b.storage.qmax, f"{value}_clamped")

    def dequantize(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """`float32(stored - zero point) * scale`, as DequantizeLinear computes it."""
        self._check_real(value, kind)
        return dequantized(self.program, tensor, held(kind), value)

    def quantize(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """The stored integers of a float tensor."""
        self._check_real(value, kind)
        one = held(kind)
        self.program.remark(f"quantize {value!r} to {short_text(kind)}")
        stored = quantized(self.program, tensor, one, element_of(kind), value)
        return clamp(self.program, stored, one.storage.qmin, one.storage.qmax, f"{value}_clamped")

    def _check_real(self, value: str, kind: Uniform) -> None:
        problem = problem_of(held(kind))
        dtype = "f32" if self.in_f32 else self.graph.values[value].dtype
        if problem or dtype != "f32":
            problem = problem or f"it is {dtype}"
            raise self.refuse(
                f"{value!r} between reals and integers: {problem}; tosa accepts one scale and f32"
            )


class _Seen(dict[_Key, Tensor]):
    """Tensors of a body, and those around it as the body sees them."""

    def __init__(self, outer: dict[_Key, Tensor], seen: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._outer, self._see = outer, seen

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._outer

    def __missing__(self, key: _Key) -> Tensor:
        self[key] = self._see(self._outer[key])
        return self[key]


def held(kind: Uniform) -> Uniform:
    """The signed type that holds an unsigned one: moved down by half the width where it needs all of it."""
    store = kind.storage
    if store.signed or store.float_name:
        return kind
    width = width_of(kind)
    down = store.offset if store.bits == width else 0
    moved = Storage(width, signed=True, qmin=store.qmin - down, qmax=store.qmax - down)
    return replace(kind, storage=moved, zero_points=tuple(zero - down for zero in kind.zero_points))


def _is_moved(kind: Uniform) -> bool:
    return not kind.storage.signed and kind.storage.bits == width_of(kind)


def width_of(kind: Uniform) -> int:
    """Bits of the tensor that holds a type: 8, 16, 32 or 48."""
    return next((width for width in (8, 16, 32) if kind.storage.bits <= width), 48)


def element_of(kind: Uniform) -> str:
    """Element type of the tensor that holds a type."""
    return f"i{width_of(kind)}"
