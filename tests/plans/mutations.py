"""Mutations: ways in which a plan can be wrong, each as a generator of broken plans and the port at fault.

A mutant is (plan, model, target, the addresses that a refusal may name). Mutations of one type come twice:
alone, where the log gives them away, and forged, where values and log agree with the lie.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from planner.ir.graph import Constant, Graph, model_digest
from planner.ir.types.qtypes import FloatType, Uniform, storage
from planner.plans.plan import Plan
from planner.plans.records import Port
from planner.target.records import Target
from tests.plans.planned import Case, altered, forged, kernel_of, ports_of, retyped, with_kernel, with_port
from tests.plans.retypes import (
    Retype,
    full,
    in_blocks,
    inexact,
    narrow,
    next_scale,
    on_axis,
    one_channel,
    one_less,
    other_sign,
    outside,
    per_tensor,
    split,
    stored,
    times,
    zeros,
)

Mutant = tuple[Plan, Graph | None, Target | None, tuple[str, ...]]
Mutation = Callable[[Case], Iterator[Mutant]]

PLACES: Final = 5
I16: Final = storage("i16")


def activation(case: Case, port: Port) -> bool:
    return port.value not in case.model.constants


def weight(case: Case, port: Port) -> bool:
    return not activation(case, port) and port.address.endswith("in[1]")


def per_axis(case: Case, port: Port) -> bool:
    return weight(case, port) and isinstance(port.type, Uniform) and port.type.axis is not None


def bias(case: Case, port: Port) -> bool:
    return not activation(case, port) and port.address.endswith("in[2]")


def fixed(case: Case, port: Port) -> bool:
    del case
    return port.address == "head/softmax.out[0]"


def classed(case: Case, port: Port) -> bool:
    """Ports of a class of three or more, where the odd one is known."""
    kernel = kernel_of(case.plan, port.address)
    row = case.plan.row_of(kernel.name)
    joined = row is not None and any(rule.kind == "same_scale" for rule in row.rules)
    return joined and len(kernel.inputs) + len(kernel.outputs) > 2


def paired(case: Case, port: Port) -> bool:
    """Ports of a class of two."""
    kernel = kernel_of(case.plan, port.address)
    row = case.plan.row_of(kernel.name)
    joined = row is not None and any(rule.kind == "same_scale" for rule in row.rules)
    return joined and len(kernel.inputs) + len(kernel.outputs) == 2


def anywhere(case: Case, port: Port) -> bool:
    del case, port
    return True


def partners(case: Case, address: str) -> tuple[str, ...]:
    kernel = kernel_of(case.plan, address)
    return tuple(port.address for port in (*kernel.inputs, *kernel.outputs))


def retyping(where: Callable[[Case, Port], bool], change: Retype, *, forge: bool = False) -> Mutation:
    """Mutate the type of ports of one sort."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for address, port in ports_of(case.plan).items():
            if not isinstance(port.type, Uniform) or not where(case, port):
                continue
            kind = change(port.type)
            named = partners(case, address) if forge and paired(case, port) else (address,)
            if kind != port.type:
                made = forged(case.plan, {address: kind}) if forge else retyped(case.plan, address, kind)
                yield made, case.model, case.target, named

    return mutants


def kernels(change: Callable[[Case, Any], tuple[Plan, tuple[str, ...]] | None]) -> Mutation:
    """Mutate one kernel after the other."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for kernel in case.plan.kernels_in_order:
            made = change(case, kernel)
            if made is not None:
                yield made[0], case.model, case.target, made[1]

    return mutants


def changed(**changes: Any) -> Mutation:
    return kernels(lambda case, kernel: (with_kernel(case.plan, kernel.name, **changes), (kernel.name,)))


def without(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]]:
    rest = tuple(k for k in case.plan.kernels_in_order if k is not kernel)
    return replace(case.plan, kernels_in_order=rest), (kernel.name,)


def twice(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]]:
    return replace(case.plan, kernels_in_order=(*case.plan.kernels_in_order, kernel)), (kernel.name,)


def first(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]] | None:
    order = case.plan.kernels_in_order
    if kernel is order[0]:
        return None
    return replace(case.plan, kernels_in_order=(kernel, *(k for k in order if k is not kernel))), (
        kernel.name,
    )


def bits(shift: int | None) -> Mutation:
    def change(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]] | None:
        if kernel.accumulator_bits is None:
            return None
        count = None if shift is None else kernel.accumulator_bits + shift
        return with_kernel(case.plan, kernel.name, accumulator_bits=count), (kernel.name,)

    return kernels(change)


def other_row(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]]:
    key = next(key for key in case.plan.target.rows if key != kernel.row)
    return with_kernel(case.plan, kernel.name, row=key), (kernel.name,)


def swapped(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]] | None:
    x, y = kernel.inputs[0], kernel.outputs[0]
    if x.type == y.type:
        return None
    plan = retyped(retyped(case.plan, x.address, y.type), y.address, x.type)
    return plan, (x.address, y.address)


def swapped_inputs(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]] | None:
    if len(kernel.inputs) < 2 or kernel.inputs[0].type == kernel.inputs[1].type:
        return None
    x, w = kernel.inputs[:2]
    return retyped(retyped(case.plan, x.address, w.type), w.address, x.type), (x.address, w.address)


def fewer_ports(case: Case, kernel: Any) -> tuple[Plan, tuple[str, ...]]:
    return with_kernel(case.plan, kernel.name, inputs=kernel.inputs[:-1]), (kernel.name,)


def port(change: Callable[[Case, Port], Port]) -> Mutation:
    """Mutate what a port says besides its type."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for address, item in ports_of(case.plan).items():
            made = with_port(case.plan, address, lambda given: change(case, given))
            yield made, case.model, case.target, (item.address,)

    return mutants


def rows(change: Callable[[Any], Any], *, target: bool = True) -> Mutation:
    """Mutate the rows that the plan carries; `target`: with the real ones at hand."""

    def mutants(case: Case) -> Iterator[Mutant]:
        for key, row in case.plan.target.rows.items():
            made = change(row)
            if made == row:
                continue
            carried = {**case.plan.target.rows, key: made}
            users = [k for k in case.plan.kernels_in_order if k.row == key]
            names = tuple(a for k in users for a in (k.name, *partners(case, f"{k.name}.in[0]")))
            plan = replace(case.plan, target=replace(case.plan.target, rows=carried))
            yield plan, case.model, case.target if target else None, names

    return mutants


def reference(**changes: Any) -> Mutation:
    def mutants(case: Case) -> Iterator[Mutant]:
        made = replace(case.plan, target=replace(case.plan.target, **changes))
        yield made, case.model, case.target, ("",)

    return mutants


def dearer(case: Case) -> Iterator[Mutant]:
    costs = replace(case.plan.target.costs, bit_price=7.0)
    yield replace(case.plan, target=replace(case.plan.target, costs=costs)), case.model, case.target, ("",)


def lost_row(case: Case) -> Iterator[Mutant]:
    for key in case.plan.target.rows:
        carried = {k: row for k, row in case.plan.target.rows.items() if k != key}
        users = tuple(k.name for k in case.plan.kernels_in_order if k.row == key)
        yield replace(case.plan, target=replace(case.plan.target, rows=carried)), case.model, None, users


def whole(**changes: Any) -> Mutation:
    def mutants(case: Case) -> Iterator[Mutant]:
        yield replace(case.plan, **changes), case.model, case.target, ("",)

    return mutants


def finer_bound(case: Case) -> Iterator[Mutant]:
    yield replace(case.plan, bound=case.plan.cost + 1), case.model, case.target, ("",)
    yield replace(case.plan, optimal=True, bound=case.plan.cost - 1), case.model, case.target, ("",)


def other_numbers(case: Case) -> Iterator[Mutant]:
    for name, constant in case.model.constants.items():
        if constant.array is not None and constant.array.dtype == np.float32 and constant.array.any():
            numbers = {**case.model.constants, name: Constant(constant.array * np.float32(1.5))}
            yield case.plan, replace(case.model, constants=numbers), case.target, ("",)


def blind_numbers(case: Case) -> Iterator[Mutant]:
    """Weights three times as large under a digest that agrees."""
    for address, item in ports_of(case.plan).items():
        if weight(case, item):
            bigger = case.model.constants[item.value].array * np.float32(3)
            numbers = {**case.model.constants, item.value: Constant(bigger)}
            model = replace(case.model, constants=numbers)
            yield restamped(case.plan, model), model, case.target, (address,)


def restamped(plan: Plan, model: Graph) -> Plan:
    return replace(plan, model=model_digest(model))


def some(mutation: Mutation, case: Case) -> list[Mutant]:
    """A few mutants, spread over the plan."""
    every = list(mutation(case))
    return list(islice(every[:: max(1, len(every) // PLACES)], PLACES))


TYPES: Final[Mapping[str, tuple[Callable[[Case, Port], bool], Retype]]] = {
    "activation as i16": (activation, stored(I16)),
    "activation float": (anywhere, lambda _: None),
    "activation in blocks": (activation, in_blocks),
    "activation of two scales": (activation, split),
    "bias along axis 1": (bias, on_axis(1)),
    "bias as i16": (bias, stored(I16)),
    "bias as i64": (bias, stored(storage("i64"))),
    "bias of a scale less": (bias, one_less),
    "bias of another product": (bias, times(1.01)),
    "bias off in a channel": (bias, one_channel(1.001)),
    "bias with a zero point": (bias, zeros(1)),
    "class member off by a step": (classed, zeros(1)),
    "class member of another scale": (classed, times(1.5)),
    "class member of the next scale": (classed, next_scale),
    "fixed scale doubled": (fixed, times(2)),
    "fixed scale of the next float": (fixed, next_scale),
    "fixed zero point moved": (fixed, zeros(1)),
    "half floats": (anywhere, lambda kind: altered(kind, expressed="f16")),
    "mover end of another scale": (paired, times(2)),
    "mover end off by a step": (paired, zeros(1)),
    "run in bf16": (anywhere, lambda _: FloatType("bf16")),
    "scale between floats": (anywhere, inexact),
    "signedness": (anywhere, other_sign),
    "storage a step narrower": (anywhere, narrow),
    "weight along another axis": (per_axis, on_axis(1)),
    "weight along no axis": (per_axis, on_axis(7)),
    "weight channel too coarse": (per_axis, one_channel(2.0)),
    "weight channel too fine": (per_axis, one_channel(0.5)),
    "weight in blocks": (per_axis, in_blocks),
    "weight not narrow": (weight, full),
    "weight of a scale less": (per_axis, one_less),
    "weight per tensor": (per_axis, per_tensor),
    "weight too coarse": (weight, times(1.2)),
    "weight too fine": (weight, times(0.8)),
    "weight with a zero point": (weight, zeros(1)),
    "zero point outside": (anywhere, outside),
}
"""Wrong types: where, and what becomes of the right one."""

UNSEEN: Final[Mapping[str, tuple[Callable[[Case, Port], bool], Retype]]] = {
    "scale doubled": (activation, times(2)),
    "scale halved": (activation, times(0.5)),
    "scale of the next float": (activation, next_scale),
    "zero point moved": (activation, zeros(1)),
    "other sign, same label": (activation, other_sign),
}
"""Types that another plan might have: the log gives them away."""

KERNELS: Final[Mapping[str, Mutation]] = {
    "accumulator a bit less": bits(-1),
    "accumulator a bit more": bits(1),
    "accumulator forgotten": bits(None),
    "accumulator of 99 bits": bits(90),
    "kernel before its inputs": kernels(first),
    "kernel forgotten": kernels(without),
    "kernel of another type": changed(kernel="other"),
    "kernel planned twice": kernels(twice),
    "kernel repeated": changed(trip_count=7),
    "ports fewer": kernels(fewer_ports),
    "reason beside a row": changed(reason="no range"),
    "row dropped": changed(row=None),
    "row of another kernel": kernels(other_row),
    "row unknown": changed(row="conv2d@9999"),
    "types of inputs swapped": kernels(swapped_inputs),
    "types of input and output swapped": kernels(swapped),
}
"""Wrong kernels."""

PORTS: Final[Mapping[str, Mutation]] = {
    "address": port(lambda _, item: replace(item, address=item.address.replace("[", "[1"))),
    "value absent": port(lambda _, item: replace(item, value="")),
    "value of another port": port(lambda case, item: replace(item, value=case.model.inputs[0] + "?")),
}
"""Wrong ports."""

ORIGINS: Final[Mapping[str, Mutation]] = {
    "bound above cost": finer_bound,
    "model without a digest": whole(model=""),
    "numbers changed": other_numbers,
    "numbers changed and digest too": blind_numbers,
    "optimal and negative": whole(cost=-1.0, bound=-1.0),
    "prices changed": dearer,
    "row forgotten": lost_row,
    "row with a smaller accumulator": rows(
        lambda row: replace(row, accumulator=row.accumulator and storage("i8")), target=False
    ),
    "row with another accumulator": rows(lambda row: replace(row, accumulator=storage("i62"))),
    "row with another condition": rows(lambda row: replace(row, when={"x.rank": 9}), target=False),
    "row with unknown conditions": rows(
        lambda row: replace(row, when={"Moon.phase": 1, "u": 1}), target=False
    ),
    "row without rules": rows(lambda row: replace(row, rules=())),
    "rescales not shared": reference(rescale_single_consumer=True),
    "stale model": whole(model="sha256:0"),
    "stale target": reference(digest="0" * 64),
    "target of another name": reference(id="other"),
    "target of another version": reference(version="9.9.9"),
}
"""Wrong models, targets and rows."""
