"""Own noise: what each choice alone does to the outputs of a model that is float everywhere else.

One float run of a sample, then a run for each choice from its kernel on; runs of different choices go side by
side on the cores, shards of the samples on an executor. Powers are added in the order of the samples, so they
are the same for any executor. Source: docs/accuracy.md.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.accuracy.choices import Choice
from planner.accuracy.groups import Groups
from planner.accuracy.steps import FloatRun, Start, Steps
from planner.calibration.run import threads_for
from planner.calibration.samples import Source, open_samples
from planner.calibration.shards import cut
from planner.errors import InputError, SampleError
from planner.interpreter.memory import as_f32
from planner.ir.graph import Graph
from planner.plans.plan import Plan

Array: TypeAlias = NDArray[Any]
Progress: TypeAlias = Callable[[int, int | None], None]
Part: TypeAlias = tuple[str, int]
"""An output, and one of its groups of like slices."""

WHOLE: Final = Groups()


@dataclass(frozen=True, slots=True, eq=False)
class OwnNoise:
    """Powers at the outputs, means over elements and samples.

    Attributes:
      choices: in the requested order.
      signal: of the float outputs, by output and group.
      power: of the noise of each choice.
      samples: their number.
    """

    choices: tuple[Choice, ...]
    signal: Mapping[Part, float]
    power: tuple[Mapping[Part, float], ...]
    samples: int

    def total(self, part: Part) -> float:
        """Noise of all choices together, each counted by itself."""
        return math.fsum(power[part] for power in self.power)


def own_noise(
    model: Graph,
    plan: Plan,
    choices: Sequence[Choice],
    samples: Source,
    *,
    groups: Mapping[str, Groups] | None = None,
    reference: Graph | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    parts: int = 4,
) -> OwnNoise:
    """Measure the own noise of some choices.

    Args:
      model: flat, the plan's, with the numbers of its constants.
      plan: says what the kernels are; its types do not matter, those of the choices do.
      choices: of `choices_of(plan)`, or with other types.
      samples: what `open_samples` reads; with an executor a source that can be opened again and counted.
      groups: how outputs are cut; missing ones are whole.
      reference: the model with the float numbers, where it has others (`steps.with_reference`).
      progress: called with (runs done, runs in all or None): one for each sample and choice.
      executor: runs `parts` of the samples at once; any of `concurrent.futures`.

    Raises:
      InputError: no output of the model is float, so nothing can be noisy.
      SampleError: no samples, or one that does not fit.
      ModelError: an op that cannot be run.
    """
    chosen = tuple(choices)
    job = Job(model, plan, chosen, samples, dict(groups or {}), reference)
    require_float_output(plan)
    rows = [*_rows(job, progress, executor, parts)]
    if not rows:
        raise SampleError("no samples to measure noise with", hint="8 of the calibration samples will do")
    signal, noise, elements = (sum(columns) for columns in zip(*rows, strict=True))
    places = _places(plan, job.groups)
    return OwnNoise(
        chosen,
        dict(zip(places, (signal / np.maximum(elements, 1)).tolist(), strict=True)),
        tuple(dict(zip(places, row, strict=True)) for row in (noise / np.maximum(elements, 1)).tolist()),
        len(rows),
    )


def require_float_output(plan: Plan) -> None:
    """Refuse a model whose outputs are all integers."""
    if not any(plan.graph.values[name].is_float for name in plan.graph.outputs):
        raise InputError(
            f"model {plan.graph.name!r} has no float output ({', '.join(plan.graph.outputs)}), "
            "and noise is measured at those",
            hint="cut the model before the op that makes integers of its results",
        )


def decibels(signal: float, noise: float) -> float:
    """SQNR in dB: infinite without noise, minus infinity without a signal."""
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 and math.isfinite(noise) else -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The input of a worker that measures a shard of the samples."""

    model: Graph
    plan: Plan
    choices: tuple[Choice, ...]
    samples: Source
    groups: Mapping[str, Groups]
    reference: Graph | None


_Row: TypeAlias = tuple[Array, Array, Array]
"""Of one sample, by part: squares of the signal added up, those of the noise (choices first), elements."""


def _rows(job: Job, progress: Progress | None, executor: Executor | None, parts: int) -> Iterator[_Row]:
    if executor is None:
        yield from _measured(job, None, progress, _cores(job.model))
        return
    shards = shards_of(job, parts)
    running = [executor.submit(_shard, job, shard) for shard in shards]
    for (_, end), shard in zip(shards, running, strict=True):
        yield from shard.result()
        if progress is not None:
            progress(end * len(job.choices), shards[-1][1] * len(job.choices))


def shards_of(job: Job, parts: int) -> tuple[tuple[int, int], ...]:
    """Places of the samples that workers take, first and end.

    Raises:
      SampleError: samples that cannot be counted.
    """
    number = open_samples(job.samples, job.model).count
    if number is None:
        raise SampleError("samples that come one by one cannot be cut", hint="a folder, one .npz, or a list")
    return tuple(cut(number, parts)) if number else ()


def _shard(job: Job, shard: tuple[int, int]) -> list[_Row]:
    return [*_measured(job, shard, None, 1)]


def _cores(model: Graph) -> int:
    """Choices that run at once: one where threads would wait for each other longer than they work."""
    return 1 if threads_for(model) else (os.cpu_count() or 1)


def _measured(
    job: Job, shard: tuple[int, int] | None, progress: Progress | None, threads: int
) -> Iterator[_Row]:
    opened = open_samples(job.samples, job.model)
    steps = Steps(job.model, job.plan, reference=job.reference)
    starts = [steps.start(choice) for choice in job.choices]
    total = None if opened.count is None else opened.count * len(starts)
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for feed in islice(opened.feeds, *(shard or (None,))):
            floats = steps.run(feed.arrays)
            wanted = {name: as_f32(floats.memory.real(name)) for name in steps.outputs}
            rows: list[Array] = []
            places = zip(job.choices, starts, strict=True)
            runs = [(job, steps, place, floats, wanted) for place in places]
            for row in pool.map(_noise, runs) if threads > 1 else map(_noise, runs):
                rows.append(row)
                done += 1
                if progress is not None:
                    progress(done, total)
            signal = {name: np.where(np.isfinite(array), array, 0.0) for name, array in wanted.items()}
            elements = _elements(wanted, job.groups)
            noise = np.asarray(rows).reshape(len(starts), elements.size)
            yield _sums(signal, job.groups, wanted), noise, elements


def _noise(run: tuple[Job, Steps, tuple[Choice, Start], FloatRun, Mapping[str, Array]]) -> Array:
    """Sums of squares of the noise of one choice, by part."""
    job, steps, (choice, start), floats, wanted = run
    got = steps.resume(start, choice.pins, floats)
    errors = {name: error_of(wanted[name], got[name]) for name in got}
    return _sums(errors, job.groups, wanted)


def error_of(wanted: Array, got: Array) -> Array:
    """Differences: none where both are NaN or the same infinity, infinite at any other NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = got - wanted
        if not math.isfinite(power(error)):
            same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
            error = np.where(same, 0.0, np.where(np.isnan(error), math.inf, error))
    return error


def _sums(arrays: Mapping[str, Array], groups: Mapping[str, Groups], outputs: Iterable[str]) -> Array:
    """Sums of squares by part; an output that is not there counts as 0."""
    found: list[float] = []
    for name in outputs:
        cuts = groups.get(name, WHOLE)
        array = arrays.get(name)
        found += [0.0] * len(cuts) if array is None else [power(part) for part in cuts.parts(array)]
    return np.asarray(found)


def power(array: Array) -> float:
    """Sum of squares, in float64 without a copy of the array."""
    flat = array.reshape(-1)
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))


def _elements(wanted: Mapping[str, Array], groups: Mapping[str, Groups]) -> Array:
    sizes = (part.size for name, array in wanted.items() for part in groups.get(name, WHOLE).parts(array))
    return np.asarray([*sizes], np.float64)


def _places(plan: Plan, groups: Mapping[str, Groups]) -> list[Part]:
    outputs = [name for name in plan.graph.outputs if plan.graph.values[name].is_float]
    return [(name, i) for name in outputs for i in range(len(groups.get(name, WHOLE)))]
