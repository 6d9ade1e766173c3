"""What kernels that compute need of what they read, for the checker: its own reading of each op's numbers.

Softmax needs nothing that vanishes in its rows, a sigmoid nothing beyond its storage's first and last step,
`x * sigmoid(x)` nothing left of where it is stored as 0; sums, differences and products by constants hand
such needs on. Source: docs/specification.md, section 10.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.ir.graph import Constant, Facts, Graph, Op, Region
from planner.ir.roles import is_mover
from planner.ir.types.qtypes import Calibrated, Uniform

Reals = tuple[float, float]
ALL: Final[Reals] = (-math.inf, math.inf)
SATURATING: Final = frozenset({"Erf", "HardSigmoid", "Sigmoid", "Tanh"})
WHOLE_GATES: Final = frozenset({"Gelu", "HardSwish", "Swish"})
PART_GATES: Final = frozenset({"HardSigmoid", "Sigmoid"})
ASKING: Final = SATURATING | WHOLE_GATES | {"Add", "Div", "LeakyRelu", "Mul", "Softmax", "Sub"}
DEFAULTS: Final[Mapping[str, tuple[float, float]]] = {
    "HardSigmoid": (0.2, 0.5),
    "HardSwish": (1 / 6, 0.5),
}


@dataclass(frozen=True, slots=True)
class Around:
    """What is known around a kernel: functions by a value's name.

    Attributes:
      extent: of a value, in reals.
      steps: of the storage in which the kernel reads a value; None where it reads it in float.
      step: of the storage of one of its results, in reals; None in float.
      maker: the op that writes a value.
      readers: the ops that read a value.
    """

    graph: Graph
    numbers: Mapping[str, Constant]
    extent: Callable[[str], Reals | None]
    steps: Callable[[str], int | None]
    step: Callable[[str], float | None]
    maker: Callable[[str], Op | None]
    readers: Callable[[str], Sequence[Op]]


def needed(region: Region, asked: Mapping[str, Reals], around: Around) -> dict[str, Reals]:
    """What a kernel needs of each value it reads, where that is not everything.

    Args:
      asked: what is kept of each of its results.
    """
    if ASKING.isdisjoint(op.type for op in region.ops):
        return {}
    wanted: dict[str, list[Reals]] = {name: [ends] for name, ends in asked.items()}
    own = {name for op in region.ops for name in op.outputs} - asked.keys()
    for op in region.ops[::-1]:
        if not any(name in wanted for name in op.outputs) and own.issuperset(op.outputs):
            continue
        kept = _around([ends for name in op.outputs for ends in wanted.get(name, ())])
        for i, name in enumerate(op.inputs):
            # What only its own product reads of a gate says nothing of what the gate reads.
            if not (name in own and op.type == "Mul" and _is_gate(op, i, around)):
                wanted.setdefault(name, []).append(_of_operand(op, i, kept, around))
    found = {name: _around(wanted.get(name, [])) for name in region.inputs if name}
    return {name: ends for name, ends in found.items() if ends != ALL}


def _around(many: Sequence[Reals]) -> Reals:
    return (min(lo for lo, _ in many), max(hi for _, hi in many)) if many else ALL


def _of_operand(op: Op, i: int, kept: Reals, around: Around) -> Reals:
    if op.type == "Softmax":
        return _softmax(op, around)
    if op.type in ("Add", "Sub"):
        return _sum(op, i, kept, around)
    if op.type == "Mul":
        if _is_gate(op, 1 - i, around):
            gate = around.maker(op.inputs[1 - i])
            return _tail(gate, around.step(op.outputs[0])) if gate is not None else ALL
        return _product(op, i, kept, around)
    if op.type == "Div":
        numbers = _array(op.inputs[1], around)
        return ALL if i or numbers is None or not numbers.all() else _by(op, 0, kept, 1.0 / numbers, around)
    if op.type == "LeakyRelu":
        slope = float(op.attributes.get("alpha", 0.01))
        low, high = (end if end >= 0.0 or slope <= 0.0 else end / slope for end in kept)
        return (low, high) if slope > 0.0 else ALL
    if op.type in SATURATING and not i:
        return _between(op, kept, around.step(op.outputs[0]))
    if op.type in WHOLE_GATES and not i:
        return _tail(op, around.step(op.outputs[0]))
    whole = all(around.graph.values[name].is_float for name in op.outputs if name)
    return kept if op.type not in ASKING and whole and is_mover(op, around.graph) else ALL


def _softmax(op: Op, around: Around) -> Reals:
    value = around.graph.values[op.inputs[0]]
    shape = value.shape or ()
    rows = [row for fact in _seen(value.facts) for row in fact.row_max]
    axis = int(op.attributes.get("axis", -1)) % len(shape) if shape else -1
    row = next((row for row in rows if row.axis == axis), None)
    if row is None:
        return ALL
    size = shape[axis]
    entries = size if isinstance(size, int) else row.entries
    step = around.step(op.outputs[0])
    if not entries or (step is None and _by_ratio(op.outputs[0], around)):
        return ALL
    return row.least - math.log(entries / (step or 2.0**-24)) - 1.0, math.inf


def _by_ratio(result: str, around: Around) -> bool:
    """Whether a float result reaches, past what moves data, an op that tells small numbers apart."""
    found, at = [result], 0
    while at < len(found):
        for op in around.readers(found[at]):
            if op.type in ("Div", "Log", "Pow", "Reciprocal", "Sqrt"):
                return True
            if is_mover(op, around.graph):
                found += [name for name in op.outputs if name not in found]
        at += 1
    return False


def _sum(op: Op, i: int, kept: Reals, around: Around) -> Reals:
    (lo, hi), extents = kept, [around.extent(name) for name in op.inputs]
    ends: list[Reals] = []
    for k in (0, 1):
        other = extents[1 - k]
        if other is None:
            ends.append(ALL)
        elif op.type == "Add":
            ends.append((lo - other[1], hi - other[0]))
        else:
            ends.append((other[0] - hi, other[1] - lo) if k else (lo + other[0], hi + other[1]))
    coarsest = 0.0
    for name, extent, own in zip(op.inputs, extents, ends, strict=True):
        steps = around.steps(name)
        if extent is not None and steps is not None:
            low, high = (min(max(end, own[0]), own[1]) for end in extent)
            coarsest = max(coarsest, (max(high, 0.0) - min(low, 0.0)) / steps)
    return ends[i][0] - coarsest, ends[i][1] + coarsest


def _product(op: Op, i: int, kept: Reals, around: Around) -> Reals:
    other = _other_than_0(op.inputs[1 - i], around)
    if other is not None:
        return _quotient(kept, np.array([other])) if op.inputs[i] in around.graph.constants else ALL
    return _by(op, i, kept, _array(op.inputs[1 - i], around), around)


def _by(op: Op, i: int, kept: Reals, numbers: "np.ndarray | None", around: Around) -> Reals:
    extent = around.extent(op.inputs[i])
    if numbers is None or extent is None or _other_than_0(op.inputs[i], around) is not None:
        return ALL
    ends = _quotient(kept, numbers)
    low, high = (min(max(end, ends[0]), ends[1]) for end in extent)
    worth = (extent[1] - extent[0]) / ((around.steps(op.inputs[i]) or 255) + 1)
    return ends if high - low >= worth else ALL


def _quotient(kept: Reals, numbers: "np.ndarray") -> Reals:
    signs = np.sign(numbers)
    if not numbers.size or not np.isfinite(numbers).all() or abs(signs.sum()) != numbers.size:
        return ALL
    low, high = kept if signs.flat[0] > 0 else (kept[1], kept[0])
    with np.errstate(over="ignore"):
        return float((low / numbers).min()), float((high / numbers).max())


def _other_than_0(name: str, around: Around) -> float | None:
    value = around.graph.values.get(name)
    fact = next(iter(_seen(value.facts)), None) if value is not None else None
    if fact is None or not fact.two_values or fact.lo * fact.hi != 0.0:
        return None
    return fact.lo + fact.hi or None


def _is_gate(op: Op, i: int, around: Around) -> bool:
    gate = around.maker(op.inputs[i]) if len(op.inputs) == 2 else None
    return gate is not None and gate.type in PART_GATES and gate.inputs[0] == op.inputs[1 - i]


def _tail(gate: Op, step: float | None) -> Reals:
    alpha, beta = _parameters(gate)
    if step is None or alpha <= 0.0:
        return ALL

    def product(x: float) -> float:
        return x * _open(gate.type, x, alpha, beta)

    places = [-k / (100.0 * alpha) for k in range(1001)]
    lowest = min(places, key=product)
    if product(lowest) >= -step / 2:
        return 0.0, math.inf
    return _root(lambda x: -product(x), step / 2, -1e4 / min(alpha, 1.0), lowest), math.inf


def _open(kind: str, x: float, alpha: float, beta: float) -> float:
    """How far a gate lets x through."""
    if kind == "Gelu":
        return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))
    if kind in ("HardSigmoid", "HardSwish"):
        return min(max(alpha * x + beta, 0.0), 1.0)
    return 1.0 / (1.0 + math.exp(-alpha * x)) if alpha * x > -700.0 else 0.0


def _between(op: Op, kept: Reals, step: float | None) -> Reals:
    alpha, beta = _parameters(op)
    if step is None or alpha <= 0.0:
        return ALL
    floor = -1.0 if op.type in ("Erf", "Tanh") else 0.0
    low, high = max(kept[0], floor + step / 2), min(kept[1], 1.0 - step / 2)
    if low >= high:
        return ALL
    first = -math.inf if low <= floor else _inverse(op.type, low, alpha, beta)
    return first, math.inf if high >= 1.0 else _inverse(op.type, high, alpha, beta)


def _inverse(kind: str, y: float, alpha: float, beta: float) -> float:
    if kind == "Sigmoid":
        return math.log(y / (1.0 - y)) / alpha
    if kind == "HardSigmoid":
        return (y - beta) / alpha
    return math.atanh(y) if kind == "Tanh" else _root(math.erf, y, -6.0, 6.0)


def _root(rising: Callable[[float], float], y: float, low: float, high: float) -> float:
    for _ in range(128):
        middle = 0.5 * (low + high)
        if rising(middle) < y:
            low = middle
        else:
            high = middle
    return low


def _parameters(op: Op) -> tuple[float, float]:
    alpha, beta = DEFAULTS.get(op.type, (1.0, 0.0))
    return op.attributes.get("alpha", alpha), op.attributes.get("beta", beta)


def _array(name: str, around: Around) -> "np.ndarray | None":
    constant = around.numbers.get(name)
    return None if constant is None or constant.array is None else constant.array.astype(np.float64)


def _seen(facts: Facts) -> list[Calibrated]:
    return [fact for fact in facts if isinstance(fact, Calibrated)]


def stated(facts: Facts) -> Reals | None:
    """What facts say of a value inside a kernel."""
    known = [fact for fact in facts if isinstance(fact, Calibrated | Uniform)]
    lo, hi = max((f.lo for f in known), default=math.inf), min((f.hi for f in known), default=-math.inf)
    return (lo, hi) if lo <= hi else None
