"""Following: statistics and calibrated ranges of a model whose values were rescaled.

Exact where a range per channel is known, or where all channels have one factor; a range of the whole tensor
says nothing of its channels, so the value is observed again, or its statistics are dropped. Source:
docs/accuracy.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.calibration.samples import Source
from planner.calibration.statistics import Mean, Statistics, ValueStats, calibration_digest, without_readers
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Calibrated
from planner.weight_conditioning.operands import Reals
from planner.weight_conditioning.seams import Seam


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The known statistics of a model's values.

    Attributes:
      stats: those that still hold are in it, None where there never were any.
      stale: values that had statistics or a calibrated range which do not hold any more.
    """

    stats: Statistics | None
    stale: tuple[str, ...] = ()


def followed(known: Known, model: Graph, changed: Iterable[tuple[Seam, Reals]]) -> Known:
    """Return the statistics that hold after the channels of seams were divided by factors."""
    values = {} if known.stats is None else dict(known.stats.values)
    stale = dict.fromkeys(known.stale)
    for seam, factors in changed:
        for name in seam.rescaled:
            seen = values.pop(name, None)
            exact = None if seen is None or name != seam.value else divided(seen, seam.axis, factors)
            if exact is not None:
                values[name] = exact
            elif seen is not None or has_range(model, name):
                stale[name] = None
    stats = None if known.stats is None else replace(known.stats, values=values)
    return Known(stats, tuple(stale))


def divided(seen: ValueStats, axis: int, factors: Reals) -> ValueStats | None:
    """Statistics of a value whose channels were divided; None where those of channels are not known.

    Args:
      factors: positive, one a channel.
    """
    is_one = bool(np.all(factors == factors[0]))
    per_channel = seen.axis == axis and len(seen.los) == factors.size
    # A histogram's bins are powers of two wide, a row's maximum is that of a softmax: both start anew.
    if seen.bins is not None or seen.rows or seen.two_values or not (is_one or per_channel):
        return None
    by = factors if per_channel else factors[:1]
    los, his = (tuple((np.asarray(ends) / by).tolist()) for ends in (seen.los, seen.his))
    mean = seen.mean
    if mean is not None and (mean.axis, len(mean.values)) == (axis, factors.size):
        mean = Mean(axis, tuple((np.asarray(mean.values) / factors).tolist()))
    elif not is_one:
        mean = None
    return replace(seen, los=los, his=his, mean=mean)


def forgotten(known: Known, model: Graph, names: Iterable[str]) -> Known:
    """Return the statistics that hold after values got other, unknown numbers."""
    values = {} if known.stats is None else dict(known.stats.values)
    gone = [name for name in names if values.pop(name, None) is not None or has_range(model, name)]
    stats = None if known.stats is None else replace(known.stats, values=values)
    return Known(stats, tuple(dict.fromkeys((*known.stale, *gone))))


def observed_again(known: Known, model: Graph, samples: Source | None) -> Known:
    """Return the statistics with stale values observed on the samples, where there are any."""
    stats = known.stats
    if known.stale and samples is not None:
        method = "minmax" if stats is None else stats.method
        again = calibrate(model, samples, method=method, values=known.stale)
        values: Mapping[str, ValueStats] = {} if stats is None else stats.values
        stats = replace(again if stats is None else stats, values=_ordered(model, {**values, **again.values}))
        known = Known(stats, tuple(name for name in known.stale if name not in again.values))
    if stats is not None:
        digest = calibration_digest(model)
        # Readers with other weights lose something else.
        stats = stats if stats.model == digest else without_readers(stats)
        known = replace(known, stats=replace(stats, model=digest))
    return known


def _ordered(model: Graph, values: Mapping[str, ValueStats]) -> dict[str, ValueStats]:
    """Statistics in the order in which a model defines its values, as `calibrate` gives them."""
    defined = dict.fromkeys((*model.inputs, *(name for op in model.ops for name in op.outputs), *values))
    return {name: values[name] for name in defined if name in values}


def with_ranges(model: Graph, known: Known, rescaled: Iterable[str]) -> Graph:
    """The model with the calibrated ranges that its rescaled values have now; unknown ones are dropped."""
    names = {name for name in rescaled if has_range(model, name)}
    values = {
        name: replace(value, facts=tuple(fact for fact in value.facts if not isinstance(fact, Calibrated)))
        if name in names
        else value
        for name, value in model.values.items()
    }
    bare = replace(model, values=values)
    if known.stats is None:
        return bare
    seen = {name: item for name, item in known.stats.values.items() if name in names}
    return replace(annotate(bare, stats=replace(known.stats, values=seen)), notes=model.notes)


def has_range(model: Graph, name: str) -> bool:
    """Whether a value of a model has a calibrated range."""
    return any(isinstance(fact, Calibrated) for fact in model.values[name].facts)
