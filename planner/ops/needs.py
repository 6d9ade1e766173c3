"""Needs: the part of its operands' ranges that an op can distinguish, given the needed range of its result.

A softmax sends all that lies far below the greatest entry of a row to 0; a sigmoid's storage has a first and
a last step. Sums, differences and products hand on the range that is needed of them. Source:
docs/specification.md, section 10; cases 59 to 64.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ir.types.intervals import ALL, Interval, cut_to
from planner.ir.types.qtypes import Calibrated

FLOAT_STEP: Final = 2.0**-24
"""The step of a softmax's result in float32, whose greatest is 1."""
UNSTORED: Final = (1 << 8) - 1
"""Steps of an operand that is stored nowhere, where a bound has to be worth handing on."""
FAR: Final = 1e4
LEAK: Final = 0.01
"""The slope of a LeakyRelu that has none of its own."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A function of one operand that rises from `least` to 1, its inverse, and an op's parameters."""

    of: Callable[[float, float, float], float]
    inverse: Callable[[float, float, float], float]
    least: float = 0.0
    alpha: float = 1.0
    beta: float = 0.0


def _sigmoid(x: float, alpha: float, _: float) -> float:
    return 1.0 / (1.0 + math.exp(-alpha * x)) if alpha * x > -700.0 else 0.0


def _solved(function: Callable[[float], float], y: float, low: float, high: float) -> float:
    """Solve a function that rises between two reals for a value, to the last bit, by bisection."""
    for _ in range(128):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < y else (low, middle)
    return low


ERF: Final = Curve(lambda x, *_: math.erf(x), lambda y, *_: _solved(math.erf, y, -6.0, 6.0), -1.0)
GELU: Final = Curve(lambda x, *_: 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))), lambda *_: math.nan)
SIGMOID: Final = Curve(_sigmoid, lambda y, alpha, _: math.log(y / (1.0 - y)) / alpha)
HARD: Final = Curve(
    lambda x, a, b: min(max(a * x + b, 0.0), 1.0), lambda y, a, b: (y - b) / a, alpha=0.2, beta=0.5
)
HARD_SWISH: Final = replace(HARD, alpha=1 / 6)
TANH: Final = Curve(lambda x, *_: math.tanh(x), lambda y, *_: math.atanh(y), -1.0)
Gate: TypeAlias = tuple[Op, Curve]
"""The op that makes one side of `x * gate(x)` out of the other, and its function."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One op whose operands' needs are computed.

    Attributes:
      kept: the needed range of its result, in reals.
      step: of the result's storage; None in float.
      ranges, levels: of each operand, its range, and the steps of the storage it is read in; None: unknown.
      gates: by operand of a product, the gate that makes it out of the other one.
      tells_small: whether a consumer of the result distinguishes small numbers.
    """

    graph: Graph
    op: Op
    kept: Interval
    step: float | None
    ranges: tuple[Interval | None, ...]
    levels: tuple[int | None, ...]
    gates: Mapping[int, Gate]
    tells_small: Callable[[], bool]


NeededRule: TypeAlias = Callable[[Ask, int], Interval]
"""The needed range of an operand, by its place."""


def softmax(ask: Ask, _: int) -> Interval:
    """Below `row_max - ln(n / step) - 1` all entries of a row together are less than 0.4 of a step."""
    value = ask.graph.values[ask.op.inputs[0]]
    if not value.shape:
        return ALL
    axis = int(ask.op.attributes.get("axis", -1)) % len(value.shape)
    seen = (fact for fact in value.facts if isinstance(fact, Calibrated))
    row = next((row for fact in seen for row in fact.row_max if row.axis == axis), None)
    size = value.shape[axis]
    entries = size if isinstance(size, int) else row.entries if row is not None else None
    if row is None or not entries or (ask.step is None and ask.tells_small()):
        return ALL
    return row.least - math.log(entries / (ask.step or FLOAT_STEP)) - 1.0, math.inf


def added(ask: Ask, i: int) -> Interval:
    """A sum that is needed from `lo` up: an operand counts from `lo` minus the greatest of the other."""
    lo, hi = ask.kept
    second, first = (ALL if other is None else (lo - other[1], hi - other[0]) for other in ask.ranges)
    return _opened(ask, (first, second), i)


def subtracted(ask: Ask, i: int) -> Interval:
    """A difference: the floor of what is kept of it is a ceiling of the second operand."""
    (lo, hi), (a, b) = ask.kept, ask.ranges
    first = ALL if b is None else (lo + b[0], hi + b[1])
    second = ALL if a is None else (a[0] - hi, a[1] - lo)
    return _opened(ask, (first, second), i)


def _opened(ask: Ask, needed: tuple[Interval, Interval], i: int) -> Interval:
    """The needed range of one operand, its ends one step of the coarsest operand further out."""
    widest = 0.0
    for extent, levels, ends in zip(ask.ranges, ask.levels, needed, strict=True):
        if extent is not None and levels is not None:
            lo, hi = cut_to(extent, ends)
            widest = max(widest, (max(hi, 0.0) - min(lo, 0.0)) / levels)
    return needed[i][0] - widest, needed[i][1] + widest


def multiplied(ask: Ask, i: int) -> Interval:
    """A product with a constant of one sign, with numbers of which one is 0, or with a gate."""
    gate = ask.gates.get(1 - i)
    if gate is not None:
        return _tail(ask, *gate)
    two = _two_values(ask, 1 - i)
    if two is not None:
        return _over(ask.kept, np.array([two])) if ask.op.inputs[i] in ask.graph.constants else ALL
    return _scaled(ask, i, _numbers(ask, 1 - i))


def divided(ask: Ask, i: int) -> Interval:
    """A quotient by constants."""
    numbers = _numbers(ask, 1)
    return ALL if i or numbers is None or not numbers.all() else _scaled(ask, 0, 1.0 / numbers)


def leaky(ask: Ask, _: int) -> Interval:
    """A line of slope 1 above 0 and of another below: the ends of what is kept, back along it."""
    alpha = float(ask.op.attributes.get("alpha", LEAK))
    if alpha <= 0.0:
        return ALL
    lo, hi = (end / alpha if end < 0.0 else end for end in ask.kept)
    return lo, hi


def _scaled(ask: Ask, i: int, numbers: np.ndarray | None) -> Interval:
    """The needed range of an operand that is multiplied with these numbers, if it is worth handing on."""
    extent = ask.ranges[i]
    if numbers is None or extent is None or _two_values(ask, i) is not None:
        return ALL
    needed = _over(ask.kept, numbers)
    lo, hi = cut_to(extent, needed)
    levels = ask.levels[i] or UNSTORED
    return needed if hi - lo >= (extent[1] - extent[0]) / (levels + 1) else ALL


def _over(kept: Interval, numbers: np.ndarray) -> Interval:
    """The range of an operand whose products with numbers of one sign are kept so far; ALL of any other."""
    if not numbers.size or not np.isfinite(numbers).all() or not ((numbers > 0).all() or (numbers < 0).all()):
        return ALL
    lo, hi = kept if numbers.flat[0] > 0 else kept[::-1]
    with np.errstate(over="ignore"):
        return float((lo / numbers).min()), float((hi / numbers).max())


def _numbers(ask: Ask, i: int) -> np.ndarray | None:
    constant = ask.graph.constants.get(ask.op.inputs[i])
    return None if constant is None or constant.array is None else constant.array.astype(np.float64)


def _two_values(ask: Ask, i: int) -> float | None:
    """The number v of an operand that was observed to be 0 or v."""
    value = ask.graph.values.get(ask.op.inputs[i])
    seen = [fact for fact in value.facts if isinstance(fact, Calibrated)] if value is not None else []
    if not seen or not seen[0].two_values or 0.0 not in (seen[0].lo, seen[0].hi):
        return None
    return seen[0].lo + seen[0].hi or None


def _tail(ask: Ask, gate: Op, curve: Curve) -> Interval:
    """The range from the x below which `x * gate(x)` is within half a step of 0."""
    alpha, beta = gate.attributes.get("alpha", curve.alpha), gate.attributes.get("beta", curve.beta)
    if ask.step is None or alpha <= 0.0:
        return ALL
    lowest = _lowest(curve, alpha, beta)
    least, half = lowest * curve.of(lowest, alpha, beta), ask.step / 2
    if least >= -half:
        return 0.0, math.inf
    # Left of its minimum the product only falls, from 0 far away.
    far = -FAR / min(alpha, 1.0)
    return _solved(lambda x: -x * curve.of(x, alpha, beta), half, far, lowest), math.inf


@lru_cache(maxsize=64)
def _lowest(curve: Curve, alpha: float, beta: float) -> float:
    """The x of the least `x * gate(x)`, to a hundredth of where the gate begins to open."""
    places = (-k / (100.0 * alpha) for k in range(1001))
    return min(places, key=lambda x: x * curve.of(x, alpha, beta))


def bounded(curve: Curve) -> NeededRule:
    """A function of the first operand, between the ends that the result's storage still distinguishes."""

    def needed(ask: Ask, i: int) -> Interval:
        alpha, beta = ask.op.attributes.get("alpha", curve.alpha), ask.op.attributes.get("beta", curve.beta)
        if i or ask.step is None or alpha <= 0.0:
            return ALL
        half = ask.step / 2
        least, most = max(ask.kept[0], curve.least + half), min(ask.kept[1], 1.0 - half)
        if least >= most:
            return ALL
        # Steps finer than a double near the ends leave no end.
        floor = curve.inverse(least, alpha, beta) if least > curve.least else -math.inf
        return floor, curve.inverse(most, alpha, beta) if most < 1.0 else math.inf

    return needed


def gated(curve: Curve) -> NeededRule:
    """`x * gate(x)` as one op."""
    return lambda ask, i: ALL if i else _tail(ask, ask.op, curve)


HANDING: Final = frozenset({added, divided, leaky, multiplied, subtracted})
"""Rules that need less than everything only where less is needed of the result, or a gate is multiplied."""
