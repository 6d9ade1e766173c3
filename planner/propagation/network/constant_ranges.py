"""Ranges of constants: of all their numbers, and of each slice of an axis.

Nothing is decided here. Numbers that cannot change are read once however often a model is planned: before its
biases are corrected and after, for one target and the next. The stored results are small and live no longer
than the constant.
"""

import math
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from planner.ir.graph import Constant, Facts, Op
from planner.ir.mapped import let_go
from planner.ir.operators.neighbours import greatest_pairs
from planner.ir.types.intervals import Interval
from planner.ir.types.qtypes import Calibrated
from planner.propagation.network.ports import Network, Port

T = TypeVar("T")
Ends = tuple[np.ndarray, np.ndarray]

_KNOWN: Final[WeakKeyDictionary[Constant, dict[Hashable, Any]]] = WeakKeyDictionary()


def constant_range(constant: Constant) -> Interval | None:
    """[lo, hi] of a constant's numbers; None where one is infinite or NaN: no integer stands for that."""
    array = constant.array
    if array is None:
        return (min(constant.lo), max(constant.hi)) if constant.lo else None
    if array.size == 0:
        return (0.0, 0.0)
    ends = _once(constant, array, None, lambda whole: (whole.min(), whole.max()))
    lo, hi = float(ends[0]), float(ends[1])
    return (lo, hi) if math.isfinite(lo) and math.isfinite(hi) else None


def oddity(name: str, constant: Constant) -> str:
    """The reason why no integers stand for a constant of reals: its NaN and infinite numbers; "" for none."""
    array = constant.array
    if array is None or array.dtype.kind not in "fV" or constant_range(constant) is not None:
        return ""
    nan = int(np.count_nonzero(np.isnan(array)))
    infinite = int(np.count_nonzero(np.isinf(array)))
    return f"constant {name!r} has {nan} NaN and {infinite} infinite numbers, which no integer stands for"


def slice_ranges(constant: Constant, axis: int) -> Ends:
    """Minimum and maximum of each slice along an axis, reals, shape (n_slices,)."""
    array = constant.array
    if array is None:
        return np.asarray(constant.lo), np.asarray(constant.hi)
    if array.size == 0:
        return np.zeros(array.shape[axis]), np.zeros(array.shape[axis])
    if axis == 0:
        return _once(constant, array.reshape(array.shape[0], -1), axis, lambda rows: _ends(rows, (1,)))
    others = tuple(i for i in range(array.ndim) if i != axis)
    return _once(constant, array, axis, lambda whole: _ends(whole, others))


def neighbours_of(constant: Constant, op: Op) -> np.ndarray | None:
    """Return the greatest |a + b| of neighbouring weights, by channel; None where the op adds no pairs."""
    array = constant.array
    if array is None or array.dtype.kind not in "fV" or not array.size:
        return None
    turned = (op.type, op.attributes.get("transB", 0), op.attributes.get("group", 1))
    found: np.ndarray | None = _once(constant, array, turned, lambda whole: greatest_pairs(whole, op))
    return found


def observed(network: Network, port: Port) -> Calibrated | None:
    """The range that the model says of a constant, first at this port: it comes before the numbers'."""
    value, own = network.graph.values[network.values[port.value].name], _own_facts(network, port)
    return next((fact for fact in (*own, *value.facts) if isinstance(fact, Calibrated)), None)


def _own_facts(network: Network, port: Port) -> Facts:
    """Constraints on a port rather than on its value."""
    region, (side, index) = network.kernels[port.kernel].choice.region, port.side
    facts = region.input_facts if side == "in" else region.output_facts
    return facts[index] if facts else ()


def _ends(array: np.ndarray, axes: tuple[int, ...]) -> Ends:
    return array.min(axis=axes).astype(np.float64), array.max(axis=axes).astype(np.float64)


def _once(constant: Constant, array: np.ndarray, key: Hashable, look: Callable[[np.ndarray], T]) -> T:
    if array.flags.writeable:
        return look(array)
    known = _KNOWN.setdefault(constant, {})
    if key not in known:
        known[key] = look(array)
        let_go(array)
    found: T = known[key]
    return found
