"""Merit: whether a row fits a kernel, and what makes it the one to be preferred, computed again.

Source: docs/specification.md, section 4.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from planner.checker.kernel_ports import (
    Served,
    axis_of,
    holds_signs,
    linear_op,
    own_facts,
    parameter_problem,
    short_block_problem,
)
from planner.checker.pins import bearable
from planner.checker.rows.asked import asked_of, has_asked
from planner.checker.rows.predicates import broken_predicate
from planner.checker.rows.reading import Reading, read_row
from planner.checker.rows.too_little import left_at_readers
from planner.checker.weights import sparsity_problem
from planner.ir.graph import Constant
from planner.ir.mapped import let_go
from planner.ir.operators.standard_op import misses_its_name
from planner.ir.roles import function_of_one, is_product_of_rows
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, QType, Storage, Uniform
from planner.target.records import Costs, PortPattern, PortType, Row

Merit: TypeAlias = tuple[bool, bool, int, int, float]
"""Whether a row was asked for, whether it holds what facts say of ranges, pins of its storages, those of them
at their scales and zero points, and the dB that it leaves at readers: infinite where that is enough."""


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
        shared = _shared_storages(reading, pattern)
        if isinstance(fact, AnyType) and any(one.range_bits < fact.bits for one in shared):
            return None
        if isinstance(fact, Uniform) and own and not constant and any(one != fact.storage for one in shared):
            return None
        if isinstance(store, FloatType) and own and not constant and isinstance(fact, Uniform | AnyType):
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
    if misses_its_name(region):
        return None
    by = row.dynamic
    if by is not None and not is_product_of_rows(region.ops, served.graph, per_token=by.per_token):
        return None
    asked = asked_of(other.graph, region)
    is_asked = asked is not None and has_asked(other, asked.wanted)
    if broken_predicate(other):
        return None
    least = left_at_readers(other, costs.wanted_db)[0]
    return is_asked, holds_ranges(other, costs.max_clip), met, as_they_are, least


def holds_ranges(served: Served, max_clip: float) -> bool:
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


def _shared_storages(reading: Reading, pattern: PortPattern) -> list[Storage]:
    """The storages that a wildcard port shares with other ports; none where these are wildcards too."""
    if pattern.type.storage is not None:
        return []
    place = reading.places[pattern.name][0]
    members = (reading.patterns[i].type.storage for group in reading.wild if place in group for i in group)
    return [store for store in members if isinstance(store, Storage)]


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
    # What hands slices on as they are takes whatever all of its ports are pinned to.
    if (
        not isinstance(fact, Uniform)
        or not (constant or own)
        or _is_handed_on(spec, fact, own=own and not constant)
    ):
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


def _is_handed_on(spec: PortType, fact: Uniform, *, own: bool) -> bool:
    return own and spec.storage is None and not fact.is_per_tensor
