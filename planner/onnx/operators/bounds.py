"""Bounds: the larger or smaller of a value and a number, spelled as the activation that it is.

`Max(x, 0)` becomes Relu; `Max(x, c)`, `Min(x, c)` and one behind the other become Clip. Exporters of
TensorFlow write activations so, and a kernel takes in what follows a product or a sum where it is a Relu or a
Clip. The numbers stay the same. In: any graph with element types; ops that nothing reads any more stay in it.
"""

from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Value
from planner.onnx.naming import unused, use_counts

Bounds: TypeAlias = tuple[str, str]
"""Constants below and above, "" where there is none."""
_SIDES: Final = {"Max": 0, "Min": 1}


def clip_at_numbers(graph: Graph) -> Graph:
    """Turn Max and Min of a value and a number into Relu or Clip."""
    if all(op.type not in _SIDES for op in graph.ops):
        return graph
    counts, taken = use_counts(graph), set(graph.values)
    values, constants = dict(graph.values), dict(graph.constants)
    clipped: dict[str, tuple[str, Bounds]] = {}
    scalars: dict[str, str] = {}
    ops = []
    for op in graph.ops:
        found = _value_and_number(op, graph)
        if found is None:
            ops.append(op)
            continue
        value, number = found
        source, bounds = clipped.get(value, (value, ("", "")))
        joined = _with_bound(bounds, _SIDES[op.type], number, graph)
        if joined is None:
            source, joined = value, _with_bound(("", ""), _SIDES[op.type], number, graph) or ("", "")
        (out,) = op.outputs
        if counts[out] == 1 and out not in graph.outputs and not graph.values[out].facts:
            clipped[out] = source, joined
        if joined[1] == "" and not _number(joined[0], graph):
            ops.append(replace(op, type="Relu", inputs=(source,)))
            continue
        for bound in filter(None, joined):
            if bound not in scalars:
                # Clip takes its bounds as scalars, Max and Min a number of any rank.
                scalars[bound] = unused(f"{bound}/bound", taken)
                values[scalars[bound]] = Value(scalars[bound], (), graph.values[bound].dtype)
                constants[scalars[bound]] = Constant(_number(bound, graph))
        below, above = (scalars.get(bound, "") for bound in joined)
        ops.append(replace(op, type="Clip", inputs=(source, below, above) if above else (source, below)))
    if all(old is new for old, new in zip(graph.ops, ops, strict=True)):
        return graph
    return replace(graph, ops=tuple(ops), values=values, constants=constants)


def _value_and_number(op: Op, graph: Graph) -> tuple[str, str] | None:
    """The operands of a Max or Min that is a bound; None where values compare, or a type is fixed."""
    if op.type not in _SIDES or len(op.inputs) != 2 or not graph.values[op.inputs[0]].is_float:
        return None
    numbers = [name for name in op.inputs if name in graph.constants]
    if len(numbers) != 1:
        return None
    (number,) = numbers
    (value,) = set(op.inputs) - {number}
    array, shape = graph.constants[number].array, graph.values[value].shape
    if array is None or array.size != 1 or bool(np.isnan(array).any()) or graph.values[number].facts:
        return None
    # A number of more axes than the value would give the result more.
    return (value, number) if shape is not None and array.ndim <= len(shape) else None


def _with_bound(bounds: Bounds, side: int, number: str, graph: Graph) -> Bounds | None:
    """The bounds with one more; None where one Clip computes something else."""
    if bounds[side]:
        return None
    below, above = (number, bounds[1]) if side == 0 else (bounds[0], number)
    is_empty = below and above and _number(below, graph) > _number(above, graph)
    return None if is_empty else (below, above)


def _number(name: str, graph: Graph) -> np.ndarray:
    array = graph.constants[name].array
    assert array is not None  # noqa: S101 - `_value_and_number` took those of known numbers
    return array.reshape(())
