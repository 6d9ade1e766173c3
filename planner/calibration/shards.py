"""Shards: calibrating parts of the samples separately, and joining the statistics with the result of one run.

Extremes and histograms join exactly (`observe.merge`). A mean joins exactly where its shard has a power of
two of samples: multiplied back, it is the sum that was divided; sums are added in order and divided once, as
calibrating in one piece does. Source: docs/formats.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from planner.calibration.statistics import Mean, Statistics, ValueStats, merge
from planner.errors import StatsError


def cut(samples: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Cut samples into at least `parts` shards where there are as many: first and one after the last of each.

    Each has a power of two of samples, the largest that keeps all parts busy, less at the end.
    """
    if samples < 1 or parts < 1:
        raise StatsError(f"{samples} samples cannot be cut into {parts} parts")
    size = 1 << (max(samples // parts, 1).bit_length() - 1)
    shards = []
    first = 0
    while first < samples:
        while size > samples - first:
            size //= 2
        shards.append((first, first + size))
        first += size
    return tuple(shards)


def merge_shards(shards: Sequence[Statistics]) -> Statistics:
    """Join statistics of shards, in the order of their samples.

    Raises:
      StatsError: none, or of different models or methods.
    """
    if not shards:
        raise StatsError("no statistics to join")
    joined = reduce(merge, shards)
    values = {name: replace(stats, mean=_mean(name, stats, shards)) for name, stats in joined.values.items()}
    return replace(joined, values=values)


def _mean(name: str, joined: ValueStats, shards: Sequence[Statistics]) -> Mean | None:
    if joined.mean is None:
        return None
    total = np.zeros(len(joined.mean.values))
    for shard in shards:
        mean = shard.values[name].mean
        if mean is not None:
            total = total + np.asarray(mean.values) * shard.samples
    return Mean(joined.mean.axis, tuple((total / sum(shard.samples for shard in shards)).tolist()))
