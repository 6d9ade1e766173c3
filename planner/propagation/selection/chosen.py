"""The first phase of a plan: a row for every kernel, and the request besides graph and target.

Data only. `decide` makes it, and makes it anew wherever a kernel moves to float or to another row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.ir.graph import Graph
from planner.plans.plan import Planned
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.remedies import NO_REMEDIES, Remedies
from planner.target.records import Costs, Target

Strategy = Literal["minimal", "rfc"]
BiasPins = Literal["error", "derive"]
Unwritten: TypeAlias = Callable[[Planned], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """The request besides graph and target; `fuses`: whether the kernels are of our own fusing.

    `progress`: called with (kernels whose numbers are typed, kernels in all); `formats`: in which the plan is
    to be written; `unwritten`: gives the reason for each kernel of a plan that has to leave its row for that.
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
class Chosen:
    """A row, or the reason for none, for every kernel.

    Attributes:
      choices: of all live kernels, in topological order.
      remedies: what was done so far about rows that could not be kept.
      returned: names of the kernels that were in float and got a row with float results.
      visits: how often kernels were looked at so far.
    """

    graph: Graph
    target: Target
    choices: Sequence[Choice]
    request: Request
    remedies: Remedies = NO_REMEDIES
    returned: frozenset[str] = frozenset()
    visits: int = 0
