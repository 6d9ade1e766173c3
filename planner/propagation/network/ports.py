"""The network: kernels with something left to decide, as plain lists of ints, for the loops that visit ports.

Ports, values and classes are numbered (`build`); nothing here decides. Ranges are in reals.
A port is one of: `CLASS` (its label is searched), `CONSTANT` (its type comes from its own numbers),
`DERIVED` (a rule computes it from other ports), `GIVEN` (a fact per axis or block says it), `FLOAT`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, dataclass_transform

from planner.ir.graph import Facts, Graph
from planner.ir.types.held_pins import Storages, held, storages_in
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import FloatType, Storage, Uniform
from planner.ir.types.wanted import Wanted
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.chosen import Chosen
from planner.target.records import Costs, PortId, PortType, Target

CLASS: Final = 0
CONSTANT: Final = 1
DERIVED: Final = 2
FLOAT: Final = 3
GIVEN: Final = 4

FLOAT_PORT: Final = PortType(FloatType("f32"))

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a dataclass that nobody may change: mypy refuses it.

    There are several to a kernel, and making ones that Python guards as well takes a tenth of planning.
    """
    return dataclass(slots=True)(cls)


@record
class Value:
    """One value: who writes and reads it, and what facts say of its reals.

    `by_width`: ranges that calibration chose for some widths. `signs`: it is plus or minus one number, and
    nothing between.
    """

    name: str
    elements: int
    constant: bool
    pin: Uniform | None
    stays_float: bool
    calibrated: Interval | None
    has_any: bool
    signs: bool
    by_width: Mapping[int, Interval]
    definition: int
    uses: Sequence[int]
    outputs: tuple[int, ...]


@record
class Port:
    """One present port of one kernel; `given`: the type that a fact per axis or block says."""

    id: int
    kernel: int
    side: PortId
    name: str
    value: int
    kind: int
    spec: PortType
    pin: Uniform | None = None
    fixed: Uniform | None = None
    fixed_source: str = ""
    given: Uniform | None = None


@record
class Kernel:
    """One live region with its row; `moves`: data passes unchanged from inputs to outputs.

    `wanted` are the storages that were asked of it and that its row has.
    """

    choice: Choice
    moves: bool
    cut: Interval | None
    wanted: Wanted | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Everything by number, in topological order of kernels.

    Attributes:
      costs: the requested costs, over the target's own.
      derives_bias: whether a bias is derived anew, whatever its fixed type.
      formats: in which the plan has to be written.
      begins: kernel through which a carried value enters its loop, by the one through which it leaves.
    """

    chosen: Chosen
    graph: Graph
    target: Target
    costs: Costs
    derives_bias: bool
    kernels: Sequence[Kernel]
    values: Sequence[Value]
    ports: Sequence[Port]
    value_ids: Mapping[str, int]
    formats: tuple[str, ...]
    begins: Mapping[int, int]
    visits: int

    @property
    def storages(self) -> Storages:
        """Return the storages of activations that the device and the formats both have."""
        return storages_in(self.target.storages, self.formats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranged(Network):
    """A network whose ports have ranges.

    Attributes:
      ranges: of each value.
      by_width: of each value, the ranges that storages of some widths hold instead.
      saturated: constants, by number, whose infinities become an end of the storage.
      required: of each port, what it has to hold.
      needed: what a kernel can tell apart of what it reads at a port, where that is not everything.
      rangeless: numbers of the kernels that have a row and a port without a range.
    """

    ranges: Sequence[Interval | None]
    by_width: Sequence[Mapping[int, Interval]]
    saturated: Collection[int]
    required: Sequence[Interval | None]
    needed: Mapping[int, Interval]
    rangeless: Sequence[int]


def base_of(network: Network, value: Value) -> Uniform | None:
    """Return a value's fixed type as the device holds it, where its users start; None where it has none."""
    pin, graph = value.pin, network.graph
    if pin is None or value.constant:
        return pin
    # What the model is handed and hands out is stored as it says.
    if value.name in graph.inputs or value.name in graph.outputs:
        return pin
    made = network.ports[value.definition] if value.definition >= 0 else None
    store = made.spec.storage if made is not None and made.kind != FLOAT else None
    made_in = store if isinstance(store, Storage) else None
    return held(pin, network.target.storages, made_in, network.formats)


def present(network: Network, numbers: Iterable[int]) -> list[Port]:
    """The ports of some numbers; absent ones, -1, are left out."""
    return [network.ports[p] for p in numbers if p >= 0]


def ports_of(network: Network, kernel: Kernel) -> list[Port]:
    """The present ports of a kernel, inputs first."""
    return present(network, (*kernel.inputs, *kernel.outputs))


def own_pin(choice: Choice, side: PortId) -> Uniform | None:
    """The type that a fact of the port itself says."""
    facts: tuple[Facts, ...] = choice.region.input_facts if side[0] == "in" else choice.region.output_facts
    if not facts:
        return None
    return next((fact for fact in facts[side[1]] if isinstance(fact, Uniform)), None)


def range_in(network: Ranged, value: int, spec: PortType) -> Interval | None:
    """The range of a value as a port of this type holds it: the one of its width, where one was chosen."""
    store, by_width = spec.storage, network.by_width[value]
    if not by_width or not isinstance(store, Storage) or store.float_name:
        return network.ranges[value]
    return by_width.get(store.bits, network.ranges[value])
