"""Values: the whole quantized program against the reference at every value, in one pass over both.

The quantized program is the reference interpreter's. A value inside a loop is that of the last trip.
Source: docs/accuracy.md.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import numpy as np

from planner.accuracy.groups import Slices, merged, slices_of
from planner.accuracy.own_noise import Array, Job, Progress, error_of, power, shards_of
from planner.accuracy.steps import Steps
from planner.calibration.samples import open_samples
from planner.errors import SampleError
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.memory import as_f32
from planner.interpreter.reference import named_in_reference, open_reference
from planner.ir.operators.axes import axes_of
from planner.ops.axes import UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Sums of squares over all samples.

    Attributes:
      signal, noise: by value.
      ranges: least and greatest number of the float model's, by value.
      outputs: of each float output, by slice.
      samples: their number.
    """

    signal: Mapping[str, float]
    noise: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    outputs: Mapping[str, Slices]
    samples: int


def values_seen(job: Job, *, progress: Progress | None, executor: Executor | None, parts: int) -> Seen:
    """Run both programs on every sample.

    Raises:
      SampleError: no samples, or one that does not fit.
      ModelError: an op that cannot be run.
    """
    if executor is None:
        found = [*_seen(job, None, progress)]
    else:
        shards = shards_of(job, parts)
        running = [executor.submit(_shard, job, shard) for shard in shards]
        found = [seen for shard in running for seen in shard.result()]
    if not found:
        raise SampleError("no samples to measure noise with", hint="8 of the calibration samples will do")
    return reduce(_added, found)


def _shard(job: Job, shard: tuple[int, int]) -> list[Seen]:
    return [*_seen(job, shard, None)]


def _seen(job: Job, shard: tuple[int, int] | None, progress: Progress | None) -> Iterator[Seen]:
    """Both programs on each sample."""
    opened = open_samples(job.samples, job.model)
    steps = Steps(job.model, job.plan, reference=job.reference)
    quantized = Interpreter(job.model, job.plan, threads=1)
    written, axes = _written(job), axes_of(job.model)
    for done, feed in enumerate(islice(opened.feeds, *(shard or (None,))), 1):
        with np.errstate(over="ignore"):
            # A mask of -3.4e38 on a grid of 8 bits may round to infinity.
            floats, got = steps.run(feed.arrays), quantized.run(feed.arrays).reals
        known = written(feed.arrays)
        signal, noise, ranges, outputs = {}, {}, {}, {}
        for name in got.keys() & floats.names:
            wanted = as_f32(known[name] if name in known else floats.memory.real(name))
            if wanted.shape != got[name].shape:
                continue
            error = error_of(wanted, got[name])
            is_output = name in steps.outputs
            sums = slices_of(wanted, error, axes.get(name, UNKNOWN)) if is_output else None
            signal[name] = power(wanted) if sums is None else float(sums.whole[0])
            noise[name] = power(error)
            ranges[name] = float(wanted.min(initial=0.0)), float(wanted.max(initial=0.0))
            if sums is not None:
                outputs[name] = sums
        yield Seen(signal, noise, ranges, outputs, 1)
        if progress is not None:
            progress(done, opened.count)


def _written(job: Job) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """Return a function that runs the model's own file, if that has quantizers: values that both name."""
    model = job.model
    if model.written is None:
        return lambda _: {}
    names = tuple(name for name, value in model.values.items() if value.is_float and name not in model.inputs)
    known = named_in_reference(model, names)
    run = open_reference(model, known)
    return lambda arrays: run("a sample", arrays, known)


def _added(first: Seen, other: Seen) -> Seen:
    both = [name for name in first.signal if name in other.signal]
    lows = {name: min(first.ranges[name][0], other.ranges[name][0]) for name in both}
    return Seen(
        {name: first.signal[name] + other.signal[name] for name in both},
        {name: first.noise[name] + other.noise[name] for name in both},
        {name: (lows[name], max(first.ranges[name][1], other.ranges[name][1])) for name in both},
        {name: merged(first.outputs[name], other.outputs[name]) for name in first.outputs},
        first.samples + other.samples,
    )
