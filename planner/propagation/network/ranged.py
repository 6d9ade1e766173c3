"""From rows to ranges: the one place where the network is built. Nothing is decided here.

Source: docs/specification.md, sections 3 to 5.
"""

from planner.propagation.network.build import build_network
from planner.propagation.network.per_axis import give_slices
from planner.propagation.network.ports import Ranged
from planner.propagation.network.value_ranges import find_ranges
from planner.propagation.selection.chosen import Chosen


def give_ranges(chosen: Chosen) -> Ranged:
    """Number the ports of the chosen rows, and give each the range that it has to hold."""
    network = build_network(chosen)
    give_slices(network)
    return find_ranges(network)
