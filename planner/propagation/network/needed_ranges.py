"""Needed ranges: what a kernel that computes can tell apart of what it reads, by the numbers of its ops.

A softmax sends all that lies far below the greatest entry of a row to 0; a sigmoid's storage has a first and
a last step. What such a reader needs is handed on to the operands of the sums, differences and products in
front of it, so that a mask of -3.4e38 does not decide their scales. Kernels that move data are
`value_ranges`' own. Where nothing is known, everything is needed.
Source: docs/specification.md, section 10; cases 59 to 64.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from planner.ir.graph import Op
from planner.ir.roles import is_mover
from planner.ir.types.qtypes import Calibrated, Storage
from planner.propagation.network.ports import (
    ALL,
    Interval,
    Kernel,
    Network,
    Port,
    Ranged,
    cut_to,
    hull,
    present,
    range_in,
)
from planner.propagation.selection.reach import known_range

FLOAT_STEP: Final = 2.0**-24
"""The step of a softmax's result in float32, whose greatest is 1."""
UNSTORED: Final = (1 << 8) - 1
"""Steps of an operand that is stored nowhere, where a bound has to be worth handing on."""
FAR: Final = 1e4
LEAK: Final = 0.01
"""The slope of a LeakyRelu that has none of its own."""
BY_RATIO: Final = frozenset({"Div", "Log", "Pow", "Reciprocal", "Sqrt"})
"""Ops to which a small float is as good as a large one."""
HANDING: Final = frozenset({"Add", "Div", "LeakyRelu", "Mul", "Sub"})
"""Ops that need less than everything only where less is needed of their result, or a gate is multiplied."""


@dataclass(frozen=True, slots=True)
class _Curve:
    """A function of one operand that rises from `least` to 1, its inverse, and an op's parameters."""

    of: Callable[[float, float, float], float]
    inverse: Callable[[float, float, float], float]
    least: float = 0.0
    alpha: float = 1.0
    beta: float = 0.0


def _sigmoid(x: float, alpha: float, _: float) -> float:
    return 1.0 / (1.0 + math.exp(-alpha * x)) if alpha * x > -700.0 else 0.0


def _solved(function: Callable[[float], float], y: float, low: float, high: float) -> float:
    """Where a function that only rises between two reals takes a value, to the last bit, by bisection."""
    for _ in range(128):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < y else (low, middle)
    return low


_SIGMOID: Final = _Curve(_sigmoid, lambda y, alpha, _: math.log(y / (1.0 - y)) / alpha)
_HARD: Final = _Curve(
    lambda x, a, b: min(max(a * x + b, 0.0), 1.0), lambda y, a, b: (y - b) / a, alpha=0.2, beta=0.5
)
_CURVES: Final[Mapping[str, _Curve]] = {
    "Erf": _Curve(lambda x, *_: math.erf(x), lambda y, *_: _solved(math.erf, y, -6.0, 6.0), -1.0),
    "HardSigmoid": _HARD,
    "Sigmoid": _SIGMOID,
    "Tanh": _Curve(lambda x, *_: math.tanh(x), lambda y, *_: math.atanh(y), -1.0),
}
_GATES: Final[Mapping[str, _Curve]] = {
    "Gelu": _Curve(lambda x, *_: 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))), lambda *_: math.nan),
    "HardSigmoid": _HARD,
    "HardSwish": replace(_HARD, alpha=1 / 6),
    "Sigmoid": _SIGMOID,
    "Swish": _SIGMOID,
}
"""The gate in `x * gate(x)`, by the op that computes it, or the whole."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """One op whose operands are looked at.

    Attributes:
      kept: what is asked of its result, in reals.
      step: of the result's storage; None in float.
      ranges, levels: of each operand, its range, and the steps of the storage it is read in; None: unknown.
    """

    network: Ranged
    kernel: Kernel
    op: Op
    kept: Interval
    step: float | None
    ranges: tuple[Interval | None, ...]
    levels: tuple[int | None, ...]


def asks(network: Network, kernel: Kernel, given: Sequence[Interval | None]) -> bool:
    """Whether an op of a kernel may need less than everything.

    Args:
      given: of each value, what its kernel has to give of it.
    """
    types = {op.type for op in kernel.choice.region.ops} & _RULES.keys()
    # Of most nets all sums are needed whole, and there is nothing to hand on.
    if not types <= HANDING - {"Mul"}:
        return True
    kept = (given[port.value] for port in present(network, kernel.outputs) if types)
    return any(one is not None and one != ALL for one in kept)


def needs_of(network: Ranged, kernel: Kernel, given: Sequence[Interval | None]) -> Mapping[str, Interval]:
    """What the kernel needs of each value it reads, by name, in reals; those not named it needs whole.

    Args:
      given: of each value, what its kernel has to give of it; that of the kernel's results has to be known.
    """
    region = kernel.choice.region
    results = {network.values[port.value].name: port for port in present(network, kernel.outputs)}
    asked: dict[str, list[Interval]] = {name: [given[port.value] or ALL] for name, port in results.items()}
    inside = {name for op in region.ops for name in op.outputs} - results.keys()
    for op in reversed(region.ops):
        if inside.issuperset(op.outputs) and not any(name in asked for name in op.outputs):
            continue  # a gate that only its own product reads
        kept = hull(one for name in op.outputs for one in asked.get(name, ())) or ALL
        port = results.get(op.outputs[0])
        ask = _Ask(
            network,
            kernel,
            op,
            kept,
            None if port is None else _step(network, port),
            tuple(_range(network, name) for name in op.inputs),
            tuple(_levels(network, kernel, name) for name in op.inputs),
        )
        gates = {name for i, name in enumerate(op.inputs) if op.type == "Mul" and _gate(ask, i) is not None}
        for name, needed in zip(op.inputs, _needed(ask), strict=True):
            if name not in gates & inside:
                asked.setdefault(name, []).append(needed)
    found = ((name, hull(asked.get(name, ()))) for name in region.inputs)
    return {name: needed for name, needed in found if name and needed is not None and needed != ALL}


def _needed(ask: _Ask) -> Iterator[Interval]:
    """What an op needs of each operand."""
    rule = _RULES.get(ask.op.type)
    values = ask.network.graph.values
    if (
        rule is None
        and is_mover(ask.op, ask.network.graph)
        and all(values[n].is_float for n in ask.op.outputs if n)
    ):
        yield from (ask.kept for _ in ask.op.inputs)
    else:
        yield from (ALL if rule is None else rule(ask, i) for i in range(len(ask.op.inputs)))


def _step(network: Ranged, port: Port) -> float | None:
    """The step of a result in its row's storage: fixed, else of its own range; None in float."""
    store, fixed = port.spec.storage, port.fixed or port.pin
    extent = range_in(network, port.value, port.spec)
    if not isinstance(store, Storage) or store.float_name:
        return None
    if fixed is not None:
        return fixed.scale if fixed.is_per_tensor else None
    if extent is None:
        return None
    return (max(extent[1], 0.0) - min(extent[0], 0.0)) / store.steps or None


def _range(network: Ranged, name: str) -> Interval | None:
    """What is known of a value's range, of one inside a kernel too."""
    number = network.value_ids.get(name)
    known = network.ranges[number] if number is not None else None
    return known or (known_range(network.graph, name) if name else None)


def _levels(network: Network, kernel: Kernel, name: str) -> int | None:
    """The steps of the storage in which a kernel reads a value; None in float, and inside the kernel."""
    for port in present(network, kernel.inputs):
        store = port.spec.storage
        if network.values[port.value].name == name and isinstance(store, Storage) and not store.float_name:
            return store.steps
    return None


def _softmax(ask: _Ask, _: int) -> Interval:
    """Below `row_max - ln(n / step) - 1` all entries of a row together are less than 0.4 of a step."""
    value = ask.network.graph.values[ask.op.inputs[0]]
    if not value.shape:
        return ALL
    axis = int(ask.op.attributes.get("axis", -1)) % len(value.shape)
    seen = (fact for fact in value.facts if isinstance(fact, Calibrated))
    row = next((row for fact in seen for row in fact.row_max if row.axis == axis), None)
    size = value.shape[axis]
    entries = size if isinstance(size, int) else row.entries if row is not None else None
    if row is None or not entries or (ask.step is None and _is_read_by_ratio(ask, ask.op.outputs[0])):
        return ALL
    return row.least - math.log(entries / (ask.step or FLOAT_STEP)) - 1.0, math.inf


def _is_read_by_ratio(ask: _Ask, result: str) -> bool:
    """Whether a reader of a float result, past movers, tells small numbers apart: a Log, a divisor."""
    network, waiting, seen = ask.network, [result], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        number = network.value_ids.get(name)
        uses = present(network, network.values[number].uses) if number is not None else []
        kernels = [ask.kernel, *(network.kernels[port.kernel] for port in uses)]
        readers = [op for kernel in kernels for op in kernel.choice.region.ops if name in op.inputs]
        if any(op.type in BY_RATIO for op in readers):
            return True
        waiting += [n for op in readers if is_mover(op, network.graph) for n in op.outputs if n not in seen]
    return False


def _added(ask: _Ask, i: int) -> Interval:
    """A sum told apart from `lo` up: an operand counts from `lo` minus the greatest of the other."""
    lo, hi = ask.kept
    second, first = (ALL if other is None else (lo - other[1], hi - other[0]) for other in ask.ranges)
    return _opened(ask, (first, second), i)


def _subtracted(ask: _Ask, i: int) -> Interval:
    """A difference: the floor of what is kept of it is a ceiling of the second operand."""
    (lo, hi), (a, b) = ask.kept, ask.ranges
    first = ALL if b is None else (lo + b[0], hi + b[1])
    second = ALL if a is None else (a[0] - hi, a[1] - lo)
    return _opened(ask, (first, second), i)


def _opened(ask: _Ask, needed: tuple[Interval, Interval], i: int) -> Interval:
    """What one operand is needed in, its ends one step of the coarsest operand further out."""
    widest = 0.0
    for extent, levels, ends in zip(ask.ranges, ask.levels, needed, strict=True):
        if extent is not None and levels is not None:
            lo, hi = cut_to(extent, ends)
            widest = max(widest, (max(hi, 0.0) - min(lo, 0.0)) / levels)
    return needed[i][0] - widest, needed[i][1] + widest


def _multiplied(ask: _Ask, i: int) -> Interval:
    """A product with a constant of one sign, with numbers of which one is 0, or with a gate."""
    gate = _gate(ask, 1 - i)
    if gate is not None:
        return _tail(ask, gate)
    two = _two_values(ask, 1 - i)
    if two is not None:
        return _over(ask.kept, np.array([two])) if ask.op.inputs[i] in ask.network.graph.constants else ALL
    return _scaled(ask, i, _numbers(ask, 1 - i))


def _divided(ask: _Ask, i: int) -> Interval:
    numbers = _numbers(ask, 1)
    return ALL if i or numbers is None or not numbers.all() else _scaled(ask, 0, 1.0 / numbers)


def _leaky(ask: _Ask, _: int) -> Interval:
    """A line of slope 1 above 0 and of another below: the ends of what is kept, back along it."""
    alpha = float(ask.op.attributes.get("alpha", LEAK))
    if alpha <= 0.0:
        return ALL
    lo, hi = (end / alpha if end < 0.0 else end for end in ask.kept)
    return lo, hi


def _scaled(ask: _Ask, i: int, numbers: np.ndarray | None) -> Interval:
    """What is needed of an operand that is multiplied with these numbers, if it is worth handing on."""
    extent = ask.ranges[i]
    if numbers is None or extent is None or _two_values(ask, i) is not None:
        return ALL
    needed = _over(ask.kept, numbers)
    lo, hi = cut_to(extent, needed)
    levels = ask.levels[i] or UNSTORED
    return needed if hi - lo >= (extent[1] - extent[0]) / (levels + 1) else ALL


def _over(kept: Interval, numbers: np.ndarray) -> Interval:
    """What may be of an operand whose products with numbers of one sign are kept so far; ALL of any other."""
    if not numbers.size or not np.isfinite(numbers).all() or not ((numbers > 0).all() or (numbers < 0).all()):
        return ALL
    lo, hi = kept if numbers.flat[0] > 0 else kept[::-1]
    with np.errstate(over="ignore"):
        return float((lo / numbers).min()), float((hi / numbers).max())


def _numbers(ask: _Ask, i: int) -> np.ndarray | None:
    constant = ask.network.graph.constants.get(ask.op.inputs[i])
    return None if constant is None or constant.array is None else constant.array.astype(np.float64)


def _two_values(ask: _Ask, i: int) -> float | None:
    """The number v of an operand that was observed to be 0 or v."""
    value = ask.network.graph.values.get(ask.op.inputs[i])
    seen = [fact for fact in value.facts if isinstance(fact, Calibrated)] if value is not None else []
    if not seen or not seen[0].two_values or 0.0 not in (seen[0].lo, seen[0].hi):
        return None
    return seen[0].lo + seen[0].hi or None


def _maker(ask: _Ask, name: str) -> Op | None:
    """The op that writes a value: of this kernel, or of the one whose result it is."""
    ops = ask.kernel.choice.region.ops
    number = ask.network.value_ids.get(name)
    made = ask.network.values[number].definition if number is not None else -1
    if made >= 0:
        ops = ask.network.kernels[ask.network.ports[made].kernel].choice.region.ops
    return next((op for op in ops if name in op.outputs), None)


def _gate(ask: _Ask, i: int) -> Op | None:
    """The op that makes an operand of a product out of the other one, where it is a gate."""
    op = _maker(ask, ask.op.inputs[i])
    is_gate = op is not None and op.type in _CURVES and op.type in _GATES
    return op if is_gate and op is not None and op.inputs[0] == ask.op.inputs[1 - i] else None


def _gated(ask: _Ask, i: int) -> Interval:
    return ALL if i else _tail(ask, ask.op)


def _tail(ask: _Ask, gate: Op) -> Interval:
    """Where `x * gate(x)` is within half a step of 0 for all smaller x."""
    curve = _GATES[gate.type]
    alpha, beta = gate.attributes.get("alpha", curve.alpha), gate.attributes.get("beta", curve.beta)
    if ask.step is None or alpha <= 0.0:
        return ALL
    lowest = _lowest(gate.type, alpha, beta)
    least, half = lowest * curve.of(lowest, alpha, beta), ask.step / 2
    if least >= -half:
        return 0.0, math.inf
    # Left of its minimum the product only falls, from 0 far away.
    far = -FAR / min(alpha, 1.0)
    return _solved(lambda x: -x * curve.of(x, alpha, beta), half, far, lowest), math.inf


@lru_cache(maxsize=64)
def _lowest(gate: str, alpha: float, beta: float) -> float:
    """Where `x * gate(x)` is least, to a hundredth of where the gate begins to open."""
    places = (-k / (100.0 * alpha) for k in range(1001))
    return min(places, key=lambda x: x * _GATES[gate].of(x, alpha, beta))


def _bounded(ask: _Ask, i: int) -> Interval:
    """Between the ends that the result's storage still tells apart from the least and the greatest result."""
    curve = _CURVES[ask.op.type]
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


_RULES: Final[Mapping[str, Callable[[_Ask, int], Interval]]] = {
    "Add": _added,
    "Div": _divided,
    "Erf": _bounded,
    "Gelu": _gated,
    "HardSigmoid": _bounded,
    "HardSwish": _gated,
    "LeakyRelu": _leaky,
    "Mul": _multiplied,
    "Sigmoid": _bounded,
    "Softmax": _softmax,
    "Sub": _subtracted,
    "Swish": _gated,
    "Tanh": _bounded,
}
STARTING: Final = _RULES.keys() - HANDING
"""Ops that need less than everything by themselves."""
