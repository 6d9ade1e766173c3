"""Axes: what the axes of a value are: places of a picture or in time, words, classes of a softmax, or none.

A product with constant weights has the same ones at every place: a convolution from its axis 2 on, a matrix
product on all axes but its last, a recurrent layer in time. Places whose values are looked up in a table are
words: neighbours have no more in common than others. Other ops hand on what their operands have.
Source: ONNX operator schemas; docs/accuracy.md.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.ir.graph import Dim, Graph, Op, Shape

Axis: TypeAlias = str
"""`place`, `word`, `class`, or ""."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a value.

    Attributes:
      kinds: of each axis; empty where the rank is unknown.
      decides: `softmax`, `sigmoid` or `index` (of the largest) where the value is the result of one, moved or
        not; else "".
    """

    kinds: tuple[Axis, ...] = ()
    decides: str = ""

    @property
    def alike(self) -> frozenset[int]:
        """Axes along which all slices have one meaning, whatever their ranges: places, words, classes."""
        return frozenset(at for at, kind in enumerate(self.kinds) if kind)


UNKNOWN: Final = Axes()


@dataclass(frozen=True, slots=True)
class Made:
    """A result of known rank whose axes are to be named.

    Attributes:
      at: its place among the op's results.
      known: axes of what was computed before.
    """

    op: Op
    at: int
    graph: Graph
    known: Mapping[str, Axes]

    @property
    def rank(self) -> int:
        """Of the result."""
        return len(self.graph.values[self.op.outputs[self.at]].shape or ())

    @property
    def data(self) -> list[str]:
        """Operands that are no constants."""
        return [name for name in self.op.inputs if name and name not in self.graph.constants]

    @property
    def first(self) -> Axes:
        """Axes of the first of them."""
        return self.known.get(self.data[0], UNKNOWN) if self.data else UNKNOWN

    @property
    def kinds(self) -> tuple[Axis, ...]:
        """The same as of a result of this rank."""
        return self.first.kinds if len(self.first.kinds) == self.rank else ("",) * self.rank


AxesRule: TypeAlias = Callable[[Made], Axes]


def handed(made: Made) -> Axes:
    """Those of the first operand."""
    return Axes(made.kinds, made.first.decides)


def sigmoid(made: Made) -> Axes:
    """The same, each element a decision."""
    return Axes(made.kinds, "sigmoid")


def softmax(made: Made) -> Axes:
    """Classes along its axis."""
    if not made.rank:
        return together(made)
    axis = int(made.op.attributes.get("axis", -1)) % made.rank
    return Axes((*made.kinds[:axis], "class", *made.kinds[axis + 1 :]), "softmax")


def reshaped(made: Made) -> Axes:
    """Those that the axes of the operand become."""
    if not made.data:
        return together(made)
    sizes = _sizes(made.graph, made.data[0]), _sizes(made.graph, made.op.outputs[made.at])
    kinds = tuple(_reshaped(*sizes, made.first.kinds))
    return Axes(kinds, made.first.decides if made.first.decides != "softmax" or "class" in kinds else "")


def turned(made: Made) -> Axes:
    """Those of the operand in another order."""
    order = made.op.attributes.get("perm", range(made.rank)[::-1])
    return Axes(tuple(made.kinds[axis] for axis in order), made.first.decides)


def windows(made: Made) -> Axes:
    """Those of (batch, channels, places ...)."""
    return Axes(("", "", *map(_place, made.kinds[2:]))) if made.rank > 2 else together(made)


def recurrent(made: Made) -> Axes:
    """Steps of the first result."""
    time = 1 if made.op.attributes.get("layout", 0) else 0
    steps = _place(made.first.kinds[time]) if made.first.kinds else "place"
    return Axes(tuple(steps if axis == time and not made.at else "" for axis in range(made.rank)))


def looked_up(made: Made) -> Axes:
    """Of rows of a table: each of the indices is a word."""
    op, graph = made.op, made.graph
    if op.inputs[0] not in graph.constants or op.attributes.get("axis", 0):
        return together(made)
    indices = len(graph.values[op.inputs[1]].shape or ())
    return Axes(tuple("word" if 0 < axis < indices else "" for axis in range(made.rank)))


def product(made: Made) -> Axes:
    """Those of the left side, but for the last, which the right side has."""
    rank = made.rank
    left, right = (made.known.get(name, UNKNOWN).kinds for name in made.op.inputs[:2])
    if made.op.inputs[1] in made.graph.constants:
        inner = tuple(map(_place, left[1:-1])) if len(left) == rank else ("place",) * max(0, rank - 2)
        return Axes((*left[:1], *inner, "") if left and rank > 1 else ("", *inner, "")[-rank:])
    kinds = list(_together([left[:-1] and (*left[:-1], ""), right[:-2] and (*right[:-2], "", "")], rank))
    if right and kinds:
        kinds[-1] = right[-1]
    return Axes(tuple(kinds))


def together(made: Made) -> Axes:
    """Those of all operands, broadcast."""
    return Axes(_together([made.known.get(name, UNKNOWN).kinds for name in made.data], made.rank))


def chosen(made: Made) -> Axes:
    """Those of the operand without the axis along which one is chosen, each element an answer."""
    kinds = list(made.first.kinds)
    if len(kinds) != made.rank + (not made.op.attributes.get("keepdims", 1)):
        return Axes(("",) * made.rank, "index")
    axis = int(made.op.attributes.get("axis", 0)) % len(kinds)
    kinds[axis : axis + 1] = [""] if len(kinds) == made.rank else []
    return Axes(tuple(kinds), "index")


def joined(made: Made) -> Axes:
    """Those of all operands; where they are joined, a place is one only if each of them has places there.

    A detector joins the sides of boxes, which a convolution may have made as places, with scores.
    """
    kinds = list(together(made).kinds)
    if kinds:
        axis = int(made.op.attributes.get("axis", 0)) % made.rank
        known = [made.known.get(name, UNKNOWN).kinds for name in made.data]
        kinds[axis] = kinds[axis] if all(kind[axis] for kind in known if len(kind) == made.rank) else ""
    return Axes(tuple(kinds))


def _place(kind: Axis) -> Axis:
    """What an axis that a product keeps is, given what its operand has there."""
    return "word" if kind == "word" else "place"


def _together(operands: Sequence[tuple[Axis, ...]], rank: int) -> tuple[Axis, ...]:
    """Kinds of operands that are broadcast to a rank: a place or word of one is one of the result."""
    kinds: list[Axis] = [""] * rank
    for operand in operands:
        if len(operand) <= rank:
            for axis, kind in enumerate(operand, rank - len(operand)):
                kinds[axis] = _first_of({kind, kinds[axis]} - {"class"})
    return tuple(kinds)


def _first_of(kinds: Collection[Axis]) -> Axis:
    """The kind of an axis that several make: a word is no place like others, whatever else is there."""
    return "word" if "word" in kinds else "place" if "place" in kinds else ""


def _sizes(graph: Graph, name: str) -> Shape:
    """The sizes that a value has, those of the samples where its shape leaves some open."""
    value = graph.values[name]
    return value.seen or value.shape or ()


def _reshaped(before: Shape, after: Shape, kinds: tuple[Axis, ...]) -> Iterator[Axis]:
    """Kinds after a reshape: of each axis those of the axes that it is made of, words first, then places."""
    if len(kinds) != len(before):
        yield from [""] * len(after)
        return
    i, made = 0, list[Axis]()
    for parts, into in _aligned(before, after):
        mixed = {kind for size, kind in zip(parts, kinds[i : i + len(parts)], strict=True) if size != 1}
        i += len(parts)
        kind: Axis = "class" if mixed == {"class"} and len(into) == 1 else _first_of(mixed)
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
