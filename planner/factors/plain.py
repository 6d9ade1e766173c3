"""Factors that no constant absorbs: what a value is multiplied with, spelled one way.

`x / c` becomes `x * (1 / c)`: devices multiply integers, few divide them. A number stands behind what it
multiplies, where rows of targets look for it. Neg stays: devices that compute it have a row of that name.
Patterns match either spelling (`target.patterns`). The reciprocal of a power of two is exact; any other is
rounded once, and only in float32 and wider types. A quotient that an Erf reads stays one: engines know a Gelu
by it, and none multiplies its integers. In: any graph with element types.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.onnx.naming import unused
from planner.ir.graph import Constant, Graph, Op, Value

_FINE: Final = frozenset({"f32", "f64"})
"""Types in which a rounded reciprocal moves a quotient by no more than rounding the quotient does."""


def plain_factors(graph: Graph) -> Graph:
    """Turn Div of floats by a constant into Mul by a constant, and put numbers second."""
    if all(op.type not in ("Div", "Mul") for op in graph.ops):
        return graph
    taken = set(graph.values)
    made: dict[str, Value] = {}
    constants: dict[str, Constant] = {}
    of_erf = {name for op in graph.ops if op.type == "Erf" for name in op.inputs}
    ops = []
    for op in graph.ops:
        found = None if of_erf.intersection(op.outputs) else _factor(op, graph)
        if found is None:
            ops.append(replace(op, inputs=op.inputs[::-1]) if _begins_with_number(op, graph) else op)
            continue
        wanted, array = found
        if wanted not in made:
            name = unused(wanted, taken)
            made[wanted] = Value(name, array.shape, graph.values[op.inputs[0]].dtype)
            constants[name] = Constant(array)
        ops.append(replace(op, type="Mul", inputs=(op.inputs[0], made[wanted].name)))
    if not made and all(old is new for old, new in zip(graph.ops, ops, strict=True)):
        return graph
    values = {**graph.values, **{value.name: value for value in made.values()}}
    return replace(graph, ops=tuple(ops), values=values, constants={**graph.constants, **constants})


def _factor(op: Op, graph: Graph) -> tuple[str, np.ndarray] | None:
    """The factor that an op stands for, and a name for it; None where it stands for none."""
    kind = graph.values[op.inputs[0]].dtype if op.inputs and op.inputs[0] in graph.values else ""
    if not op.inputs or op.inputs[0] in graph.constants or kind not in ("bf16", "f16", *_FINE):
        return None
    divisor = graph.constants.get(op.inputs[1]) if op.type == "Div" else None
    if divisor is None or divisor.array is None or graph.values[op.inputs[1]].facts:
        return None
    factors = _reciprocals(divisor.array, is_fine=kind in _FINE)
    return None if factors is None else (f"{op.inputs[1]}/reciprocal", factors)


def _begins_with_number(op: Op, graph: Graph) -> bool:
    """Whether an op multiplies a number with a value, in this order."""
    if op.type != "Mul" or op.inputs[1] in graph.constants:
        return False
    first = graph.constants.get(op.inputs[0])
    return first is not None and graph.values[op.inputs[0]].elements == 1


def _reciprocals(array: np.ndarray, *, is_fine: bool) -> np.ndarray | None:
    """The reciprocals of numbers in their type; None where one is not finite, not normal, or too rough."""
    wide = array.astype(np.float64)
    if not wide.size or not wide.all() or not np.isfinite(wide).all():
        return None
    with np.errstate(over="ignore", under="ignore"):
        factors = (1 / wide).astype(array.dtype)
    kept = factors.astype(np.float64)
    near = np.abs(kept * wide - 1) <= (2.0**-23 if is_fine else 0.0)
    return factors if bool(near.all()) else None
