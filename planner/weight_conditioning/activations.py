"""Runs of the float model that conditioning needs: moments of channels, and how far outputs move.

The model runs in onnxruntime, sample by sample, without quantizers of its own; arrays are reduced at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.calibration.samples import Source, open_samples
from planner.errors import SampleError
from planner.interpreter.reference import open_reference
from planner.ir.graph import Graph

Reals = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Channels of one value over all samples, each of shape `(n_channels,)`, float64.

    Attributes:
      greatest: magnitude.
      mean, deviation: over all elements of a channel.
    """

    greatest: Reals
    mean: Reals
    deviation: Reals


def activations(
    graph: Graph, samples: Source, names: Iterable[str]
) -> Iterator[tuple[str, Mapping[str, Reals]]]:
    """Each sample's name, and the arrays of values of the float model in it.

    Raises:
      SampleError: no samples, or one that does not fit or does not run.
    """
    wanted = tuple(dict.fromkeys(names))
    fetched = tuple(name for name in wanted if name not in graph.inputs)
    run = open_reference(graph, [name for name in fetched if name not in graph.outputs], "stripped")
    is_empty = True
    for feed in open_samples(samples, graph).feeds:
        is_empty = False
        found = run(feed.name, feed.arrays, fetched) if fetched else {}
        yield feed.name, {name: found[name] if name in found else feed.arrays[name] for name in wanted}
    if is_empty:
        raise SampleError("no samples to condition with", hint="32 representative ones are usual")


def channel_moments(graph: Graph, samples: Source, axes: Mapping[str, int]) -> dict[str, Moments]:
    """Moments of each channel of values over the samples; a value that was NaN or infinite anywhere has none.

    Args:
      axes: of the channels, by value.
    """
    sums: dict[str, list[Reals]] = {}
    for _, arrays in activations(graph, samples, axes):
        for name, array in arrays.items():
            rows = np.moveaxis(array, axes[name], 0).reshape(array.shape[axes[name]], -1).astype(np.float64)
            new = [np.abs(rows).max(axis=1, initial=0.0), rows.sum(axis=1), (rows**2).sum(axis=1)]
            old = sums.get(name)
            count = np.full(1, rows.shape[1], np.float64)
            sums[name] = (
                [*new, count]
                if old is None
                else [np.maximum(old[0], new[0]), old[1] + new[1], old[2] + new[2], old[3] + count]
            )
    return {name: _moments(*four) for name, four in sums.items() if np.isfinite(four[2]).all()}


def _moments(greatest: Reals, total: Reals, squares: Reals, count: Reals) -> Moments:
    mean = total / np.maximum(count, 1)
    return Moments(greatest, mean, np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0)))


def output_change(before: Graph, after: Graph, samples: Source) -> float:
    """The relative change of the outputs over the samples, `|after - before| / |before|`, the worst output's.

    Outputs that are no floats do not count; one that was 0 throughout counts as moved by 1 if it moves.
    """
    names = [name for name in before.outputs if before.values[name].is_float]
    moved, power = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    pairs = zip(activations(before, samples, names), activations(after, samples, names), strict=True)
    for (_, old), (_, new) in pairs:
        for name in names:
            was = old[name].astype(np.float64)
            fine = np.isfinite(was)
            moved[name] += float((np.where(fine, new[name] - was, 0.0) ** 2).sum())
            power[name] += float((np.where(fine, was, 0.0) ** 2).sum())
    found = [float(np.sqrt(moved[name] / (power[name] or moved[name] or 1.0))) for name in names]
    return max(found, default=0.0)
