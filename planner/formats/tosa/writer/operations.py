"""Operations: the TOSA operations written so far, and the tensors they define.

Nothing here knows plans or types.
Source: TOSA 1.0, operator signatures as MLIR's dialect has them: zero points, multipliers, shifts and shapes
are operands.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import RuleError
from planner.formats.common.layouts import Order, plain
from planner.formats.common.ordered import OrderedProgram, OrderedTensor
from planner.formats.mlir.generic import (
    Block,
    Function,
    Operation,
    array_text,
    dense_text,
    ssa_name,
    tensor_text,
)

Array: TypeAlias = npt.NDArray[Any]

MAX_RANK: Final = 6
"""Axes of a tensor at level 8K. Source: TOSA 1.0, "Levels"."""
_NO_SIZES: Final = "dense<> : tensor<0xindex>"
_KEPT: Final = 1 << 10
"""Constants of up to this many bytes are written once however often they are used."""


@dataclass(frozen=True, slots=True)
class Tensor(OrderedTensor):
    """A result of an operation or an argument.

    Attributes:
      name: its SSA name.
      element: `i8`, `i16`, `i32`, `i48`, `i1`, `f32`.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    order: Order


@dataclass(slots=True)
class Body:
    """Operations of a body, and the tensors around it that they read, by their names there.

    TOSA's bodies see nothing but their arguments, so each of these is one: (outside, inside).
    """

    operations: list[Operation] = field(default_factory=list)
    captured: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Program(OrderedProgram[Tensor]):
    """Operations of one function, appended one by one."""

    identity = "name"

    def __init__(self) -> None:
        """Start empty."""
        self._operations: list[Operation] = []
        self._arguments: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self.forms = {}
        self._comment = ""

    @contextmanager
    def inside(self) -> Iterator[Body]:
        """Write what follows into a body, with constants of its own."""
        outer, body = (self._operations, self._constants, self.forms), Body()
        self._operations, self._constants, self.forms = body.operations, {}, {}
        try:
            yield body
        finally:
            self._operations, self._constants, self.forms = outer

    def captured(self, body: Body, tensor: Tensor) -> Tensor:
        """A tensor from around a body as its argument."""
        if tensor.name not in body.captured:
            body.captured[tensor.name] = tensor, self.twin(tensor)
        return replace(tensor, name=body.captured[tensor.name][1].name)

    def twin(self, tensor: Tensor) -> Tensor:
        """A tensor of the same type with a fresh name, for an argument of a body."""
        return replace(tensor, name=self._fresh(f"{tensor.name}_in"))

    def closed(self, arguments: Sequence[Tensor], body: Body, results: Sequence[Tensor]) -> Block:
        """A body with what it yields, without the operations whose results nobody reads."""
        names = tuple(tensor.name for tensor in results)
        kept = _read_operations(body.operations, names)
        pairs = tuple((tensor.name, tensor_text(tensor.shape, tensor.element)) for tensor in arguments)
        return Block(pairs, (*kept, Operation("tosa.yield", names)))

    def emit_bodies(
        self, kind: str, operands: Sequence[Tensor], likes: Sequence[Tensor], bodies: tuple[Block, ...]
    ) -> tuple[Tensor, ...]:
        """Append what runs bodies; its results are like those given, with fresh names."""
        found = tuple(replace(like, name=self._fresh(f"{like.name}_out")) for like in likes)
        pairs = tuple((tensor.name, tensor_text(tensor.shape, tensor.element)) for tensor in found)
        names = tuple(tensor.name for tensor in operands)
        self._append(Operation(f"tosa.{kind}", names, pairs, {}, bodies, self._comment))
        self._comment = ""
        return found

    def argument(self, stem: str, shape: Sequence[int], element: str) -> Tensor:
        """Append an argument of the function."""
        name = self._fresh(stem)
        self._arguments.append((name, tensor_text(shape, element)))
        return Tensor(name, tuple(shape), element, plain(len(shape)))

    def remark(self, text: str) -> None:
        """Put a comment above the next operation."""
        self._comment = f"{self._comment}\n{text}".strip()

    def emit(
        self,
        kind: str,
        operands: Sequence[Tensor | str],
        like: Tensor,
        stem: str,
        *,
        attributes: Mapping[str, str] | None = None,
    ) -> Tensor:
        """Append `tosa.<kind>`; its result has the shape, element type and order of `like`.

        Raises:
          RuleError: a result of more axes than TOSA has.
        """
        if len(like.shape) > MAX_RANK:
            raise RuleError(
                f"{kind} gives a tensor of {len(like.shape)} axes, and TOSA has {MAX_RANK} at most (8K)",
                hint="give the model fewer axes there, or keep the kernel out of the program",
            )
        name = self._fresh(stem)
        names = tuple(item if isinstance(item, str) else item.name for item in operands)
        result = (name, tensor_text(like.shape, like.element))
        self._append(Operation(f"tosa.{kind}", names, (result,), attributes or {}, (), self._comment))
        self._comment = ""
        return replace(like, name=name)

    def cast(self, tensor: Tensor, element: str) -> Tensor:
        """CAST; the tensor itself where it has the element type."""
        if tensor.element == element:
            return tensor
        return self.emit("cast", [tensor], replace(tensor, element=element), f"{tensor.name}_{element}")

    def constant(self, array: Array, element: str, stem: str = "c") -> str:
        """A `tosa.const`, small ones only once."""
        key = (element, array.shape, array.astype(np.float32 if element == "f32" else np.int64).tobytes())
        if array.nbytes <= _KEPT and key in self._constants:
            return self._constants[key]
        name = self._fresh(stem)
        text = _long_text(array) if element == "i48" else dense_text(array, element)
        result = (name, tensor_text(array.shape, element))
        self._append(Operation("tosa.const", (), (result,), {"values": text}))
        self._constants[key] = name
        return name

    def tensor(self, array: Array, element: str, order: Order, stem: str = "c") -> Tensor:
        """A constant given by the model's axes, stored in an order."""
        stored = array.transpose(order)
        return Tensor(self.constant(stored, element, stem), stored.shape, element, order)

    def number(self, value: float, element: str) -> str:
        """A constant of one number, shape (1,)."""
        return self.constant(np.asarray([value]), element)

    def shape(self, sizes: Sequence[int]) -> str:
        """A `tosa.const_shape`."""
        key = ("shape", tuple(sizes))
        if key not in self._constants:
            name = self._fresh("s")
            values = f"dense<{list(sizes)}> : tensor<{len(sizes)}xindex>" if sizes else _NO_SIZES
            result = (name, f"!tosa.shape<{len(sizes)}>")
            self._append(Operation("tosa.const_shape", (), (result,), {"values": values}))
            self._constants[key] = name
        return self._constants[key]

    def transposed(self, tensor: Tensor, like: Tensor, perms: tuple[int, ...]) -> Tensor:
        """TRANSPOSE."""
        attributes = {"perms": array_text(perms, "i32")}
        return self.emit("transpose", [tensor], like, f"{tensor.name}_t", attributes=attributes)

    def viewed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """RESHAPE."""
        return self.emit("reshape", [tensor, self.shape(like.shape)], like, f"{tensor.name}_r")

    def function(self, name: str, results: Sequence[Tensor], comment: str) -> Function:
        """The function, without the operations whose results nobody reads."""
        names = tuple(item.name for item in results)
        kept = _read_operations(self._operations, names)
        return Function(name, tuple(self._arguments), names, kept, {}, comment)

    def _append(self, operation: Operation) -> None:
        self._operations.append(operation)

    def _fresh(self, stem: str) -> str:
        base = ssa_name(stem)
        count = self._counts.get(base, 0)
        name = base if not count else f"{base}__{count}"
        while count and name in self._counts:
            count += 1
            name = f"{base}__{count}"
        self._counts[base] = count + 1
        self._counts.setdefault(name, 1)
        return name


def _read_operations(operations: Sequence[Operation], results: Sequence[str]) -> tuple[Operation, ...]:
    """The operations that results rest on."""
    needed, kept = set(results), []
    for operation in reversed(operations):
        if any(result in needed for result, _ in operation.results):
            kept.append(operation)
            needed.update(operation.operands)
    return tuple(reversed(kept))


def _long_text(array: Array) -> str:
    """Numbers of 48 bits one by one: MLIR's hexadecimal form packs them in six bytes."""
    if array.size == 0 or (array == array.reshape(-1)[0]).all():
        body = "" if array.size == 0 else str(int(array.reshape(-1)[0]))
    else:
        body = str(array.tolist())
    return f"dense<{body}> : {tensor_text(array.shape, 'i48')}"
