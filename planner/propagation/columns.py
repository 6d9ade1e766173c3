"""Columns: kernels, ports and values by number, an array for each thing that is known of all of them.

Ports (absent ones too) are numbered kernel by kernel, inputs before outputs; values in the order in which the
log lists their facts: the model's inputs, constants, as kernels name them, the model's outputs. Nothing here
depends on rows, and nothing decides: `settle` and `network` do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import Calibrated

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What a graph says, column by column.

    Attributes:
      names, ids: of values, by number, and back.
      first: each kernel's first port; one entry more than there are kernels.
      value: by port, its value; -1 where the port is absent.
      kernel: by port.
      result: by port, whether it is an output.
      trips: by kernel.
      definition: by value, the port that defines it; -1 for the model's inputs and constants.
      reads: by value, how many input ports read it.
      results: by value, how many model outputs it is.
      facts: by value, how many it has.
      unbound: by value, whether nothing but a range of the whole tensor is known of it, or not even that.
      lo, hi: by value, that range in reals; NaN where there is none.
      constant: by value.
      ranged: by value, whether it is a constant of which one range is all that is known.
    """

    names: Sequence[str]
    ids: dict[str, int]
    first: Ints
    value: Ints
    kernel: Ints
    result: Bools
    trips: Ints
    definition: Ints
    reads: Ints
    results: Ints
    facts: Ints
    unbound: Bools
    lo: Floats
    hi: Floats
    constant: Bools
    ranged: Bools

    def depths(self) -> list[int]:
        """By kernel: kernels on the longest way from the model's inputs to it, itself counted."""
        deep = [0] * len(self.names)
        values, bounds = self.value.tolist(), self.first.tolist()
        results = self.result.tolist()
        found: list[int] = []
        for begin, end in pairwise(bounds):
            most, made = 0, []
            for port in range(begin, end):
                value = values[port]
                if value < 0:
                    continue
                if results[port]:
                    made.append(value)
                elif deep[value] > most:
                    most = deep[value]
            found.append(most + 1)
            for value in made:
                deep[value] = most + 1
        return found


def columns_of(graph: Graph, regions: Sequence[Region]) -> Columns:
    """Number the ports and values of regions in topological order."""
    flat = [name for region in regions for side in (region.inputs, region.outputs) for name in side]
    known = dict.fromkeys(chain(graph.inputs, graph.constants, flat, graph.outputs))
    known.pop("", None)
    names = list(known)
    ids = dict(zip(names, count()))
    n_in = np.array([len(region.inputs) for region in regions], np.int64)
    n_out = np.array([len(region.outputs) for region in regions], np.int64)
    first = np.concatenate([[0], np.cumsum(n_in + n_out)]).astype(np.int64)
    kernel = np.repeat(np.arange(len(regions)), n_in + n_out)
    result = np.arange(len(flat)) - first[kernel] >= n_in[kernel]
    value = np.fromiter((ids.get(name, -1) for name in flat), np.int64, len(flat))
    definition = np.full(len(names), -1)
    made = np.flatnonzero(result & (value >= 0))
    definition[value[made]] = made
    read = value[~result & (value >= 0)]
    facts, unbound, lo, hi = _facts(graph, names)
    constant = np.zeros(len(names), bool)
    constant[np.fromiter((ids[name] for name in graph.constants), np.int64)] = True
    return Columns(
        names=names,
        ids=ids,
        first=first,
        value=value,
        kernel=kernel,
        result=result,
        trips=np.array([region.trip_count for region in regions], np.int64),
        definition=definition,
        reads=np.bincount(read, minlength=len(names)),
        results=np.bincount(
            np.fromiter((ids[name] for name in graph.outputs), np.int64), minlength=len(names)
        ),
        facts=facts,
        unbound=unbound,
        lo=lo,
        hi=hi,
        constant=constant,
        ranged=_ranged(graph, ids),
    )


def _facts(graph: Graph, names: Sequence[str]) -> tuple[Ints, Bools, Floats, Floats]:
    counts: list[int] = []
    unbound: list[bool] = []
    lows: list[float] = []
    highs: list[float] = []
    for name in names:
        facts = graph.values[name].facts
        low = high = math.nan
        free = not facts
        if len(facts) == 1:
            fact = facts[0]
            if isinstance(fact, Calibrated) and fact.axis is None:
                free, low, high = True, fact.los[0], fact.his[0]
        counts.append(len(facts))
        unbound.append(free)
        lows.append(low)
        highs.append(high)
    return np.array(counts, np.int64), np.array(unbound, bool), np.array(lows), np.array(highs)


def _ranged(graph: Graph, ids: dict[str, int]) -> Bools:
    found = np.zeros(len(ids), bool)
    for name, constant in graph.constants.items():
        if constant.array is None and len(constant.lo) == 1 and not graph.values[name].facts:
            found[ids[name]] = True
    return found
