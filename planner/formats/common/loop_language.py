"""Loop language: a format's operations for loops and branches, and the records that they take.

`walk` asks it; a method that most formats share has their answer. Source: docs/specification.md, section 5.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from planner.formats.common.layouts import plain
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Choice, Cycle, border_arithmetic
from planner.plans.records import PortTyped


class Shaped(Protocol):
    """A tensor of a format."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes, as it is stored."""


Tensor = TypeVar("Tensor", bound=Shaped)


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """The trips of a loop, and the values handed from one to the next.

    Attributes:
      pairs: where what one trip hands to the next enters and leaves, a condition first.
      trips: how many there are, where that is known.
      bound: the value with their number at most, where it is computed; else "".
      is_steady: whether the first pair is no condition.
    """

    pairs: tuple[tuple[Border, Border], ...]
    trips: int | None
    bound: str
    is_steady: bool


@dataclass(frozen=True, slots=True, eq=False)
class Turn(Generic[Tensor]):
    """A loop, ready to be written: tensors of the count, of what is handed on, and of collected slices.

    Attributes:
      bound: the number of trips at most, where it is computed.
      body: what a trip writes, as `Language.trip` has it.
      names: of the results.
      entering: what the first trip takes.
      seen: what a trip takes: arguments of the body.
      after: what it leaves.
    """

    cycle: Cycle
    loop: Trips
    bound: Tensor | None
    body: Any
    names: tuple[str, ...]
    entering: tuple[Tensor, ...]
    seen: tuple[Tensor, ...]
    after: tuple[Tensor, ...]


class Language(ABC, Generic[Tensor]):
    """The operations of a format for loops and branches.

    Attributes:
      builder: of the format.
      write: writes a block.
      name: in refusals.
    """

    def __init__(self, builder: Any, write: Callable[[Any, Block], None], name: str) -> None:
        """Start with what has been written."""
        self.builder, self.write, self.name = builder, write, name

    @property
    @abstractmethod
    def place(self) -> str:
        """The item that is being written, for refusals."""

    @abstractmethod
    def start(self, item: Border | Choice | Cycle, /) -> None:
        """Attribute all that is written from here on to a border, a choice or a loop."""

    @abstractmethod
    def shape(self, value: str, /) -> tuple[int, ...]:
        """The shape of a value, as it has been written."""

    @abstractmethod
    def text(self, tensor: Tensor, /) -> str:
        """Element and shape of a tensor, for refusals."""

    @abstractmethod
    def read(self, value: str, kind: PortTyped, like: Tensor | None = None, /) -> Tensor:
        """The tensor of a value as a border of a type hands it over; stored as another one is, if it can."""

    def inside(self) -> AbstractContextManager[Any]:
        """Write what follows into a branch; it has what was written."""
        found: AbstractContextManager[Any] = self.builder.inside()
        return found

    def trip(self) -> AbstractContextManager[Any]:
        """Write what follows into the body of a loop."""
        return self.inside()

    @abstractmethod
    def flag(self, value: str, /) -> Tensor:
        """The tensor that chooses a branch."""

    @abstractmethod
    def choose(
        self, choice: Choice, flag: Tensor, made: Sequence[tuple[Any, list[Tensor]]], /
    ) -> Sequence[Tensor]:
        """A tensor for each join of a choice, of what its branches write and give."""

    @abstractmethod
    def number(self, count: int, /) -> Tensor:
        """A count of trips."""

    @abstractmethod
    def more(self, count: Tensor, /) -> Tensor:
        """A count and one."""

    @abstractmethod
    def from_end(self, count: Tensor, slices: int, /) -> Tensor:
        """The place of a trip's slice where the last comes first."""

    def index(self, count: Tensor, /) -> Tensor:
        """A count as the model has it."""
        return count

    @abstractmethod
    def true(self) -> Tensor:
        """The condition that a Loop leaves out."""

    @abstractmethod
    def condition(self, tensor: Tensor, /) -> Tensor:
        """A condition as a trip takes it."""

    @abstractmethod
    def bounded(
        self, loop: Trips, first: Callable[[], list[Tensor]], /
    ) -> tuple[Tensor | None, list[Tensor]]:
        """The number of trips at most, where it is computed, and what the first trip takes."""

    @abstractmethod
    def arguments(self, tensors: Sequence[Tensor], /) -> list[Tensor]:
        """Arguments of a body of the same types."""

    def rows(self, _border: Border, whole: Tensor, _axis: int, /) -> Tensor:
        """A tensor as slices along an axis are taken from it."""
        return whole

    @abstractmethod
    def sliced(  # noqa: PLR0917
        self, body: Any, rows: Tensor, at: Tensor, axis: int, shape: tuple[int, ...], stem: str, /
    ) -> Tensor:
        """The slice at a place, of a shape without the axis."""

    @abstractmethod
    def buffer(self, border: Border, part: Tensor, axis: int, trips: int, /) -> Tensor:
        """An argument of a body that has the slices of the trips before."""

    @abstractmethod
    def placed(self, rows: Tensor, part: Tensor, at: Tensor, axis: int, stem: str, /) -> Tensor:
        """The same with the slice of this trip."""

    @abstractmethod
    def empty(self, border: Border, rows: Tensor, /) -> Tensor:
        """The same before the first trip, all zero."""

    def collected(self, rows: Tensor, _shape: tuple[int, ...], _axis: int, /) -> Tensor:
        """All slices, each of a shape, as one tensor."""
        return rows

    @abstractmethod
    def loop(self, turn: Turn[Tensor], /) -> Sequence[Tensor]:
        """The loop: a tensor for each that enters it."""


class OrderedLanguage(Language[Tensor]):
    """The same where tensors are stored in an order of their own (LiteRT, TOSA): borders have the model's."""

    @property
    def place(self) -> str:  # noqa: D102
        address: str = self.builder.address
        return address

    def start(self, item: Border | Choice | Cycle) -> None:  # noqa: D102
        self.builder.address = item.op.name if isinstance(item, Border) else item.place
        self.builder.values.arithmetic = border_arithmetic(self.builder.plan)

    def shape(self, value: str) -> tuple[int, ...]:  # noqa: D102
        sizes: tuple[int, ...] = self.builder.sizes(value)
        return sizes

    def text(self, tensor: Any) -> str:  # noqa: D102
        return f"{tensor.element}{list(tensor.shape)}"

    def read(self, value: str, kind: PortTyped, _like: Tensor | None = None) -> Tensor:  # noqa: D102
        tensor = self.made(value, kind)
        found: Tensor = self.builder.program.ordered(tensor, plain(len(tensor.shape)))
        return found

    def made(self, value: str, kind: PortTyped) -> Tensor:
        """A value in a type, in the order it has."""
        builder = self.builder
        found: Tensor = builder.operand(value, kind) if isinstance(kind, Uniform) else builder.real(value)
        return found

    def arguments(self, tensors: Sequence[Tensor]) -> list[Tensor]:  # noqa: D102
        return [self.builder.program.twin(tensor) for tensor in tensors]

    def buffer(self, border: Border, part: Tensor, axis: int, trips: int) -> Tensor:  # noqa: D102
        if not trips:
            raise self.builder.refuse(
                f"{border.value!r} has a slice of each of 0 trips; {self.name} accepts tensors with elements"
            )
        found: Tensor = self.builder.program.twin(self.grown(border, part, axis, trips))
        return found

    @abstractmethod
    def grown(self, border: Border, part: Tensor, axis: int, trips: int) -> Tensor:
        """A tensor like all slices of a loop."""
