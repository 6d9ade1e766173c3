"""Multipliers within the range that a row has for them: what scale has to grow for that, and at what price.

Too small a multiplier asks for a coarser weight, too large a one for a coarser result. Growing costs bits,
and is worth it while those cost no more than the casts around the kernel would if it ran in float: bits of a
weight count as bits of the result. Source: RFC "multiplier_scale"; docs/specification.md, section 5, the
price.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.types.qtypes import Uniform
from planner.propagation.network.constant_ranges import slice_ranges
from planner.propagation.network.ports import (
    CLASS,
    CONSTANT,
    Kernel,
    Port,
    ports_of,
    present,
)
from planner.propagation.parameters.typed import Typing, kernel_views
from planner.propagation.selection.remedies import Grown
from planner.target.ports.labels import label_for
from planner.target.records import PortId, Rule
from planner.target.rules import multiplier_range, multipliers_of

SLACK: Final = 1 + 1e-6
"""A scale is rounded to float32 after a bound was met, so the bound gets a hair of slack."""
Reals: TypeAlias = npt.NDArray[np.float64]
_HALF: Final = 0.5
TRIES: Final = 4
"""How often one port may grow: what it is computed from may grow with it, where they share a scale."""


def grown_weight(
    network: Typing, kernel: Kernel, rule: Rule
) -> tuple[Port, npt.NDArray[np.float64], str] | None:
    """A free weight with the scales that the least multiplier asks for, and why, where that is worth it.

    A slice whose products cannot move the result by half a step, as one of zeros, may have any scale: it
    takes one within the range, and loses no bits.
    """
    weight, least, most = _weight(network, kernel, rule)
    kind = network.type_of(weight)
    if weight is None or kind is None:
        return None
    spec = weight.spec
    scales = np.asarray(kind.scales)
    least, most = (np.broadcast_to(bound, scales.shape) for bound in (least, most))
    zeros = _is_mute(network, kernel, rule, weight, kind)
    grown = np.where(zeros, np.minimum(scales, most / SLACK), scales)
    grown = np.where(grown < least, least * SLACK, grown)
    if spec.power_of_two:
        grown = np.exp2(np.ceil(np.log2(grown)))
    bits = float(np.mean(np.where(zeros, 0.0, np.maximum(np.log2(grown / scales), 0.0))))
    if np.array_equal(grown, scales) or grown.max() > (spec.scale_max or math.inf):
        return None
    if not is_worth_it(network, kernel, bits):
        return None
    count = int(np.count_nonzero(grown != scales))
    why = f"{_said(rule)}: {count} of {scales.size} scales moved, {bits:.2f} bits coarser on average"
    return weight, grown, why


def _weight(network: Typing, kernel: Kernel, rule: Rule) -> tuple[Port | None, Reals, Reals]:
    """The free constant among the factors, and the least and greatest scales that the range leaves it."""
    ports = ports_of(network, kernel)
    factors = [port for name in rule.args["of"] for port in ports if port.name == name]
    result = next((network.types[port.id] for port in ports if port.name == rule.args["out"]), None)
    weight = next((port for port in factors if port.kind == CONSTANT and _is_free(network, port)), None)
    others = [network.types[port.id] for port in factors if port is not weight]
    none, kind = np.zeros(1), network.type_of(weight)
    if kind is None or kind.blocks or result is None:
        return None, none, none
    product = np.ones(1)
    for other in others:
        if other is None or other.blocks or 1 < len(other.scales) != len(kind.scales):
            return None, none, none
        product = product * np.asarray(other.scales)
    if kind.is_per_tensor:
        product = np.array([product.min(), product.max()])
    low, high = multiplier_range(rule.args)
    made = np.asarray(result.scales)
    least, most = low * made.max() / product, high * made.min() / product
    if kind.is_per_tensor:  # one scale has to serve all channels
        least, most = least.max(keepdims=True), most.min(keepdims=True)
    return weight, least, most


def _is_free(network: Typing, port: Port) -> bool:
    return port.pin is None and network.values[port.value].pin is None


def _is_mute(
    network: Typing, kernel: Kernel, rule: Rule, weight: Port, kind: Uniform
) -> npt.NDArray[np.bool_]:
    """Which slices of a constant have sums of products within half a step of the result, whatever is read."""
    constant = network.graph.constants[network.values[weight.value].name]
    if constant.array is None or kind.axis is None:
        return np.zeros(1, bool)
    lows, highs = slice_ranges(constant, kind.axis)
    most = np.maximum(np.abs(np.asarray(lows)), np.abs(np.asarray(highs))) * constant.array.size / len(lows)
    for port in ports_of(network, kernel):
        other = network.types[port.id]
        if port.name in rule.args["of"] and port is not weight and other is not None:
            most = most * max(other.scales) * (other.storage.qmax - other.storage.qmin)
        if port.name == rule.args["out"] and other is not None:
            most = most / min(other.scales)
    return np.asarray(most < _HALF)


def outside(network: Typing, kernel: Kernel, rule: Rule) -> tuple[int, float, bool] | None:
    """The first channel whose multiplier lies outside the range, the multiplier, whether all could shrink.

    None where all lie within.
    """
    multipliers = multipliers_of(*kernel_views(network, kernel), rule.args)
    if multipliers is None:
        return None
    low, high = multiplier_range(rule.args)
    wrong = np.flatnonzero((multipliers < low) | (multipliers > high))
    if not wrong.size:
        return None
    # A coarser result makes every multiplier smaller; its weight may then grow where one is too small.
    return int(wrong[0]), float(multipliers[wrong[0]]), bool(multipliers.max() > high)


def grown_result(
    network: Typing, kernel: Kernel, rule: Rule, before: Mapping[PortId, Grown]
) -> dict[PortId, Grown]:
    """The result's least scale, where it is free and growing it to that is worth it; {} where not."""
    port = next((port for port in present(network, kernel.outputs) if port.name == rule.args["out"]), None)
    multipliers = multipliers_of(*kernel_views(network, kernel), rule.args)
    kind = network.type_of(port)
    if port is None or kind is None or multipliers is None:
        return {}
    times = before[port.side].times + 1 if port.side in before else 1
    extent = network.required[port.id]
    if (
        extent is None
        or port.kind != CLASS
        or port.id in network.computed
        or port.fixed is not None
        or port.pin is not None
        or times > TRIES
    ):
        return {}
    scale = float(multipliers.max()) * kind.scale / multiplier_range(rule.args)[1] * SLACK
    least = _above(scale, power_of_two=port.spec.power_of_two)
    plain = next(pattern for side, pattern in _patterns(kernel) if side == port.side)
    own, _ = label_for(extent, replace(port.spec, scale_min=plain))
    bits = math.log2(least / own)
    if least > (port.spec.scale_max or math.inf) or not is_worth_it(network, kernel, bits):
        return {}
    return {
        port.side: Grown(
            least, f"{_said(rule)}: a scale of at least {least!r}, {bits:.2f} bits coarser", times
        )
    }


def _patterns(kernel: Kernel) -> list[tuple[PortId, float | None]]:
    """The row's own least scale at each output."""
    return [(("out", i), pattern.type.scale_min) for i, pattern in enumerate(kernel.choice.outputs)]


def _above(scale: float, *, power_of_two: bool) -> float:
    """The least scale of float32 that is no smaller."""
    rounded = np.float32(scale)
    rounded = rounded if rounded >= scale else np.nextafter(rounded, np.float32(np.inf))
    return float(np.exp2(np.ceil(np.log2(np.float64(rounded))))) if power_of_two else float(rounded)


def is_worth_it(network: Typing, kernel: Kernel, bits: float) -> bool:
    """Whether a result that is coarser by some bits costs no more than casts around the kernel in float."""
    costs = network.costs
    if costs.max_bits_lost is not None and bits > costs.max_bits_lost:
        return False
    read, made = (
        [network.values[port.value] for port in present(network, side)]
        for side in (kernel.inputs, kernel.outputs)
    )
    casts = costs.dequantize * sum(value.elements for value in read if not value.constant)
    casts += costs.quantize * sum(value.elements for value in made)
    lost = costs.bit_price * max(0.0, bits - costs.free_bits)
    return lost * sum(value.elements for value in made) <= casts


def _said(rule: Rule) -> str:
    low, high = rule.args["range"]
    return f"{rule.source}: multiplier_scale takes {low} to {high}"
