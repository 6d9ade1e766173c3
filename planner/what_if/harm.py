"""Harm: what the types of one plan cost the numbers, beside those of another plan of the same model.

A price does not say it: the loss and clipping of a fixed type are unavoidable once the type is there. Only
ranges are known here, so decibels are an estimate: 6.02 for each bit that a consumer loses, and for clipping
the most it can be, as if numbers were spread evenly over their range.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.ir.types.qtypes import Calibrated, Uniform
from planner.plans.diff import stored_types
from planner.plans.plan import Plan

DECIBELS: Final = 20 * math.log10(2)
"""Decibels of one bit."""
HARMLESS: Final = 0.01
"""Share of a range that may be cut off, as `max_clip` has it."""


@dataclass(frozen=True, slots=True)
class Harm:
    """The worst of it; a name is "" where there is nothing.

    Attributes:
      cut: largest share of a value's range, observed or else fixed, that the new types clip and the old ones
        did not.
      cut_at: that value.
      lost: most bits that a consumer of a value loses more than before, bits of a narrower storage among
        them.
      lost_at: that value.
      decibels: how much less of signal to noise the worse of the two leaves there.
    """

    cut: float = 0.0
    cut_at: str = ""
    lost: float = 0.0
    lost_at: str = ""
    decibels: float = 0.0

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report."""
        if self.cut > HARMLESS:
            most = f", up to {self.decibels:.0f} dB" if self.decibels >= 1 else ""
            yield f"cuts off {self.cut:.0%} of the range of {self.cut_at!r}{most}"
        if self.lost >= 0.005:
            decibels = DECIBELS * self.lost
            yield f"consumers of {self.lost_at!r} lose {self.lost:.2f} bits more, {decibels:.1f} dB"


def harm(before: Plan, after: Plan) -> Harm:
    """Compare two plans of one model; ranges of values are those of the facts of `before`."""
    touched = _touched(before, after)
    cuts = [(_newly_cut(before, after, name), name) for name in touched]
    losses = [(_more_lost(before, after, name), name) for name in touched]
    cut = max([(0.0, ""), *cuts], key=lambda one: one[0])
    lost = max([(0.0, ""), *losses], key=lambda one: one[0])
    noises = [_decibels(before, name, share) for share, name in cuts if share]
    return Harm(*cut, *lost, max([DECIBELS * lost[0], *noises]))


def _touched(before: Plan, after: Plan) -> list[str]:
    """Values that do not stand alike in both plans."""
    moved = [name for name, value in after.values.items() if value != before.values.get(name)]
    for kernel in before.kernels_in_order:
        other = after.kernels[kernel.name]
        if other is not kernel and other != kernel:
            moved += [port.value for port in (*other.inputs, *other.outputs) if port.value in before.values]
    return list(dict.fromkeys(moved))


def _more_lost(before: Plan, after: Plan, name: str) -> float:
    """Additional bits that consumers of a value lose, those of a narrower storage included."""
    old, new = _bits(before, name), _bits(after, name)
    narrower = old - new if old and new else 0  # a float has no steps to compare
    return after.values[name].bits_lost - before.values[name].bits_lost + narrower


def _bits(plan: Plan, name: str) -> int:
    """Of the narrowest storage a value is in; 0 where it is in none."""
    return min((kind.storage.range_bits for kind in stored_types(plan, name)), default=0)


def _newly_cut(before: Plan, after: Plan, name: str) -> float:
    """Share of a value's range that a port of the new plan cuts off, if no old one did."""
    old = max((_cut(before, name, kind) for kind in stored_types(before, name)), default=0.0)
    new = max((_cut(before, name, kind) for kind in stored_types(after, name)), default=0.0)
    return new if new > old else 0.0


def _range(plan: Plan, name: str) -> tuple[float, float]:
    """A value's range by the facts of a plan, observed or else fixed, widened to contain 0."""
    facts = plan.graph.values[name].facts
    seen = [(fact.lo, fact.hi) for fact in facts if isinstance(fact, Calibrated)]
    known = seen or [(fact.lo, fact.hi) for fact in facts if isinstance(fact, Uniform)]
    return min([0.0, *(lo for lo, _ in known)]), max([0.0, *(hi for _, hi in known)])


def _cut(plan: Plan, name: str, kind: Uniform) -> float:
    """Share of a value's range that a type leaves out."""
    lo, hi = _range(plan, name)
    outside = max(kind.lo - kind.scale / 2 - lo, 0.0) + max(hi - kind.hi - kind.scale / 2, 0.0)
    return outside / (hi - lo) if outside else 0.0


def _decibels(plan: Plan, name: str, share: float) -> float:
    """Noise of cutting a share off, beside that of the steps a plan has: share^3 / 3 to step^2 / 12."""
    lo, hi = _range(plan, name)
    scales = [kind.scale for kind in stored_types(plan, name) if kind.is_per_tensor]
    steps = (hi - lo) / max(scales) if scales else 255.0
    return 10 * math.log10(1 + 4 * share**3 * steps**2)
