"""Bias grids: a weight of fixed type stored times 2^k, its scale over 2^k, where its bias lies off its grid.

A bias is rounded to the product of its factors' scales. Weights of few bits have a coarse scale, and in a
wider storage the same numbers have a finer one: nothing of the weight changes, and its bias is rounded to
steps 2^k times smaller. Free weights fill their storage already. Source: docs/specification.md, section 11;
tests/cases, case 65.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.types.pinned_numbers import integers_in_use
from planner.ir.types.qtypes import Bipolar, Storage, Uniform
from planner.ir.types.ranges import farthest
from planner.ir.types.scales import F32_TINY
from planner.propagation.network.ports import CONSTANT, Kernel, Port, ports_of
from planner.propagation.parameters.accumulators import weight_sums
from planner.propagation.parameters.typed import Typing, kernel_views
from planner.target.ports.accepts import bias_room, usable
from planner.target.records import Row, Rule
from planner.target.rules import multiplier_range, multipliers_of

NEAR: Final = 1e-6
"""Part of a bias (or of a step, for one within a step) that float32 products of scales leave in doubt."""
Reals: TypeAlias = npt.NDArray[np.float64]
Powers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sum:
    """A weight of fixed type, the bias on the grid of its sums, and what else is multiplied with it.

    Attributes:
      steps: numbers of the bias in steps of its grid, shape (channels,).
    """

    weight: Port
    kind: Uniform
    bias: Port
    store: Storage
    other: Uniform
    steps: Reals

    @property
    def scales(self) -> Reals:
        """Of the weight, one or one a channel."""
        return np.asarray(self.kind.scales)

    @property
    def errors(self) -> Reals:
        """Return how far rounding the bias to its grid moves it, in reals, shape (channels,)."""
        return np.abs(self.steps - np.rint(self.steps)) * self.scales * self.other.scale


def finer_weight(network: Typing, kernel: Kernel, row: Row, rule: Rule) -> tuple[Port, Uniform, str] | None:
    """A weight of fixed type, its type with finer scales for its bias's sake, and why; None where all stays.

    Args:
      rule: a `multiplier_accumulator_scale`.
    """
    found = sum_of(network, kernel, row, rule)
    if found is None:
        return None
    off = np.abs(found.steps - np.rint(found.steps)) > NEAR * np.maximum(np.abs(found.steps), 1.0)
    wanted = off if found.scales.size > 1 else off.any(keepdims=True)
    powers = np.where(wanted, _greatest(network, kernel, row, found), 0) if off.any() else np.zeros(1, int)
    if not powers.any():
        return None
    least, most = powers[wanted].min(), powers.max()
    times = f"2^{most}" if least == most else f"2^{least} to 2^{most}"
    why = f"stored times {times}, as {network.values[found.bias.value].name!r} has numbers off its grid: "
    why += f"{np.count_nonzero(off)} of {off.size}"
    scales = (found.scales / np.exp2(powers)).tolist()
    return found.weight, replace(found.kind, scales=tuple(scales)), why


def sum_of(network: Typing, kernel: Kernel, row: Row, rule: Rule) -> Sum | None:
    """Return the factors and the bias of a rule whose weight has a fixed type and whose bias has none."""
    ports = {port.name: port for port in ports_of(network, kernel)}
    bias = ports.get(str(rule.args["port"]))
    factors = [ports[name] for name in rule.args["of"] if name in ports]
    weight = next((port for port in factors if _is_pinned_weight(network, port)), None)
    others = [network.types[port.id] for port in factors if port is not weight]
    kind = network.type_of(weight)
    if bias is None or weight is None or kind is None or len(others) != 1 or _is_shared(weight, row):
        return None
    other, store = others[0], bias.spec.storage
    data = _free_numbers(network, bias)
    if kind.blocks or kind.ranges or other is None or not other.is_per_tensor or data is None:
        return None
    if not isinstance(store, Storage) or len(kind.scales) not in (1, data.size):
        return None
    return Sum(weight, kind, bias, store, other, data / (np.asarray(kind.scales) * other.scale))


def _is_pinned_weight(network: Typing, port: Port) -> bool:
    """Whether the model says the grid of a constant; a type of the port itself is kept to the letter."""
    value, kind = network.values[port.value], network.types[port.id]
    if port.kind != CONSTANT or port.pin is not None or kind is None or kind.storage.float_name:
        return False
    facts = network.graph.values[value.name].facts
    return value.pin is not None or any(isinstance(fact, Bipolar) for fact in facts)


def _free_numbers(network: Typing, bias: Port) -> Reals | None:
    """The numbers of a bias that no fixed type keeps on a grid of its own; None of others."""
    value = network.values[bias.value]
    constant = network.graph.constants.get(value.name)
    if constant is None or constant.array is None or not constant.array.size:
        return None
    if (bias.pin is not None or value.pin is not None) and not network.derives_bias:
        return None
    data = constant.array.reshape(-1).astype(np.float64)
    return data if np.all(np.isfinite(data)) else None


def _is_shared(weight: Port, row: Row) -> bool:
    """Whether several biases have a weight among their factors: each would ask for a grid of its own."""
    rules = [rule for rule in row.rules if rule.kind == "multiplier_accumulator_scale"]
    return sum(weight.name in rule.args["of"] for rule in rules) > 1


def _greatest(network: Typing, kernel: Kernel, row: Row, found: Sum) -> Powers:
    """The greatest power of each slice that leaves all within its bounds, 0 where none does."""
    bounds = [*_stored_bounds(network, found), *_scale_bounds(network, kernel, row, found)]
    room = bias_room(found.store, row)
    with np.errstate(divide="ignore"):
        own = room / np.abs(found.steps)
    bounds.append(own if found.scales.size > 1 else own.min(keepdims=True))
    most = np.clip(np.min(np.broadcast_arrays(*bounds), axis=0), 0.5, 2.0**found.kind.storage.bits)
    powers: Powers = np.maximum(np.frexp(most)[1] - 1, 0).astype(np.int64)
    # Rounding a bias is not linear, so the sums are looked at for each power.
    while np.any(beyond := (powers > 0) & ~_are_summed(network, kernel, row, found, np.exp2(powers))):
        powers = np.where(beyond, powers - 1, powers)
    return powers


def _stored_bounds(network: Typing, found: Sum) -> list[Reals]:
    """How many times as large the stored numbers of each slice may be; less than 1 where they are none."""
    constant = network.graph.constants[network.values[found.weight.value].name]
    kind, store = found.kind, usable(found.kind.storage, found.weight.spec)
    used = integers_in_use(kind, constant)
    if used is None or constant.array is None or not constant.array.size:
        return [np.zeros(1)]
    zeros = np.asarray(kind.zero_points)
    with np.errstate(divide="ignore", invalid="ignore"):
        # On a side of the zero point where no number lies there is room without end, also where the zero
        # point is the storage's end.
        below = np.where(used[0] < zeros, (zeros - store.qmin) / np.abs(zeros - used[0]), np.inf)
        above = np.where(used[1] > zeros, (store.qmax - zeros) / np.abs(used[1] - zeros), np.inf)
        # Numbers beside the pin's grid would round to other reals on a finer one.
        kept = 0.5 / _beside(kind, constant.array) * (1 - NEAR)
    return [below, above, kept]


def _beside(kind: Uniform, array: npt.NDArray[Any]) -> Reals:
    """How far the numbers of each slice lie from their grid, in steps, shape (n_slices,)."""
    shape = [-1 if i == kind.axis else 1 for i in range(array.ndim)]
    steps = array / np.asarray(kind.scales, np.float32).reshape(shape)
    others = tuple(i for i in range(array.ndim) if i != kind.axis)
    return np.atleast_1d(np.abs(steps - np.rint(steps)).max(axis=others)).astype(np.float64)


def _scale_bounds(network: Typing, kernel: Kernel, row: Row, found: Sum) -> list[Reals]:
    """How many times as fine scales may be: the weight's, the bias's, and those that multipliers leave."""
    bounds = [
        found.scales / max(found.weight.spec.scale_min or 0.0, F32_TINY),
        found.scales * found.other.scale / max(found.bias.spec.scale_min or 0.0, F32_TINY),
    ]
    for rule in row.rules:
        has_range = rule.kind == "multiplier_scale" and rule.args.get("range") is not None
        if has_range and found.weight.name in rule.args["of"]:
            multipliers = multipliers_of(*kernel_views(network, kernel), rule.args)
            low = multiplier_range(rule.args)[0]
            if multipliers is not None and low > 0:
                own = multipliers / low
                bounds.append(own if found.scales.size > 1 else own.min(keepdims=True))
    return bounds


def _are_summed(network: Typing, kernel: Kernel, row: Row, found: Sum, times: Reals) -> npt.NDArray[np.bool_]:
    """Whether the accumulator holds every sum of each slice, weights and bias so many times as large."""
    inputs = [network.ports[p] for p in kernel.inputs if p >= 0]
    if row.accumulator is None or len(inputs) < 2 or inputs[1] is not found.weight:
        return np.ones(times.shape, bool)
    sums = weight_sums(network, kernel, found.weight, found.kind)
    if sums is None or sums.size != found.steps.size:
        return np.ones(times.shape, bool)
    all_of = sums * times * farthest(found.other) + np.rint(np.abs(found.steps) * times)
    fits = all_of <= row.accumulator.qmax
    return np.asarray(fits if times.size > 1 else fits.all(keepdims=True))
