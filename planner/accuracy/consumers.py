"""Consumers: how many dB rounding a value to a width leaves at the results of the ops that read it.

One consumer deep: an op that computes is run on the rounded value and otherwise on the float model's; data
movement is looked through. All of it is one model for onnxruntime, which hands back sums of squares and no
tensor. The ranges of all samples come first, then the first few samples are run in order, so the result does
not depend on how calibration was cut into shards. Values inside loops and branches are left out. Source:
docs/specification.md, section 11.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.calibration.annotate import annotate
from planner.calibration.run import OBSERVED_DTYPES, SMALL, threads_for
from planner.calibration.samples import Feed, Samples, Source, open_samples
from planner.calibration.statistics import Statistics
from planner.errors import InputError, SampleError, quantity
from planner.formats.onnx.dtypes import NUMPY
from planner.formats.onnx.sessions import FAILURES, observing_options, one_line, open_graph, run_arrays
from planner.fusion.fuse import fuse
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.roles import is_movement, port_inputs, port_outputs
from planner.ir.structure import BORDERS
from planner.ir.types.qtypes import AtReaders, Calibrated, Storage, Uniform
from planner.ir.types.ranges import uniform_from_range
from planner.ir.types.typetext import parse_storage
from planner.ops import of_form
from planner.ops.forms import Form
from planner.propagation.propagate import operand_types
from planner.target.records import Costs, PortPattern, PortType, Row, Target

Array: TypeAlias = NDArray[Any]

SAMPLES: Final = 4
"""Samples that consumers are computed on, by default."""
WIDTHS: Final = (8, 16)
"""Widths, in bits, that values are rounded to."""
MOST_WIDTH: Final = 16
"""Greater integers are not exact in the float32 that values are rounded in."""
MOST_READERS: Final = 4
"""Limit of consumers computed for one value: behind a chain of concats there may be hundreds."""
LEAST: Final = -100.0
"""The dB of a result that is infinite, or no number, once its operand is rounded."""
GREAT: Final = 1e15
"""Numbers whose squares are added up in float64."""
UNLIKE: Final = of_form(Form.RANDOM) | {"Unique"}
"""Ops whose results are not the same numbers, or not as many, from run to run."""

_FLOAT, _DOUBLE = 1, 11  # TensorProto's


@dataclass(slots=True)
class _Work:
    """The model as it grows.

    Attributes:
      flat: as it was; `ops_read` are its ops that are looked at, and `readers` their places by value.
      stats: of its values.
      needed: by value and width, the range that its own consumers need, where that is less than all of it.
      signals: the result that holds a value's sum of squares; the same within what is needed of it.
      pairs: by value and width, signal and noise of each consumer's result.
    """

    flat: Graph
    stats: Statistics
    ops_read: Sequence[Op]
    readers: Mapping[str, Sequence[int]]
    values: dict[str, Value]
    constants: dict[str, Constant]
    ops: list[Op]
    needed: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    signals: dict[tuple[str, tuple[float, float] | None], str] = field(default_factory=dict)
    pairs: dict[tuple[str, int], list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, kind: str, inputs: Sequence[str], dtype: str, **attributes: Any) -> str:
        """Append an op with one result, whose name is returned."""
        name = f"@readers:{len(self.ops)}"
        self.values[name] = Value(name, None, dtype)
        self.ops.append(Op(name, kind, tuple(inputs), (name,), attributes))
        return name

    def number(self, real: float, dtype: str = "f32") -> str:
        """A constant."""
        name = f"@readers:{dtype}:{real!r}"
        self.values[name] = Value(name, (), dtype)
        self.constants[name] = Constant(np.asarray(real, NUMPY[dtype]))
        return name


def measure_readers(
    graph: Graph,
    stats: Statistics,
    samples: Source | Samples,
    *,
    count: int = SAMPLES,
    widths: Sequence[int] = WIDTHS,
    threads: int = 0,
) -> Statistics:
    """Add to statistics the dB that rounding each value leaves at its consumers.

    Args:
      graph: the model, expanded; facts do not matter.
      stats: of the model, over all samples; their method says what a width holds.
      samples: those of calibration; the first `count` are run.
      widths: of storages, in bits, 2 to 16.
      threads: of onnxruntime; 0 is as many as the model gains from.

    Returns:
      The statistics with dB, rounded to 0.1, in place of what they had.

    Raises:
      InputError: a count below 1, or a width that is none.
      SampleError: no samples, or one that does not fit or does not run.
    """
    if count < 1 or not widths or not all(2 <= bits <= MOST_WIDTH for bits in widths):
        raise InputError(
            f"consumers on {quantity(count, 'sample')} at {', '.join(map(str, widths)) or 'no'} bits; "
            f"accepted: 1 sample or more, 2 to {MOST_WIDTH} bits"
        )
    flat = replace(graph, ops=tuple(graph.all_ops()), regions=())
    work = _grown(flat, stats, sorted(set(widths)))
    outputs = [*dict.fromkeys(name for pairs in work.pairs.values() for pair in pairs for name in pair)]
    model = replace(flat, ops=tuple(work.ops), values=work.values, constants=work.constants)
    session = None
    if outputs:
        grown = replace(model, outputs=tuple(outputs))
        options = observing_options(threads or threads_for(flat))
        # Which buffers to share takes onnxruntime minutes to plan, of some thousand nodes.
        options.enable_mem_reuse = False
        session = open_graph(grown, options, inline=SMALL)
    opened = samples if isinstance(samples, Samples) else open_samples(samples, graph)
    sums, done = np.zeros(len(outputs)), 0
    for feed in islice(opened.feeds, count):
        sums = sums + (0.0 if session is None else _run(session, outputs, feed))
        done += 1
    if not done:
        raise SampleError("no samples to run the consumers on", hint=f"the first {SAMPLES} of calibration do")
    return _with_readers(stats, work.pairs, dict(zip(outputs, sums.tolist(), strict=True)))


def value_types(flat: Graph, stats: Statistics, bits: int) -> Mapping[str, Uniform]:
    """The type of each value if every op is quantized to one width: of the range its consumers need.

    Propagation computes what consumers need, so it runs for a device that has a row for every op.
    """
    bare = {name: replace(value, facts=()) for name, value in flat.values.items()}
    known = annotate(replace(flat, values=bare, wanted={}), stats=stats)
    store = parse_storage(f"u{bits}")
    device = _every_op({op.type for op in flat.ops}, store)
    found: dict[str, tuple[float, float]] = {}
    for kinds in operand_types(fuse(known, device), device, fuses=False)[1].values():
        for name, kind in kinds.items():
            if isinstance(kind, Uniform) and kind.is_per_tensor and name not in flat.constants:
                lo, hi = found.get(name, (kind.lo, kind.hi))
                found[name] = min(lo, kind.lo), max(hi, kind.hi)
    for name in flat.outputs:
        # Whoever takes an output needs all of it.
        for fact in known.values[name].facts:
            if isinstance(fact, Calibrated):
                found[name] = fact.at(bits)
    return {name: uniform_from_range(lo, hi, store) for name, (lo, hi) in found.items()}


def _every_op(kinds: Iterable[str], store: Storage) -> Target:
    """A device with one row for each type of op: integers of one storage, in and out."""
    x, y = (PortPattern(name, PortType(store), optional=True, variadic=True) for name in "xy")
    rows = {kind: (Row(kind, (x,), (y,), source=f"readers:{k}"),) for k, kind in enumerate(sorted(kinds))}
    return Target("readers", "1", "", "fixed", "readers", rows, (), Costs(), PortType(store))


def _grown(flat: Graph, stats: Statistics, widths: Sequence[int]) -> _Work:
    """The model with the consumers of every rounded value, and the sums of squares of their results."""
    # What a body reads or writes runs many times, or not at all.
    ops = [op for op in flat.ops if not op.scope and op.type not in BORDERS and not op.captures]
    made = {*flat.inputs, *(name for op in ops for name in op.outputs)}
    readers: dict[str, list[int]] = {}
    for place, op in enumerate(ops):
        for name in dict.fromkeys(port_inputs(op, flat)):
            readers.setdefault(name, []).append(place)
    work = _Work(flat, stats, ops, readers, dict(flat.values), dict(flat.constants), list(flat.ops))
    for bits in widths:
        kinds = value_types(flat, stats, bits)
        known = {name: kind for name, kind in kinds.items() if name in stats.values and name in made}
        for name, kind in known.items():
            seen = stats.values[name]
            if seen.lo < kind.lo - kind.scales[0] or seen.hi > kind.hi + kind.scales[0]:
                work.needed[name, bits] = kind.lo, kind.hi
        for name, kind in known.items():
            if flat.values[name].dtype in OBSERVED_DTYPES:
                work.pairs[name, bits] = _pairs(work, name, kind)
    return work


def _pairs(work: _Work, name: str, kind: Uniform) -> list[tuple[str, str]]:
    """Signal and noise of the results of a value's consumers, once it is rounded."""
    flat, readers = work.flat, work.readers
    rounded = {name: _rounded(work, name, kind)}
    told = [name] if name in flat.outputs else []
    waiting, seen, left = sorted(readers.get(name, ())), set[int](), MOST_READERS
    while waiting and left:
        place = waiting.pop(0)
        op = work.ops_read[place]
        moves = is_movement(op, flat)
        left -= not moves
        copies = () if op.type in UNLIKE else port_outputs(op, flat)
        for result in filter(None, copies):
            rounded[result] = f"@readers:{len(work.ops)}:{result}"
            work.values[rounded[result]] = replace(flat.values[result], name=rounded[result], shape=None)
        outputs = tuple(rounded.get(result, "") if result in copies else "" for result in op.outputs)
        if not any(outputs):
            continue
        inputs = tuple(rounded.get(operand, operand) for operand in op.inputs)
        work.ops.append(replace(op, name=f"@readers:{len(work.ops)}", inputs=inputs, outputs=outputs))
        for result in filter(None, copies):
            if not moves or result in flat.outputs:
                told.append(result)
            if moves:
                waiting = sorted({*waiting, *readers.get(result, ())} - seen)
        seen.add(place)
    bits = kind.storage.bits
    return [
        (_signal(work, result, bits), _noise(work, result, rounded[result], bits))
        for result in told
        if result in work.stats.values and flat.values[result].dtype in OBSERVED_DTYPES
    ]


def _rounded(work: _Work, name: str, kind: Uniform) -> str:
    """The value rounded to a type, half to even, and cut to its range."""
    dtype, scale, zero = work.values[name].dtype, kind.scales[0], kind.zero_points[0]
    x = name if dtype != "f16" else work.add("Cast", (name,), "f32", to=_FLOAT)
    wide = "f64" if dtype == "f64" else "f32"
    step = work.number(scale, wide)
    ends = [work.number(float(end - zero), wide) for end in (kind.storage.qmin, kind.storage.qmax)]
    steps = work.add("Round", (work.add("Div", (x, step), wide),), wide)
    real = work.add("Mul", (work.add("Clip", (steps, *ends), wide), step), wide)
    return real if dtype != "f16" else work.add("Cast", (real,), "f16", to=10)


def _signal(work: _Work, name: str, bits: int) -> str:
    key = name, work.needed.get((name, bits))
    if key not in work.signals:
        array = _cut(work, name, name, bits)
        work.signals[key] = _squares(work, _finite(work, array, array, name), name)
    return work.signals[key]


def _noise(work: _Work, name: str, other: str, bits: int) -> str:
    array, rounded = (_cut(work, one, name, bits) for one in (name, other))
    error = work.add("Sub", (rounded, array), work.values[name].dtype)
    return _squares(work, _finite(work, error, array, name), name)


def _finite(work: _Work, told: str, array: str, name: str) -> str:
    """0 where the array was no number, or infinite, before anything was rounded."""
    seen, dtype = work.stats.values[name], work.values[name].dtype
    if not (seen.nan or seen.inf):
        return told
    tests = [work.add(kind, (array,), "bool") for kind in ("IsNaN", "IsInf")]
    return work.add("Where", (work.add("Or", tests, "bool"), work.number(0.0, dtype), told), dtype)


def _cut(work: _Work, array: str, name: str, bits: int) -> str:
    """An array clipped to the range that the consumers of a value need."""
    extent, dtype = work.needed.get((name, bits)), work.values[name].dtype
    if extent is None or dtype == "f16":
        return array
    return work.add("Clip", (array, *(work.number(end, dtype) for end in extent)), dtype)


def _squares(work: _Work, array: str, name: str) -> str:
    """The sum of squares of an array; `name` is the value whose range says how large its numbers are."""
    dtype, seen = work.values[array].dtype, work.stats.values[name]
    wide = "f64" if dtype == "f64" or max(-seen.lo, seen.hi) > GREAT else "f32"
    if wide != dtype:
        array = work.add("Cast", (array,), wide, to=_DOUBLE if wide == "f64" else _FLOAT)
    return work.add("ReduceSumSquare", (array,), wide, keepdims=0)


@np.errstate(invalid="ignore", over="ignore")
def _run(session: Any, outputs: Sequence[str], feed: Feed) -> Array:
    used = {item.name for item in session.get_inputs()}
    try:
        found = run_arrays(session, outputs, {name: feed.arrays[name] for name in used & feed.arrays.keys()})
    except FAILURES as error:
        raise SampleError(f"{feed.name}: onnxruntime cannot run the consumers: {one_line(error)}") from error
    return np.asarray([float(one) for one in found])


def _with_readers(
    stats: Statistics,
    pairs: Mapping[tuple[str, int], Sequence[tuple[str, str]]],
    sums: Mapping[str, float],
) -> Statistics:
    found: dict[str, list[AtReaders]] = {}
    for (name, bits), results in pairs.items():
        known = [decibels(sums[signal], sums[noise]) for signal, noise in results]
        least = min((db for db in known if db is not None), default=None)
        if least is not None:
            found.setdefault(name, []).append(AtReaders(bits, round(least, 1)))
    values = {name: replace(seen, readers=tuple(found.get(name, ()))) for name, seen in stats.values.items()}
    return replace(stats, values=values)


def decibels(signal: float, noise: float) -> float | None:
    """Signal over noise in dB, at least `LEAST`; None where nothing was lost, or nothing can be said."""
    if noise == 0.0 or not 0.0 < signal < math.inf:
        return None
    return max(10.0 * math.log10(signal / noise), LEAST) if math.isfinite(noise) else LEAST
