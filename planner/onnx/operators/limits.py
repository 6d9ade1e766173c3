"""Limits: numbers of attributes and operands that no device can compute with, and onnx lets through.

onnx's inference divides by a group of 0 and ends the process; axes beyond 32 bits wrap around; groups,
indices and sizes that do not fit are found by an engine at its first run, or by none. In: ops as the
file has them, of any opset. Source: ONNX operator pages; onnxruntime refuses every line of the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.ir.graph import Graph, Op
from planner.onnx.dtypes import NAMES
from planner.onnx.structure.subgraph_nodes import graph_of, ops_of, subgraphs

Dims: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """What is known of an op's operands."""

    graph: Graph
    op: Op

    def shape(self, index: int) -> Dims | None:
        """The dimensions of an operand, open ones None; None where its rank is not known."""
        value = self.graph.values.get(self.op.inputs[index]) if index < len(self.op.inputs) else None
        return None if value is None or value.shape is None else _dims(value.shape)

    def array(self, index: int) -> np.ndarray | None:
        """The numbers of a constant operand."""
        name = self.op.inputs[index] if index < len(self.op.inputs) else ""
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.array

    def result(self) -> Dims | None:
        """The dimensions of the first result."""
        shape = self.graph.values[self.op.outputs[0]].shape
        return None if shape is None else _dims(shape)


Rule: TypeAlias = Callable[[Op, Operands], Iterator[str]]

_BY_CHANNEL: Final = 21
"""The opset from which GroupNormalization has a factor for each channel."""


def refuse_attributes(graph: Graph) -> None:
    """Refuse attributes that onnx's inference must not see, in bodies too.

    Raises:
      ModelError: the op, the attribute, and what it may be.
    """
    _refuse_attributes(graph.ops)


def refuse_operands(graph: Graph) -> None:
    """Refuse operands that no engine takes, in a graph whose shapes are known as far as they can be.

    Raises:
      ModelError: the op, what does not fit, and what would.
    """
    for op in graph.ops:
        for rule in RULES.get(op.type, ()):
            for problem in rule(op, Operands(graph, op)):
                raise ModelError(f"{op.type} at {op.name!r}: {problem}")


def _refuse_attributes(ops: Sequence[Op]) -> None:
    for op in ops:
        for key, given in op.attributes.items():
            least = LEAST.get(key)
            numbers = given if isinstance(given, tuple) else (given,)
            is_other = "::" in op.type or (op.type, key) == ("Pad", "pads")
            if least is None or is_other or not all(isinstance(number, int) for number in numbers):
                continue
            if any(number < least or number > _MOST for number in numbers):
                raise ModelError(
                    f"{op.type} at {op.name!r}: its attribute {key!r} is {_text(given)}",
                    hint=f"accepted: whole numbers of {least} to {_MOST}",
                )
        if op.type == "Cast" and op.attributes.get("to", 1) not in NAMES:
            raise ModelError(
                f"Cast at {op.name!r}: its attribute 'to' is {op.attributes['to']}",
                hint=f"accepted: an element type of ONNX, {min(NAMES)} to {max(NAMES)}",
            )
        axis = op.attributes.get("axis")
        if isinstance(axis, int) and "::" not in op.type and not -_RANKS <= axis < _RANKS:
            raise ModelError(
                f"{op.type} at {op.name!r}: its attribute 'axis' is {axis}",
                hint="accepted: the number of a dimension, from the end where it is negative",
            )
        for body in subgraphs(op).values():
            _refuse_attributes(ops_of(graph_of(body).node))


def _text(given: object) -> str:
    return str(list(given)) if isinstance(given, tuple) else str(given)


def _dims(shape: Sequence[int | str | None]) -> Dims:
    return tuple(dim if isinstance(dim, int) else None for dim in shape)


def _axis(op: Op, operands: Operands) -> Iterator[str]:
    """An axis that is written down is one of the first operand's (or one behind the last, for some)."""
    shape, axis = operands.shape(0), op.attributes.get("axis")
    if shape is None or axis is None:
        return
    over = 1 if op.type in _BEHIND_LAST else 0
    if not -len(shape) - (op.type == "OneHot") <= axis < len(shape) + over:
        yield f"axis {axis} of an operand of {len(shape)} dimensions"


def _window(op: Op, operands: Operands) -> Iterator[str]:
    """A window lies within its padded input."""
    shape, kernel = operands.shape(0), op.attributes.get("kernel_shape")
    weight = operands.shape(_WEIGHT[op.type]) if op.type in _WEIGHT else None
    sizes: Sequence[int | None] | None = kernel or (weight[2:] if weight else None)
    if shape is None or sizes is None or op.type == "ConvTranspose":
        return
    spatial = shape[2:]
    if len(sizes) != len(spatial):
        yield f"a window of {len(sizes)} dimensions over {len(spatial)}"
        return
    pads = op.attributes.get("pads") or (0,) * (2 * len(spatial))
    dilations = op.attributes.get("dilations") or (1,) * len(spatial)
    if op.attributes.get("auto_pad", "NOTSET") != "NOTSET" or len(pads) != 2 * len(spatial):
        return
    for i, (dim, size, dilation) in enumerate(zip(spatial, sizes, dilations, strict=False)):
        if dim and size and (size - 1) * dilation >= dim + pads[i] + pads[i + len(spatial)]:
            wide = dim + pads[i] + pads[i + len(spatial)]
            yield f"a window {(size - 1) * dilation + 1} wide over dimension {i + 2}, which is {wide} wide"


def _convolution(op: Op, operands: Operands) -> Iterator[str]:
    """Channels, groups and the kernel's size are those of the weight."""
    at, group = _WEIGHT[op.type], op.attributes.get("group", 1)
    shape, weight = operands.shape(0), operands.shape(at)
    if weight is None or len(weight) < 3:
        return
    turned = op.type == "ConvTranspose"
    taken = weight[0] if turned else weight[1] and weight[1] * group
    given = shape[1] if shape is not None and len(shape) > 1 else None
    if taken is not None and given is not None and taken != given:
        yield f"its input has {given} channels, its weight {_listed(weight)} takes {taken} in {group} groups"
    if weight[0] is not None and weight[0] % group:
        yield f"{group} groups of {weight[0]} channels, which they do not divide"
    kernel = op.attributes.get("kernel_shape")
    if kernel and None not in weight and tuple(kernel) != weight[2:]:
        yield f"kernel_shape {_listed(kernel)} of a weight {_listed(weight)}"
    made = weight[1] and weight[1] * group if turned else weight[0]
    bias = operands.shape(2) if at == 1 and op.type != "ConvInteger" else None
    if bias and made is not None and bias[0] not in (None, made):
        yield f"a bias of {bias[0]} numbers for {made} channels"


def _indices(op: Op, operands: Operands) -> Iterator[str]:
    """Constant indices lie within the axis they count along."""
    shape, indices = operands.shape(0), operands.array(1)
    axis = op.attributes.get("axis", 0)
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return
    yield from _beyond(indices, shape[axis], axis % len(shape))


def _tuples(op: Op, operands: Operands) -> Iterator[str]:
    """Constant tuples of indices lie within the dimensions they count along."""
    shape, indices = operands.shape(0), operands.array(1)
    first = op.attributes.get("batch_dims", 0)
    if shape is None or indices is None or indices.ndim == 0 or first + indices.shape[-1] > len(shape):
        return
    for i in range(indices.shape[-1]):
        yield from _beyond(indices[..., i], shape[first + i], first + i)


def _beyond(indices: np.ndarray, size: int | None, axis: int) -> Iterator[str]:
    if size is None or not indices.size:
        return
    for worst in (int(indices.min()), int(indices.max())):
        if not -size <= worst < size:
            yield f"index {worst} into dimension {axis}, which has {size} entries"


def _reshape(_op: Op, operands: Operands) -> Iterator[str]:
    """As many elements come out as go in."""
    shape, wanted, made = operands.shape(0), operands.array(1), operands.result()
    if shape is None or None in shape or wanted is None or made is None or None in made:
        return
    given, asked = (prod(dim or 0 for dim in dims) for dims in (shape, made))
    if given != asked:
        yield f"{_listed(shape)} has {given} elements, the shape {wanted.tolist()} holds {asked}"


def _pads(_op: Op, operands: Operands) -> Iterator[str]:
    """What is cut off was there."""
    shape, pads = operands.shape(0), operands.array(1)
    if shape is None or pads is None or operands.array(3) is not None or pads.size != 2 * len(shape):
        return
    for i, dim in enumerate(shape):
        left = None if dim is None else dim + int(pads[i]) + int(pads[i + len(shape)])
        if left is not None and left < 0:
            yield f"pads {pads.tolist()} leave {left} of dimension {i}, which has {dim} entries"


def _pixels(op: Op, operands: Operands) -> Iterator[str]:
    shape, size = operands.shape(0), op.attributes.get("blocksize", 1)
    if shape is None or len(shape) != 4:
        return
    parts, by = (shape[1:2], size * size) if op.type == "DepthToSpace" else (shape[2:], size)
    if any(dim is not None and dim % by for dim in parts):
        yield f"blocks of {size} x {size} do not divide {_listed(shape)}"


def _per_channel(op: Op, operands: Operands) -> Iterator[str]:
    """A norm has one factor and one addend per channel, and groups that divide them."""
    shape = operands.shape(0)
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    if channels is None:
        return
    group = op.attributes.get("num_groups", 1)
    if channels % group:
        yield f"{group} groups of {channels} channels, which they do not divide"
    # Before opset 21 a GroupNormalization has one of each for a group.
    of_groups = "num_groups" in op.attributes and operands.graph.opsets.get("", _BY_CHANNEL) < _BY_CHANNEL
    count, parts = (group, "groups") if of_groups else (channels, "channels")
    for i, what in ((1, "scale"), (2, "bias")):
        given = operands.shape(i)
        if given is not None and given not in ((None,), (count,)):
            yield f"a {what} of shape {_listed(given)} for {count} {parts}"


def _slope(_op: Op, operands: Operands) -> Iterator[str]:
    shape, slope = operands.shape(0), operands.shape(1)
    if shape is None or slope is None:
        return
    fits = len(slope) <= len(shape) and all(
        small in (None, 1) or dim in (None, small)
        for small, dim in zip(slope[::-1], shape[::-1], strict=False)
    )
    if not fits:
        yield f"a slope of shape {_listed(slope)} does not broadcast to {_listed(shape)}"


def _recurrent(op: Op, operands: Operands) -> Iterator[str]:
    """Weights hold every gate of every direction, as wide as the state."""
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op.type]
    ways = 2 if op.attributes.get("direction", "forward") == "bidirectional" else 1
    x, w, r = (operands.shape(i) for i in range(3))
    hidden = op.attributes.get("hidden_size") or (r[-1] if r else None)
    if hidden is None:
        return
    wanted = {
        "W": (w, (ways, gates * hidden, x[-1] if x else None)),
        "R": (r, (ways, gates * hidden, hidden)),
        "B": (operands.shape(3), (ways, 2 * gates * hidden)),
    }
    for name, (given, asked) in wanted.items():
        if given is not None and not _are_alike(given, asked):
            yield f"{name} is {_listed(given)}; {hidden} states in {ways} directions take {_listed(asked)}"


def _factors(_op: Op, operands: Operands) -> Iterator[str]:
    scales = operands.array(2)
    if scales is not None and scales.size and not (np.isfinite(scales).all() and (scales > 0).all()):
        yield f"its scales are {scales.tolist()}; accepted: finite numbers above 0"


def _are_alike(given: Dims, asked: Dims) -> bool:
    return len(given) == len(asked) and all(
        None in pair or pair[0] == pair[1] for pair in zip(given, asked, strict=True)
    )


def _listed(dims: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"


_MOST: Final = (1 << 31) - 1
_RANKS: Final = 64
_WEIGHT: Final = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
_BEHIND_LAST: Final = frozenset({"Flatten", "Hardmax", "LogSoftmax", "OneHot", "Softmax"})
"""Ops whose axis may be the rank: the form with no dimension behind it, of Softmax before opset 13."""

LEAST: Final[Mapping[str, int]] = {
    "batch_dims": 0,
    "blocksize": 1,
    "dilations": 1,
    "group": 1,
    "hidden_size": 1,
    "kernel_shape": 1,
    "num_groups": 1,
    "num_outputs": 1,
    "pads": 0,
    "size": 1,
    "strides": 1,
}
"""The least number of attributes that mean the same in every op of the standard domain."""

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), (_window,)),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), (_convolution, _window)),
    **dict.fromkeys(("Concat", "Flatten", "Hardmax", "LayerNormalization", "LogSoftmax"), (_axis,)),
    **dict.fromkeys(("OneHot", "Softmax", "Split"), (_axis,)),
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), (_axis, _indices)),
    **dict.fromkeys(("GatherND", "ScatterND"), (_tuples,)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (_recurrent,)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), (_pixels,)),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), (_per_channel,)),
    "PRelu": (_slope,),
    "Pad": (_pads,),
    "Reshape": (_reshape,),
    "Resize": (_factors,),
}
"""What of an op's operands is looked at, by its type."""
