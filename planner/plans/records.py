"""Records of a plan: ports, kernels, values, steps, rescales, the target as the plan saw it.

`plan.Plan` holds them together. Source: docs/specification.md, section 6; docs/formats.md.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias, overload

from planner.ir.graph import port_address
from planner.ir.types.held_pins import Storages
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.wanted import Stored, Wanted, is_stored_in
from planner.target.records import Costs, Engines, Files, Row, WorkRates

BETWEEN_FLOATS: Final = "moves data between float ops"
"""The reason of a kernel that hands data on, and whose row would store it between floats."""

Kind: TypeAlias = Literal["requantize", "widen", "narrow", "zero_point", "clamp", "quantize", "dequantize"]
PortTyped: TypeAlias = Uniform | FloatType | None


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a planned kernel. `type` is None where the port is float (or absent: `value` "")."""

    address: str
    value: str
    type: PortTyped


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """A region, the row it runs by, and its ports.

    Attributes:
      row: key into `Plan.target.rows` (`conv2d@41`), None where the kernel runs in float.
      reason: why it runs in float; None where a row serves it.
      accumulator_bits: bits the accumulator needs for the actual weights; None where it has none.
    """

    name: str
    kernel: str
    row: str | None
    reason: str | None
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    accumulator_bits: int | None = None
    trip_count: int = 1


@dataclass(frozen=True, slots=True)
class ValuePlan:
    """The outcome for one value.

    Attributes:
      type: at its definition, None for float.
      bits_lost: against the type of its own range, in the worst of its uses; 0.0 for float.
      clip: largest share of its range that its type cuts off.
      decided_by: number of the step that decided it, None for float.
    """

    type: PortTyped
    bits_lost: float = 0.0
    clip: float = 0.0
    decided_by: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An alternative that was not taken.

    Attributes:
      cost: what the component would have cost; infinite where the alternative is not allowed.
      why: what makes the difference, and for whom.
    """

    label: str
    cost: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision: fact, rule, source (`file:line`, or what it came from), steps it rests on."""

    n: int
    port: str
    type: str
    rule: str
    source: str
    because: tuple[int, ...] = ()
    refused: tuple[Refused, ...] = ()


StepRow: TypeAlias = tuple[int, str, str, str, str, tuple[int, ...], tuple[Refused, ...]]
"""The fields of a step, in order."""


class StepRows(Sequence[Step]):
    """A log that is kept as rows; its steps are made when somebody looks at them."""

    @abstractmethod
    def rows(self) -> Sequence[StepRow]:
        """Return the rows of all steps."""

    @cached_property
    def _made(self) -> tuple[Step, ...]:
        return tuple([Step(*row) for row in self.rows()])

    def __len__(self) -> int:
        return len(self.rows())

    def __iter__(self) -> Iterator[Step]:
        return iter(self._made)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, at: int | slice) -> Step | tuple[Step, ...]:
        return self._made[at]

    def __eq__(self, other: object) -> bool:
        return self._made == (other._made if isinstance(other, StepRows) else other)

    def __hash__(self) -> int:
        return hash(self._made)

    def __reduce__(self) -> tuple[type[tuple[Step, ...]], tuple[tuple[Step, ...]]]:
        # What is sent elsewhere are the steps, not what they are written from.
        return tuple, (self._made,)


def step_rows(steps: Sequence[Step]) -> Sequence[StepRow]:
    """Return the rows of any log's steps."""
    if isinstance(steps, StepRows):
        return steps.rows()
    return [(s.n, s.port, s.type, s.rule, s.source, s.because, s.refused) for s in steps]


@dataclass(frozen=True, slots=True)
class TargetRef:
    """The target as the plan saw it: identity, prices, and the rows in use by `Row.key`."""

    id: str
    version: str
    digest: str
    file: str
    rows: Mapping[str, Row]
    costs: Costs = field(default_factory=Costs)
    rescale_single_consumer: bool = False
    float_work: WorkRates = field(default_factory=WorkRates)
    work_unit: str = ""
    engines: Engines = field(default_factory=Engines)
    files: Files = field(default_factory=Files)
    storages: Storages = None


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a value: kernel name (`@model` for a model output), input index, required type."""

    kernel: str
    index: int
    type: PortTyped

    @property
    def address(self) -> str:
        """`cat.in[1]`."""
        return port_address(self.kernel, "in", self.index)


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of type between a value and the uses that require another one.

    Attributes:
      id: `VALUE#N`, N counting the rescales of one value in plan order.
      from_type, to_type: None is float.
      consumers: (kernel, input index) pairs; of a rescale to the value's own fixed type, all its uses.
      elements: tensor elements it runs over, once.
      cost: in element-rescales: elements x cost of the kind x trip count.
      to_pin: whether it stands right behind the kernel and gives the value its fixed type.
    """

    id: str
    value: str
    from_type: PortTyped
    to_type: PortTyped
    consumers: tuple[tuple[str, int], ...]
    kind: Kind
    elements: int
    cost: float
    to_pin: bool = False


def runs_as(kernel: KernelPlan, wanted: Wanted, rows: Mapping[str, Row]) -> bool:
    """Whether a planned kernel runs in float, or has the storages, as was asked of it."""
    if wanted.float or kernel.row is None:
        return wanted.float and kernel.row is None
    if wanted.result is not None:
        return all(_is_stored(port, wanted.result) for port in kernel.outputs if port.value)
    row = rows[kernel.row]
    if wanted.dynamic:
        return row.dynamic is not None
    sides = ((wanted.inputs, kernel.inputs, row.inputs), (wanted.outputs, kernel.outputs, row.outputs))
    for stores, ports, patterns in sides:
        held = [_is_stored(port, store) for port, store in zip(ports, stores, strict=False) if port.value]
        # Ports that the kernel has not, a bias say, are the row's.
        absent = zip(stores[len(ports) :], patterns[len(ports) :], strict=False)
        held += [p.type.is_wildcard or is_stored_in(store, p.type.storage) for store, p in absent]
        if len(stores) > max(len(ports), len(patterns)) or not all(held):
            return False
    return True


def _is_stored(port: Port, wanted: Stored) -> bool:
    if isinstance(port.type, Uniform):
        return is_stored_in(wanted, port.type.storage)
    return wanted is None or wanted == (port.type or FloatType("f32"))


def unwritable(form: str, why: str) -> str:
    """Return the reason of a kernel that left a row as a format cannot write it."""
    return f"{form} cannot write it: {why}"
