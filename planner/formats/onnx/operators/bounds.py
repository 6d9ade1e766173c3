"""Bounds: the larger or smaller of a value and a number, spelled as the activation that it is.

`Max(x, 0)` becomes Relu; `Max(x, c)`, `Min(x, c)`, one behind the other and one behind a Relu become Clip.
Exporters of TensorFlow write activations so, and a kernel takes in what follows a product or a sum where it
is a Relu or a Clip. The numbers stay the same. In: any graph with element types; what nothing reads stays.
"""

from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.formats.onnx.dtypes import NUMPY
from planner.formats.onnx.naming import unused, use_counts
from planner.ir.graph import Constant, Graph, Op, Value

Array: TypeAlias = npt.NDArray[Any]
Bounds: TypeAlias = tuple[Array | None, Array | None]
"""Numbers below and above, of rank 0; None where there is none."""
_SIDES: Final = {"Max": 0, "Min": 1}


def clip_at_numbers(graph: Graph) -> Graph:
    """Turn Max and Min of a value and a number into Relu or Clip."""
    if all(op.type not in _SIDES for op in graph.ops):
        return graph
    counts, taken = use_counts(graph), set(graph.values)
    values, constants = dict(graph.values), dict(graph.constants)
    clipped: dict[str, tuple[str, Bounds]] = {}
    named: dict[tuple[str, bytes], str] = {}

    def name_of(number: Array | None, dtype: str) -> str:
        if number is None:
            return ""
        key = dtype, number.tobytes()
        if key not in named:
            named[key] = unused(f"bound_{float(number):g}", taken)
            values[named[key]] = Value(named[key], (), dtype)
            constants[named[key]] = Constant(number)
        return named[key]

    ops = []
    for op in graph.ops:
        found, bounds = _value_and_number(op, graph), None
        if found is not None:
            value, number = found
            source, before = clipped.get(value, (value, (None, None)))
            bounds = _with_bound(before, _SIDES[op.type], number)
            if bounds is None:
                source, bounds = value, (number, None) if op.type == "Max" else (None, number)
            if bounds[1] is None and number == 0:
                op = replace(op, type="Relu", inputs=(source,))  # noqa: PLW2901 - the same op
            else:
                below, above = (name_of(bound, values[value].dtype) for bound in bounds)
                operands = (source, below, above) if above else (source, below)
                op = replace(op, type="Clip", inputs=operands)  # noqa: PLW2901
        elif op.type == "Relu" and graph.values[op.inputs[0]].dtype in NUMPY:
            source, bounds = op.inputs[0], (np.zeros((), NUMPY[graph.values[op.inputs[0]].dtype]), None)
        if bounds is not None:
            (out,) = op.outputs
            if counts[out] == 1 and out not in graph.outputs and not graph.values[out].facts:
                clipped[out] = source, bounds
        ops.append(op)
    if all(old is new for old, new in zip(graph.ops, ops, strict=True)):
        return graph
    return replace(graph, ops=tuple(ops), values=values, constants=constants)


def _value_and_number(op: Op, graph: Graph) -> tuple[str, Array] | None:
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
    return (value, array.reshape(())) if shape is not None and array.ndim <= len(shape) else None


def _with_bound(bounds: Bounds, side: int, number: Array) -> Bounds | None:
    """The bounds with one more; None where one Clip computes something else."""
    if bounds[side] is not None:
        return None
    below, above = (number, bounds[1]) if side == 0 else (bounds[0], number)
    is_empty = below is not None and above is not None and bool(below > above)
    return None if is_empty else (below, above)
