"""Warnings: things a user of a plan should know although nothing is wrong: clips, facts without effect.

Written after labelling. Source: docs/specification.md, section 4 ("Unknown is not None") and section 5, item
3; tests/cases, cases 12 to 14.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from planner.errors import Conflict, quantity
from planner.ir.dims import left_open
from planner.ir.edges import RESCALE
from planner.ir.graph import Facts, Graph, Region, port_address
from planner.ir.inner_types import ineffective_facts
from planner.ir.topology import running
from planner.ir.types.intervals import Interval
from planner.ir.types.pinned_numbers import lies_on
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, Uniform
from planner.ir.types.typetext import brief
from planner.ops import of_form
from planner.ops.forms import Form
from planner.plans.records import KernelPlan, TargetRef
from planner.plans.rescales import SAME_SCALE
from planner.propagation.network.demotions import odd_constant
from planner.propagation.network.ports import FLOAT, Kernel, Port, Value, base_of, ports_of, present, range_in
from planner.propagation.parameters.accumulators import accumulator_bits
from planner.propagation.parameters.bias_grids import sum_of
from planner.propagation.parameters.typed import Typing
from planner.propagation.result.cache_warnings import requantized_caches
from planner.propagation.result.not_as_written import not_as_written
from planner.propagation.result.pin_warnings import (
    of_fewer_steps,
    of_multiplied,
    of_near_scales,
    of_replaced_pin,
)
from planner.propagation.result.unmet import unmet_globs
from planner.propagation.selection.choice import NO_RANGE, port_facts
from planner.propagation.selection.conflicts import Concession
from planner.propagation.solver.classes import width
from planner.target.ports.accepts import BIAS_LIMIT
from planner.target.ports.labels import clipped_share, label_of
from planner.target.records import Costs, Row, Target

ACCUMULATED: Final = "multiplier_accumulator_scale"
TURNING: Final = 0.02
"""Share of a result's step from which on the rounding of a bias is reported."""
BETWEEN: Final = 1e-3
"""Share of a step from which on a bound lies between two."""
KEEPING: Final = of_form(Form.CONCAT, Form.SELECT, Form.SUM, Form.VARIADIC)
"""Ops whose results hold what each operand adds or is."""


def clip_of(extent: Interval, kind: Uniform) -> float:
    """Share of a range that a type cuts off; slices are a fact's own and cut off nothing."""
    return clipped_share(extent, label_of(kind), kind.storage) if kind.is_per_tensor else 0.0


def warnings_of_all(
    graph: Graph,
    kernels: Sequence[KernelPlan],
    rows: Mapping[str, Row],
    costs: Costs,
    target: Target | TargetRef,
) -> tuple[str, ...]:
    """Return the warnings of the whole plan; `rows` are those in use, by key, `costs` those of the plan."""
    whole = (unranged(graph, kernels), _unmeasured(graph, costs), _unsized(graph, target))
    odd = (*_ineffective(graph), *unmet_globs(graph, kernels, rows), *requantized_caches(graph, kernels))
    return (*filter(None, whole), *odd, *not_as_written(graph, kernels, rows))


def _ineffective(graph: Graph) -> Iterator[str]:
    """Yield warnings of facts on values that no port carries."""
    for name, fact, why in ineffective_facts(graph):
        yield f"{brief(fact)} on {name!r} has no effect: {why}"
    alive = {region.name for region in running(graph)}
    for region in graph.regions if len(alive) < len(graph.regions) else ():
        for side, sides in (("in", region.input_facts), ("out", region.output_facts)):
            for i, facts in enumerate(sides if region.name not in alive else ()):
                for fact in facts:
                    address = port_address(region.name, side, i)
                    yield f"{brief(fact)} at {address} has no effect: no result of the kernel is used"


def _unmeasured(graph: Graph, costs: Costs) -> str | None:
    """Warn if a plan has a floor in dB, and no fact says what consumers lose."""
    facts = (fact for value in graph.values.values() for fact in value.facts)
    if costs.wanted_db is None or any(isinstance(fact, Calibrated) and fact.readers for fact in facts):
        return None
    return (
        f"wanted_db is {costs.wanted_db:g}, and no fact has the dB at consumers, so no row is "
        "rejected for it: calibrate with `readers` (`--readers`)"
    )


def _unsized(graph: Graph, target: Target | TargetRef) -> str | None:
    """Warn if inputs leave sizes open, and the device's compiler takes only fixed sizes."""
    if target.files.sizes != "fixed":
        return None
    opened, options = left_open(graph)
    if not opened:
        return None
    return (
        f"{target.id} takes files of fixed sizes alone, and these are open: {opened}; give them ({options}, "
        "or dims of load_model), or samples that agree in them"
    )


def unranged(graph: Graph, kernels: Iterable[KernelPlan]) -> str | None:
    """Warn of a model for which no fact gives a range, and whose kernels run in float for it."""
    at_ports = (side for region in graph.regions for side in (region.input_facts, region.output_facts))
    if any(map(_says_range, (value.facts for value in graph.values.values()))) or any(
        _says_range(facts) for side in at_ports for facts in side
    ):
        return None
    floats = sum(kernel.reason == NO_RANGE for kernel in kernels)
    if not floats:
        return None
    return (
        f"no ranges are known for the values of model {graph.name!r}, so {floats} "
        f"kernel{'s' * (floats > 1)} that the target has a row for run in float: calibrate the model on "
        "samples, or annotate ranges, and plan again"
    )


def _says_range(facts: Facts) -> bool:
    return any(isinstance(fact, Calibrated | Uniform | Bipolar) for fact in facts)


def warnings_of(network: Typing, kernel: Kernel, max_clip: float) -> list[str]:
    """Return the warnings of one kernel, port by port.

    Args:
      max_clip: the share of a range that a port cuts off without a word.
    """
    ports = ports_of(network, kernel)
    ports = [
        port for port in ports if network.types[port.id] is not None or _is_reported(network, kernel, port)
    ]
    found = [text for port in ports for text in _of_port(network, kernel, port)]
    found += [text for port in ports for text in _of_clip(network, kernel, port, max_clip)]
    found += _of_short_accumulator(network, kernel)
    found += [*_of_same_scale(network, kernel), *_of_lost_operand(network, kernel)]
    found += [*_of_rounded_bounds(network, kernel), *_of_rounded_bias(network, kernel)]
    return found + list(_of_odd_constant(network, kernel))


def _of_short_accumulator(network: Typing, kernel: Kernel) -> Iterator[str]:
    """Sums that may not fit an accumulator which does not refuse them."""
    row = kernel.choice.row
    if row is None or row.accumulator is None or row.overflow == "refuse":
        return
    bits, _ = accumulator_bits(network, kernel)
    if bits is not None and bits > row.accumulator.bits:
        does = "are saturated" if row.overflow == "saturate" else "wrap around"
        yield (
            f"sums of {kernel.choice.region.name!r} may need {quantity(bits, 'bit')}, and {does} "
            f"at {row.accumulator}"
        )


def _of_rounded_bounds(network: Typing, kernel: Kernel) -> Iterator[str]:
    """A clamp of fixed numbers whose bounds lie between two steps: its result has the nearest step."""
    if not kernel.moves or kernel.cut is None or kernel.choice.row is None:
        return
    made = [network.values[port.value].pin for port in present(network, kernel.outputs)]
    for port in present(network, kernel.inputs):
        pin, kind = network.values[port.value].pin, network.types[port.id]
        if pin is None or kind is None or not kind.is_per_tensor:
            continue
        if any(behind is not None and behind.scales == kind.scales for behind in made):
            continue  # the value behind is on that grid in the model, too
        for bound in kernel.cut:
            if not max(kind.lo, pin.lo) < bound < min(kind.hi, pin.hi):
                continue
            step = bound / kind.scale
            if abs(step - round(step)) > BETWEEN:
                name = network.values[port.value].name
                yield (
                    f"{kernel.choice.region.name!r} cuts {name!r} at {bound:g}, between two steps of "
                    f"{brief(kind)}: at {round(step) * kind.scale:g}"
                )


def _of_rounded_bias(network: Typing, kernel: Kernel) -> Iterator[str]:
    """A bias beside a weight of training that is rounded to steps as coarse as those of the result, nearly.

    A result turns by a step as often as the error is of its step. Weights that leave room in their storage
    have a finer grid for their bias's sake (`bias_grids`); those of few bits in as few have none.
    """
    row = kernel.choice.row
    rules = row.rules if row is not None and not kernel.moves else ()
    for rule in rules:
        found = sum_of(network, kernel, row, rule) if row and rule.kind == ACCUMULATED else None
        types = (network.types[port.id] for port in present(network, kernel.outputs))
        made = [kind for kind in types if kind is not None]
        if found is None or network.types[found.bias.id] is None or not made or not made[0].is_per_tensor:
            continue
        share = float(found.errors.max()) / made[0].scale
        if share > TURNING:
            region, name = kernel.choice.region.name, network.values[found.bias.value].name
            asked = ", ".join(["'*'"] * found.weight.side[1] + ["i8"])
            yield (
                f"{port_address(region, *found.bias.side)}: {name!r} is rounded by up to {share:.1%} of a "
                f"step of {brief(made[0])}, and as many of the results may be a step off: weights in more "
                f"bits than {found.kind.storage} leave room for a finer bias (annotations, kernels: "
                f"{{{region}: {{in: [{asked}]}}}})"
            )


def _of_lost_operand(network: Typing, kernel: Kernel) -> Iterator[str]:
    """A sum or a choice whose result has steps wider than all that an operand has to hold."""
    if kernel.choice.row is None or not any(op.type in KEEPING for op in kernel.choice.region.ops):
        return
    for made in present(network, kernel.outputs):
        kind = network.types[made.id]
        step = kind.scale if kind is not None and kind.is_per_tensor else 0.0
        for port in present(network, kernel.inputs):
            extent = network.required[port.id]
            if extent is not None and 0.0 < max(extent[1], 0.0) - min(extent[0], 0.0) < step:
                address = port_address(kernel.choice.region.name, *made.side)
                value = network.values[port.value].name
                held = f"{extent[0]:.3g} to {extent[1]:.3g}"
                yield f"{address} has steps of {step:.3g}, and {value!r} is {held}: it is lost there"


def _of_odd_constant(network: Typing, kernel: Kernel) -> Iterator[str]:
    """A kernel that computes with NaN or infinite weights, or runs in float for them."""
    region, row, reason = kernel.choice.region, kernel.choice.row, kernel.choice.reason
    held = row is not None and (kernel.moves or any(p in network.needed for p in kernel.inputs))
    odd = (
        ""
        if held or (row is None and not reason.startswith("constant "))
        else odd_constant(network.graph, region)
    )
    if odd:
        yield f"{region.name!r} {'runs in float: ' if row is None else 'takes it in float: '}{odd}"


def _is_reported(network: Typing, kernel: Kernel, port: Port) -> bool:
    """Whether there may be something to say of a port that is float: a fact asks for something else."""
    region, value = kernel.choice.region, network.values[port.value]
    facts = value.pin is not None or value.has_any or region.input_facts or region.output_facts
    return port.fixed is not None or bool(facts)


def _without_effect(graph: Graph, region: Region, port: Port) -> Facts:
    """Facts of a float port. A rescale that stays a kernel is between casts: its values are what they say."""
    side, index = port.side
    if region.kernel != RESCALE:
        return port_facts(graph, region, side, index)
    own = region.input_facts if side == "in" else region.output_facts
    return own[index] if own else ()


def _of_clip(network: Typing, kernel: Kernel, port: Port, max_clip: float) -> Iterator[str]:
    """A port that cannot hold what it needs on its type: the row fixes it, a rule or another port decided it.

    Labels within `max_clip` are taken where there are any; the greedy order, which it does not bind, rules
    that derive, and storages that hold no range of both signs leave none.
    """
    value, kind = network.values[port.value], network.types[port.id]
    if kind is None or (value.constant and network.groups[port.id] < 0):
        return
    # A fixed input keeps its own range and no more, so what it requires never clips: the value's range does.
    unread = port.fixed is not None and port.side[0] == "in" and value.pin is None
    extent = range_in(network, port.value, port.spec) if unread else network.required[port.id]
    share = clip_of(extent, kind) if extent is not None else 0.0
    if share > max_clip:
        address = port_address(kernel.choice.region.name, *port.side)
        verb = "is fixed to" if port.fixed else "is derived as" if network.is_derived(port) else "takes"
        yield f"{address} {verb} {brief(kind)} and clips {share:.1%} of {extent}"


def _of_port(network: Typing, kernel: Kernel, port: Port) -> Iterator[str]:
    region, value = kernel.choice.region, network.values[port.value]
    address = port_address(region.name, *port.side)
    if _runs_in_float(network, kernel, port):
        for fact in _without_effect(network.graph, region, port):
            if isinstance(fact, AnyType | Uniform) and not _holds_anyway(network, value, fact):
                yield f"{address} is float, so {brief(fact)} on {value.name!r} has no effect there"
    if value.constant and value.pin is not None and network.groups[port.id] >= 0 and port.pin is None:
        kind = network.types[port.id]
        if kind is not None and kind.scales != value.pin.scales:
            asked = brief(value.pin)
            yield f"{address} stores {value.name!r} as {brief(kind)}, as its class does, not as {asked}"
    if port.side[0] == "in" and not value.constant:
        yield from of_near_scales(network, port, address)
    if value.pin is not None and not value.constant:
        yield from of_multiplied(kernel, network.types[port.id], value, address)
        yield from of_fewer_steps(kernel, port, network.types[port.id], value, address)
        yield from of_replaced_pin(network, port, value, address)
    if value.constant:
        yield from _of_copies(network, port, address)
        yield from _of_long_bias(network, port, address)
    kind = network.types[port.id]
    if network.derives_bias and value.constant and network.is_derived(port) and kind is not None:
        for pin in (value.pin, port.pin):
            if pin not in (None, kind):
                yield f"{address}: {value.name!r} has the fixed type {brief(pin)}; derived: {brief(kind)}"
    if port.fixed is None:
        return
    if value.pin is not None and port.fixed not in (value.pin, base_of(network, value)):
        yield f"{address} is fixed to {port.fixed}, {value.name!r} has the fixed type {brief(value.pin)}"
    if port.pin is not None and port.pin != port.fixed:
        yield f"{address} is fixed to {port.fixed}, the port has the fixed type {brief(port.pin)}"


def _runs_in_float(network: Typing, kernel: Kernel, port: Port) -> bool:
    """Whether a port is float since its kernel has no row, or moves data between floats."""
    if kernel.choice.row is None:
        return port.kind == FLOAT
    return kernel.moves and all(network.types[other.id] is None for other in ports_of(network, kernel))


def _holds_anyway(network: Typing, value: Value, fact: AnyType | Uniform) -> bool:
    """Whether a float port reads or gives numbers of a type all the same: of a fixed type, or as they are.

    A width holds where a kernel that reads the value quantizes it by the range of each call.
    """
    if not value.constant and isinstance(fact, AnyType):
        return _is_read_at_run_time(network, value)
    if not value.constant:
        return fact == value.pin
    return isinstance(fact, Uniform) and lies_on(fact, network.graph.constants[value.name])


def _is_read_at_run_time(network: Typing, value: Value) -> bool:
    """Whether a kernel quantizes a value while it runs, as it is or behind data movement."""
    waiting, seen = [value], set[str]()
    while waiting:
        for p in waiting.pop().uses:
            port = network.ports[p]
            kernel = network.kernels[port.kernel]
            row = kernel.choice.row
            if row is not None and row.dynamic is not None and port.side == ("in", 0):
                return True
            behind = [network.values[one.value] for one in present(network, kernel.outputs)]
            for made in behind if kernel.moves else ():
                if made.name not in seen:
                    seen.add(made.name)
                    waiting.append(made)
    return False


def _of_copies(network: Typing, port: Port, address: str) -> Iterator[str]:
    """A constant that an earlier kernel wants in another type."""
    value, kind = network.values[port.value], network.types[port.id]
    if kind is not None and _stored_before(network, port) is not None:
        size = -(-value.elements * kind.storage.bits // 8)
        yield f"{address} stores {value.name!r} once more, as {brief(kind)}: {size} bytes"


def _stored_before(network: Typing, port: Port) -> Port | None:
    """The first port that has the same constant, where no earlier one has it in this port's type."""
    value = network.values[port.value]
    if network.types[port.id] is None or len(value.uses) < 2:
        return None
    others = [network.ports[p] for p in value.uses if p < port.id and network.types[p] is not None]
    return (
        others[0]
        if others and network.types[port.id] not in [network.types[other.id] for other in others]
        else None
    )


def refused_copies(network: Typing) -> Iterator[Conflict]:
    """Second copies of constants, where the target stores them once only."""
    target = network.target
    if target.duplicate_constants:
        return
    for port in network.ports:
        value = network.values[port.value]
        first = _stored_before(network, port) if value.constant else None
        if first is not None:
            regions = [network.kernels[one.kernel].choice.region for one in (first, port)]
            yield Conflict(
                f"{value.name!r} would be stored twice, and {target.id} stores a constant once",
                facts=(
                    f"port {port_address(regions[0].name, *first.side)}: {brief(network.types[first.id])}",
                    f"port {port_address(regions[1].name, *port.side)}: {brief(network.types[port.id])}",
                    f"{target.file}: defaults: duplicate_constants: false",
                ),
                hint="give the constant one type that both rows take",
                concession=Concession(copies=True),
                about=value.name,
            )


def _of_long_bias(network: Typing, port: Port, address: str) -> Iterator[str]:
    """A bias that leaves the sums it is added to no bit (tests/cases, case 22)."""
    value = network.values[port.value]
    kind = network.types[port.id]
    if not network.is_derived(port) or kind is None or kind.storage.bits != 32:
        return
    array = network.graph.constants[value.name].array
    if array is None or not array.size:
        return
    steps = np.abs(array.reshape(-1).astype(np.float64)) / np.asarray(kind.scales)
    channel = int(np.argmax(steps))
    if steps[channel] > BIAS_LIMIT * (1 + SAME_SCALE):
        yield f"{address}: channel {channel} of {value.name!r} takes {steps[channel]:.4g} of 2^31 steps"


def _of_same_scale(network: Typing, kernel: Kernel) -> Iterator[str]:
    """A kernel that computes on one scale wastes it where its result is much smaller than what it reads."""
    if kernel.moves:
        return
    for made in present(network, kernel.outputs):
        group = network.groups[made.id]
        extent = network.ranges[made.value] if group >= 0 else None
        if extent is None:
            continue
        read = [port for port in present(network, kernel.inputs) if network.groups[port.id] == group]
        widths = [width(network.ranges[port.value]) for port in read]
        if widths and 2 * width(extent) < max(widths):
            yield (
                f"{port_address(kernel.choice.region.name, *made.side)} shares the scale of its input, "
                f"{max(widths):g} wide, and is itself {width(extent):g} wide"
            )
