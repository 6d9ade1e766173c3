"""Value ranges: the range of every value, what its uses keep of it, and so what every port has to hold.

Two passes, forward (ranges) and backward (kept), over kernels in topological order; then each port's
required range is its value's range cut to what is kept. Clipping what nobody keeps is free; a state that a
recurrent kernel hands to its own next step is kept, whether or not anything else reads it. If calibration
chose a range for a width, a port of that width holds this one (`Ranged.by_width`); data movement hands it on.
Source: docs/specification.md, section 5, the price, item 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from planner.ir.operators.movement import finite_range, reads_infinity, tells_places
from planner.ir.roles import moves_alone
from planner.ir.types.intervals import ALL, Interval, cut_to, hull
from planner.ir.types.qtypes import Storage
from planner.ir.types.ranges import NO_WIDTHS, cutting, range_of_type, ranges_by_width, within_types
from planner.propagation.network.build import build_network
from planner.propagation.network.constant_ranges import constant_range
from planner.propagation.network.needed_ranges import asks, needs_of
from planner.propagation.network.ports import (
    FLOAT,
    GIVEN,
    Kernel,
    Network,
    Port,
    Ranged,
    Value,
    present,
    range_in,
)
from planner.propagation.selection.chosen import Chosen
from planner.propagation.selection.row_layout import has_numbers


@dataclass(slots=True)
class _Passes:
    """The results of the passes so far: `network` has the lists that they fill in.

    Attributes:
      unfixed: of each value, its range without the cut of its fixed type.
      kept: of each value, what its uses keep.
      given: of each value, what of it its kernel has to give.
      carried: ranges that a trip of a loop hands to the next, by the kernel where the trip begins.
      visits: kernels looked at in each pass.
      asked: what the uses behind either end of a carried value keep, by the kernels at its ends.
    """

    network: Ranged
    ranges: list[Interval | None]
    by_width: list[Mapping[int, Interval]]
    saturated: set[int]
    required: list[Interval | None]
    needed: dict[int, Interval]
    unfixed: list[Interval | None]
    kept: list[Interval | None]
    given: list[Interval | None]
    visits: list[int]
    carried: dict[int, Interval | None] = field(default_factory=dict)
    asked: dict[int, Interval | None] = field(default_factory=dict)


def give_ranges(chosen: Chosen) -> Ranged:
    """Number the ports of the chosen rows, and give each the range that it has to hold.

    Nothing else builds the network.
    """
    return find_ranges(build_network(chosen))


def find_ranges(network: Network) -> Ranged:
    """The network with the range of every value, and what every port has to hold of it."""
    count = len(network.values)
    ranges: list[Interval | None] = [None] * count
    required: list[Interval | None] = [None] * len(network.ports)
    by_width, saturated, needed = [NO_WIDTHS] * count, set[int](), dict[int, Interval]()
    rangeless = list[int]()
    own = {each.name: getattr(network, each.name) for each in fields(Network)}
    found = Ranged(
        **own,
        ranges=ranges,
        by_width=by_width,
        saturated=saturated,
        required=required,
        needed=needed,
        rangeless=rangeless,
    )
    state = _Passes(
        found,
        ranges,
        by_width,
        saturated,
        required,
        needed,
        [None] * count,
        [None] * count,
        [None] * count,
        [],
    )
    rangeless += _forward(state)
    _backward(state)
    return replace(found, visits=network.visits + sum(state.visits))


def _finite(state: _Passes, index: int) -> Interval | None:
    """The range that integers may represent of a constant with infinities; None where there is none."""
    network = state.network
    value = network.values[index]
    array = network.graph.constants[value.name].array
    if array is None:
        return None
    kernels = [network.kernels[network.ports[p].kernel] for p in value.uses]
    found, saturates = finite_range(array, [(kernel.choice.region, kernel.moves) for kernel in kernels])
    if saturates:
        state.saturated.add(index)
    return found


def _forward(state: _Passes) -> list[int]:
    """Fill in every value's range; return the kernels that have a row and a port without any range.

    The range that a loop hands to its next trip is known only behind its body, so loops take several passes;
    such ranges come from ranges written somewhere, so the passes end.
    """
    rangeless, begins = _pass_forward(state), state.network.begins
    for _ in range(2 * len(begins)):
        if not _hand_on(state):
            break
        rangeless = _pass_forward(state)
    gone = set(rangeless)
    pairs = begins.items()
    return sorted(gone | {end for end, begin in pairs if begin in gone} | {b for e, b in pairs if e in gone})


def _hand_on(state: _Passes) -> bool:
    """Tell the first kernel of each carried value what the last hands to the next trip; whether it is new."""
    network, new = state.network, False
    for end, begin in network.begins.items():
        read = [port.value for port in present(network, network.kernels[end].inputs)]
        carried = hull([state.ranges[v] for v in read])
        new |= state.carried.get(begin) != carried
        state.carried[begin] = carried
    return new


def _pass_forward(state: _Passes) -> list[int]:
    network = state.network
    for number, value in enumerate(network.values):
        if value.definition < 0:
            state.unfixed[number] = value.calibrated
            extent = within_types(value.calibrated, value.pin)
            tensor = network.graph.values[value.name]
            if 0 in (tensor.shape or ()) and extent is None:
                extent = (0.0, 0.0)
            if value.constant and extent is None and tensor.is_float and _counts(network, value):
                extent = constant_range(network.graph.constants[value.name]) or _finite(state, number)
            state.ranges[number] = extent
            state.by_width[number] = ranges_by_width(extent, value.by_width, NO_WIDTHS)
    rangeless = []
    state.visits.append(len(network.kernels))
    for index, kernel in enumerate(network.kernels):
        _write(state, index, kernel, moves=kernel.moves, served=True)
        if kernel.choice.row is not None and _lacks_range(network, kernel):
            rangeless.append(index)
            # What follows sees it in float at once, so that one pass finds all of them.
            alone = moves_alone(network.graph, kernel.choice.region)
            _write(state, index, kernel, moves=alone, served=False)
    return rangeless


def _counts(network: Network, value: Value) -> bool:
    """Whether a constant's range has a say: a kernel with a row, or one that moves data, reads it."""
    readers = (network.kernels[network.ports[p].kernel] for p in value.uses)
    return any(kernel.choice.row is not None or kernel.moves for kernel in readers)


def _write(state: _Passes, number: int, kernel: Kernel, *, moves: bool, served: bool) -> None:
    """Fill in the ranges of a kernel's results; `served`: with the types that its row fixes."""
    network = state.network
    moved = _moved(state, number, kernel, served=served) if moves else None
    moved_by_width = _moved_by_width(state, number, kernel) if moves else {}
    for p in kernel.outputs:
        if p < 0:
            continue
        port = network.ports[p]
        value = network.values[port.value]
        unfixed = value.calibrated
        if moved is not None:
            unfixed = moved if unfixed is None else cut_to(unfixed, moved)
        extent = within_types(unfixed, value.pin, (port.fixed if served else None) or port.pin)
        state.unfixed[port.value], state.ranges[port.value] = unfixed, extent
        state.by_width[port.value] = ranges_by_width(extent, value.by_width, moved_by_width)


def _backward(state: _Passes) -> None:
    """Fill in what each value's uses keep, and each port's required range."""
    network = state.network
    kept_by = _pass_backward(state)
    for _ in range(2 * len(network.begins)):
        if not _ask_for(state):
            break
        kept_by = _pass_backward(state)
    for port in network.ports:
        kept = state.kept[port.value] if port.side[0] == "out" else kept_by.get(port.id, ALL)
        extent = range_in(network, port.value, port.spec)
        if extent is not None:
            state.required[port.id] = cut_to(extent, kept) if kept is not None else (0.0, 0.0)


def _pass_backward(state: _Passes) -> dict[int, Interval | None]:
    """One pass over what uses keep, by input port."""
    network = state.network
    ports, ranges = network.ports, state.ranges
    state.visits.append(len(network.kernels))
    kept_by: dict[int, Interval | None] = {}
    for number in range(len(network.kernels) - 1, -1, -1):
        kernel = network.kernels[number]
        for p in kernel.outputs:
            if p >= 0:
                _keep(state, kernel, ports[p], kept_by)
        asked = state.asked.get(number) if state.asked else None
        moved = [state.kept[ports[p].value] for p in kernel.outputs if p >= 0] if kernel.moves else []
        through = hull([*moved, asked] if asked else moved)
        if kernel.moves and tells_places(network.graph, kernel.choice.region):
            through = ALL
        needs = (
            needs_of(network, kernel, state.given)
            if not kernel.moves and asks(network, kernel, state.given)
            else {}
        )
        for p in kernel.inputs:
            if p < 0:
                continue
            port = ports[p]
            fixed = port.fixed or port.pin
            if fixed is not None:
                kept_by[p] = range_of_type(fixed, ranges[port.value])
            elif kernel.moves:
                kept_by[p] = cut_to(through, kernel.cut) if through and kernel.cut else through
            else:
                name = network.values[port.value].name
                needed = cutting(needs.get(name), ranges[port.value]) if needs else None
                if needed:
                    state.needed[p] = needed
                elif state.needed:
                    state.needed.pop(p, None)
                kept_by[p] = needed or ALL
    return kept_by


def _ask_for(state: _Passes) -> bool:
    """Tell both ends of each carried value what the uses behind the other keep; whether it is new."""
    network, new = state.network, False
    for pair in network.begins.items():
        results = [port.value for k in pair for port in present(network, network.kernels[k].outputs)]
        asked = hull(state.kept[v] for v in results)
        for k in pair:
            new |= state.asked.get(k) != asked
            state.asked[k] = asked
    return new


def _moved(
    state: _Passes, number: int, kernel: Kernel, bits: int = 0, *, served: bool = True
) -> Interval | None:
    """Hull of the inputs of data movement, as far as ports of `bits` bits hold them, without unknown inputs.

    Of a value without a range a port with a type of its own reads what that holds.
    """
    extents = []
    for port in present(state.network, kernel.inputs):
        own = port.fixed or port.pin
        extent = state.by_width[port.value].get(bits, state.ranges[port.value])
        if extent is None and own is not None and served and kernel.choice.row is not None:
            extent = (own.lo, own.hi)
        extents.append(extent)
    carried = state.carried.get(number) if state.carried else None
    extent = hull([*extents, carried] if carried else extents)
    return cut_to(extent, kernel.cut) if extent and kernel.cut else extent


def _moved_by_width(state: _Passes, number: int, kernel: Kernel) -> Mapping[int, Interval]:
    """The same for each width that a range was chosen for."""
    widths = {bits for port in present(state.network, kernel.inputs) for bits in state.by_width[port.value]}
    found = {bits: _moved(state, number, kernel, bits) for bits in widths}
    return {bits: extent for bits, extent in found.items() if extent is not None}


def _lacks_range(network: Ranged, kernel: Kernel) -> bool:
    layout = kernel.choice.layout
    sums = layout.sums if layout is not None else frozenset()
    for p in (*kernel.inputs, *kernel.outputs):
        if p < 0:
            continue
        port = network.ports[p]
        fixed, known = port.fixed or port.pin, network.ranges[port.value] is not None
        if port.kind in (FLOAT, GIVEN) or fixed is not None or known or port.value in network.saturated:
            continue
        if port.side not in sums or has_numbers(network.graph, network.values[port.value].name):
            return True
    return False


def _keep(state: _Passes, kernel: Kernel, port: Port, kept_by: dict[int, Interval | None]) -> None:
    """Fill in what the uses of a result keep of it, and what its kernel has to give.

    A result that is computed and stored saturates at the ends of its own range, whether or not a fact fixes
    its type, so the operands of its kernel need no more than that, and no more than its uses keep.
    """
    network, value = state.network, state.network.values[port.value]
    extent = hull([*(kept_by.get(p) for p in value.uses), *(ALL for _ in value.outputs)])
    own = None if value.pin is None else range_of_type(value.pin, state.unfixed[port.value])
    kept = given = extent
    if extent is None:
        kept = given = (own or ALL) if _is_state(kernel, port.name) else None
    else:
        if own is not None:
            kept = given = cut_to(own, extent) if kernel.moves else own
        stored = None if kernel.moves or _masks(network, kernel) else _stored_part(network, port)
        if stored is not None:
            kept = cut_to(stored, extent) if own is None else own
            given = cut_to(stored, extent)
    state.kept[port.value], state.given[port.value] = kept, given


def _masks(network: Ranged, kernel: Kernel) -> bool:
    extents = (network.ranges[port.value] for port in present(network, kernel.inputs))
    return reads_infinity(kernel.choice.region, extents)


def _stored_part(network: Ranged, port: Port) -> Interval | None:
    """The range at whose ends a stored result saturates; None where it is not stored or has no range."""
    store = port.spec.storage
    stored = port.kind != FLOAT and isinstance(store, Storage) and not store.float_name
    return range_in(network, port.value, port.spec) if stored else None


def _is_state(kernel: Kernel, port: str) -> bool:
    """Whether a kernel that computes reads this result itself at its next step: its row joins them."""
    row = kernel.choice.row
    if row is None or kernel.moves:
        return False
    read = {pattern.name for pattern in row.inputs}
    joined = (rule.args["ports"] for rule in row.rules if rule.kind == "same_scale")
    return any(port in names and not read.isdisjoint(names) for names in joined)
