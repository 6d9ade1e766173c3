"""Ordered programs: tensors that know which axis of the model each of their axes is, and what builds them.

A transpose of the model costs nothing until somebody needs the elements in another order; that is made once,
and going back is the tensor it came from. A reshape of a reshape is one reshape. For formats whose programs
have fixed sizes and their channels last (litert, tosa); they derive from the classes here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar, Final, Generic, TypeVar

from planner.errors import UnsupportedExport
from planner.formats.common.known_shapes import fold, sizes_blamed
from planner.formats.common.layouts import Order, channels_last, laid, plain
from planner.formats.common.values import Values
from planner.ir.graph import FLOAT_DTYPES, Graph
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.plans.plan import Plan

Tensor = TypeVar("Tensor")
_HINT: Final = (
    "keep the kernel out of the program (another target, or a model cut there), or export another format"
)


class OrderedTensor:
    """A tensor of a program: sizes as it is stored, and the model's axis that each stored axis is."""

    __slots__ = ()
    shape: tuple[int, ...]
    order: Order

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes by the model's axes."""
        return laid(self.order, self.shape)

    def at(self, axis: int) -> int:
        """The stored axis that holds an axis of the model."""
        return self.order.index(axis)


class OrderedProgram(ABC, Generic[Tensor]):
    """A program whose tensors, which are dataclasses, can be turned and reshaped.

    Attributes:
      identity: the field that tells a tensor from others.
      forms: tensors in another order or shape that were made, by what they were made of.
    """

    identity: ClassVar[str]
    forms: dict[tuple[Any, ...], Any]

    @abstractmethod
    def transposed(self, tensor: Tensor, like: Tensor, perms: tuple[int, ...], /) -> Tensor:
        """Append a transpose."""

    @abstractmethod
    def viewed(self, tensor: Tensor, like: Tensor, /) -> Tensor:
        """Append a reshape."""

    def ordered(self, tensor: Tensor, order: Order) -> Tensor:
        """The tensor with its axes stored in an order: itself, an earlier transpose, or a new one.

        A reshape is enough where only axes of one element change places.
        """
        x: Any = tensor
        if x.order == order:
            return tensor
        perms = tuple(x.at(axis) for axis in order)
        like = replace(x, shape=tuple(x.shape[i] for i in perms), order=order)
        key = "order", self._of(x), perms
        if key not in self.forms:
            moved = [i for i in perms if x.shape[i] != 1]
            if moved == sorted(moved):
                return self.reshaped(tensor, like.shape, order)
            self.forms[key] = self._of(self.transposed(x, like, perms))
            back = tuple(perms.index(i) for i in range(len(perms)))
            self.forms["order", self.forms[key], back] = self._of(x)
        return self._named(like, self.forms[key])

    def reshaped(self, tensor: Tensor, shape: Sequence[int], order: Order | None = None) -> Tensor:
        """The stored elements in another shape, to be read in an order (as the model has it)."""
        x: Any = tensor
        like = replace(x, shape=tuple(shape), order=plain(len(shape)) if order is None else order)
        if prod(like.shape) != prod(x.shape):
            raise ValueError(f"{tensor} has not the elements of {shape}")
        source = self.forms.get(("source", self._of(x)), x)
        if like.shape == source.shape:
            return self._named(like, self._of(source))
        key = "shape", self._of(source), like.shape
        if key not in self.forms:
            self.forms[key] = self._of(self.viewed(source, like))
            self.forms["source", self.forms[key]] = source
        return self._named(like, self.forms[key])

    def raised(self, tensor: Tensor, rank: int) -> Tensor:
        """A tensor brought to so many axes by ones in front, where it has fewer."""
        x: Any = tensor
        extra = rank - len(x.shape)
        if not extra:
            return tensor
        order = (*range(extra), *(axis + extra for axis in x.order))
        return self.reshaped(tensor, (*(1,) * extra, *x.shape), order)

    def alike(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tensors of one rank and order: that of the first which has all axes."""
        some: Sequence[Any] = tensors
        rank = max(len(tensor.shape) for tensor in some)
        order = next(tensor.order for tensor in some if len(tensor.shape) == rank)
        raised = [self.raised(tensor, rank) for tensor in tensors]
        return [self.ordered(tensor, order) for tensor in raised]

    def image(self, tensor: Tensor) -> Tensor:
        """The tensor with its channels last, and one spatial axis made two, the first of size 1."""
        given: Any = tensor
        x: Any = self.ordered(tensor, channels_last(len(given.shape)))
        shape = (x.shape[0], 1, *x.shape[1:])
        image: Tensor = x if len(x.shape) != 3 else self.reshaped(x, shape, channels_last(4))
        return image

    def out_of_image(self, tensor: Tensor, rank: int) -> Tensor:
        """An image with as many axes as its model has, of one spatial axis 3."""
        x: Any = tensor
        return tensor if rank != 3 else self.reshaped(tensor, (x.shape[0], *x.shape[2:]), channels_last(3))

    def _of(self, tensor: Any) -> Any:
        return getattr(tensor, self.identity)

    def _named(self, like: Any, identity: Any) -> Tensor:
        named: Tensor = replace(like, **{self.identity: identity})
        return named


class OrderedBuilder(ABC, Generic[Tensor]):
    """The program that is written of a plan, and the tensors that hold each value.

    Attributes:
      format: its name.
      arithmetics: of rows that the format computes, or comes near to.
      targets: that have such rows.
      graph: the float model, with the numbers of its constants.
      plan: types of all ports; its graph has the regions.
      address: of the port being written, for refusals.
    """

    format: ClassVar[str]
    arithmetics: ClassVar[tuple[str, ...]]
    targets: ClassVar[str]
    graph: Graph
    plan: Plan
    values: Values[Tensor]
    address: str = ""

    @abstractmethod
    def constant(self, value: str, order: Order | None, seen: Uniform | None, /) -> Tensor:
        """Write a constant in its own element type, in an order; its numbers seen through a type."""

    @abstractmethod
    def dequantize(self, value: str, tensor: Tensor, kind: Uniform, /) -> Tensor:
        """Write stored integers as the value's own element type."""

    def begin(self, block: Block) -> bool:
        """Take a region as the one being written; False where there is nothing to write.

        Shape arithmetic has no plan and is left out; its consumers report the gap.
        """
        kernel = block.kernel
        with sizes_blamed(self.graph, f"kernel {kernel.name!r}"):
            if kernel.name not in self.plan.kernels or fold(self.values, self.sizes, block):
                return False
        self.values.arithmetic = block.arithmetic
        port = next((port.address for port in (*kernel.outputs, *kernel.inputs) if port.value), kernel.name)
        self.address = f"{port} ({f'row {kernel.row}' if kernel.row else 'in float'})"
        return True

    def refuse(self, problem: str, hint: str = "") -> UnsupportedExport:
        """Make the refusal of what is being written."""
        return UnsupportedExport(f"{self.address}: {problem}", hint=hint or _HINT)

    def refuse_element(self, what: str, dtype: str, accepted: Iterable[str]) -> UnsupportedExport:
        """Make the refusal of an element type: of a float, with what helps."""
        hint = "export the model in float32 from its library" if dtype in FLOAT_DTYPES else ""
        return self.refuse(f"{what} is {dtype}; {self.format} accepts {', '.join(accepted)}", hint)

    def checked_arithmetic(self) -> str:
        """The row's arithmetic.

        Raises:
          UnsupportedExport: the format has no such, naming those that it has.
        """
        if self.values.arithmetic not in self.arithmetics:
            hint = f"use a target whose rows requantize so, such as {self.targets}"
            raise self.refuse(self.arithmetic_problem(), hint)
        return self.values.arithmetic

    def arithmetic_problem(self) -> str:
        """The problem with an arithmetic that the format has not."""
        return (
            f"its row computes in {self.values.arithmetic or 'float'}; {self.format} accepts rows of "
            f"{', '.join(self.arithmetics)}"
        )

    def sizes(self, value: str) -> tuple[int, ...]:
        """A value's sizes, as it has been written; else a dimension that the model leaves open is 1.

        Raises:
          UnsupportedExport: its rank is unknown.
        """
        if value in self.values.numbers:
            return self.values.numbers[value].shape
        if isinstance(self.values.bases.get(value), Uniform) or (value, None) in self.values.reals:
            form: Any = self.values.form(value)
            return tuple(form.sizes)
        shape = self.graph.values[value].shape
        if shape is None:
            raise self.refuse(
                f"value {value!r} has no known shape; {self.format} accepts static ones",
                "give the model's inputs fixed sizes",
            )
        return tuple(size if isinstance(size, int) else 1 for size in shape)

    def real(self, value: str, order: Order | None = None, seen: Uniform | None = None) -> Tensor:
        """The tensor of a value in its own element type; constants are written where they are read.

        Args:
          order, seen: of a constant, the order of its axes and the type that its numbers are seen through.
        """
        values = self.values
        if (value, None) in values.reals:
            return values.reals[value, None]
        if values.is_constant(value):
            return self.constant(value, order, seen)
        base = values.bases.get(value)
        if not isinstance(base, Uniform):
            accepted = f"{self.format} accepts no shape arithmetic at run time"
            raise self.refuse(f"{value!r} is read, but not computed here; {accepted}")
        values.reals[value, None] = self.dequantize(value, values.form(value), base)
        return values.reals[value, None]

    def realize(self, value: str, kind: Uniform | None) -> Tensor:
        """The same, for what quantizes it."""
        return self.real(value, seen=kind)
