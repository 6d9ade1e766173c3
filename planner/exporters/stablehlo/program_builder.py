"""ProgramBuilder: the StableHLO function being written, and which tensor holds which value in which type.

Values have a base as everywhere (their pin, else the type at their definition); each (value, type) has one
tensor, made at its first use. What is known before running stays numbers until somebody needs a tensor.
Unknown dimensions of inputs are 1. Source: design 01, section 3; plans/rescales.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.onnx.accepts import numbers_of
from planner.exporters.stablehlo.function import Array, Program
from planner.exporters.stablehlo.operations import convert
from planner.exporters.stablehlo.subchannel import from_blocks
from planner.exporters.stablehlo.tensors import ELEMENTS, Tensor
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.mlir.generic import Operation, ssa_name
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of, pins

_WIDEST: Final = 32


@dataclass(frozen=True, slots=True)
class Form:
    """How stored tensors are held.

    Attributes:
      name: of the format.
      held: shape and type to a tensor of that kind, without a name.
      constant: stored integers as a constant.
      quantize: f32 to stored.
      dequantize: stored to f32.
      rescale: stored in one type to stored in another.
      arithmetic: every kernel computes by; "": the row's own.
    """

    name: str
    held: Callable[[tuple[int, ...], Uniform], Tensor]
    constant: Callable[[Program, Array, Uniform], Tensor]
    quantize: Callable[[Program, Tensor, Uniform], Tensor]
    dequantize: Callable[[Program, Tensor, Uniform], Tensor]
    rescale: Callable[[Program, Tensor, Uniform, Uniform], Tensor]
    arithmetic: str = ""


class ProgramBuilder:
    """What has been written, and how to read it.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports.
      arithmetic: of the kernel being written.
      assumed: inputs with dimensions the model leaves open.
    """

    def __init__(self, graph: Graph, plan: Plan, form: Form) -> None:
        """Start with the model's inputs."""
        self.graph, self.plan, self.form, self.arithmetic = graph, plan, form, ""
        self.p = Program()
        self.assumed: list[str] = []
        self.arguments: list[tuple[str, Tensor]] = []
        self.widened: dict[tuple[str, Uniform, str], Tensor] = {}
        self._known: dict[str, Array] = {}
        self._pins = pins(plan.graph)
        self._bases: dict[str, PortTyped] = {}
        self._stored: dict[tuple[str, Uniform], Tensor] = {}
        self._reals: dict[tuple[str, PortTyped], Tensor] = {}
        for name in graph.inputs:
            self._start(name)

    def _start(self, name: str) -> None:
        value, pinned = self.graph.values[name], self._pins.get(name)
        if value.shape is None or value.dtype not in ELEMENTS:
            raise UnsupportedExport(
                f"input {name!r} is {value.dtype} of shape {value.shape}; "
                f"{self.form.name} accepts numbers of known rank"
            )
        shape = tuple(size if isinstance(size, int) else 1 for size in value.shape)
        if shape != value.shape:
            self.assumed.append(name)
        held = Tensor("", shape, ELEMENTS[value.dtype]) if pinned is None else self.form.held(shape, pinned)
        tensor = Tensor(self.p.name(ssa_name(name)), shape, held.element, held.kind)
        self.arguments.append((name, tensor))
        self._bases[name] = pinned
        if pinned is None:
            self._reals[name, None] = tensor
        else:
            self._stored[name, pinned] = tensor

    @contextmanager
    def inside(self) -> Iterator[list[Operation]]:
        """Collect what is written meanwhile, for a body; tensors made there are known there alone."""
        outer = self._stored, self._reals, self.widened
        self._stored, self._reals, self.widened = dict(outer[0]), dict(outer[1]), dict(outer[2])
        try:
            with self.p.inside() as operations:
                yield operations
        finally:
            self._stored, self._reals, self.widened = outer

    def base(self, value: str) -> PortTyped:
        """The type readers of a value start from."""
        return self._bases.get(value)

    def is_same(self, source: PortTyped, wanted: PortTyped) -> bool:
        """Whether no rescale stands between two types."""
        return kind_of(source, wanted, self.plan.target.costs) is None

    def known(self, value: str) -> Array | None:
        """Numbers of a value known before running, None where it is not."""
        if value in self.graph.constants:
            return self.array(value)
        return self._known.get(value)

    def define_known(self, value: str, array: Array) -> None:
        """Say what a value always is."""
        self._known[value] = array

    def array(self, value: str) -> Array:
        """The numbers of a constant."""
        return numbers_of(self.graph, value)

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a value, in whatever form it is."""
        array = self._known.get(value)
        if array is not None or value in self.graph.constants:
            return self.array(value).shape if array is None else array.shape
        base = self.base(value)
        return (self._stored[value, base] if isinstance(base, Uniform) else self._reals[value, None]).shape

    def define_real(self, value: str, tensor: Tensor) -> None:
        """Say that a value is defined in plain elements; its pin follows right behind."""
        pinned = self._pins.get(value)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = tensor
        else:
            self._stored[value, pinned] = self.form.quantize(self.p, convert(self.p, tensor, "f32"), pinned)

    def define_stored(self, value: str, kind: Uniform, tensor: Tensor) -> None:
        """Say that a value is defined in stored integers; a rescale to its pin follows right behind."""
        pinned = self._pins.get(value, kind)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = self._in_own_float(value, self.form.dequantize(self.p, tensor, kind))
            return
        self._stored[value, pinned] = (
            tensor if pinned == kind else self.form.rescale(self.p, tensor, kind, pinned)
        )

    def stored(self, value: str, wanted: Uniform) -> Tensor:
        """The tensor that holds a value's integers in a type."""
        found = self._stored.get((value, wanted))
        if found is None:
            found = self._store(value, wanted)
            self._stored[value, wanted] = found
        return found

    def _store(self, value: str, wanted: Uniform) -> Tensor:
        array, base = self.known(value), self.base(value)
        if array is not None:
            return self.form.constant(self.p, quantize_array(array, wanted), wanted)
        if isinstance(base, Uniform):
            return self.form.rescale(self.p, self._stored[value, base], base, wanted)
        return self.form.quantize(self.p, convert(self.p, self.real(value), "f32"), wanted)

    def real(self, value: str, seen: PortTyped = None) -> Tensor:
        """The plain tensor of a value, seen through the type a port reads it in (None: its base)."""
        kind = seen if isinstance(seen, Uniform) else self.base(value)
        key = (value, kind if isinstance(kind, Uniform) else None)
        found = self._reals.get(key)
        if found is None:
            found = self._realize(value, key[1])
            self._reals[key] = found
        return found

    def _realize(self, value: str, kind: Uniform | None) -> Tensor:
        if kind is not None:
            if kind.grid:
                return self._in_own_float(value, self._from_blocks(value, kind))
            array = self.known(value)
            if array is not None and kind.storage.bits > _WIDEST:
                self.p.remark(f"{value}: {kind.storage} written as f32")
                return self.p.constant(dequantize_array(quantize_array(array, kind), kind), "f32")
            return self._in_own_float(value, self.form.dequantize(self.p, self.stored(value, kind), kind))
        array = self.known(value)
        if array is None:
            raise UnsupportedExport(f"{value!r} is read, but nothing written defines it")
        dtype = self.graph.values[value].dtype
        if dtype not in ELEMENTS:
            raise UnsupportedExport(f"{value!r} is a constant of {dtype}, which StableHLO does not have")
        return self.p.constant(array, ELEMENTS[dtype])

    def _from_blocks(self, value: str, kind: Uniform) -> Tensor:
        """A constant with a scale per block, in f32: blocks along a first axis, then back in place."""
        array = self.known(value)
        if array is None:
            raise UnsupportedExport(
                f"{value!r} has scales per block; {self.form.name} accepts that of constants"
            )
        return from_blocks(self.p, self.form, quantize_array(array, kind), kind)

    def _in_own_float(self, value: str, tensor: Tensor) -> Tensor:
        return convert(self.p, tensor, ELEMENTS[self.graph.values[value].dtype])

    def result(self, name: str) -> Tensor:
        """The tensor of a model output: stored where pinned."""
        base = self._pins.get(name)
        if base is not None and self.graph.values[name].is_float:
            return self.stored(name, base)
        return self.real(name)
