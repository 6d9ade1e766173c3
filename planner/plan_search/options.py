"""Options: the ways in which each kernel of a model may run on a target, with work and noise of each.

A level asks one thing of all kernels (`float`, a storage, the storages of a row) and is planned whole; a
kernel's options are the different types it has in those plans, the first as planning chooses without being
asked. Noise is measured at one option of a kernel, its own alone; at others it grows with the square of the
steps. Options that quantize at run time are measured apart. Source: docs/accuracy.md, docs/search.md.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from planner.accuracy.choices import Choice, activations_of, choices_of, kernel_in_float, weights_of
from planner.accuracy.coverage import kernel_macs
from planner.accuracy.own_noise import OwnNoise, Part
from planner.errors import PlannerError
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Region, Value
from planner.ir.kernel_requests import asked_of
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import FloatType, Storage, Uniform
from planner.ir.types.wanted import Wanted, is_stored_in, wanted_to_data
from planner.plan_model import plan as plan_model
from planner.plans.plan import Plan, Planned
from planner.plans.records import KernelPlan, PortTyped
from planner.plans.work import kernel_work
from planner.target.records import PortPattern, PortType, Row, Target

FLOAT: Final = "float"
TABLES: Final = "float, tables as they come"
"""The level of float where kernels that read constants alone get no request."""
NEGLIGIBLE: Final = 1e-4
"""Share of the noise of the plan without wishes below which weights, at the level where they are coarsest,
are not distinguished from the activations of their kernel."""

Noise: TypeAlias = tuple[float, ...]
"""Power at each evaluated part of the outputs, in the order of `Table.parts`."""
Wish: TypeAlias = Any
"""The request for a kernel, as annotations have it: `float`, `i16`, `{"in": [...], "out": [...]}`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a kernel.

    Attributes:
      levels: those that have it.
      wish: what to ask for; None for nothing.
      work: of the kernel alone.
      stores: storage, or `float`, in which it reads and writes each value that is no constant.
      types: type in which it reads and writes each of them, in the first of its levels.
      follows: whether it has these only where a kernel beside it has them: it moves data of any storage.
      noise: of its weights and of its rounding where it stores its results.
      rounding: of that the part without its weights.
      weight_bits: of all constants it reads.
      float_macs: multiply-adds that it runs in float.
    """

    levels: tuple[str, ...]
    wish: Wish | None
    work: float
    stores: Mapping[str, str]
    noise: Noise
    rounding: Noise
    weight_bits: int
    types: Mapping[str, PortTyped]
    follows: bool
    float_macs: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """All options of a model.

    Attributes:
      parts: of the outputs, evaluated one by one.
      signal: power of each.
      kernels: options by kernel, the first as planned without being asked.
      inputs: noise of rounding a model input, by its name and the storage.
      levels: their plans by name; "" is the plan without being asked.
      weights: numbers in constants.
    """

    parts: tuple[Part, ...]
    signal: Noise
    kernels: Mapping[str, tuple[Option, ...]]
    inputs: Mapping[str, Mapping[str, Noise]]
    levels: Mapping[str, Planned]
    weights: int

    @property
    def base(self) -> Planned:
        """The plan without being asked."""
        return self.levels[""]


Measure: TypeAlias = Callable[[Sequence[Choice]], OwnNoise]


def levels_of(model: Graph, target: Target, formats: Sequence[str] = ()) -> Mapping[str, Planned]:
    """Plans with one thing asked of all kernels that nobody asked anything of, by name of the level.

    A level that cannot be planned is left out, and one that changes nothing.

    Args:
      formats: that plans are to be written in, as `plan` takes them.
    """
    base = plan_model(model, target, formats=formats)
    found = {"": base}
    wishes = {str(wish): {"*": wish} for wish in _wishes(base, target)}
    if FLOAT in wishes:
        # Who reads constants alone is asked for nothing: a row with float results may store them.
        wishes[TABLES] = wishes[FLOAT] | dict.fromkeys(_of_constants(base), Wanted())
    for level, wanted in wishes.items():
        # In front of the user's own globs, so that those decide.
        asked = replace(model, wanted={**wanted, **model.wanted})
        try:
            plan = plan_model(asked, target, formats=formats)
        except PlannerError:
            continue
        if all(_types(plan) != _types(other) for other in found.values()):
            found[level] = plan
    return found


def _of_constants(plan: Plan) -> Iterator[str]:
    """Names of the kernels whose float operands are all constants: tables that indices pick from."""
    for kernel in plan.kernels_in_order:
        read = [port.value for port in kernel.inputs if port.value]
        if read and all(name in plan.graph.constants for name in read):
            yield kernel.name


def _types(plan: Planned) -> list[PortTyped]:
    return [port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]


def _wishes(plan: Planned, target: Target) -> Iterator[Wanted]:
    """Float, at run time, each storage that a row's results have, and rows that no storage names.

    A row that differs from an earlier one in signs alone gives nothing to choose: the same steps and the same
    work. Engines run it no faster (in onnxruntime, products that share an i8 activation run in float).
    """
    kinds = {kernel.kernel for kernel in plan.kernels_in_order}
    rows = [row for kind in sorted(kinds) for row in target.rows.get(kind, ())]
    seen: dict[Wanted, None] = {Wanted(float=True): None} if target.on_no_kernel == "float" else {}
    if any(row.is_dynamic_at_will for row in rows):
        seen[Wanted(dynamic=True)] = None
    unlike: dict[Hashable, Row] = {}
    for row in rows:
        if row.dynamic is None:
            unlike.setdefault(_without_signs(row), row)
    rows = [*unlike.values()]
    for row in rows:
        stores = {_result(port) for port in row.outputs}
        if len(stores) == 1 and None not in stores:
            seen[Wanted(result=stores.pop())] = None
    first: set[tuple[str, Any]] = set()
    for row in rows:
        key = (row.kernel, tuple(_result(port) for port in row.outputs))
        if key in first and not _is_wild(row):
            seen[Wanted(inputs=_stores(row.inputs), outputs=_stores(row.outputs))] = None
        first.add(key)
    yield from seen


def _without_signs(row: Row) -> Hashable:
    """What a search can choose a row for: rows of the same steps and the same means have it alike."""
    ports = (*row.inputs, *row.outputs)
    types = tuple(
        (replace(port.type, storage=None), port.optional, port.variadic, _reach(port.type)) for port in ports
    )
    means = (row.requantize, row.accumulator, row.overflow, row.float, row.work, row.runs_on)
    return row.kernel, types, str(row.when), str(row.axis), means


def _reach(kind: PortType) -> Hashable:
    """Steps that a storage has; where the zero point is fixed, its sign says which numbers it stores."""
    store = kind.storage
    if not isinstance(store, Storage) or store.float_name or kind.symmetric or kind.zero_point is not None:
        return store
    return store.qmax - store.qmin


def _result(port: PortPattern) -> Any:
    return port.type.storage


def _is_wild(row: Row) -> bool:
    return any(port.type.storage is None for port in (*row.inputs, *row.outputs))


def _stores(ports: Sequence[PortPattern]) -> tuple[Any, ...]:
    """Storages of ports that are always there."""
    return tuple(port.type.storage for port in ports if not port.optional and not port.variadic)


def table_of(model: Graph, levels: Mapping[str, Planned], measure: Measure) -> Table:
    """Measure the noise of every kernel once, and list the options.

    Args:
      model: what the levels were planned of.
      levels: of `levels_of`.
      measure: own noise of some choices on the samples.
    """
    plans = tuple(levels.values())
    choices = tuple({choice.name: choice for choice in choices_of(plan)} for plan in plans)
    # A kernel is measured in the first plan that stores something of it, and in the first of those that
    # quantize what it reads at run time.
    places = {way_of(one): at for at in reversed(range(len(plans))) for one in choices[at].values()}
    names = sorted(places, key=lambda way: (places[way], way))
    noise = measure([choices[places[way]][way[0]] for way in names])
    parts = tuple(part for part, power in noise.signal.items() if power > 0)
    # Where an infinity of the model saturates, its noise says nothing of what options do.
    whole = {
        way: tuple(powers[part] if math.isfinite(powers[part]) else 0.0 for part in parts)
        for way, powers in zip(names, noise.power, strict=True)
    }
    seen = _Measured(tuple(levels.items()), choices, places, whole, {}, (0.0,) * len(parts))
    seen = replace(seen, weights=_of_weights(seen, measure, parts))
    base = plans[0]
    # A border of a body that hands on what nothing reads is no kernel.
    regions = {region.name: region for region in base.fused.regions if region.name in base.kernels}
    asked = {name for name, region in regions.items() if asked_of(model, region) is not None}
    return Table(
        parts,
        tuple(noise.signal[part] for part in parts),
        {name: _options(seen, region, is_asked=name in asked) for name, region in regions.items()},
        {name: dict(_input(seen, name)) for name in base.graph.inputs if (name, False) in places},
        levels,
        _numbers(base),
    )


Way: TypeAlias = tuple[str, bool]
"""The name of a kernel or an input, and whether the activation is quantized at run time."""


def way_of(choice: Choice) -> Way:
    """How a choice is measured."""
    return choice.name, choice.row is not None


@dataclass(frozen=True, slots=True)
class _Measured:
    """Levels with the noise measured at them.

    Attributes:
      levels: name and plan of each.
      choices: of each level.
      places: the level at which a kernel or an input was measured, by how.
      whole: its noise there.
      weights: the part of its constants; missing ones count as 0.
      silent: no noise at all.
    """

    levels: tuple[tuple[str, Planned], ...]
    choices: tuple[Mapping[str, Choice], ...]
    places: Mapping[Way, int]
    whole: Mapping[Way, Noise]
    weights: Mapping[Way, Noise]
    silent: Noise

    def constants(self, name: str, at: int) -> Mapping[str, Uniform]:
        """Types of the constants of a kernel at a level."""
        return weights_of(self.choices[at][name], self.levels[at][1]).types

    def stored(self, name: str, at: int) -> Mapping[str, Uniform]:
        """Its other types there."""
        choice = activations_of(self.choices[at][name], self.levels[at][1])
        return {**choice.types, **choice.pins}

    def noise(self, name: str, at: int) -> tuple[Noise, Noise]:
        """Noise of its rounding, and of its weights, at a level."""
        if name not in self.choices[at]:
            return self.silent, self.silent
        way = way_of(self.choices[at][name])
        place, weight = self.places[way], self.weights.get(way, self.silent)
        rest = tuple(max(0.0, all_of - own) for all_of, own in zip(self.whole[way], weight, strict=True))
        return (
            _scaled(rest, _growth(self.stored(name, place), self.stored(name, at))),
            _scaled(weight, _growth(self.constants(name, place), self.constants(name, at))),
        )


def _of_weights(seen: _Measured, measure: Measure, parts: Sequence[Part]) -> Mapping[Way, Noise]:
    """Noise of the weights of the kernels whose noise matters at some level."""
    # Kernels that the first plan keeps in float, since they are ruined by integers, would hide all others.
    planned = [powers for way, powers in seen.whole.items() if seen.places[way] == 0]
    total = [math.fsum(column) for column in zip(*(planned or seen.whole.values()), strict=True)]
    found: dict[Way, Choice] = {}
    for way, powers in seen.whole.items():
        at = seen.places[way]
        choice = weights_of(seen.choices[at][way[0]], seen.levels[at][1])
        if choice.types:
            most = _coarsest(seen, way)
            if any(p * most > NEGLIGIBLE * t for p, t in zip(powers, total, strict=True)):
                found[way] = choice
    if not found:
        return {}
    measured = measure([*found.values()]).power
    return {
        way: tuple(min(powers[part], whole) for part, whole in zip(parts, seen.whole[way], strict=True))
        for way, powers in zip(found, measured, strict=True)
    }


def _coarsest(seen: _Measured, way: Way) -> float:
    """By how much the noise of a kernel's weights grows at most: at the level where they are coarsest."""
    name = way[0]
    measured = seen.constants(name, seen.places[way])
    levels = [
        at for at, choices in enumerate(seen.choices) if name in choices and way_of(choices[name]) == way
    ]
    return max(_growth(measured, seen.constants(name, at)) for at in levels)


def _options(seen: _Measured, region: Region, *, is_asked: bool) -> tuple[Option, ...]:
    """The different types that a kernel has at the levels; the first alone where the user asked."""
    base, found = seen.levels[0][1], dict[tuple[str, ...], Option]()
    for at, (level, plan) in enumerate(seen.levels[:1] if is_asked else seen.levels):
        kernel = _kernel_at(plan, base.kernels[region.name])
        if kernel is None:
            continue
        ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value]
        key = tuple(store_text(port.type) for port in ports)
        if key in found:
            found[key] = replace(found[key], levels=(*found[key].levels, level))
            continue
        follows = _follows(plan, region, kernel)
        wish = None if follows else _wish_of(plan, kernel, base.kernels[region.name])
        rounding, weight = seen.noise(region.name, at)
        found[key] = Option(
            (level,),
            None if wish is None else wanted_to_data(wish),
            kernel_work(kernel, region, plan.graph, plan.target),
            {port.value: text for port, text in zip(ports, key, strict=True)},
            tuple(map(sum, zip(rounding, weight, strict=True))),
            rounding,
            _weight_bits(kernel, plan.graph),
            {port.value: port.type for port in ports},
            follows,
            kernel_macs(kernel, region, plan.graph) if kernel.row is None else 0,
        )
    return tuple(found.values())


def _kernel_at(plan: Planned, before: KernelPlan) -> KernelPlan | None:
    """A kernel of the first plan at a level; None where that fuses its ops otherwise.

    In float it runs there, too, if only as a part of a block that the level keeps whole.
    """
    kernel = plan.kernels.get(before.name)
    if kernel is not None and _values(kernel) == _values(before):
        return kernel
    wish = plan.annotated.wanted.get("*")
    return kernel_in_float(before) if wish is not None and wish.float else None


def _values(kernel: KernelPlan) -> list[str]:
    return [port.value for port in (*kernel.inputs, *kernel.outputs)]


def _row_of(plan: Planned, kernel: KernelPlan) -> Row | None:
    return None if kernel.row is None else plan.target.rows[kernel.row]


def _follows(plan: Planned, region: Region, kernel: KernelPlan) -> bool:
    """Whether a kernel moves data by a row of any storage, so that nobody can ask it for one."""
    row = _row_of(plan, kernel)
    return row is not None and _is_wild(row) and all(is_movement(op, plan.fused) for op in region.ops)


def _wish_of(plan: Planned, kernel: KernelPlan, before: KernelPlan) -> Wanted | None:
    """What to ask a kernel for by name so that it has the types of a level; None: it has them unasked.

    A level may change a kernel for its neighbours' sake, to float or to a row of the other sign: no row need
    serve it as the level asks of all, so it is asked for what it has.
    """
    row, wish = _row_of(plan, kernel), plan.annotated.wanted.get("*")
    if wish is None:
        return None
    if row is not None and _is_wild(row):
        return wish if _has(wish, kernel) else None
    if kernel.row == before.row:
        return None
    if row is None:
        return Wanted(float=True)
    if row.dynamic is not None:
        return Wanted(dynamic=True)
    return wish if _has(wish, kernel) else Wanted(inputs=_stores(row.inputs), outputs=_stores(row.outputs))


def _has(wish: Wanted, kernel: KernelPlan) -> bool:
    """Whether a kernel stores what a level asks it to store."""
    results = wish.outputs if wish.result is None else (wish.result,) * len(kernel.outputs)
    return not (wish.float or wish.dynamic) and all(
        _is_stored(asked, port.type)
        for stores, ports in ((wish.inputs, kernel.inputs), (results, kernel.outputs))
        for asked, port in zip(stores, ports, strict=False)
        if port.value and asked is not None
    )


def _is_stored(asked: Storage | FloatType, kind: PortTyped) -> bool:
    if isinstance(asked, FloatType) or not isinstance(kind, Uniform):
        return isinstance(asked, FloatType) and not isinstance(kind, Uniform)
    return is_stored_in(asked, kind.storage)


def mean_weight_bits(plan: Plan) -> float:
    """Mean bits of a number in the constants of a plan; 0 without any."""
    bits = sum(_weight_bits(kernel, plan.graph) for kernel in plan.kernels_in_order)
    return bits / max(1, _numbers(plan))


def weight_bytes(plan: Plan) -> int:
    """Return the bytes of a plan's constants with their scales, each once for every type it is stored in."""
    graph = plan.graph
    ports = (port for kernel in plan.kernels_in_order for port in kernel.inputs)
    stored = {(port.value, port.type) for port in ports if port.value in graph.constants}
    return sum(_stored_bytes(graph.values[name], kind) for name, kind in stored)


def _stored_bytes(value: Value, kind: PortTyped) -> int:
    if not isinstance(kind, Uniform):
        return value.elements * NUMPY[value.dtype if kind is None else kind.name].itemsize
    zeros = len(kind.zero_points) if any(kind.zero_points) else 0
    return -(-(value.elements * kind.storage.bits + zeros * kind.storage.bits) // 8) + 4 * len(kind.scales)


def _numbers(plan: Plan) -> int:
    """Numbers in constants, counted wherever a kernel reads them."""
    ports = (port for kernel in plan.kernels_in_order for port in kernel.inputs)
    return sum(plan.graph.values[port.value].elements for port in ports if port.value in plan.graph.constants)


def _weight_bits(kernel: KernelPlan, graph: Graph) -> int:
    """Bits of the constants that a kernel reads; floats have 32."""
    return sum(
        graph.values[port.value].elements * (port.type.storage.bits if isinstance(port.type, Uniform) else 32)
        for port in kernel.inputs
        if port.value in graph.constants
    )


def store_text(kind: PortTyped) -> str:
    """`i8`, `i8<-127:127>`, or `float`."""
    return str(kind.storage) if isinstance(kind, Uniform) else FLOAT


def _growth(measured: Mapping[str, Uniform], here: Mapping[str, Uniform]) -> float:
    """By how much noise grows from some types to others: the mean square of the ratios of their steps."""
    ratios = [_step(here[key]) / _step(measured[key]) for key in measured if key in here]
    return math.fsum(ratio * ratio for ratio in ratios) / len(ratios) if ratios else 1.0


def _step(kind: Uniform) -> float:
    """Mean step of a type; of a float storage that of its finest numbers."""
    return math.fsum(kind.scales) / len(kind.scales)


def _scaled(noise: Noise, factor: float) -> Noise:
    return tuple(power * factor for power in noise)


def _input(seen: _Measured, name: str) -> Iterator[tuple[str, Noise]]:
    """Noise of rounding an input, by the storage it is rounded to."""
    for at, level in enumerate(seen.choices):
        if name in level:
            store = next(iter(seen.stored(name, at).values())).storage
            yield str(store), seen.noise(name, at)[0]
