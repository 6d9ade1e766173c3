"""Verify the scales of constants: what their own numbers ask for, and what asks for more.

A free weight's scale is the finest that does not cut it, unless a bias, a range of multipliers or the device
needs a coarser one. Source: docs/specification.md, sections 2 and 4; tests/cases, cases 17 to 24.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import NEAR, Served, refuse
from planner.errors import QTypeError
from planner.ir.mapped import let_go
from planner.ir.operators.neighbours import greatest_pairs
from planner.ir.types.qtypes import Calibrated, Storage, Uniform
from planner.ir.types.typetext import brief
from planner.plans.records import Port
from planner.target.ports.accepts import bias_room, usable
from planner.target.ports.axes import linear_op
from planner.target.ports.slices import ends_observed, one_type, slices_of_axis, slices_of_blocks, with_pairs
from planner.target.rules import multiplier_range, multipliers_of

Reals = npt.NDArray[Any]


def check_content(
    served: Served,
    position: int,
    kind: Uniform,
    lows: Reals,
    highs: Reals,
    *,
    needed: tuple[float, float] | None = None,
) -> None:
    """A free constant's scale is the one its own numbers ask for: not finer (it would cut), not coarser.

    Args:
      lows, highs: of each slice, 0 included.
      needed: what the kernel needs of it, which an observed range is cut to as well.
    """
    port, pattern = served.ports[position], served.patterns[position]
    spec = pattern.type
    # Weights may be kept shorter than their storage where the arithmetic saturates inside (VPMADDUBSW adds
    # two u8 x i8 products in 16 bits).
    store = usable(kind.storage, spec)
    whole = lows.min(keepdims=True), highs.max(keepdims=True)
    lo, hi = whole if kind.is_per_tensor else (lows, highs)
    lo, hi = ends_observed(observed(served, port), lo, hi, axis=kind.axis, sliced=not kind.is_per_tensor)
    if needed is not None:
        lo, hi = np.clip(lo, *needed), np.clip(hi, *needed)
    try:
        # Of a constant without numbers one range may be known for all slices.
        lo, hi = np.broadcast_arrays(np.minimum(lo, 0.0), np.maximum(hi, 0.0), np.asarray(kind.scales))[:2]
        lo, hi = _with_pairs(served, position, (lo, hi), store)
        if kind.axis is not None:
            wanted = slices_of_axis(lo, hi, store, kind.axis, spec)
        elif kind.blocks:
            wanted = slices_of_blocks(lo, hi, replace(spec, storage=store))
        else:
            wanted = one_type((float(lo[0]), float(hi[0])), store, spec, served.max_clip)
    except QTypeError as error:
        refuse(port.address, f"is {brief(kind)}, and has no type there: {error.message}", served.row)
    _check_fineness(served, position, kind, np.asarray(wanted.scales), zeros=lo >= hi)
    right = np.asarray(wanted.zero_points)
    if kind.axis is None and not spec.symmetric and spec.zero_point is None:
        # Of the scale that the port has, which may have grown.
        right = np.clip(store.qmin - lo / np.asarray(kind.scales), store.qmin, store.qmax)
    # A zero point is rounded to the nearest integer of the storage, so half a step off is still right.
    off = np.abs(np.asarray(kind.zero_points) - right) > 0.5 + NEAR
    i = first_of(off & ((hi > lo) | (kind.axis is not None)))
    if i is not None:
        told = f"its numbers in slice {i} lie in [{lo[i]:g}, {hi[i]:g}]"
        refuse(port.address, f"is {brief(kind)}, {told}; accepted: zero point {round(right[i])}", served.row)


def _with_pairs(
    served: Served, position: int, ends: tuple[Reals, Reals], store: Storage
) -> tuple[Reals, Reals]:
    """Ends of slices, moved out for neighbours in a sum that are added first in few bits."""
    most, op = served.patterns[position].type.weight_pairs, linear_op(served.region.ops)
    name = served.ports[position].value
    array = served.numbers[name].array
    if most is None or op is None or op.inputs[1] != name or array is None or not array.size:
        return ends
    pairs = greatest_pairs(array, op)
    let_go(array)
    return with_pairs(ends, pairs, most, store)


def observed(served: Served, port: Port) -> Calibrated | None:
    """The range that the model states for a constant, first at its port; it counts before the numbers."""
    facts = (*served.own_facts(port), *served.graph.values[port.value].facts)
    return next((fact for fact in facts if isinstance(fact, Calibrated)), None)


def _check_fineness(served: Served, position: int, kind: Uniform, wanted: Reals, *, zeros: Any) -> None:
    """No scale is finer than its numbers ask, and none is coarser without a reason.

    Args:
      wanted: the scales that the numbers ask for; `zeros`: which slices have none but 0.
    """
    port, spec = served.ports[position], served.patterns[position].type
    scales = np.asarray(kind.scales)
    least = np.clip(wanted, spec.scale_min or 0.0, spec.scale_max or np.inf)
    # Coarser than the numbers ask is right for a reason only: the bias has to fit the accumulator, or there
    # is a least multiplier, of which a slice of zeros takes any. A power of two is rounded up.
    bound = _range_need(served, port, scales)
    grown = np.maximum(_bias_need(served, port, scales.size), bound)
    most = np.where(grown > least, grown * (2.0 if spec.power_of_two else 1.0), least)
    least, most = (np.where(zeros & (bound > 0), end, ends) for end, ends in ((0.0, least), (np.inf, most)))
    i = first_of((scales < least * (1 - NEAR)) | (scales > most * (1 + NEAR)))
    if i is not None:
        finer = scales[i] < least[i]
        why = "would cut the numbers of" if finer else "is coarser than the numbers ask in"
        refuse(
            port.address,
            f"is {brief(kind)}, whose scale {float(scales[i])!r} {why} slice {i}; "
            f"accepted: {float(least[i])!r} to {float(most[i])!r}",
            served.row,
        )


def _bias_need(served: Served, weight: Port, n: int) -> Reals:
    """The least scales of a weight that keep its bias within the accumulator, 0 where there is none."""
    need = np.zeros(n)
    for rule in served.row.rules:
        names = rule.args["of"] if rule.kind == "multiplier_accumulator_scale" else ()
        factors = [port for name in names for port in served.named(name)]
        others = [port.type for port in factors if port is not weight]
        if weight not in factors or len(others) != 1 or not isinstance(others[0], Uniform):
            continue
        for bias in served.named(rule.args["port"]):
            numbers, kind = served.numbers.get(bias.value), bias.type
            if numbers is None or numbers.array is None or not isinstance(kind, Uniform):
                continue
            # |bias| <= scale_x * scale_w * room, solved for the scale of the weight.
            room = bias_room(kind.storage, served.row)
            least = np.abs(numbers.array.reshape(-1).astype(np.float64)) / (others[0].scale * room)
            need = _at_least(need, least)
    return need


def _at_least(need: Reals, least: Reals) -> Reals:
    if least.size != need.size:
        least = least.max(initial=0.0, keepdims=True)
    # Scales are rounded to float32 after this bound was met, so the bound gets a hair of slack.
    return np.maximum(need, least * (1 + 2 * NEAR))


def _range_need(served: Served, weight: Port, scales: Reals) -> Reals:
    """The least scales of a weight that keep its kernel's multipliers in their range, 0 without one."""
    need = np.zeros(scales.size)
    for rule in served.row.rules:
        if rule.kind != "multiplier_scale" or rule.args.get("range") is None:
            continue
        is_sliced = isinstance(weight.type, Uniform) and bool(weight.type.blocks)
        if not is_sliced and any(weight in served.named(name) for name in rule.args["of"]):
            multipliers = multipliers_of(*served.views, rule.args)
            if multipliers is not None:
                need = _at_least(need, scales * multiplier_range(rule.args)[0] / multipliers)
    return need


def first_of(wrong: Reals) -> int | None:
    """The first slice for which something holds; None: for none."""
    first = int(wrong.argmax()) if wrong.size else 0
    return first if wrong.size and wrong[first] else None
