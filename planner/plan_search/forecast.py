"""Forecast: work and noise of chosen options, with a rescale wherever neighbours store a value differently.

Source: docs/search.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.accuracy.own_noise import decibels
from planner.plan_search.edges import Chosen, Edge, edges_of, is_forbidden, wanted
from planner.plan_search.followers import Follower, followers_of, settled
from planner.plan_search.options import Noise, Table

TIE: Final = 0.01
"""Share of the multiply-adds that all of the work counts as where they count."""


@dataclass(frozen=True, slots=True)
class Net:
    """Values between the kernels, and the kernels that follow others."""

    edges: tuple[Edge, ...]
    followers: Mapping[str, Follower]


def net_of(table: Table) -> Net:
    """The net of a table."""
    edges = edges_of(table)
    return Net(edges, followers_of(table, edges))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Work and noise, as predicted.

    Attributes:
      work: in elements requantized.
      noise: at each part of the outputs.
      weight_bits: mean bits of a number in constants; 0 without any.
    """

    work: float
    noise: Noise
    weight_bits: float

    def sqnr(self, table: Table) -> float:
        """Of the worst part of the outputs, dB."""
        return min(
            (decibels(signal, noise) for signal, noise in zip(table.signal, self.noise, strict=True)),
            default=math.inf,
        )


def priced_by_coverage(table: Table, net: Net) -> tuple[Table, Net]:
    """Return the table and net with multiply-adds in float in the place of work, which then decides ties.

    The least work for an SQNR is not the best covered plan: where casts cost as much as products save, it has
    whole stretches in float.
    """
    macs = sum(max(option.float_macs for option in options) for options in table.kernels.values()) or 1
    work = math.fsum(max(option.work for option in options) for options in table.kernels.values()) or 1.0
    share = TIE * macs / work
    kernels = {
        name: tuple([replace(one, work=one.float_macs + share * one.work) for one in own])
        for name, own in table.kernels.items()
    }
    edges = tuple([replace(edge, elements=edge.elements * share) for edge in net.edges])
    return replace(table, kernels=kernels), Net(edges, net.followers)


def forecast(table: Table, net: Net, chosen: Chosen) -> Forecast:
    """Add up what a choice of options costs, and what it does to the outputs."""
    chosen = settled(table, net.followers, chosen)
    options = {name: found[chosen.get(name, 0)] for name, found in table.kernels.items()}
    works = [option.work for option in options.values()]
    noises = [option.noise for option in options.values()]
    for edge in net.edges:
        held = edge.held or options[edge.writer].stores[edge.value]
        changed = [(reader, store) for reader, store in wanted(edge, options) if store != held]
        for store in dict.fromkeys(store for _, store in changed):
            works.append(edge.elements * edge.prices[held, store])
            noises.append(edge.noise.get(store, ()))
        if any(is_forbidden(table, edge, reader) for reader, _ in changed):
            works.append(math.inf)
    bits = math.fsum(option.weight_bits for option in options.values())
    return Forecast(
        math.fsum(works),
        tuple(math.fsum(noise[at] for noise in noises if noise) for at in range(len(table.parts))),
        bits / table.weights if table.weights else 0.0,
    )
