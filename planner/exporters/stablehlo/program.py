"""Program: the operations of one StableHLO function as they are made, with names and constants.

Everything made here passes `constraints` first. Nothing here knows plans or ONNX.
Source: StableHLO specification, "Programs".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.exporters.stablehlo.constraints import broken
from planner.exporters.stablehlo.tensors import Tensor, quantized_text, storage_element
from planner.ir.qtypes import Uniform
from planner.mlir.generic import Block, Operation, array_text, dense_text, ssa_name

Array = npt.NDArray[Any]
Numbers = Mapping[str, Sequence[int]]

_MAX_STEM: Final = 48


class Program:
    """Operations in order, and what tells them apart.

    Attributes:
      operations: so far.
      stem: what results are called after, followed by a number.
      place: what a refusal names: the kernel's first port and row.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.operations: list[Operation] = []
        self.stem = "v"
        self.place = ""
        self._comments: list[str] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[Any, ...], Tensor] = {}

    def remark(self, comment: str) -> None:
        """Say something above the next operation."""
        self._comments.append(comment)

    def name(self, stem: str) -> str:
        """A fresh SSA name."""
        text = ssa_name(stem)[:_MAX_STEM]
        count = self._counts.get(text, 0)
        self._counts[text] = count + 1
        return f"{text}.{count}"

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
          numbers: the attributes that are lists of integers, for the constraints too.

        Raises:
          UnsupportedExport: a constraint of the specification that does not hold.
        """
        problem = broken(kind, operands, result, numbers or {})
        if problem:
            raise UnsupportedExport(f"{self.place}: {problem}", hint="use stablehlo-int, or another type")
        named = Tensor(self.name(self.stem), result.shape, result.element, result.kind)
        listed = {key: array_text(items) for key, items in (numbers or {}).items() if key[0] != "_"}
        self._append(kind, operands, (named,), {**listed, **(attributes or {})}, regions)
        return named

    def emit_many(
        self,
        kind: str,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        regions: tuple[Block, ...],
        attributes: Mapping[str, str] | None = None,
    ) -> tuple[Tensor, ...]:
        """Append an operation with several results."""
        named = tuple(Tensor(self.name(self.stem), r.shape, r.element, r.kind) for r in results)
        self._append(kind, operands, named, attributes or {}, regions)
        return named

    def _append(
        self,
        kind: str,
        operands: Sequence[Tensor],
        results: tuple[Tensor, ...],
        attributes: Mapping[str, str],
        regions: tuple[Block, ...],
    ) -> None:
        comment = "\n".join(self._comments)
        self._comments.clear()
        pairs = tuple((tensor.name, tensor.type) for tensor in results)
        names = tuple(operand.name for operand in operands)
        self.operations.append(Operation(f"stablehlo.{kind}", names, pairs, attributes, regions, comment))

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

    def _constant(self, array: Array, element: str, kind: Uniform | None) -> Tensor:
        key = (array.shape, element, kind, array.dtype.str, array.tobytes()) if array.size <= 64 else None
        if key in self._constants:
            return self._constants[key]
        held = element if kind is None else quantized_text(kind)
        result = Tensor(self.name("c"), tuple(array.shape), held, kind)
        self.operations.append(
            Operation(
                "stablehlo.constant", (), ((result.name, result.type),), {"value": dense_text(array, element)}
            )
        )
        if key is not None:
            self._constants[key] = result
        return result
