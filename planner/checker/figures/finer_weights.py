"""Re-verify pinned weights that are stored finer than their pin: for a bias, and as far as there is room.

Powers are judged, not searched: all fits at the ones that a plan has, and not at the next ones. A weight
whose bias lies on the grid of its sums has none. Source: docs/specification.md, section 11; tests/cases, case
65.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import NEAR, Served, refuse
from planner.checker.numbers import Extent
from planner.checker.weights import BIAS_BITS, usable
from planner.ir.types.qtypes import Bipolar, Storage, Uniform
from planner.ir.types.scales import F32_TINY
from planner.ir.types.typetext import brief
from planner.plans.records import Port
from planner.target.expressions import parse_number

Reals = npt.NDArray[Any]
Slices = npt.NDArray[np.bool_]


def check_finer(served: Served, extents: Mapping[int, Extent], told: Collection[str]) -> None:
    """A pinned weight has the finest scale that its bias asks for and all leaves room for, else its pin's.

    Args:
      told: addresses of the ports of which the log says so.
    """
    for position, port in enumerate(served.ports):
        pinned = _pinned(served, port) if port.value in served.graph.constants else None
        # A class has one type for all its members, and a rule may decide a port, whatever is pinned there.
        decided = position in served.reading.ruled or any(position in group for group in served.groups)
        if pinned is None or decided or not isinstance(port.type, Uniform):
            continue
        times = pinned / np.asarray(port.type.scales)
        extent = extents.get(position)
        case = _case(served, position, port.type, times, extent) if extent is not None else None
        if case is None:
            wrong = times > 1
        else:
            off = case.is_off()
            wrong = np.where(times > 1, ~(off & case.holds(1.0)), False) | (off & case.holds(2.0))
        if wrong.any():
            i = int(wrong.argmax())
            refuse(
                port.address,
                f"is {brief(port.type)}, in slice {i} {times[i]:g} times as fine as its pin; accepted: the "
                "greatest power of two that there is room for where its bias lies off the pin's grid, else 1",
                served.row,
            )
        if bool((times > 1).any()) != (port.address in told):
            refuse(
                port.address, f"is {brief(port.type)}; accepted: a step `finer` where that is not its pin's"
            )


def _pinned(served: Served, port: Port) -> Reals | None:
    """The scales by the facts of a constant, one a slice; None where they or the port say no grid."""
    kind = port.type
    facts = served.graph.values[port.value].facts
    if not isinstance(kind, Uniform) or any(isinstance(fact, Uniform) for fact in served.own_facts(port)):
        return None
    for fact in facts:
        if isinstance(fact, Bipolar):
            return np.full(len(kind.scales), fact.scale)
        if isinstance(fact, Uniform) and (fact.axis, len(fact.scales)) == (kind.axis, len(kind.scales)):
            return np.asarray(fact.scales)
    return None


@dataclass(frozen=True, slots=True)
class _Case:
    """A pinned weight beside the bias on the grid of its sums.

    Attributes:
      times: by how much the scales are finer than the pin's.
      numbers: of the bias, shape (channels,); `bias` is the storage, `least` the scale that its port accepts.
      others: scale of what is multiplied with the weight; `reach`: the farthest that is stored of it.
    """

    served: Served
    name: str
    kind: Uniform
    times: Reals
    extent: Extent
    beside: Reals
    numbers: Reals
    bias: Storage
    least: float
    other: Uniform

    def is_off(self) -> Slices:
        """Whether the bias of each slice has a number off the grid that the pin would give it."""
        steps = self.numbers / (np.asarray(self.kind.scales) * self.times * self.other.scale)
        return ~self._of_slices(np.abs(steps - np.round(steps)) <= NEAR * np.maximum(1.0, np.abs(steps)))

    def holds(self, more: float) -> Slices:
        """Whether all of each slice fits with scales so many times as fine as they are."""
        scales = np.asarray(self.kind.scales) / more
        steps = np.abs(self.numbers) / (scales * self.other.scale)
        return (
            self._is_stored(scales)
            & (self.times * more <= 2.0**self.kind.storage.bits)
            & (self.beside * self.times * more <= 0.5 * (1 - NEAR))
            & (scales >= max(self._spec().scale_min or 0.0, F32_TINY))
            & (scales * self.other.scale >= self.least)
            & self._of_slices(steps <= self._room())
            & self._of_slices(self._sums(more, np.round(steps)))
            & self._is_in_range(scales, 1 - NEAR if more == 1 else 1 + NEAR)
        )

    def _of_slices(self, channels: Slices) -> Slices:
        """What holds of each channel, as what holds of all channels of each slice."""
        return channels if len(self.kind.scales) > 1 else np.atleast_1d(channels.all())

    def _spec(self) -> Any:
        return next(p.type for p in self.served.patterns if p.name == self.name)

    def _is_stored(self, scales: Reals) -> Slices:
        store = usable(self.kind.storage, self._spec())
        zeros = np.asarray(self.kind.zero_points)
        low, high = np.rint(self.extent.lo / scales) + zeros, np.rint(self.extent.hi / scales) + zeros
        return self._of_slices((low >= store.qmin) & (high <= store.qmax))

    def _room(self) -> float:
        sums = self.served.row.accumulator
        store = sums if sums is not None and sums.bits < self.bias.bits else self.bias
        return float(1 << BIAS_BITS) if store.bits == 32 else store.qmax / 2

    def _sums(self, more: float, steps: Reals) -> Slices:
        store, sums = self.served.row.accumulator, self.extent.sums
        if store is None or sums.size != steps.size:
            return np.ones(steps.shape, bool)
        low, high = self.other.storage.qmin, self.other.storage.qmax
        farthest = max(high - self.other.zero_points[0], self.other.zero_points[0] - low)
        return np.asarray(sums * more * farthest + steps <= store.qmax)

    def _is_in_range(self, scales: Reals, slack: float) -> Slices:
        fits = np.ones(scales.shape, bool)
        for rule in self.served.row.rules:
            if rule.kind != "multiplier_scale" or rule.args.get("range") is None:
                continue
            made = [port.type for port in self.served.named(rule.args["out"])]
            if self.name in rule.args["of"] and made and isinstance(made[0], Uniform):
                multipliers = scales * self.other.scale / np.asarray(made[0].scales)
                low = float(parse_number(rule.args["range"][0]))
                fits &= self._of_slices(multipliers >= low * slack)
        return fits


def _case(served: Served, position: int, kind: Uniform, times: Reals, extent: Extent) -> _Case | None:
    """What bounds a weight at a port; None where no bias has a say in its scale."""
    name = served.patterns[position].name
    rules = [r for r in served.row.rules if r.kind == "multiplier_accumulator_scale" and name in r.args["of"]]
    biases = [served.ports.index(port) for rule in rules for port in served.named(rule.args["port"])]
    if len(rules) != 1 or not biases or kind.blocks or kind.ranges or kind.storage.float_name:
        return None
    others = [port.type for one in rules[0].args["of"] if one != name for port in served.named(one)]
    bias, spec = served.ports[biases[0]], served.patterns[biases[0]].type
    facts = (*served.graph.values[bias.value].facts, *served.own_facts(bias))
    known, weight = served.numbers.get(bias.value), served.numbers.get(served.ports[position].value)
    if any(isinstance(fact, Uniform) for fact in facts) and not served.derives_bias:
        return None
    if known is None or known.array is None or not known.array.size or not np.all(np.isfinite(known.array)):
        return None
    if weight is None or weight.array is None or not weight.array.size or len(others) != 1:
        return None
    other, numbers = others[0], known.array.reshape(-1).astype(np.float64)
    if not isinstance(other, Uniform) or not other.is_per_tensor or not isinstance(spec.storage, Storage):
        return None
    if len(kind.scales) not in (1, numbers.size):
        return None
    beside = _beside(weight.array, np.asarray(kind.scales) * times, kind.axis)
    least = max(spec.scale_min or 0.0, F32_TINY)
    return _Case(served, name, kind, times, extent, beside, numbers, spec.storage, least, other)


def _beside(array: Reals, scales: Reals, axis: int | None) -> Reals:
    """The farthest that a number of each slice lies from the pin's grid, in steps of float32."""
    rows = array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0).reshape(len(scales), -1)
    steps = rows / scales.astype(np.float32)[:, None]
    return np.asarray(np.abs(steps - np.rint(steps)).max(axis=1), np.float64)
