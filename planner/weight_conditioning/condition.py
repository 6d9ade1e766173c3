"""Condition: a float model made easier to quantize, method after method, with its statistics.

Each method is a function of the model as it is by then; what it changed and how far the outputs moved is
listed. Statistics follow: rescaled where that is exact, else observed again on the samples, else named as to
be observed again. Source: docs/accuracy.md, "Conditioning"; the papers that each method's module names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.calibration.samples import Source
from planner.calibration.sources.foreign import replayable
from planner.calibration.statistics import Statistics
from planner.calibration.statsjson import load_statistics
from planner.errors import InputError, ModelError, expect
from planner.ir.expand import expand
from planner.ir.graph import Graph, Op, with_facts
from planner.target.load import TargetSource, as_target
from planner.target.records import Target
from planner.weight_conditioning.absorb import absorbable, absorbed
from planner.weight_conditioning.activations import channel_moments, output_change
from planner.weight_conditioning.biases import correct_biases
from planner.weight_conditioning.equalize import equalized
from planner.weight_conditioning.follow import Known, followed, forgotten, observed_again, with_ranges
from planner.weight_conditioning.layers import grams, patches_of
from planner.weight_conditioning.methods import Method, read_methods
from planner.weight_conditioning.migrate import migrated
from planner.weight_conditioning.narrow import Slices, clipped
from planner.weight_conditioning.operands import Reals, without_unread
from planner.weight_conditioning.rounding import given_slices, planned_slices, rounded
from planner.weight_conditioning.seams import Seam, find_seams


@dataclass(frozen=True, slots=True)
class Change:
    """One method's work.

    Attributes:
      method: as it ran: `migrate:0.8`.
      values: constants that have other numbers (`clip`: that have a type), by their names in the new model.
      rescaled: activations that have another range.
      factors: the least and greatest factor of a channel, (1, 1) for a method that has none; of `absorb`
        the amount subtracted from channels, in reals.
      outputs: relative change of the float outputs over the samples, the worst output's; None without any.
      left: unchanged tensors, and why.
    """

    method: str
    values: tuple[str, ...]
    rescaled: tuple[str, ...] = ()
    factors: tuple[float, float] = (1.0, 1.0)
    outputs: float | None = None
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Conditioned:
    """A conditioned model.

    Attributes:
      model: float as before, of the same inputs and outputs.
      stats: of it, None where none were given or needed.
      changes: one a method, in the order in which they ran.
      unobserved: values whose statistics do not hold any more, in order; calibrate again, or give samples.
    """

    model: Graph
    stats: Statistics | None
    changes: tuple[Change, ...]
    unobserved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """The model as it is between two methods.

    Attributes:
      known: statistics, as far as they hold.
      meant: weights that were rounded, as they were, by name.
    """

    model: Graph
    known: Known
    samples: Source | None
    target: Target | None
    meant: Mapping[str, np.ndarray] = field(default_factory=dict)


def condition(
    model: Graph,
    methods: str | Iterable[str],
    *,
    target: TargetSource | None = None,
    stats: Statistics | str | Path | None = None,
    samples: Source | None = None,
) -> Conditioned:
    """Change the weights of a float model so that less is lost when it is quantized.

    Methods run in the order `equalize`, `absorb`, `migrate`, `clip` or `round`, `correct`. The first and
    third keep the float function up to rounding; `changes` lists the moved factors. Constants and values with
    a fixed or requested type stay as they are, and so do those that they would be rescaled with.

    Args:
      model: of ops; its facts stay, but for calibrated ranges of values that were rescaled.
      methods: `equalize,migrate:0.8`, or one text each; `round:4x32` rounds to 4 bits in blocks of 32 inputs,
        for any target, and `clip:4x32` chooses the scales of such blocks.
      target: whose plan says the types of weights; needed by `clip`, `round` and `correct`.
      stats: of the model, from `calibrate`, or a file of them.
      samples: as for `calibrate`; needed by `absorb`, `migrate` and `round`, and to measure changes.

    Raises:
      InputError: unknown methods, or methods without their inputs.
      ModelError: a model of kernels, which are to be fused afterwards.
      SampleError, StatsError: samples or statistics that do not fit.
    """
    asked = read_methods(methods)
    flat = expand(model)
    if flat.regions:
        raise ModelError(
            f"model {flat.name!r} is made of kernels, whose constants are ports",
            hint="condition the model of ops, then fuse and plan",
        )
    if stats is not None:
        expect(stats, (Statistics, str, Path), "statistics are the result of calibrate, or a file of it")
    read = load_statistics(stats) if isinstance(stats, str | Path) else stats
    held = None if samples is None else replayable(samples)
    _check_needs(
        asked, has_target=target is not None, has_stats=read is not None, has_samples=held is not None
    )
    work = _Work(flat, Known(read), held, None if target is None else as_target(target))
    changes = list[Change]()
    for method in asked:
        before = work.model
        work, change = RUN[method.name](work, method)
        moved = None if held is None else output_change(before, work.model, held)
        changes.append(replace(change, outputs=moved))
    known = observed_again(work.known, work.model, held)
    rescaled = [name for change in changes for name in change.rescaled]
    ranged = with_ranges(work.model, known, rescaled)
    return Conditioned(ranged, known.stats, tuple(changes), known.stale)


def _check_needs(asked: Iterable[Method], *, has_target: bool, has_stats: bool, has_samples: bool) -> None:
    """Refuse methods that lack what they work on.

    Raises:
      InputError: names the method and what it needs.
    """
    given = {"a target": has_target, "samples": has_samples, "samples or stats": has_samples or has_stats}
    for method in asked:
        for need in NEEDS.get(method.name, ()):
            if not given[need] and not (need == "a target" and method.bits):
                raise InputError(f"method {method.name!r} needs {need}", hint=_WHY[need])


def _equalize(work: _Work, _method: Method) -> tuple[_Work, Change]:
    clips = _never_cutting(work)
    found = find_seams(work.model, frozenset(clips))
    model, changed = equalized(work.model, found)
    passed = {op.name for seam, _ in changed for op in seam.passed}
    model = _unclipped(model, passed & clips)
    return _scaled(work, model, changed, "equalize", found.left)


def _migrate(work: _Work, method: Method) -> tuple[_Work, Change]:
    found = find_seams(work.model)
    seen = channel_moments(work.model, _given(work), {seam.value: seam.axis for seam in found.seams})
    model, changed = migrated(work.model, found, seen, method.alpha)
    return _scaled(work, model, changed, str(method), found.left)


def _absorb(work: _Work, _method: Method) -> tuple[_Work, Change]:
    found = find_seams(work.model)
    seams, left = absorbable(found)
    seen = channel_moments(work.model, _given(work), {seam.value: seam.axis for seam in seams})
    model, changed = absorbed(work.model, seams, seen)
    change = _change(work.model, model, changed, "absorb", (*found.left, *left))
    known = forgotten(work.known, work.model, change.rescaled)
    return replace(work, model=model, known=known), change


def _clip(work: _Work, method: Method) -> tuple[_Work, Change]:
    work, slices = _grids(work, method)
    model, changed = clipped(work.model, slices)
    return replace(work, model=model), Change(str(method), changed)


def _round(work: _Work, method: Method) -> tuple[_Work, Change]:
    work, slices = _grids(work, method)
    ops = {op.name: op for op in work.model.ops if op.name in slices}
    met = {name: found for name, op in ops.items() if (found := patches_of(work.model, op)) is not None}
    seen = grams(work.model, _given(work), met.values())
    done = rounded(work.model, slices, met, seen)
    change = Change(str(method), _renumbered(work.model, done.model), left=done.left)
    return replace(work, model=done.model, meant={**work.meant, **done.meant}), change


def _grids(work: _Work, method: Method) -> tuple[_Work, Mapping[str, Slices]]:
    """The grids that a method names, or those of the target's plan; with the statistics for that, if any."""
    if method.bits:
        return work, given_slices(work.model, method.bits, method.block)
    work = _with_stats(work)
    return work, planned_slices(annotate(work.model, stats=work.known.stats), _target(work))


def _correct(work: _Work, _method: Method) -> tuple[_Work, Change]:
    work = _with_stats(work)
    stats = work.known.stats
    if stats is None:
        raise InputError("method 'correct' needs statistics")
    ready = annotate(work.model, stats=stats)
    model = with_facts(correct_biases(ready, _target(work), stats, meant=work.meant), work.model)
    model = replace(model, notes=work.model.notes)
    return replace(work, model=model), Change("correct", _renumbered(work.model, model))


def _target(work: _Work) -> Target:
    if work.target is None:
        raise InputError("a target is needed")
    return work.target


def _given(work: _Work) -> Source:
    if work.samples is None:
        raise InputError("samples are needed")
    return work.samples


def _scaled(
    work: _Work, model: Graph, changed: Sequence[tuple[Seam, Reals]], method: str, left: tuple[str, ...]
) -> tuple[_Work, Change]:
    """The work with a model whose seams were rescaled, and what was done."""
    known = followed(work.known, work.model, changed)
    return replace(work, model=model, known=known), _change(work.model, model, changed, method, left)


def _change(
    old: Graph, new: Graph, changed: Sequence[tuple[Seam, Reals]], method: str, left: tuple[str, ...]
) -> Change:
    rescaled = tuple(dict.fromkeys(name for seam, _ in changed for name in seam.rescaled))
    ends = [end for _, factors in changed for end in (float(factors.min()), float(factors.max()))]
    extent = (min(ends, default=1.0), max(ends, default=1.0))
    return Change(method, _renumbered(old, new), rescaled, extent, left=left)


def _renumbered(old: Graph, new: Graph) -> tuple[str, ...]:
    """Constants of a model that the old one has not."""
    known = {id(constant) for constant in old.constants.values()}
    return tuple(name for name, constant in new.constants.items() if id(constant) not in known)


def _never_cutting(work: _Work) -> set[str]:
    """Clip ops from 0 up whose upper end lies above all that statistics saw: a Relu on such data."""
    found = set[str]()
    for op in work.model.ops:
        seen = None if work.known.stats is None else work.known.stats.values.get(op.outputs[0])
        if op.type != "Clip" or seen is None or len(op.inputs) < 3:
            continue
        low, high = (_number(work.model, name) for name in op.inputs[1:3])
        if low == 0 and high is not None and seen.hi < high:
            found.add(op.name)
    return found


def _number(graph: Graph, name: str) -> float | None:
    constant = graph.constants.get(name)
    return None if constant is None or constant.array is None else float(constant.array)


def _unclipped(graph: Graph, names: set[str]) -> Graph:
    """The model with Clip ops that never cut above as Relu: rescaled, they would."""

    def relu(op: Op) -> Op:
        return replace(op, type="Relu", inputs=op.inputs[:1], attributes={})

    ends = [name for op in graph.ops if op.name in names for name in op.inputs[1:] if name]
    ops = tuple(relu(op) if op.name in names else op for op in graph.ops)
    return without_unread(replace(graph, ops=ops), ends)


def _with_stats(work: _Work) -> _Work:
    """The work with statistics of every value of the model as it is."""
    if work.known.stats is None and work.samples is not None:
        return replace(work, known=Known(calibrate(work.model, work.samples)))
    return replace(work, known=observed_again(work.known, work.model, work.samples))


Run: TypeAlias = Callable[[_Work, Method], tuple[_Work, Change]]

RUN: Final[Mapping[str, Run]] = {
    "absorb": _absorb,
    "clip": _clip,
    "correct": _correct,
    "equalize": _equalize,
    "migrate": _migrate,
    "round": _round,
}
"""The function of each method."""
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "absorb": ("samples",),
    "clip": ("a target",),
    "correct": ("a target", "samples or stats"),
    "migrate": ("samples",),
    "round": ("a target", "samples"),
}
_WHY: Final[Mapping[str, str]] = {
    "a target": "it works on the types that a plan for the target gives to weights",
    "samples": "it works on the channels of activations, and statistics have tensors",
    "samples or stats": "it works on the means of channels",
}
