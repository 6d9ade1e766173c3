"""Axes: what the axes of a value are: places of a picture or in time, classes of a softmax, or neither.

A product with constant weights has the same ones at every place: a convolution from its axis 2 on, a matrix
product on all axes but its last, a recurrent layer in time. Other ops hand on what their operands have.
Source: ONNX operator schemas; docs/accuracy.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.ir.graph import Dim, Graph, Op, Shape

Axis: TypeAlias = str
"""`place`, `class`, or ""."""

_WINDOWS: Final = frozenset(
    {
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "DepthToSpace",
        "GridSample",
        "LpPool",
        "MaxPool",
        "MaxUnpool",
        "Resize",
        "SpaceToDepth",
        "Upsample",
    }
)
"""Ops on (batch, channels, places ...)."""
_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_RESHAPES: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_SAME: Final = frozenset({"Cast", "Dropout", "Identity"})


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a value.

    Attributes:
      kinds: of each axis; empty where the rank is unknown.
      decides: `softmax` or `sigmoid` where the value is the result of one, moved or not; else "".
    """

    kinds: tuple[Axis, ...] = ()
    decides: str = ""

    @property
    def alike(self) -> frozenset[int]:
        """Axes along which all slices are of one meaning, whatever their ranges: places and classes."""
        return frozenset(at for at, kind in enumerate(self.kinds) if kind)


UNKNOWN: Final = Axes()


def axes_of(graph: Graph) -> dict[str, Axes]:
    """The axes of every value that an op outside of bodies computes."""
    known: dict[str, Axes] = {}
    for op in graph.ops:
        for at, name in enumerate(op.outputs):
            if name:
                known[name] = _made(op, at, graph, known)
    return known


def _made(op: Op, at: int, graph: Graph, known: dict[str, Axes]) -> Axes:
    """The axes of one result, given those of what was computed before."""
    shape = graph.values[op.outputs[at]].shape
    if shape is None:
        return UNKNOWN
    rank = len(shape)
    data = [name for name in op.inputs if name and name not in graph.constants]
    first = known.get(data[0], UNKNOWN) if data else UNKNOWN
    kinds: tuple[Axis, ...] = first.kinds if len(first.kinds) == rank else ("",) * rank
    if op.type in _SAME:
        return Axes(kinds, first.decides)
    if op.type == "Sigmoid":
        return Axes(kinds, "sigmoid")
    if op.type == "Softmax" and rank:
        axis = int(op.attributes.get("axis", -1)) % rank
        return Axes((*kinds[:axis], "class", *kinds[axis + 1 :]), "softmax")
    if op.type in _RESHAPES and data:
        moved = tuple(_reshaped(_sizes(graph, data[0]), _sizes(graph, op.outputs[at]), first.kinds))
        return Axes(moved, first.decides if first.decides != "softmax" or "class" in moved else "")
    if op.type == "Transpose":
        perm = op.attributes.get("perm", range(rank)[::-1])
        return Axes(tuple(kinds[axis] for axis in perm), first.decides)
    if op.type in _WINDOWS and rank > 2:
        return Axes(("", "", *("place",) * (rank - 2)))
    if op.type in _RECURRENT:
        time = 1 if op.attributes.get("layout", 0) else 0
        return Axes(tuple("place" if axis == time and not at else "" for axis in range(rank)))
    if op.type in ("Gemm", "MatMul"):
        return Axes(_product(op, rank, graph, known))
    if op.type == "Gather" and op.inputs[0] in graph.constants and not op.attributes.get("axis", 0):
        # A table: each of the indices, a word say, has a place.
        indices = len(graph.values[op.inputs[1]].shape or ())
        return Axes(tuple("place" if 0 < axis < indices else "" for axis in range(rank)))
    return Axes(_together([known.get(name, UNKNOWN).kinds for name in data], rank))


def _product(op: Op, rank: int, graph: Graph, known: dict[str, Axes]) -> tuple[Axis, ...]:
    left, right = (known.get(name, Axes()).kinds for name in op.inputs[:2])
    if op.inputs[1] in graph.constants:
        inner: tuple[Axis, ...] = ("place",) * max(0, rank - 2)
        return (*left[:1], *inner, "") if left and rank > 1 else ("", *inner, "")[-rank:]
    kinds = list(_together([left[:-1] and (*left[:-1], ""), right[:-2] and (*right[:-2], "", "")], rank))
    if right and kinds:
        kinds[-1] = right[-1]
    return tuple(kinds)


def _together(operands: Sequence[tuple[Axis, ...]], rank: int) -> tuple[Axis, ...]:
    """Kinds of operands that are broadcast to a rank: a place of one is a place of the result."""
    kinds: list[Axis] = [""] * rank
    for operand in operands:
        if len(operand) <= rank:
            for axis, kind in enumerate(operand, rank - len(operand)):
                if kind == "place":
                    kinds[axis] = kind
    return tuple(kinds)


def _sizes(graph: Graph, name: str) -> Shape:
    """The sizes that a value has, those of the samples where its shape leaves some open."""
    value = graph.values[name]
    return value.seen or value.shape or ()


def _reshaped(before: Shape, after: Shape, kinds: tuple[Axis, ...]) -> Iterator[Axis]:
    """Kinds after a reshape: of each axis those of the axes that it is made of; any place makes a place."""
    if len(kinds) != len(before):
        yield from [""] * len(after)
        return
    i, made = 0, list[Axis]()
    for parts, into in _aligned(before, after):
        mixed = {kind for size, kind in zip(parts, kinds[i : i + len(parts)], strict=True) if size != 1}
        i += len(parts)
        kind: Axis = "place" if "place" in mixed else "class" if mixed == {"class"} and len(into) == 1 else ""
        long = [size for size in into if size != 1]
        made += [kind if size != 1 or not long else "" for size in into]
    yield from made


def _aligned(before: Shape, after: Shape) -> Iterator[tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
    """The shortest runs of dimensions of the same product, in order; the rest is one run."""
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = i, j
        left, right = before[i : i + 1], after[j : j + 1]
        i, j = i + len(left), j + len(right)
        while left != right and _product_of(left) != _product_of(right):
            if i < len(before) and (j == len(after) or _product_of(left) < _product_of(right)):
                left, i = (*left, before[i]), i + 1
            elif j < len(after):
                right, j = (*right, after[j]), j + 1
            else:
                left, right = before[a:], after[b:]
                i, j = len(before), len(after)
                break
        yield left, right


def _product_of(sizes: Sequence[Dim]) -> float:
    return math.prod(size if isinstance(size, int) else math.nan for size in sizes)
