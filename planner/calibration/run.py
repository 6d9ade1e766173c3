"""Calibrating: the model as given in onnxruntime, sample by sample, every float activation observed.

Tensors are dropped as soon as they are observed; values that follow from others (`derive`) are not even
fetched, and channel means (`means`) are taken where the model runs. Graph optimisations stay off: statistics
are those of the model as written. Values inside `If` and `Loop` bodies are not observed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import onnxruntime

from planner.calibration import sizes_seen
from planner.calibration.fetching.derive import CUTS, derivable, derive
from planner.calibration.fetching.exposing import exposed
from planner.calibration.fetching.own_quantizers import with_own_quantizers
from planner.calibration.means import Probe, Sums, probes, with_probes
from planner.calibration.observe import OBSERVERS, Array, Observed, merge
from planner.calibration.recurrent import CELL, Cell, cell_states, followed, gate_products, read_by
from planner.calibration.rows_seen import Seen, Watched, join, look, watched
from planner.calibration.samples import Feed, Samples, Source, open_samples
from planner.calibration.shards import cut, merge_shards
from planner.calibration.sizes_seen import inner_shapes, open_values, output_of, with_shapes
from planner.calibration.sources.channels import open_channels_hint
from planner.calibration.statistics import (
    Statistics,
    calibration_digest,
    from_observed,
    percentile_of,
    with_seen,
)
from planner.errors import ModelError, SampleError, unknown_name
from planner.formats.onnx.sessions import FAILURES, observing_options, one_line, open_graph, run_arrays
from planner.formats.onnx.structure.recurrent import RECURRENT
from planner.ir.graph import Graph, Op, without_written

Progress = Callable[[int, int | None], None]

# Element types that come back as numpy arrays.
OBSERVED_DTYPES: Final = frozenset({"f16", "f32", "f64"})
# Fetched at once; a model with more is run once per this much.
MAX_FETCH_BYTES: Final = 1 << 29
# Models with fewer numbers in all their values run faster in
# one thread; weights of fewer bytes are not worth a file.
SMALL: Final = 1 << 19

Session: TypeAlias = tuple[onnxruntime.InferenceSession, tuple[str, ...], Mapping[str, str]]
"""A model, the values fetched from it, and their names outside where they are inside bodies."""


@dataclass(frozen=True, slots=True, eq=False)
class _Watch:
    """Plan of the observation of the values in `wanted`.

    Attributes:
      graph: with its ops in no regions.
      method: key of the observers and the derivations.
      wanted: in order of definition.
      inputs: read from the samples.
      sessions: each with the values fetched from it.
      observed: fetched values that are observed.
      derived: ops whose results follow.
      probes: channel means that the first session computes.
      cells: LSTMs whose cell state is followed step by step.
      read: fetched values that the cells are computed from.
      products: session that computes the gates of the cells; None without cells.
      watched: values of which more than their range is observed.
      sized: values that the first session tells the sizes of.
      threads: of each session; 0 is one a core.
    """

    graph: Graph
    method: str
    wanted: tuple[str, ...]
    inputs: tuple[str, ...]
    sessions: tuple[Session, ...]
    observed: frozenset[str]
    derived: tuple[Op, ...]
    probes: tuple[Probe, ...]
    cells: tuple[Cell, ...]
    read: frozenset[str]
    products: onnxruntime.InferenceSession | None
    watched: Watched
    sized: tuple[str, ...]
    threads: int

    @property
    def cuts(self) -> bool:
        """Whether a derived value may lack infinities that its source has."""
        return any(op.type in CUTS for op in self.derived)


def calibrate(
    graph: Graph,
    samples: Source | Samples,
    *,
    method: str = "minmax",
    values: Iterable[str] | None = None,
    progress: Progress | None = None,
    threads: int = 0,
) -> Statistics:
    """Run a float model over samples and observe its activations.

    Args:
      graph: with ops; where its file has quantizers, values are observed behind those. Other facts do not
        matter.
      samples: anything `open_samples` reads; iterated once.
      method: `minmax`, `percentile` (99.99), `percentile:99.9`, `mse` or `entropy`.
      values: names to observe; every float input and result of an op otherwise.
      progress: called after each sample with the number done and, if known, of all.
      threads: of onnxruntime; 0 is as many as the model gains from.

    Raises:
      SampleError: no samples, or one that does not fit or does not run.
      ModelError: a graph that onnxruntime cannot load.
      StatsError: an unknown method.
      UnknownName: a name in `values` that is no value.
    """
    percentile_of(method)
    _check_ops(graph)
    kind = method.partition(":")[0]
    flat = replace(graph, ops=tuple(graph.all_ops()), regions=())
    wanted = _wanted(flat, values)
    _check_observable(flat)
    flat = with_own_quantizers(flat)
    opened = samples if isinstance(samples, Samples) else open_samples(samples, graph)
    many = threads or threads_for(flat)
    looked = watched(flat, wanted)
    # What more than a range is observed of has to be fetched.
    derived = tuple(op for op in derivable(flat, wanted, kind) if op.outputs[0] not in looked)
    sized = open_values(flat) if values is None else ()
    watch, sums = _watch(flat, kind, wanted, derived, looked, sized=sized, threads=many), Sums()
    more: dict[str, Seen] = {}
    seen, sizes, done = _gather(watch, opened, sums, more, progress)
    if not done:
        raise SampleError("no samples to calibrate with", hint="32 to 128 representative ones are usual")
    means = sums.means(watch.probes, done)
    kept = {
        name: with_seen(replace(from_observed(seen[name]), mean=means.get(name)), more.get(name))
        for name in wanted
        if not seen[name].is_empty
    }
    return Statistics(calibration_digest(graph), method, done, kept, sizes.sizes, sizes.trips)


def require_numbers(graph: Graph, stats: Statistics) -> Statistics:
    """Return statistics that saw a finite number at an input of their model, if that has inputs in float.

    Not for shards: one of them may have nothing but NaN where others have numbers.

    Raises:
      SampleError: they saw nothing but NaN and infinities.
    """
    inputs = [name for name in graph.inputs if graph.values[name].dtype in OBSERVED_DTYPES]
    if inputs and not any(name in stats.values for name in inputs):
        named = ", ".join(repr(name) for name in inputs[:3])
        raise SampleError(
            f"no finite number in any of {stats.samples} samples for {named}: all are NaN or infinite",
            hint="look at how the samples are made; ranges come from numbers",
        )
    return stats


def observe_each(
    graph: Graph, samples: Source, *, values: Iterable[str] | None = None
) -> Iterator[tuple[str, Mapping[str, Observed]]]:
    """Run a float model over samples and give the extremes of its values in each, with the sample's name.

    Args:
      values: names to observe; every float input and result of an op otherwise.

    Raises:
      SampleError: a sample that does not fit or does not run.
      UnknownName: a name in `values` that is no value.
    """
    _check_ops(graph)
    flat = replace(graph, ops=tuple(graph.all_ops()), regions=())
    wanted, flat = _wanted(flat, values), with_own_quantizers(flat)
    watch = _watch(flat, "minmax", wanted, (), {}, sized=(), threads=threads_for(flat))
    for feed in open_samples(samples, graph).feeds:
        yield feed.name, _observe(watch, feed).ranges


def calibrate_on(
    executor: Executor,
    graph: Graph,
    samples: Source,
    *,
    parts: int,
    method: str = "minmax",
    progress: Progress | None = None,
) -> Statistics:
    """Calibrate shards of the samples at once, each with one thread; the same statistics as one thread alone.

    Args:
      executor: of threads, of processes, of a cluster; the graph and `samples` go there as they are.
      samples: a source that can be opened again and counted: a folder, one `.npz`, a list.
      parts: shards, at least, where there are as many samples.
      progress: called after each shard.

    Raises:
      SampleError: as `calibrate`, or samples that cannot be counted.
    """
    count = open_samples(samples, graph).count
    if count is None:
        raise SampleError("samples that come one by one cannot be cut", hint="a folder, one .npz, or a list")
    shards = cut(count, parts) if count else ((0, 0),)
    # Pins and the note say where its own quantizers are: the file itself need not travel.
    graph = without_written(graph)
    running = [executor.submit(_calibrate_shard, graph, samples, method, shard) for shard in shards]
    done = []
    for (_, end), shard in zip(shards, running, strict=True):
        done.append(shard.result())
        if progress is not None:
            progress(end, count)
    return merge_shards(done)


def _calibrate_shard(graph: Graph, samples: Source, method: str, shard: tuple[int, int]) -> Statistics:
    first, end = shard
    feeds = islice(open_samples(samples, graph).feeds, first, end)
    return calibrate(graph, Samples(feeds, end - first), method=method, threads=1)


def _check_ops(graph: Graph) -> None:
    for region in graph.regions:
        if not region.ops:
            raise ModelError(
                f"kernel {region.name!r} has no ops, so the model cannot be run",
                hint="calibrate the ONNX model, or write calibrated ranges into the annotated one",
            )


def threads_for(graph: Graph) -> int:
    """One where threads would wait for each other longer than they work, else 0: one a core."""
    if any(op.type in RECURRENT for op in graph.ops):
        return 1
    return int(sum(value.elements for value in graph.values.values()) < SMALL)


def _check_observable(graph: Graph) -> None:
    defined = [*graph.inputs, *(name for op in graph.ops for name in op.outputs if name)]
    kinds = {graph.values[name].dtype for name in defined if graph.values[name].is_float}
    if kinds and not kinds & OBSERVED_DTYPES:
        raise ModelError(
            f"the activations of model {graph.name!r} are {', '.join(sorted(kinds))}; "
            f"calibration runs {', '.join(sorted(OBSERVED_DTYPES))}",
            hint="export the model in f32",
        )


def _wanted(graph: Graph, values: Iterable[str] | None) -> tuple[str, ...]:
    """Observable values in order of definition, all or the requested ones."""
    defined = [*graph.inputs, *(name for op in graph.ops for name in op.outputs if name)]
    every = [name for name in defined if graph.values[name].dtype in OBSERVED_DTYPES]
    if values is None:
        return tuple(every)
    asked = set(values)
    for name in sorted(asked):
        if name not in graph.values:
            raise unknown_name("value", name, graph.values)
    return tuple(name for name in every if name in asked)


def _gather(
    watch: _Watch, samples: Samples, sums: Sums, more: dict[str, Seen], progress: Progress | None
) -> tuple[dict[str, Observed], sizes_seen.AllSizes, int]:
    """Run every sample, adding up means and what `more` is seen; observations of each value, the sizes of
    those that have open ones, and the number of samples.
    """
    seen: dict[str, Observed] = {}
    sizes = sizes_seen.NOTHING
    done = 0
    for feed in samples.feeds:
        found = _observe(watch, feed)
        if watch.cuts and any(item.nan or item.inf for item in found.ranges.values()):
            # What a relu makes of NaN and infinity is its own affair: from here on, look.
            seen = derive(watch.derived, watch.graph, seen, watch.method) if done else seen
            watch = _watch_closely(watch)
            found = _observe(watch, feed)
        for probe in watch.probes:
            sums.add(probe, found.means[probe.output])
        for name, item in found.ranges.items():
            seen[name] = merge(seen[name], item) if name in seen else item
        for name, part in found.looked.items():
            more[name] = join(more[name], part) if name in more else part
        sizes = sizes_seen.join(sizes, found.sizes)
        done += 1
        if progress is not None:
            progress(done, samples.count)
    return derive(watch.derived, watch.graph, seen, watch.method) if done else seen, sizes, done


def _watch(
    graph: Graph,
    method: str,
    wanted: tuple[str, ...],
    derived: tuple[Op, ...],
    looked: Watched,
    *,
    sized: tuple[str, ...],
    threads: int,
) -> _Watch:
    inputs = tuple(name for name in wanted if name in graph.inputs)
    skipped = {*inputs, *(op.outputs[0] for op in derived)}
    observed = [name for name in wanted if name not in skipped]
    cells = followed(graph, wanted)
    read = [name for cell in cells for name in read_by(cell) if name not in graph.inputs]
    added = probes(graph, wanted)
    groups = [*_groups(graph, dict.fromkeys((*observed, *read)))] or [()] * bool(added or sized)
    sessions = tuple(
        _open_session(graph, group, () if i else added, () if i else sized, threads)
        for i, group in enumerate(groups)
    )
    return _Watch(
        graph,
        method,
        wanted,
        inputs,
        sessions,
        frozenset(observed),
        derived,
        added,
        cells,
        frozenset(read),
        gate_products(threads) if cells else None,
        looked,
        sized,
        threads,
    )


def _watch_closely(watch: _Watch) -> _Watch:
    kept = tuple(op for op in watch.derived if op.type not in CUTS)
    return _watch(
        watch.graph, watch.method, watch.wanted, kept, watch.watched, sized=watch.sized, threads=watch.threads
    )


def _groups(graph: Graph, names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    group: list[str] = []
    size = 0
    for name in names:
        n_bytes = graph.values[name].elements * 4
        if group and size + n_bytes > MAX_FETCH_BYTES:
            yield tuple(group)
            group, size = [], 0
        group.append(name)
        size += n_bytes
    if group:
        yield tuple(group)


def _open_session(
    graph: Graph, fetched: tuple[str, ...], added: tuple[Probe, ...], sized: tuple[str, ...], threads: int
) -> Session:
    probed, shown = exposed(with_shapes(with_probes(graph, added), sized), fetched)
    told = (*(probe.output for probe in added), *map(output_of, sized))
    outputs = (*(shown.get(name, name) for name in fetched), *told)
    # No shapes for the new outputs: onnxruntime refuses claims that it infers otherwise.
    loose = {name: replace(probed.values[name], shape=None) for name in outputs}
    model = replace(probed, outputs=outputs, values={**probed.values, **loose})
    return open_graph(model, observing_options(threads), inline=SMALL), fetched, shown


@dataclass(slots=True)
class _Found:
    """Observations of one sample: by value, and the means by probe output.

    Attributes:
      looked: observations of a value besides its range.
      sizes: of values whose shapes leave some open.
    """

    ranges: dict[str, Observed]
    looked: dict[str, Seen]
    means: dict[str, Array] = field(default_factory=dict)
    sizes: sizes_seen.AllSizes = sizes_seen.NOTHING


@np.errstate(invalid="ignore")
def _observe(watch: _Watch, feed: Feed) -> _Found:
    """Run one sample."""
    observer = OBSERVERS[watch.method]
    found = _Found({name: observer(feed.arrays[name]) for name in watch.inputs}, {})
    opened = {name: array.shape for name, array in feed.arrays.items() if watch.graph.values[name].is_open}
    found.sizes = sizes_seen.seen_once(opened, {})
    found.looked.update(
        (name, _look(watch, name, feed.arrays[name], feed.name))
        for name in watch.inputs
        if name in watch.watched
    )
    arrays = dict(feed.arrays) if watch.cells else {}
    told = (*(probe.output for probe in watch.probes), *map(output_of, watch.sized))
    for k, (session, names, shown) in enumerate(watch.sessions):
        outputs = names if k else (*names, *told)
        tensors = _run(watch.graph, session, tuple(shown.get(name, name) for name in outputs), feed)
        found.sizes = sizes_seen.join(found.sizes, _sizes(watch, names, shown, tensors, first=not k))
        for name in reversed(outputs):
            tensor = tensors.pop()
            if name in watch.observed:
                found.ranges[name] = observer(tensor)
                if name in watch.watched:
                    found.looked[name] = _look(watch, name, tensor, feed.name)
            if name in watch.read:
                arrays[name] = tensor
            elif name not in watch.graph.values:
                found.means[name] = tensor
    for cell in watch.cells if watch.products is not None else ():
        states = cell_states(cell, arrays, watch.products)
        if states is not None:
            found.ranges[cell.op.outputs[CELL]] = observer(states)
    return found


def _sizes(
    watch: _Watch, names: Sequence[str], shown: Mapping[str, str], tensors: Sequence[Array], *, first: bool
) -> sizes_seen.AllSizes:
    """The sizes that one session shows: of values inside bodies, and of all outside where it is the first."""
    inner = {name: array.shape for name, array in zip(names, tensors, strict=False) if name in shown}
    shapes, trips = inner_shapes(watch.graph, inner)
    if first:
        told = tensors[len(names) + len(watch.probes) :]
        shapes |= {name: tuple(map(int, sizes)) for name, sizes in zip(watch.sized, told, strict=True)}
    return sizes_seen.seen_once(shapes, trips)


def _look(watch: _Watch, name: str, array: Array, sample: str) -> Seen:
    axes, counts = watch.watched[name]
    return look(array, axes, len(watch.graph.values[name].shape or ()), counts=counts, sample=sample)


def _run(
    graph: Graph, session: onnxruntime.InferenceSession, names: tuple[str, ...], feed: Feed
) -> list[Array]:
    used = {item.name for item in session.get_inputs()}
    arrays: Mapping[str, Array] = {name: array for name, array in feed.arrays.items() if name in used}
    try:
        return run_arrays(session, names, arrays)
    except FAILURES as error:
        hints = (open_channels_hint(graph, name, array.shape) for name, array in feed.arrays.items())
        told = next(filter(None, hints), "")
        raise SampleError(
            f"{feed.name}: onnxruntime cannot run the model: {one_line(error)}", hint=told
        ) from error
