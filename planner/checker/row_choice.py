"""Re-verify the choice of a row independently: no other row that fits a kernel is to be preferred.

Those that hold what facts say of ranges, then most pins met, then enough dB at readers, then first in the
file, less the rows that the log says could not be kept: of those it is computed again, at the types that the
log names, that they cannot. Needs the target and the model's numbers. Source: design 01, section 4.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.checker.asked import asked_of, has_asked
from planner.checker.figures.sums import needed_bits, partial_bits
from planner.checker.kernel_ports import (
    Served,
    axis_of,
    holds_signs,
    linear_op,
    own_facts,
    parameter_problem,
    refuse,
    short_block_problem,
)
from planner.checker.numbers import Extent, extent_of
from planner.checker.pins import bearable
from planner.checker.predicates import broken_predicate
from planner.checker.row_reading import Reading, gives_floats, read_row
from planner.checker.too_little import NOTHING_HOLDS, left_at_readers
from planner.checker.weights import own_type, sparsity_problem
from planner.errors import PlannerError
from planner.ir.graph import Constant
from planner.ir.mapped import let_go
from planner.ir.roles import function_of_one, is_product_of_rows
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, QType, Storage, Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.records import Port
from planner.target.borders import rows_for
from planner.target.expressions import parse_number
from planner.target.records import Costs, Engines, PortPattern, Row, Target

Merit: TypeAlias = tuple[bool, bool, int, int, float]
"""Whether a row was asked for, whether it holds what facts say of ranges, pins of its storages, those of them
at their scales and zero points, and the dB that it leaves at readers: infinite where that is enough."""

UNIFORM: Final = r"!quant\.uniform<(?:[^<>]|<[^<>]*>)*>"
SEEN: Final = re.compile(rf"\b(in|out)\[(\d+)\] ({UNIFORM})")
CAME: Final = re.compile(rf"\bin\[(\d+)\] {UNIFORM}, from ({UNIFORM})")
BEHIND: Final = re.compile(r"it lies behind '.*', which runs on ([\w.-]+)")
PARTIAL: Final = re.compile(r"sums of (\d+) products need (\d+) bits")
SUMS: Final = re.compile(r"its sums need (\d+) bits")
MULTIPLIER: Final = re.compile(r"the multiplier of channel (\d+) is ")
NARROW: Final = 16
BEYOND: Final = 2.0**29
"""The least factor that no multiplier of 32 bits and a shift of 2 or more stands for."""
OWN: Final = re.compile(r"(\d+)-bit multiplier.*, shift (\d+)\.\.(\d+)(, else 0)?")
"""The arithmetic of a row with multipliers of its own."""


def check_choice(
    served: Served,
    target: Target,
    binding: frozenset[str],
    left: Mapping[str, str],
    short: Sequence[tuple[str, str]] = (),
) -> None:
    """No other row of the target that fits holds more, meets more pins, or as many and stands earlier.

    Rows with float results are judged among themselves, and the others too: which sort serves depends on the
    readers (`figures.float_results`).

    Args:
      binding: values with facts that a port can break.
      left: why rows could not be kept, by key, as the log says.
      short: rows that hold too little, by key, and why, as the log says.
    """
    sort = gives_floats(served.row)
    rows = [row for row in rows_for(target, served.kernel.kernel) if gives_floats(row) == sort]
    free = _is_free(served, binding)
    # Without facts no row meets a pin, so the first that fits wins, and the first of all needs no search.
    costs = target.costs
    is_first = bool(rows) and rows[0] == served.row and free and _holds_ranges(served, costs.max_clip)
    if not rows or (is_first and not short and left_at_readers(served, costs.wanted_db)[0] == math.inf):
        return
    fit = [(merit, row) for row in rows if row.key not in left and (merit := merit_of(served, row, costs))]
    if not fit:
        return
    # The first of equal ones: the order of the file breaks ties.
    best = max(fit, key=lambda entry: entry[0])
    if best[1] != served.row:
        refuse(
            served.kernel.name,
            f"is served by {served.row.source}, {best[1].source} {_why(served, best[0], costs)}; "
            f"accepted: {best[1].key}",
            served.row,
        )
    _check_short(served, fit, best, costs, short)
    if best[0][-1] < math.inf and costs.wanted_float and free and target.on_no_kernel == "float":
        refuse(
            served.kernel.name, f"is served by {served.row.source}, and no row holds enough; accepted: float"
        )


def _is_free(served: Served, binding: frozenset[str]) -> bool:
    """Whether nothing but ranges has a say in a kernel's row."""
    region = served.region
    plain = not region.input_facts and not region.output_facts
    return (
        plain
        and asked_of(served.graph, region) is None
        and binding.isdisjoint(port.value for port in served.ports)
    )


def _why(served: Served, merit: Merit, costs: Costs) -> str:
    """Why a row is to be preferred to the one that serves a kernel."""
    asked = asked_of(served.graph, served.region)
    is_asked, _, met, as_they_are, db = merit
    if asked is not None and is_asked and not has_asked(served, asked.wanted):
        return f"fits and is {asked.wanted}, as {asked.key!r} asks"
    if not _holds_ranges(served, costs.max_clip):
        return "fits and holds its ranges"
    least, told = left_at_readers(served, costs.wanted_db)
    own = merit_of(served, served.row, costs)
    if own is not None and own[:-1] == merit[:-1] and least < db:
        return f"fits and holds more: {told}"
    if own is not None and own[:3] == merit[:3] and own[3] < as_they_are:
        return f"fits and takes {as_they_are} pins as they are"
    return f"fits and meets {met} pins" if met else "fits and comes first"


def _check_short(
    served: Served,
    fit: Sequence[tuple[Merit, Row]],
    best: tuple[Merit, Row],
    costs: Costs,
    told: Sequence[tuple[str, str]],
) -> None:
    """The log tells of the rows that would come before the one that serves, held they enough."""
    at = [row for _, row in fit].index(best[1])
    wanted: list[tuple[str, str]] = []
    for k, (merit, row) in enumerate(fit):
        reading = read_row(row, served.region)
        comes_before = merit[:-1] > best[0][:-1] or (merit[:-1] == best[0][:-1] and k <= at)
        if merit[-1] < math.inf and comes_before and not isinstance(reading, str):
            why = left_at_readers(replace(served, reading=reading), costs.wanted_db)[1]
            wanted.append((row.key, why))
    if [*told] != wanted:
        shown = "; ".join(f"{key}: {why}" for key, why in wanted) or "none"
        refuse(
            served.kernel.name,
            f"is said to have {len(told)} rows that hold too little, which is not so; accepted: {shown}",
            served.row,
        )


def check_float_for_little(
    served: Served, target: Target, binding: frozenset[str], left: Mapping[str, str]
) -> None:
    """A kernel that runs in float as no row holds enough: none does, nothing else has a say, and it says so.

    Args:
      served: the kernel beside any row.
    """
    costs, kernel = target.costs, served.kernel
    rows = [row for row in rows_for(target, kernel.kernel) if row.key not in left]
    fit = [(merit, row) for row in rows if (merit := merit_of(served, row, costs))]
    stored = [entry for entry in fit if not gives_floats(entry[1])] or fit
    best = max(stored, key=lambda entry: entry[0], default=None)
    lawful = costs.wanted_float and _is_free(served, binding) and target.on_no_kernel == "float"
    if best is None or best[0][-1] == math.inf or not lawful:
        accepted = "a row" if best is None else best[1].key
        refuse(kernel.name, f"runs in float ({kernel.reason}), which is not so; accepted: {accepted}")
    whys = []
    for _, row in fit:
        reading = read_row(row, served.region)
        if not isinstance(reading, str):
            db, why = left_at_readers(replace(served, reading=reading), costs.wanted_db)
            whys += [f"{row.source}: {why}"] if db < math.inf else []
    reason = NOTHING_HOLDS + "; ".join(whys)
    if kernel.reason != reason:
        refuse(kernel.name, f"runs in float ({kernel.reason}); accepted: {reason!r}")


def check_none_asked(served: Served, target: Target) -> None:
    """No row of a kernel that runs in float has what was asked of it.

    Args:
      served: the kernel beside any row.
    """
    for row in rows_for(target, served.kernel.kernel):
        merit = merit_of(served, row, target.costs)
        if merit is not None and merit[0]:
            reason = served.kernel.reason
            refuse(served.kernel.name, f"runs in float ({reason}), {row.source} is asked for; accepted: it")


def check_left(served: Served, target: Target, left: Mapping[str, str], behind: int = 0) -> None:
    """Every row that a kernel is said to have left is one of its own, fits it, and cannot be kept.

    Args:
      served: the kernel beside any row.
      left: as for `check_choice`.
      behind: number of the latest engine on the way to the kernel.
    """
    known = {row.key: row for row in rows_for(target, served.kernel.kernel)}
    for key, why in left.items():
        row = known.get(key)
        if row is None or merit_of(served, row, target.costs) is None:
            refuse(served.kernel.name, f"is said to have left {key!r}, which is no row that fits it")
        if not (_comes_back(row, target.engines, why, behind) or _cannot_be_kept(served, row, why)):
            refuse(
                served.kernel.name,
                f"is said to have left {row.source} as {why!r}, which is not so; accepted: what holds of it",
                row,
            )


def _comes_back(row: Row, engines: Engines, why: str, behind: int) -> bool:
    """Whether a row was left as data would come back to its engine from the one that is said."""
    said = BEHIND.match(why)
    if said is None or not engines.one_way or said.group(1) not in engines.names:
        return False
    return engines.names.index(engines.of(row)) < engines.names.index(said.group(1)) <= behind


def _cannot_be_kept(served: Served, row: Row, why: str) -> bool:
    """Whether what is said of a row holds at the types that are said of its ports."""
    reading = read_row(row, served.region)
    if isinstance(reading, str):
        return False
    try:
        kinds = {(side, int(at)): parse_type(text) for side, at, text in SEEN.findall(why)}
    except PlannerError:
        return False
    other = _at_types(replace(served, reading=reading), kinds)
    if other is None:
        return False
    for i, port in enumerate(other.ports):
        # Constants as their numbers, or pins, have them, where no need of the kernel cut them.
        told = ("in", i) in kinds
        if (
            port.value in other.graph.constants
            and reading.patterns[i].name not in reading.biases
            and not told
        ):
            own = own_type(other, i)
            ports = (*other.ports[:i], replace(port, type=own), *other.ports[i + 1 :])
            other = replace(other, ports=ports)
    said = PARTIAL.match(why)
    if said is not None:
        return _partial_sums_are_too_long(other, int(said.group(1)), int(said.group(2)))
    said = SUMS.match(why)
    if said is not None:
        return _sums_are_too_long(other, int(said.group(1)))
    said = MULTIPLIER.match(why)
    if said is not None:
        return _multiplier_is_outside(other, int(said.group(1)))
    if why.startswith("channel "):
        return _bias_is_too_long(other)
    return _is_too_far(other) or _came_from_too_far(other, why)


def _at_types(served: Served, kinds: Mapping[tuple[str, int], QType]) -> Served | None:
    """The kernel with ports of these types, of a bias its storage alone; None where one is not the row's."""
    ports = []
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        read = len(served.kernel.inputs)
        seen = kinds.get(("in", i) if i < read else ("out", i - read))
        kind, store = seen if isinstance(seen, Uniform) else None, pattern.type.storage
        if kind is not None and isinstance(store, Storage) and kind.storage != store:
            return None
        if kind is not None and parameter_problem(kind, pattern.type):
            return None
        told = not port.value or port.value in served.graph.constants or kind is not None
        if not told and isinstance(store, Storage) and pattern.type.granularity == "tensor":
            return None
        if pattern.name in served.reading.biases and isinstance(store, Storage) and port.value:
            kind = Uniform(store, (1.0,), (0,))
        ports.append(replace(port, type=kind))
    return replace(served, ports=tuple(ports))


def _sums_are_too_long(served: Served, claimed: int) -> bool:
    """Whether sums need the bits that are claimed, but for one that rounding decides, and have fewer."""
    extents: dict[int, Extent] = {}
    ports = tuple(_with_product(served, i) for i in range(len(served.ports)))
    served = replace(served, ports=ports)
    for i, port in enumerate(ports):
        if port.value in served.graph.constants and isinstance(port.type, Uniform):
            extent = extent_of(served, i, port.type, served.numbers[port.value])
            extents |= {} if extent is None else {i: extent}
    needed, room = needed_bits(served, extents), served.row.accumulator
    # Weights per block and sizes that are not known cannot be told again.
    return room is not None and claimed > room.bits and (needed is None or claimed <= needed + 1)


def _partial_sums_are_too_long(served: Served, products: int, claimed: int) -> bool:
    """Whether sums of so many products need the bits that are claimed, and their storage has fewer."""
    partial = served.row.partial
    if partial is None or partial.products != products or claimed <= partial.storage.bits:
        return False
    needed = partial_bits(served, products)
    return needed is None or claimed <= needed + 1


def _with_product(served: Served, i: int) -> Port:
    """A port, a bias with the product of its factors' scales."""
    port, pattern = served.ports[i], served.patterns[i]
    rule = next((r for r in served.row.rules if r.args.get("port") == pattern.name), None)
    if rule is None or not isinstance(port.type, Uniform) or pattern.name not in served.reading.biases:
        return port
    product = _product(served, rule.args["of"])
    if product is None:
        return port
    scales, zeros = tuple(product.astype(np.float32).astype(float).tolist()), (0,) * product.size
    return replace(port, type=Uniform(port.type.storage, scales, zeros, axis=0 if product.size > 1 else None))


def _product(served: Served, names: tuple[str, ...]) -> np.ndarray | None:
    """The product of the scales of ports, one or per channel; None where one has none or one per block."""
    product = np.ones(1)
    for name in names:
        for port in served.named(name):
            if not isinstance(port.type, Uniform) or port.type.blocks:
                return None
            product = product * np.asarray(port.type.scales)
    return product


def _multiplier_is_outside(served: Served, channel: int) -> bool:
    """Whether a range of the row leaves the multiplier of a channel out, but for rounding."""
    for rule in served.row.rules:
        made = [port.type for port in served.named(str(rule.args.get("out")))]
        if rule.kind != "multiplier_scale" or rule.args.get("range") is None or not made:
            continue
        product = _product(served, rule.args["of"])
        if product is None or not isinstance(made[0], Uniform):
            return True
        low, high = (float(parse_number(limit)) for limit in rule.args["range"])
        multipliers = product / np.asarray(made[0].scales)
        if channel < multipliers.size and not low * 1.001 < multipliers[channel] < high * 0.999:
            return True
    return False


def _bias_is_too_long(served: Served) -> bool:
    """Whether a bias has a channel beyond its storage."""
    for i, port in enumerate(served.ports):
        kind, numbers = _with_product(served, i).type, served.numbers.get(port.value)
        if served.patterns[i].name not in served.reading.biases or numbers is None or numbers.array is None:
            continue
        if isinstance(kind, Uniform) and numbers.array.size:
            steps = np.abs(numbers.array.reshape(-1).astype(np.float64)) / np.asarray(kind.scales)
            if steps.max() > kind.storage.qmax * 0.999:
                return True
    return False


def _came_from_too_far(served: Served, why: str) -> bool:
    """Whether a rescale in front of the kernel is beyond multiples of the port's type."""
    for at, text in CAME.findall(why):
        came, kind = parse_type(text), served.ports[int(at)].type
        if not (isinstance(came, Uniform) and isinstance(kind, Uniform)):
            continue
        if _is_off(served.row, max(came.scales) / min(kind.scales)):
            return True
    return False


def _is_off(row: Row, factor: float) -> bool:
    """Whether a factor is, but for rounding, beyond the multipliers of a row, or all of it shifted out."""
    own = OWN.fullmatch(row.requantize)
    if own is None:
        return factor >= BEYOND * 0.999
    bits, least, most = map(int, own.groups()[:3])
    shortest = 2.0 ** (bits - 2 - most if own[4] else -most)
    return factor >= 2.0 ** (bits - 1 - least) * 0.999 or factor < shortest * 1.001


def _is_too_far(served: Served) -> bool:
    """Whether the coarsest operand, or the product of those multiplied, is beyond multiples of the result."""
    rules = [rule for rule in served.row.rules if rule.kind == "multiplier_scale"]
    factors = {name for rule in rules for name in rule.args["of"]}
    coarsest, finest, product = 0.0, np.inf, 1.0 if factors else 0.0
    for i, port in enumerate(served.ports):
        kind = port.type
        if not isinstance(kind, Uniform) or kind.storage.bits > NARROW:
            continue
        if i >= len(served.kernel.inputs):
            finest = min(finest, *kind.scales)
        elif served.patterns[i].name in factors:
            product *= max(kind.scales)
        else:
            coarsest = max(coarsest, *kind.scales)
    return bool(finest < np.inf and _is_off(served.row, max(coarsest, product) / finest))


def merit_of(served: Served, row: Row, costs: Costs) -> Merit | None:
    """What makes a row the one to be preferred; None: no fit."""
    region = served.region
    reading = read_row(row, region)
    if isinstance(reading, str):
        return None
    other = replace(served, reading=reading)
    met = as_they_are = 0
    for pattern, fact, constant, own, name in _facts(other):
        store = FloatType(row.float) if row.float else pattern.type.storage
        if isinstance(fact, Uniform) and _is_part_of(fact.storage, store):
            met += 1
            as_they_are += parameter_problem(fact, pattern.type) is None
        met += isinstance(fact, FloatType) and fact == store
        follows = pattern.name in reading.biases
        numbers = served.numbers.get(name, Constant()) if constant else None
        if isinstance(fact, AnyType) and _shared_bits(reading, pattern) < fact.bits:
            return None
        if not isinstance(store, FloatType) and not _bears(pattern, fact, numbers, own=own, follows=follows):
            return None
        is_cut = constant and not follows and pattern.type.granularity == "block"
        if is_cut and isinstance(fact, Uniform) and short_block_problem(other, name, fact, pattern.type):
            return None
    if any(_cannot_be_cut(other, i) or sparsity_problem(other, i) for i in range(len(region.inputs))):
        return None
    if row.table is not None and not function_of_one(region.ops, served.graph):
        return None
    by = row.dynamic
    if by is not None and not is_product_of_rows(region.ops, served.graph, per_token=by.per_token):
        return None
    asked = asked_of(other.graph, region)
    is_asked = asked is not None and has_asked(other, asked.wanted)
    if broken_predicate(other):
        return None
    least = left_at_readers(other, costs.wanted_db)[0]
    return is_asked, _holds_ranges(other, costs.max_clip), met, as_they_are, least


def _holds_ranges(served: Served, max_clip: float) -> bool:
    """Whether no port is of a sort that cuts off too much of its range whatever its scale is."""
    reading = served.reading
    bounded = [i for i, port in enumerate(served.ports) if port.value and not reading.simple[i]]
    if served.row.float or not bounded:
        return True
    free = ("same_scale", "same_storage", "free_scale", "multiplier_scale")
    ruled = {rule.args.get("port") for rule in served.row.rules if rule.kind not in free}
    for i in bounded:
        port, pattern = served.ports[i], served.patterns[i]
        spec, store = pattern.type, pattern.type.storage
        if pattern.name in ruled:
            continue
        extent = _stated(served, port.value) if isinstance(store, Storage) and not store.float_name else None
        if extent is None or not isinstance(store, Storage):
            continue
        lo, hi = min(extent[0], 0.0), max(extent[1], 0.0)
        # A relu in front keeps nothing below 0 of what it reads.
        first = served.region.ops[0] if served.region.ops and i < len(served.region.inputs) else None
        if first is not None and first.type == "Relu" and port.value in first.inputs:
            lo = 0.0
        zero, coarsest = spec.zero_point, math.inf if spec.scale_max is None else spec.scale_max
        zero = 0 if spec.symmetric else zero
        if zero is None:
            cut = hi - lo - coarsest * (store.qmax - store.qmin)
        else:
            below, above = zero - store.qmin, store.qmax - zero
            cut = max(-lo - (coarsest * below if below > 0 else 0.0), 0.0)
            cut += max(hi - (coarsest * above if above > 0 else 0.0), 0.0)
        if cut > max_clip * (hi - lo):
            return False
    return True


def _stated(served: Served, name: str) -> tuple[float, float] | None:
    """What facts say of a value's range; a constant's numbers where they say nothing."""
    facts = [fact for fact in served.graph.values[name].facts if isinstance(fact, Calibrated | Uniform)]
    if facts:
        lo, hi = max(fact.lo for fact in facts), min(fact.hi for fact in facts)
        return (lo, hi) if lo <= hi else None
    numbers = served.numbers.get(name)
    if numbers is None:
        return None
    if numbers.array is None:
        return (min(numbers.lo), max(numbers.hi)) if numbers.lo else None
    lo, hi = (float(numbers.array.min()), float(numbers.array.max())) if numbers.array.size else (0.0, 0.0)
    let_go(numbers.array)
    return None if math.isnan(lo) or math.isnan(hi) else (lo, hi)


def _cannot_be_cut(served: Served, position: int) -> bool:
    """Whether no block of a port's type divides the summed dimension of a free constant."""
    port, pattern = served.ports[position], served.patterns[position]
    shape = served.graph.values[port.value].shape if port.value else None
    if pattern.type.granularity != "block" or port.value not in served.graph.constants or served.pinned(port):
        return False
    if shape is None or len(shape) < 2:
        return True
    channel = axis_of(served, port, pattern) or 0
    op = linear_op(served.region)
    # The two axes of a product: one counts output channels, the other is summed and cut into blocks.
    pair = (len(shape) - 2, len(shape) - 1) if op is not None and op.type == "MatMul" else (0, 1)
    size = shape[pair[0] if channel == pair[1] else pair[1]]
    if isinstance(size, int) and size and pattern.type.short_block:
        return False
    return not isinstance(size, int) or all(size % block for block in pattern.type.block_size)


def _facts(served: Served) -> Iterator[tuple[PortPattern, QType, bool, bool, str]]:
    """Each fact at a port, whether the port is a constant, whether the fact is the port's own; the value.

    A pin of a port has the say over the one of the constant there.
    """
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        if port.value:
            constant = port.value in served.graph.constants
            own = own_facts(served.region, i)
            pinned = constant and any(isinstance(fact, Uniform) for fact in own)
            for fact in own if pinned else (*served.graph.values[port.value].facts, *own):
                yield pattern, fact, constant, fact in own, port.value


def _shared_bits(reading: Reading, pattern: PortPattern) -> float:
    """Bits of the storage that a wildcard port shares with another port; infinite where there is none."""
    if pattern.type.storage is not None:
        return math.inf
    place = reading.places[pattern.name][0]
    members = (reading.patterns[i].type.storage for group in reading.wild if place in group for i in group)
    return min((store.range_bits for store in members if isinstance(store, Storage)), default=math.inf)


def _is_part_of(kind: Storage, store: Storage | FloatType | None) -> bool:
    """Whether every integer of a pin's storage is stored so at a port; a wildcard stores any."""
    if store is None or kind == store:
        return True
    if isinstance(store, FloatType) or store.float_name or kind.float_name:
        return False
    inside = store.qmin <= kind.qmin and kind.qmax <= store.qmax
    return inside and store.bits == kind.bits and store.signed == kind.signed


def _bears(pattern: PortPattern, fact: QType, numbers: Constant | None, *, own: bool, follows: bool) -> bool:
    """Whether a port of this sort can have that fact; facts that a rescale can meet count as met.

    Args:
      numbers: of a constant.
      follows: whether the port takes its scales from its factors, as a bias does.
    """
    spec, store, constant = pattern.type, pattern.type.storage, numbers is not None
    if isinstance(fact, NoneType | FloatType):
        # An activation can be dequantized in front of the port; a constant, or the port itself, cannot.
        return not (constant or own)
    if isinstance(fact, AnyType):
        return not isinstance(store, Storage) or store.range_bits >= fact.bits
    if isinstance(fact, Bipolar) and constant:
        return holds_signs(spec) and not follows
    if not isinstance(fact, Uniform) or not constant:
        return True
    kind = bearable(fact, spec, numbers) if numbers is not None and not follows else fact
    if kind is None or (isinstance(store, Storage) and kind.storage != store):
        return False
    if parameter_problem(kind, spec):
        return False
    if follows:
        return True
    if spec.granularity == "tensor":
        return fact.is_per_tensor
    return bool(fact.blocks) == (spec.granularity == "block")
