"""Stored pins: trained types of activations in the byte in which a device computes.

A model trained for 5 bits pins u5. A device whose kernels give bytes alone stores such a value in one, at the
same scale and with the same numbers: i8 from -16 to 15. Said so, the pin is a clamp between two kernels, or
nothing, where u5 would be a narrowing and a widening. A target that gives narrower storages keeps the pins,
and so do the inputs and outputs of a model. Source: design 02, cases 24, 31 and 46.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from planner.ir.graph import Facts, Graph
from planner.ir.types.qtypes import FloatType, Storage, Uniform
from planner.target.records import PortType, Row, Target
from planner.target.rules import storage_groups

BYTE: Final = 8


def store_pins(graph: Graph, target: Target) -> Graph:
    """Put pins of values inside a model into the byte of a target's kernels, if none gives fewer bits."""
    given = {store for rows in target.rows.values() for row in rows for store in _given(row)}
    bytes_ = {store for store in given if store is not None and store.bits == BYTE and store.is_full}
    spec = target.default_port
    if (
        not isinstance(spec.storage, Storage)
        or spec.storage not in bytes_
        or any(store is None or store.bits < BYTE for store in given)
    ):
        return graph
    ends = {*graph.inputs, *graph.outputs, *graph.constants}
    pins = {name: pin for name in graph.values.keys() - ends if (pin := _pin(graph.values[name].facts))}
    # The byte that most other pins have, so that no kernel reads another byte than the one before it gives.
    used = Counter(pin.storage for pin in pins.values() if pin.storage in bytes_)
    store = max([spec.storage, *sorted(used, key=str)], key=lambda store: used[store])
    values = dict(graph.values)
    for name, pin in pins.items():
        kind = None if pin.storage in bytes_ else _stored(pin, spec, store)
        if kind is not None:
            facts = tuple(kind if fact is pin else fact for fact in values[name].facts)
            values[name] = replace(values[name], facts=facts)
    return replace(graph, values=values)


def _given(row: Row) -> Iterator[Storage | None]:
    """Storages of a row's results, None for any, but where they are those of what it reads."""
    groups = storage_groups(row, len(row.inputs), len(row.outputs))
    moved = {side for group in groups if any(end == "in" for end, _ in group) for side in group}
    for i, port in enumerate(row.outputs):
        store = port.type.storage
        if isinstance(store, FloatType) or (store is not None and store.float_name):
            continue
        if store is not None or ("out", i) not in moved:
            yield store


def _pin(facts: Facts) -> Uniform | None:
    """The type that facts pin a value to, if it is of integers with one scale."""
    pin = next((fact for fact in facts if isinstance(fact, Uniform)), None)
    whole = pin is not None and pin.is_per_tensor and not pin.ranges and not pin.storage.float_name
    return pin if whole else None


def _stored(pin: Uniform, spec: PortType, new: Storage) -> Uniform | None:
    """A type of the same reals in another storage, as a port asks; None where it has no place for them."""
    old = pin.storage
    zero = pin.zero_point - old.offset + new.offset
    if spec.symmetric or spec.zero_point is not None:
        zero = spec.zero_point or 0
    low, high = old.qmin - pin.zero_point + zero, old.qmax - pin.zero_point + zero
    if low < new.qmin or high > new.qmax:
        return None
    return replace(pin, storage=replace(new, qmin=low, qmax=high), zero_points=(zero,))
