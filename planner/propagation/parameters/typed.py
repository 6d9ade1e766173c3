"""The third and the last phase of a plan: a label for every class, and a type for every port.

Data only. `labelling` and `decide` make them; `fit`, `plan_builder` and `step_log` read them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.propagation.network.ports import Kernel, Ranged, ports_of
from planner.propagation.selection.chosen import Chosen
from planner.propagation.solver.classes import LabelClass, Offered
from planner.propagation.solver.components import Unit
from planner.propagation.solver.solve import Solution
from planner.target.records import PortId


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
class Typed:
    """The last phase of a plan: a type at every port.

    Attributes:
      network: the kernels with their ports, labelled.
      derived: ports that a rule computed, by the kernel's number in the network.
      turns: whether some kernels may have either sign, beside data of both.
    """

    chosen: Chosen
    network: Ranged
    labelled: Labelled
    derived: Mapping[int, Sequence[PortId]]
    turns: bool = False

    def moves_in_float(self, kernel: Kernel) -> bool:
        """Whether a mover's class took the float label, so that the kernel runs in float after all."""
        groups = [port.group for port in ports_of(self.network, kernel)] if kernel.moves else []
        return any(g >= 0 and self.labelled.solutions[g].labels[g] is None for g in groups)
