"""Program: the operations of one StableHLO function as they are made, with names and constants.

Everything made here passes `constraints` first. Nothing here knows plans or ONNX.
Source: StableHLO specification, "Programs".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.formats.mlir.generic import (
    Block,
    Operation,
    array_text,
    dense_text,
    number_text,
    ssa_name,
    tensor_text,
)
from planner.formats.stablehlo.writer.constraints import broken
from planner.formats.stablehlo.writer.tensors import Tensor, quantized_text, storage_element
from planner.ir.types.qtypes import Uniform

Array = npt.NDArray[Any]
Numbers = Mapping[str, Sequence[int]]

_MAX_STEM: Final = 48
_FEW: Final = 64


class Program:
    """Operations in order, and what tells them apart.

    Constants are written at their first use, and a number as large as its consumer needs it; those that a
    body reads stand in the function, in front of what runs the body.

    Attributes:
      operations: so far, of the function or of the body being written.
      place: what a refusal names: the kernel's first port and row.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.operations: list[Operation] = []
        self._outermost = self.operations
        self.place = ""
        self._stem = "v"
        self._comments: list[str] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[Any, ...], Tensor] = {}
        self._waiting: dict[str, tuple[Array, str, Tensor]] = {}
        self._numbers: dict[str, tuple[Array, str]] = {}

    def start(self, name: str, place: str) -> None:
        """Call results after a kernel, followed by a number."""
        self._stem, self.place = ssa_name(name)[:_MAX_STEM], place

    def remark(self, comment: str) -> None:
        """Say something above the next operation."""
        self._comments.append(comment)

    @contextmanager
    def inside(self) -> Iterator[list[Operation]]:
        """Collect what is written meanwhile: operations of a body."""
        outer, self.operations = self.operations, []
        try:
            yield self.operations
        finally:
            self.operations = outer

    def closed(
        self, arguments: Sequence[Tensor], operations: Sequence[Operation], results: Sequence[Tensor]
    ) -> Block:
        """A body of operations that `inside` collected, with what it returns."""
        for tensor in results:
            self.settle(tensor.name)
        end = Operation("stablehlo.return", tuple(tensor.name for tensor in results))
        return Block(tuple((tensor.name, tensor.type) for tensor in arguments), (*operations, end))

    def name(self, stem: str) -> str:
        """A fresh SSA name."""
        return self._next(ssa_name(stem)[:_MAX_STEM])

    def _next(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        return f"{stem}.{count}"

    def emit(
        self,
        kind: str,
        operands: Sequence[Tensor],
        result: Tensor,
        *,
        attributes: Mapping[str, str] | None = None,
        numbers: Numbers | None = None,
        regions: tuple[Block, ...] = (),
    ) -> Tensor:
        """Append an operation with one result; its name is given here.

        Args:
          kind: the operation without its dialect.
          result: shape and element type of the result; its name is not looked at.
          attributes: finished text; those of `numbers` are added as arrays.
          numbers: the attributes that are lists of integers, for the constraints too; names that start
            with an underscore are for these alone.

        Raises:
          UnsupportedExport: a constraint of the specification that does not hold.
        """
        problem = broken(kind, operands, result, numbers or {})
        if problem:
            raise UnsupportedExport(f"{self.place}: {problem}", hint="use stablehlo-int, or another type")
        texts = dict(attributes or {})
        for key, items in (numbers or {}).items():
            if key[0] != "_":
                texts[key] = array_text(items)
        named = Tensor(self._next(self._stem), result.shape, result.element, result.kind)
        names = tuple([operand.name for operand in operands])
        self._append(
            Operation(
                f"stablehlo.{kind}",
                names,
                ((named.name, named.type),),
                texts,
                regions,
            )
        )
        return named

    def emit_many(
        self,
        kind: str,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        regions: tuple[Block, ...],
        attributes: Mapping[str, str] | None = None,
    ) -> tuple[Tensor, ...]:
        """Append an operation with several results, or none of one; no constraint is checked."""
        named = tuple(Tensor(self._next(self._stem), r.shape, r.element, r.kind) for r in results)
        pairs = tuple((tensor.name, tensor.type) for tensor in named)
        names = tuple(operand.name for operand in operands)
        self._append(Operation(f"stablehlo.{kind}", names, pairs, attributes or {}, regions))
        return named

    def emit_text(
        self,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        text: Callable[[Sequence[Tensor]], str],
    ) -> tuple[Tensor, ...]:
        """Append an operation that is text already, of the names that its results get here."""
        named = tuple(replace(tensor, name=self._next(self._stem)) for tensor in results)
        pairs = tuple((tensor.name, tensor.type) for tensor in named)
        names = tuple(operand.name for operand in operands)
        self._append(Operation("", names, pairs, text=text(named)))
        return named

    def _append(self, operation: Operation) -> None:
        for name in operation.operands:
            if name in self._waiting:
                self.settle(name)
        if self._comments:
            operation = replace(operation, comment="\n".join(self._comments))
            self._comments.clear()
        self.operations.append(operation)

    def settle(self, name: str) -> None:
        """Write a constant that waits for its first use."""
        if name not in self._waiting:
            return
        array, element, tensor = self._waiting.pop(name)
        text = dense_text(array, element)
        if array.shape != tensor.shape:
            text = f"dense<{number_text(array.item(), element)}> : {tensor_text(tensor.shape, element)}"
        written = Operation("stablehlo.constant", (), ((name, tensor.type),), {"value": text})
        self._outermost.append(written)

    def constant(self, array: Array, element: str) -> Tensor:
        """A constant tensor of plain elements; equal ones of few elements are one."""
        return self._constant(array, element, None)

    def stored_constant(self, array: Array, kind: Uniform) -> Tensor:
        """A constant tensor of quantized elements from its stored integers."""
        return self._constant(array, storage_element(kind), kind)

    def number(self, value: float, element: str) -> Tensor:
        """A scalar constant."""
        dtype = np.float64 if "f" in element else np.int64
        return self.constant(np.asarray(value, dtype), element)

    def splat(self, number: Tensor, shape: tuple[int, ...]) -> Tensor | None:
        """A scalar constant as large as that; None where it is no constant of plain elements."""
        found = self._numbers.get(number.name)
        if found is None:
            return None
        key = (number.name, shape)
        if key not in self._constants:
            result = Tensor(self._next("c"), shape, number.element)
            self._waiting[result.name] = (found[0], found[1], result)
            self._constants[key] = result
        return self._constants[key]

    def _constant(self, array: Array, element: str, kind: Uniform | None) -> Tensor:
        key = (array.shape, element, kind, array.dtype.str, array.tobytes()) if array.size <= _FEW else None
        if key in self._constants:
            return self._constants[key]
        held = element if kind is None else quantized_text(kind)
        result = Tensor(self._next("c"), tuple(array.shape), held, kind)
        self._waiting[result.name] = (array, element, result)
        if key is not None:
            self._constants[key] = result
            if not array.shape and kind is None:
                self._numbers[result.name] = (array, element)
        return result
