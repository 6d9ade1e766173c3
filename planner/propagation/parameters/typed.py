"""The last phases of a plan: a label for every class, and a type for every port.

Data, and what functions of rows see of it. `labelling` and `decide` make them; `fit`, `plan_builder` and
`step_log` read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from planner.ir.types.qtypes import Uniform
from planner.propagation.network.ports import DERIVED, Kernel, Port, ports_of, present
from planner.propagation.solver.classes import Classed, LabelClass, Offered
from planner.propagation.solver.components import Lost, Unit
from planner.propagation.solver.solve import Solution
from planner.target.records import PortId, PortView


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label for every class: units with the solution of each class's unit; cost and bound in 1/1024.

    `classes`: with the types that rules derived; `offered`: what each of them might have had; `lost`: where
    no class has a say.
    """

    classes: Sequence[LabelClass]
    offered: Offered
    units: list[Unit]
    solutions: dict[int, Solution]
    cost: int
    bound: int
    lost: Sequence[Lost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Typing(Classed):
    """A network while its ports get types, which `labelling` and `constant_types` fill in.

    Attributes:
      types: of each port; None while it has none, and of floats.
      widened: the reason by port, of weights whose scales grew for the sake of a multiplier.
      finer: the reason by port, of weights of fixed type whose scales are finer for the sake of a bias.
      computed: searched ports for which a function of the target had an answer.
      rounds: numbers of the kernels whose rules were asked while labels were chosen, each time.
    """

    types: list[Uniform | None]
    widened: dict[int, str] = field(default_factory=dict)
    finer: dict[int, str] = field(default_factory=dict)
    computed: set[int] = field(default_factory=set)
    rounds: list[int] = field(default_factory=list)

    def type_of(self, port: Port | None) -> Uniform | None:
        """The type of a port; None where it has none, or there is no port."""
        return None if port is None else self.types[port.id]

    def is_derived(self, port: Port) -> bool:
        """Whether a rule gives a port its type."""
        return port.kind == DERIVED or port.id in self.computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(Typing):
    """A network with a type at every port that is not float.

    Attributes:
      derived: ports that a rule computed, by the kernel's number.
      turns: whether some kernels may have either sign, beside data of both.
    """

    labelled: Labelled
    derived: Mapping[int, Sequence[PortId]] = field(default_factory=dict)
    turns: bool

    def moves_in_float(self, kernel: Kernel) -> bool:
        """Whether a data-movement class took the float label, so that the kernel runs in float after all."""
        groups = [self.groups[port.id] for port in ports_of(self, kernel)] if kernel.moves else []
        return any(g >= 0 and self.labelled.solutions[g].labels[g] is None for g in groups)


def start_typing(network: Classed) -> Typing:
    """The network with the types that are known before anything is searched."""
    own = {each.name: getattr(network, each.name) for each in fields(Classed)}
    return Typing(**own, types=known_types(network))


def known_types(network: Classed) -> list[Uniform | None]:
    """The types of ports before anything is searched."""
    types = [port.given for port in network.ports]
    for p, kind in network.settled.items():
        types[p] = kind
    return types


def finish_typing(network: Typing, labelled: Labelled, *, turns: bool) -> Typed:
    """The network with its labels; parameters are still to be typed."""
    own = {each.name: getattr(network, each.name) for each in fields(Typing)}
    return Typed(**own, labelled=labelled, turns=turns)


def kernel_views(network: Typing, kernel: Kernel) -> tuple[tuple[PortView, ...], tuple[PortView, ...]]:
    """Return a QuantFn's view of the kernel's ports, as they are now."""

    def view(port: Port) -> PortView:
        extent = network.required[port.id] or network.ranges[port.value]
        lo, hi = extent if extent is not None else (None, None)
        return PortView(port.side, port.name, port.spec, network.types[port.id], lo, hi)

    return (
        tuple(map(view, present(network, kernel.inputs))),
        tuple(map(view, present(network, kernel.outputs))),
    )
