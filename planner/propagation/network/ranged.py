"""The second phase of a plan: the ports of the chosen rows, and the range that each of them has to hold.

The network is built here and nowhere else. Nothing is decided: `decide` looks at what has no range.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.propagation.network.build import build_network
from planner.propagation.network.per_axis import give_slices
from planner.propagation.network.ports import Network
from planner.propagation.network.value_ranges import backward, forward
from planner.propagation.selection.chosen import Chosen


@dataclass(frozen=True, slots=True)
class Ranged:
    """The rows, and their network with ranges.

    Attributes:
      rangeless: numbers of the kernels that have a row and a port without a range.
    """

    chosen: Chosen
    network: Network
    rangeless: Sequence[int]


def give_ranges(chosen: Chosen) -> Ranged:
    """Number the ports of the chosen rows, and give each the range that it has to hold."""
    request, target = chosen.request, chosen.target
    network = build_network(chosen.graph, chosen.choices, target, target.files.to_write(request.formats))
    network.costs, network.derives_bias = request.costs, request.bias_pins == "derive"
    network.visits = chosen.visits + len(chosen.choices)
    give_slices(network)
    rangeless = forward(network)
    backward(network)
    return Ranged(chosen, network, rangeless)
