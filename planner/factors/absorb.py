"""Factors absorbed by constants: a scalar that a value is multiplied with moves into a weight, for free.

Attention's `MatMul(q, k) / sqrt(d)`, `x / 255` in front of a convolution, a Neg: a factor goes back through
linear ops to the constants that made the value, else forward to the weights that read it. Equal in real
arithmetic, computed in f64, bit for bit with powers of two. A factor that cannot be moved stays an op, see
`factors.plain`. It is done when the ranges are known, so that names of the model serve statistics and
annotations. A value on the way has other numbers afterwards, and so another name, recorded in `Graph.scaled`;
its observed range is scaled with it. Values with annotations or requests stay as they are, and the factor
with them.
Source: MLIR RFC "Quantization Transformations" ("scaling pushed forward and combined").
"""

from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from planner.factors.facts import is_observed
from planner.factors.paths import (
    BLOCK_ENDS,
    Move,
    Reals,
    Work,
    back,
    commit_back,
    commit_forward,
    forward,
    work_on,
)
from planner.ir.graph import Graph, Op

MOST_SPREAD: Final = 16.0
"""How much larger the greatest of a vector of factors may be than the least: weights lose bits by more."""


def absorb_factors(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Move what values are multiplied with into constants, where every way ends at some.

    In: a flat graph of ops. An op with a request, by name or by a glob, stays. A model that was read from
    a module stays: that text is edited in place.

    Args:
      kept: values that keep their numbers, whatever facts they have.
    """
    if graph.module:
        return graph
    asked = {op.name for op in graph.ops if any(fnmatchcase(op.name, key) for key in graph.wanted)}
    return _with_absorbed(graph, [op.name not in asked for op in graph.ops], kept)


def absorbed_like(model: Graph, other: Graph) -> Graph:
    """A flat model with the factors absorbed that another form of it, of a plan say, has absorbed."""
    if not other.scaled or model.module:
        return model
    left = {op.name for op in other.all_ops()}
    # What the other form has kept was in the way there, by facts that this one may lack.
    return _with_absorbed(model, [op.name not in left for op in model.ops], other.values)


def _with_absorbed(graph: Graph, free: list[bool], bound: Collection[str]) -> Graph:
    if all(op.type not in ("Div", "Mul", "Neg") for op in graph.ops):
        return graph
    work = work_on(graph, [name for name in bound if name not in graph.constants])
    notes: list[str] = []
    for at, step in enumerate(graph.ops):
        if free[at] and step.type in ("Div", "Mul", "Neg"):
            notes += _absorbed(work, at)
    if not notes:
        return graph
    kept = tuple(op for op in work.ops if op is not None)
    read = {name for op in kept for name in (*op.inputs, *op.captures)}.union(graph.outputs)
    # Numbers of the factors, which nothing reads any more.
    gone = {name for at, op in enumerate(graph.ops) if work.ops[at] is None for name in op.inputs} - read
    return replace(
        graph,
        ops=kept,
        values={name: value for name, value in work.values.items() if name not in gone},
        constants={name: constant for name, constant in work.constants.items() if name not in gone},
        notes=(*graph.notes, *notes),
        scaled=work.scaled,
    )


def _absorbed(work: Work, at: int) -> tuple[str, ...]:
    """Absorb one step; the note of where its factor went, none where it stays."""
    step = work.op(at)
    source = _source(step, work)
    if not source:
        return ()
    x, y = work.values[source], work.values[step.outputs[0]]
    factor = _factor_of(step, source, work)
    if factor is None or not is_observed(x) or not is_observed(y):
        return ()
    told = f"{step.type} {step.name!r} is no kernel: its factor is part of"
    move = Move(work, step.scope)
    if not factor.ndim and back(move, source, float(factor)):
        return (f"{told} {commit_back(move, at, float(factor))}",)
    move = Move(work, step.scope)
    if not _ends_a_block(source, work) and forward(move, y.name, factor):
        return (f"{told} {commit_forward(move, at, source, factor)}",)
    return ()


def _source(step: Op, work: Work) -> str:
    """The value that a step multiplies with constants, "" where it does not."""
    if step.captures or len(step.outputs) != 1:
        return ""
    dynamic = [name for name in step.inputs if name not in work.constants]
    if len(dynamic) != 1 or not work.values[dynamic[0]].is_float:
        return ""
    return "" if step.type == "Div" and step.inputs[0] != dynamic[0] else dynamic[0]


def _factor_of(step: Op, source: str, work: Work) -> Reals | None:
    """The factor as a number or a vector that broadcasts against the value; None where it is neither."""
    if step.type == "Neg":
        return np.asarray(-1.0)
    (other,) = (name for name in step.inputs if name != source)
    array = work.constants[other].array
    if array is None or not array.size or work.values[other].facts:
        return None
    shape = work.values[source].shape
    if array.ndim > len(shape or ()) and array.ndim:
        return None
    numbers = array.astype(np.float64)
    if not numbers.all() or not np.isfinite(numbers).all():
        return None
    numbers = 1 / numbers if step.type == "Div" else numbers
    if numbers.size == 1:
        return numbers.reshape(())
    greatest, least = np.abs(numbers).max(), np.abs(numbers).min()
    is_vector = max(numbers.shape) == numbers.size and shape == work.values[step.outputs[0]].shape
    return numbers if is_vector and greatest <= least * MOST_SPREAD else None


def _ends_a_block(source: str, work: Work) -> bool:
    """Whether a factor may be the last op of a norm or an activation that is spelled out, as Gelu's 0.5."""
    at = work.writer.get(source)
    op = None if at is None else work.op(at)
    if op is None or op.type not in BLOCK_ENDS:
        return False
    return op.type not in ("Div", "Mul") or not any(name in work.constants for name in op.inputs)
