"""Ways back: how a factor per channel of an op's result gets into the constants in front of it.

A way either ends at constants (the sources) or goes on to the op's operands; otherwise it says why not. Only
positive factors: f(x / s) = f(x) / s. Source: ONNX operator schemas; see `seams` for the papers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Calibrated
from planner.ops import defined
from planner.ops.forms import Form
from planner.weight_conditioning.operands import Operand, along, numbers_of, source_of

Channels = npt.NDArray[np.int64]


@dataclass(slots=True)
class Walk:
    """One way back from sinks. `owner` shrinks where a view shares a channel of its operand."""

    graph: Graph
    readers: Mapping[str, tuple[tuple[Op, int], ...]]
    writers: Mapping[str, Op]
    unclipped: frozenset[str]
    owner: Channels
    sources: list[Operand] = field(default_factory=list)
    rescaled: list[str] = field(default_factory=list)
    passed: list[Op] = field(default_factory=list)


_Way = Callable[[Walk, Op, int, Channels], str]
"""Goes on behind an op: the axis and the seam's channels of its result; the reason why it cannot, or ""."""


def back(walk: Walk, name: str, axis: int, channels: Channels, allowed: frozenset[str]) -> str:
    """Divide the channels of a value at where they come from.

    Args:
      channels: channel of the seam that each of the value's is.
      allowed: names of the ops that may read it.

    Returns:
      The reason why they cannot be, or "".
    """
    graph, op = walk.graph, walk.writers.get(name)
    value = graph.values[name]
    if op is None:
        return f"{name!r} is {'a constant' if name in graph.constants else 'an input of the model'}"
    if name in graph.outputs:
        return f"{name!r} is an output of the model"
    other = next((reader for reader, _ in walk.readers[name] if reader.name not in allowed), None)
    if other is not None:
        return f"{other.type} {other.name!r} reads {name!r} too"
    if any(not isinstance(fact, Calibrated) for fact in value.facts):
        return f"{name!r} has {value.facts[0]}"
    if value.shape is None or len(value.shape) <= axis or value.shape[axis] != channels.size:
        return f"{name!r} does not have {channels.size} channels along axis {axis}"
    if op.scope or op.outputs[0] != name:
        return f"{op.type} {op.name!r} does not hand factors on"
    walk.rescaled.append(name)
    way = _OWN.get(op.type) or _way_of(op)
    return f"{op.type} {op.name!r} does not hand factors on" if way is None else way(walk, op, axis, channels)


def _way_of(op: Op) -> _Way | None:
    """The way of an operator's family; an op that keeps its axes passes the factors that it hands on."""
    one = defined(op.type)
    keeps_axes = one.form in (Form.BINARY, Form.POOL, Form.UNARY)
    return _passing if keeps_axes and one.factors else WAYS.get(one.form)


def _linear(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A linear op: its weight gives the channels; what it adds is divided with them."""
    weight = numbers_of(walk.graph, op, 1)
    operand = None if weight is None else source_of(op, weight.shape)
    if operand is None:
        return f"the weight of {op.name!r} is no constant of finite numbers that may change"
    rank = len(walk.graph.values[op.outputs[0]].shape or ())
    wanted = 1 if op.type in ("Conv", "ConvTranspose") else rank - 1
    if axis != wanted or operand.channels.size != channels.size:
        return f"{op.name!r} counts its channels along axis {wanted}, not {axis}"
    if len(op.inputs) > 2 and op.inputs[2]:
        behind = 0 if op.type != "Gemm" else rank - 1 - axis
        why = _constant(walk, op, 2, behind, channels)
        if why:
            return why
    walk.sources.append(_of(operand, channels))
    return ""


def _constant(walk: Walk, op: Op, index: int, behind: int, channels: Channels) -> str:
    """A constant that is added or multiplied, `behind` dimensions behind its channels: divided by them."""
    array = numbers_of(walk.graph, op, index)
    if array is None:
        return f"operand {index} of {op.name!r} is no constant of finite numbers that may change"
    walk.sources.append(_of(along(op, index, array.shape, behind, channels.size), channels))
    return ""


def _of(operand: Operand, channels: Channels) -> Operand:
    return Operand(operand.op, operand.index, operand.view, operand.factors, channels, operand.is_weight)


def _passing(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """An op that hands a positive factor of its first operand on."""
    walk.passed.append(op)
    return back(walk, op.inputs[0], axis, channels, frozenset((op.name,)))


def _clip(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A Clip, which hands factors on where its ends are 0 or infinite: no factor moves those."""
    ends = [walk.graph.constants.get(name) for name in op.inputs[1:] if name]
    numbers = [float(end.array) for end in ends if end is not None and end.array is not None]
    if op.name not in walk.unclipped and (len(numbers) < len(ends) or any(map(_is_felt, numbers))):
        return f"Clip {op.name!r} cuts at another number than 0"
    return _passing(walk, op, axis, channels)


def _is_felt(end: float) -> bool:
    return end != 0 and bool(np.isfinite(end)) and abs(end) < _NO_END


_NO_END: Final = 3.0e38
"""Ends beyond are how exporters write none."""


def _sum(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A sum or difference: both sides have the factors; a constant is divided by them."""
    left, right = op.inputs
    if left == right:
        return f"{op.type} {op.name!r} reads {left!r} twice"
    walk.passed.append(op)
    rank = len(walk.graph.values[op.outputs[0]].shape or ())
    for index, name in enumerate(op.inputs):
        if name in walk.graph.constants:
            why = _constant(walk, op, index, rank - 1 - axis, channels)
        else:
            why = _broadcast(walk, name, rank) or back(walk, name, axis, channels, frozenset((op.name,)))
        if why:
            return why
    return ""


def _broadcast(walk: Walk, name: str, rank: int) -> str:
    """The reason why the axes of an operand are not those of the result, or ""."""
    own = walk.graph.values[name].shape
    return "" if own is not None and len(own) == rank else f"{name!r} is broadcast over other axes"


def _product(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A product: a constant takes the factors, else the first side that can."""
    left, right = op.inputs
    if left == right:
        return f"{op.type} {op.name!r} reads {left!r} twice"
    rank = len(walk.graph.values[op.outputs[0]].shape or ())
    for index, name in enumerate(op.inputs):
        if name in walk.graph.constants:
            return _constant(walk, op, index, rank - 1 - axis, channels)
    whys = []
    for name in op.inputs:
        marks = walk.owner.copy(), len(walk.sources), len(walk.rescaled), len(walk.passed)
        walk.passed.append(op)
        why = _broadcast(walk, name, rank) or back(walk, name, axis, channels, frozenset((op.name,)))
        if not why:
            return ""
        whys.append(why)
        walk.owner[:] = marks[0]
        del walk.sources[marks[1] :], walk.rescaled[marks[2] :], walk.passed[marks[3] :]
    return " and ".join(whys)


def _norm(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A normalisation: its scale and bias, one a channel, take the factors."""
    if op.type not in ("InstanceNormalization", "LayerNormalization"):
        return f"{op.type} {op.name!r} does not hand factors on"
    rank = len(walk.graph.values[op.outputs[0]].shape or ())
    begin = int(op.attributes.get("axis", -1)) % rank if op.type == "LayerNormalization" else axis
    wanted = 1 if op.type == "InstanceNormalization" else rank - 1
    if axis != wanted or begin != wanted:
        return f"{op.type} {op.name!r} has no scale per channel of axis {axis}"
    for index in range(1, len(op.inputs)):
        why = _constant(walk, op, index, 0, channels) if op.inputs[index] else ""
        if why:
            return why
    return ""


def _concat(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A concat: along the channels each operand has its part of them, else all of them."""
    if len(set(op.inputs)) < len(op.inputs):
        return f"Concat {op.name!r} reads a value twice"
    values = walk.graph.values
    rank = len(values[op.outputs[0]].shape or ())
    is_along = int(op.attributes.get("axis", 0)) % rank == axis
    walk.passed.append(op)
    begin = 0
    for name in op.inputs:
        shape = values[name].shape
        size = shape[axis] if shape is not None and is_along else channels.size
        if not isinstance(size, int):
            return f"the channels of {name!r} are not known"
        why = back(walk, name, axis, channels[begin : begin + size], frozenset((op.name,)))
        if why:
            return why
        begin += size if is_along else 0
    return ""


def _transposed(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    rank = len(walk.graph.values[op.outputs[0]].shape or ())
    order = op.attributes.get("perm") or tuple(reversed(range(rank)))
    return _passing(walk, op, int(order[axis]), channels)


def _reshaped(walk: Walk, op: Op, axis: int, channels: Channels) -> str:
    """A view: channels that one channel of the operand is spread over get its factor."""
    values = walk.graph.values
    old, new = values[op.inputs[0]].shape, values[op.outputs[0]].shape
    if old == new:
        return _passing(walk, op, axis, channels)
    found = None if old is None or new is None else _origin(_sizes(old), _sizes(new), axis)
    if found is None:
        return f"{op.type} {op.name!r} mixes channels with other elements"
    from_axis, origins = found
    first = np.unique(origins, return_index=True)[1]
    # All that came from one channel share the factor of its first.
    walk.owner[channels] = channels[first[origins]]
    return _passing(walk, op, from_axis, channels[first])


def _sizes(shape: tuple[object, ...]) -> tuple[int, ...]:
    """Sizes with those left open as 1: they have to match, and count no channels."""
    return tuple(size if isinstance(size, int) else 1 for size in shape)


def _origin(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> tuple[int, Channels] | None:
    """The axis and channels of a view's operand that each channel of the result comes from."""
    if int(np.prod(old)) != int(np.prod(new)):
        return None
    for from_axis in sorted(range(len(old)), key=lambda i: -old[i]):
        count = np.arange(old[from_axis]).reshape(-1, *(1,) * (len(old) - 1 - from_axis))
        spread = np.broadcast_to(count, old).reshape(new)
        slices = np.moveaxis(spread, axis, 0).reshape(new[axis], -1)
        if np.all(slices == slices[:, :1]) and np.unique(slices[:, 0]).size == old[from_axis]:
            return from_axis, slices[:, 0].astype(np.int64)
    return None


WAYS: Final[Mapping[Form, _Way]] = {
    Form.CONCAT: _concat,
    Form.LINEAR: _linear,
    Form.NORM: _norm,
    Form.SUM: _sum,
    Form.VIEW: _reshaped,
}
"""Families that a factor per channel passes or ends at."""
_OWN: Final[Mapping[str, _Way]] = {"Clip": _clip, "Mul": _product, "Transpose": _transposed}
