"""The outcome of propagation: a label for every class, a type for every port, and what was asked for.

Data only. `propagate` makes it, `plan_builder` and `step_log` read it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from planner.plans.plan import Planned
from planner.propagation.network.ports import Kernel, Network, ports_of
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.remedies import Remedies
from planner.propagation.solver.classes import LabelClass, Offered
from planner.propagation.solver.components import Unit
from planner.propagation.solver.solve import Solution
from planner.target.records import Costs, PortId

Strategy = Literal["minimal", "rfc"]
BiasPins = Literal["error", "derive"]
Unwritten: TypeAlias = Callable[[Planned], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for besides graph and target; `fuses`: whether the kernels are of our own fusing.

    `progress`: called with (kernels whose numbers are typed, kernels in all); `formats`: that the plan is to
    be written in; `unwritten`: gives the reason for each kernel of a plan that has to leave its row for that.
    """

    strategy: Strategy
    costs: Costs
    model: str
    best_effort: bool
    bias_pins: BiasPins
    depths: Mapping[str, int]
    fuses: bool = False
    progress: Callable[[int, int | None], None] | None = None
    formats: tuple[str, ...] = ()
    unwritten: Unwritten | None = None


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label for every class: units with the solution of each class's unit; cost and bound in 1/1024.

    `classes`: with the types that rules derived; `offered`: what each of them might have had.
    """

    classes: Sequence[LabelClass]
    offered: Offered
    units: list[Unit]
    solutions: dict[int, Solution]
    cost: int
    bound: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that was decided.

    Attributes:
      choices: of all live kernels, in topological order.
      network: the same kernels with their ports, labelled.
      derived: ports that a rule computed, by the kernel's number in the network.
      remedies: what was done about rows that could not be kept.
    """

    choices: Sequence[Choice]
    network: Network
    labelled: Labelled
    derived: Mapping[int, Sequence[PortId]]
    request: Request
    remedies: Remedies = field(default_factory=Remedies)

    def moves_in_float(self, kernel: Kernel) -> bool:
        """Whether a mover's class took the float label, so that the kernel runs in float after all."""
        groups = [port.group for port in ports_of(self.network, kernel)] if kernel.moves else []
        return any(g >= 0 and self.labelled.solutions[g].labels[g] is None for g in groups)
