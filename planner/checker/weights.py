"""Verify the scales of constants: what their own numbers ask for, and what asks for more.

A free weight's scale is the finest that does not cut it, unless a bias, a range of multipliers or the device
needs a coarser one. Source: docs/specification.md, sections 2 and 4; tests/cases, cases 17 to 24.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import NEAR, Served, refuse
from planner.ir.mapped import let_go
from planner.ir.operators.neighbours import greatest_pairs, least_scales
from planner.ir.types.qtypes import Calibrated, Storage, Uniform
from planner.ir.types.scales import F32_TINY, common_factor
from planner.ir.types.typetext import brief
from planner.plans.records import Port
from planner.target.expressions import parse_number
from planner.target.ports.axes import linear_op
from planner.target.records import PortType

Reals = npt.NDArray[Any]

ROUNDED: Final = {
    "bf16": (F32_TINY, 2.0**-8 + NEAR),
    "f16": (2.0**-14, 2.0**-11 + NEAR),
    "f8E4M3FN": (2.0**-6, 2.0**-4 + NEAR),  # the scale times the factor of all
}
"""The least normal scale of a narrower float, and half a unit in its last place, in relation."""
BIAS_BITS: Final = 30
"""A 32-bit bias keeps one bit free for the sums it is added to (tests/cases, case 22)."""


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
    lo, hi = (lows, highs) if not kind.is_per_tensor else (lows.min(), highs.max())
    lo, hi = _as_observed(observed(served, port), kind, np.atleast_1d(lo), np.atleast_1d(hi))
    if needed is not None:
        lo, hi = np.minimum(np.clip(lo, *needed), 0.0), np.maximum(np.clip(hi, *needed), 0.0)
    need, zero = needed_scales(spec, kind, store, lo, hi)
    need = np.maximum(need, _pair_need(served, position, np.maximum(hi, -lo)))
    # All zeros need no range: any scale would do. 1 is the convention, or what a range of multipliers takes.
    _check_fineness(served, position, kind, need)
    if zero is not None:
        i = first_of(np.asarray(kind.zero_points) != zero)
        if i is not None and not kind.is_per_tensor:
            refuse(
                port.address,
                f"is {brief(kind)}, whose zero point in slice {i} is {kind.zero_points[i]}; accepted: {zero}",
                served.row,
            )
        return
    # A zero point is rounded to the nearest integer of the storage, so half a step off is still right.
    exact = np.clip(store.qmin - lo / np.asarray(kind.scales), store.qmin, store.qmax)
    i = first_of((np.abs(np.asarray(kind.zero_points) - exact) > 0.5 + NEAR) & (hi > lo))
    if i is not None:
        refuse(
            port.address,
            f"is {brief(kind)}, its numbers in slice {i} lie in [{lo[i]:g}, {hi[i]:g}]; "
            f"accepted: zero point {round(exact[i])}",
            served.row,
        )


def needed_scales(
    spec: PortType, kind: Uniform, store: Storage, lo: Reals, hi: Reals
) -> tuple[Reals, int | None]:
    """The finest scale of each slice that does not clip, 0 for zeros; the zero point, None where it is free.

    Args:
      store: of the port, no more of it than its arithmetic may use.
      lo, hi: of each slice, 0 included.
    """
    # Three ways from a range to the finest scale that does not clip: around
    # a given zero point, symmetric (per-axis signed weights always are, as
    # kernels add no zero point per channel), or affine over all steps.
    zero = spec.zero_point
    signed_slices = kind.axis is not None and store.signed
    if kind.axis is not None and not store.signed and not store.float_name:
        # Kernels take one zero point off all channels: that of the row, or the middle.
        zero = 1 << store.bits - 1 if zero is None else zero
        below, above = zero - store.qmin, store.qmax - zero
        return np.maximum(hi, -lo) / (min(below, above) or max(below, above)), zero
    if zero is not None and not (zero == 0 and signed_slices):
        need = np.maximum(hi / max(store.qmax - zero, 1e-9), -lo / max(zero - store.qmin, 1e-9))
    elif spec.symmetric or signed_slices:
        zero = 0
        need = np.maximum(hi, -lo) / min(-store.qmin, store.qmax)
    else:
        need = (hi - lo) / store.steps
    return need, zero


def _pair_need(served: Served, position: int, farthest: Reals) -> Reals:
    """The finest scales with which neighbours in a sum fit where they are added first, 0 where none are.

    Args:
      farthest: the greatest |number| stored of each slice.
    """
    most, op = served.patterns[position].type.weight_pairs, linear_op(served.region.ops)
    name = served.ports[position].value
    array = served.numbers[name].array
    none = np.zeros(farthest.shape)
    if most is None or op is None or op.inputs[1] != name or array is None or not array.size:
        return none
    pairs = greatest_pairs(array, op)
    let_go(array)
    if pairs is None or pairs.size < farthest.size:
        return none
    return least_scales(pairs if pairs.size == farthest.size else pairs.max(keepdims=True), farthest, most)


def observed(served: Served, port: Port) -> Calibrated | None:
    """The range that the model states for a constant, first at its port; it counts before the numbers."""
    facts = (*served.own_facts(port), *served.graph.values[port.value].facts)
    return next((fact for fact in facts if isinstance(fact, Calibrated)), None)


def _as_observed(seen: Calibrated | None, kind: Uniform, lo: Reals, hi: Reals) -> tuple[Reals, Reals]:
    """The range of each slice as a type has to hold it, 0 included."""
    if seen is None:
        return lo, hi
    if kind.is_per_tensor:
        lo, hi = np.full(1, seen.lo), np.full(1, seen.hi)
    elif seen.axis is not None and seen.axis == kind.axis:
        lo, hi = np.asarray(seen.los), np.asarray(seen.his)
    else:
        # A range for another layout than the type's still bounds every slice.
        lo, hi = np.clip(lo, seen.lo, seen.hi), np.clip(hi, seen.lo, seen.hi)
    return np.minimum(lo, 0.0), np.maximum(hi, 0.0)


def usable(store: Storage, spec: PortType) -> Storage:
    """The part of a storage that a port's arithmetic may use of a weight."""
    bits = spec.weight_bits_effective
    if bits is None or bits >= store.bits or not store.signed:
        return store
    top = (1 << bits - 1) - 1
    return Storage(store.bits, True, max(store.qmin, -top), min(store.qmax, top))


def _check_fineness(served: Served, position: int, kind: Uniform, need: Reals) -> None:
    port, spec = served.ports[position], served.patterns[position].type
    scales = np.asarray(kind.scales)
    bound = _range_need(served, port, scales.size)
    # A block of zeros beside a factor takes any scale: 1 may be none of theirs.
    free = (need <= 0) & ((bound > 0) | (spec.scales == "f8E4M3FN"))
    need = np.where(free, 0.0, np.where(need > 0, need, 1.0))
    # Coarser than the numbers need is right for a reason only: the bias has to fit the accumulator, there is
    # a least multiplier or scale, or scales are powers of two (rounded up, under a factor of 2).
    most = np.maximum(need, np.maximum(_bias_need(served, port, scales.size), bound))
    most = np.where(free, np.inf, most * (2.0 if spec.power_of_two else 1.0))
    tiny, near = ROUNDED.get(spec.scales, (F32_TINY, NEAR))
    if spec.scales == "f8E4M3FN":
        tiny *= common_factor(kind.scales) or 1.0
    most = np.maximum(most, spec.scale_min or tiny)
    least = need if spec.scale_max is None else np.minimum(need, spec.scale_max)
    i = first_of((scales < least * (1 - near)) | (scales > most * (1 + near)))
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
        if rule.kind != "multiplier_accumulator_scale" or not served.named(rule.args["port"]):
            continue
        factors = [port for name in rule.args["of"] for port in served.named(name)]
        others = [port.type for port in factors if port is not weight]
        for bias in served.named(rule.args["port"]) if weight in factors else []:
            numbers = served.numbers.get(bias.value)
            kind = bias.type
            if numbers is None or numbers.array is None or not isinstance(kind, Uniform):
                continue
            if len(others) != 1 or not isinstance(others[0], Uniform):
                continue
            sums = served.row.accumulator
            store = sums if sums is not None and sums.bits < kind.storage.bits else kind.storage
            # |bias| <= scale_x * scale_w * room, solved for the scale of the weight.
            room = float(1 << BIAS_BITS) if store.bits == 32 else store.qmax / 2
            least = np.abs(numbers.array.reshape(-1).astype(np.float64)) / (others[0].scale * room)
            if least.size:
                # Scales are rounded to float32 after this bound was met, so the bound gets a hair of slack.
                need = np.maximum(need, least if least.size == n else least.max()) * (1 + 2 * NEAR)
    return need


def _range_need(served: Served, weight: Port, n: int) -> Reals:
    """The least scales of a weight that keep its kernel's multipliers in their range, 0 without one."""
    need = np.zeros(n)
    for rule in served.row.rules:
        if rule.kind != "multiplier_scale" or rule.args.get("range") is None:
            continue
        factors = [port for name in rule.args["of"] for port in served.named(name)]
        made = [port.type for port in served.named(rule.args["out"])]
        others = [port.type for port in factors if port is not weight]
        kinds = [kind for kind in (*made, *others) if isinstance(kind, Uniform)]
        if weight not in factors or not made or len(kinds) < len(made) + len(others):
            continue
        product = np.ones(1)
        for kind in kinds[len(made) :]:
            product = product * np.asarray(kind.scales)
        least = float(parse_number(rule.args["range"][0])) * max(kinds[0].scales) / product
        need = np.maximum(need, least if least.size == n else least.max()) * (1 + 2 * NEAR)
    return need


def first_of(wrong: Reals) -> int | None:
    """The first slice for which something holds; None: for none."""
    first = int(wrong.argmax()) if wrong.size else 0
    return first if wrong.size and wrong[first] else None
