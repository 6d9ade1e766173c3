"""ProgramBuilder: the StableHLO function being written, in quantized or in integer element types (`Form`).

Values known before running are kept as numbers until an operation needs a tensor. Unknown dimensions of
inputs are 1.
Source: docs/specification.md, section 3; plans/rescales.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.values import Values
from planner.formats.mlir.generic import Operation, ssa_name
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.operations import convert, cut, reshape, transpose
from planner.formats.stablehlo.writer.tensors import ELEMENTS, Tensor
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan

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
    """The program, and the tensors that hold each value.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports.
      assumed: inputs with dimensions the model leaves open.
    """

    def __init__(self, graph: Graph, plan: Plan, form: Form) -> None:
        """Start with the model's inputs."""
        self.graph, self.plan, self.form = graph, plan, form
        self.p, self.values = Program(), Values[Tensor](graph, plan, self)
        self.assumed: list[str] = []
        self.arguments: list[tuple[str, Tensor]] = []
        self.widened: dict[tuple[str, Uniform, str], Tensor] = {}
        for name in graph.inputs:
            self._start(name)

    def _start(self, name: str) -> None:
        value, pinned = self.graph.values[name], self.values.pins.get(name)
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
        self.values.enter(name, pinned, tensor)

    @contextmanager
    def inside(self) -> Iterator[list[Operation]]:
        """Collect what is written meanwhile, for a body; tensors made there are known there alone."""
        values = self.values
        outer = values.stored, values.reals, self.widened
        values.stored, values.reals, self.widened = dict(outer[0]), dict(outer[1]), dict(outer[2])
        try:
            with self.p.inside() as operations:
                yield operations
        finally:
            values.stored, values.reals, self.widened = outer

    def shape(self, value: str) -> tuple[int, ...]:
        """Shape of a value, in whatever form it is."""
        array = self.values.known(value)
        return self.values.form(value).shape if array is None else array.shape

    def quantize(self, _: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """Write a tensor of plain elements as stored ones."""
        return self.form.quantize(self.p, convert(self.p, tensor, "f32"), kind)

    def dequantize(self, value: str, tensor: Tensor, kind: Uniform) -> Tensor:
        """Write stored elements as the value's own."""
        return self._in_own_float(value, self.form.dequantize(self.p, tensor, kind))

    def rescale(self, _: str, tensor: Tensor, source: Uniform, wanted: Uniform) -> Tensor:
        """Write stored elements as those of another type."""
        return tensor if source == wanted else self.form.rescale(self.p, tensor, source, wanted)

    def store(self, value: str, kind: Uniform) -> Tensor:
        """The numbers of a value known before running, as a constant of stored elements."""
        return self.form.constant(self.p, quantize_array(self.values.array(value), kind), kind)

    def realize(self, value: str, kind: Uniform | None) -> Tensor:
        """The plain tensor of a value seen through a type, or of a constant."""
        array = self.values.known(value)
        if kind is not None:
            if kind.grid:
                return self._in_own_float(value, self._from_blocks(value, kind))
            if array is not None and kind.storage.bits > _WIDEST:
                self.p.remark(f"{value}: {kind.storage} written as f32")
                return self.p.constant(dequantize_array(quantize_array(array, kind), kind), "f32")
            return self.dequantize(value, self.values.integers(value, kind), kind)
        if array is None:
            raise UnsupportedExport(f"{value!r} is read, but nothing written defines it")
        dtype = self.graph.values[value].dtype
        if dtype not in ELEMENTS:
            raise UnsupportedExport(f"{value!r} is a constant of {dtype}, which StableHLO does not have")
        return self.p.constant(array, ELEMENTS[dtype])

    def _from_blocks(self, value: str, kind: Uniform) -> Tensor:
        """A constant with a scale per block, in f32: blocks along a first axis, then back in place."""
        array = self.values.known(value)
        if array is None:
            raise UnsupportedExport(
                f"{value!r} has scales per block; {self.form.name} accepts that of constants"
            )
        return _from_blocks(self.p, self.form, quantize_array(array, kind), kind)

    def _in_own_float(self, value: str, tensor: Tensor) -> Tensor:
        return convert(self.p, tensor, ELEMENTS[self.graph.values[value].dtype])

    def result(self, name: str) -> Tensor:
        """The tensor of a model output: quantized where its type is fixed."""
        base = self.values.pins.get(name)
        if base is not None and self.graph.values[name].is_float:
            return self.values.integers(name, base)
        return self.values.real(name)


def _from_blocks(p: Program, form: Form, stored: Array, kind: Uniform) -> Tensor:
    """The reals of a stored constant whose type has a scale per block (sub-channel).

    StableHLO has no such types: blocks become slices of one axis, are dequantized along it, and go back. A
    shorter last block is filled with zeros, which are cut off again.
    """
    grid, blocks = kind.grid, dict(kind.blocks)
    sizes = [blocks.get(axis, size) for axis, size in enumerate(stored.shape)]
    rank, shape = stored.ndim, stored.shape
    padded = [g * size for g, size in zip(grid, sizes, strict=True)]
    stored = np.pad(stored, [(0, whole - size) for whole, size in zip(padded, shape, strict=True)])
    split = stored.reshape([part for pair in zip(grid, sizes, strict=True) for part in pair])
    order = (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    turned = np.ascontiguousarray(split.transpose(order)).reshape(math.prod(grid), -1).T
    per_axis = replace(kind, axis=1, blocks=(), grid=())
    if len(kind.scales) == 1:
        per_axis = replace(kind, axis=None, blocks=(), grid=())
    p.remark(f"sub-channel {list(sizes)} of {list(shape)}: a scale per block, held per axis")
    held = form.constant(p, np.ascontiguousarray(turned), per_axis)
    flat = transpose(p, form.dequantize(p, held, per_axis), (1, 0))
    back = [axis for i in range(rank) for axis in (i, rank + i)]
    filled = reshape(p, transpose(p, reshape(p, flat, (*grid, *sizes)), back), tuple(padded))
    return cut(p, filled, [0] * rank, shape, [1] * rank)
