"""Measuring: what trials of a search need, and the options of every kernel with their noise.

Nothing here searches. Source: docs/search.md.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from planner.accuracy.choices import Choice
from planner.accuracy.groups import Groups, output_groups
from planner.accuracy.metrics import Metric
from planner.accuracy.own_noise import OwnNoise, own_noise, require_float_output
from planner.accuracy.own_noise import Progress as NoiseProgress
from planner.calibration.samples import Source, open_samples
from planner.calibration.sources.foreign import replayable
from planner.interpreter.reference import ReferenceKind, Run, open_reference, outputs_once
from planner.ir.expand import expand
from planner.ir.graph import Graph
from planner.ir.operators.axes import axes_of
from planner.ops.axes import UNKNOWN
from planner.plan_search.options import Table, levels_of, table_of
from planner.plan_search.trials import Bench, State
from planner.target.records import Target


def bench_of(
    model: Graph,
    target: Target,
    samples: Source,
    *,
    metric: str | Metric | None = None,
    output: str | None = None,
    reference: ReferenceKind = "written",
) -> Bench:
    """Everything that trials need, with the reference of the model in memory."""
    flat = expand(model)
    return Bench(flat, target, replayable(samples), metric, output, reference, outputs_once(flat, reference))


def measured_table(
    bench: Bench,
    kept: State,
    samples: Source,
    measuring: NoiseProgress | None = None,
    *,
    executor: Executor | None = None,
    parts: int = 4,
) -> Table:
    """The options of every kernel of a bench, their noise measured on some samples or taken from a state."""
    flat = bench.model
    levels = levels_of(flat, bench.target, bench.formats)
    require_float_output(levels[""])
    known = bench.known or open_reference(flat, (), bench.reference)
    groups = groups_of(flat, bench.samples, known)
    asked = iter(range(2))

    def measure(choices: Sequence[Choice]) -> OwnNoise:
        return kept.noise(
            next(asked),
            choices,
            lambda some: own_noise(
                flat,
                levels[""],
                some,
                samples,
                groups=groups,
                progress=measuring,
                executor=executor,
                parts=parts,
            ),
        )

    return table_of(flat, levels, measure)


def groups_of(model: Graph, samples: Source, run: Run) -> Mapping[str, Groups]:
    """Groups of like slices of every float output, as they are evaluated."""
    names = tuple(name for name in model.outputs if model.values[name].is_float)
    opened = open_samples(samples, model)
    found = [run(feed.name, feed.arrays, names) for feed in opened.feeds]
    axes = axes_of(model)
    return {name: output_groups([one[name] for one in found], axes.get(name, UNKNOWN)) for name in names}
