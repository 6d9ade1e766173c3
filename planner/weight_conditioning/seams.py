"""Seams: places where a factor per channel may go into one op's constants and out of another's.

A seam is a value that linear ops alone read (the sinks) and the ops that its channels come from (the
sources): its channels divided at the sources and multiplied at the sinks leave the model's function as it is.
On the way lie ops that a positive factor passes: f(x / s) = f(x) / s. Found by walking back from the sinks.
Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section
4.1 (linear ops, Relu); Xiao et al. 2022, "SmoothQuant", section 4 (LayerNorm and linear ops).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ops import LINEAR
from planner.weight_conditioning.operands import Operand, Reals, numbers_of, sink_of
from planner.weight_conditioning.ways import Channels, Walk, back


@dataclass(frozen=True, slots=True, eq=False)
class Seam:
    """Channels that can be rescaled.

    Attributes:
      value: what the sinks read, its channels along `axis`.
      owner: for each channel the one whose factor it has: its own, but where a view puts elements of one
        channel into several. Shape `(n_channels,)`.
      sources, sinks: constants that are divided, multiplied; biases are among the sources.
      rescaled: every value between them, `value` last.
      passed: ops between them.
    """

    value: str
    axis: int
    owner: Channels
    sources: tuple[Operand, ...]
    sinks: tuple[Operand, ...]
    rescaled: tuple[str, ...]
    passed: tuple[Op, ...]

    def spread(self, factors: Reals) -> Reals:
        """Factors of the channels that own one, as those of all channels."""
        spread: Reals = factors[self.owner]
        return spread

    def greatest(self, operands: tuple[Operand, ...], arrays: Mapping[tuple[str, int], Reals]) -> Reals:
        """The greatest magnitude in each channel, those that share a factor as one."""
        found = np.zeros(self.owner.size)
        for operand in operands:
            np.maximum.at(found, operand.channels, operand.greatest(arrays[operand.key]))
        return self.shared(found)

    def shared(self, numbers: Reals) -> Reals:
        """The greatest number of the channels that share a factor, for each of them."""
        found = np.zeros(self.owner.size)
        np.maximum.at(found, self.owner, numbers)
        return self.spread(found)


@dataclass(frozen=True, slots=True)
class Found:
    """Seams of a model, and why other values that linear ops read are none."""

    seams: tuple[Seam, ...]
    left: tuple[str, ...]


def find_seams(graph: Graph, unclipped: frozenset[str] = frozenset()) -> Found:
    """Find the seams of a graph of ops, in the order in which their values are written.

    Args:
      unclipped: names of Clip ops that may be taken for a Relu.
    """
    readers = _readers(graph)
    writers = {name: op for op in graph.ops for name in op.outputs if name}
    seams, left = list[Seam](), list[str]()
    for name in (*graph.inputs, *writers):
        sinks = _sinks(graph, readers.get(name, ()))
        if isinstance(sinks, str):
            left += [f"{name!r}: {sinks}"] * bool(sinks)
            continue
        axis, operands = sinks
        walk = Walk(graph, readers, writers, unclipped, owner=operands[0].channels.copy())
        why = back(walk, name, axis, operands[0].channels, frozenset(operand.op.name for operand in operands))
        if why:
            left.append(f"{name!r}: {why}")
            continue
        # A value behind the walk's first is defined before it.
        seams.append(
            Seam(
                name,
                axis,
                _owners(walk.owner),
                tuple(walk.sources),
                operands,
                tuple(reversed(walk.rescaled)),
                tuple(walk.passed),
            )
        )
    return Found(tuple(seams), tuple(left))


def _readers(graph: Graph) -> Mapping[str, tuple[tuple[Op, int], ...]]:
    found: dict[str, list[tuple[Op, int]]] = {}
    for op in graph.ops:
        for index, name in enumerate((*op.inputs, *op.captures)):
            if name:
                found.setdefault(name, []).append((op, index))
    return {name: tuple(uses) for name, uses in found.items()}


def _sinks(graph: Graph, uses: tuple[tuple[Op, int], ...]) -> tuple[int, tuple[Operand, ...]] | str:
    """The axis of a value's channels and the weights they meet; else why none, "" without weights."""
    found = list[Operand]()
    axes = set[int]()
    multiplied = (op for op, index in uses if op.type in LINEAR and index == 0)
    if not any(op.inputs[1] in graph.constants for op in multiplied):
        return ""
    for op, index in uses:
        if op.type not in LINEAR or index != 0:
            return f"{op.type} {op.name!r} reads it too"
        array = numbers_of(graph, op, 1)
        operand = None if array is None else sink_of(op, array.shape)
        axis = _input_axis(graph, op)
        if operand is None or axis is None or op.scope:
            return f"the weight of {op.name!r} is no constant of finite numbers that may change"
        found.append(operand)
        axes.add(axis)
    if len(axes) > 1 or len({operand.channels.size for operand in found}) > 1:
        return "its consumers count channels along different axes"
    return axes.pop(), tuple(found)


def _input_axis(graph: Graph, op: Op) -> int | None:
    """The axis of a linear op's first operand that its weight sums over."""
    shape = graph.values[op.inputs[0]].shape
    if shape is None or len(shape) < 2 or op.attributes.get("transA", 0):
        return None
    return 1 if op.type in ("Conv", "ConvTranspose") else len(shape) - 1


def _owners(owner: Channels) -> Channels:
    """Follow owners to those that own themselves: views behind views share further."""
    while not np.array_equal(owner, owner[owner]):
        owner = owner[owner]
    return owner


def weighted(seams: tuple[Seam, ...]) -> Iterator[Seam]:
    """Seams whose sources are linear ops alone: both ends have weights to even out."""
    for seam in seams:
        if all(operand.is_weight or _is_added(operand) for operand in seam.sources):
            yield seam


def _is_added(operand: Operand) -> bool:
    return operand.op.type in ("Add", "Sub", *LINEAR)
