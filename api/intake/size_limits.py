"""Size limits: whether a machine could hold the sizes that a model states.

A few bytes can name a tensor of gigabytes (ConstantOfShape, Expand, Range). Nothing here makes one; sizes are
multiplied as whole numbers. Source: docs/service.md.
"""

from typing import Final

from planner.errors import ModelError, quantity
from planner.ir.graph import Graph

MAX_ELEMENTS: Final = 1 << 34
"""Of any tensor."""
MAX_FROM_NOTHING: Final = 1 << 28
"""Of all tensors that depend on no model input and that the file does not hold."""


def check_sizes(graph: Graph) -> Graph:
    """Return the graph if its tensors are of a size to work with.

    Raises:
      ModelError: a value of a negative dimension or of too many elements, or too many made of constants.
    """
    for value in graph.values.values():
        shape = list(value.shape or ())
        if any(isinstance(dim, int) and dim < 0 for dim in shape):
            raise ModelError(f"value {value.name!r} has a negative dimension: {shape}")
        if value.elements > MAX_ELEMENTS:
            raise ModelError(
                f"value {value.name!r} of shape {shape} has {quantity(value.elements, 'element')}",
                hint=f"{MAX_ELEMENTS} are the limit",
            )
    made = 0
    for name in _made_of_constants(graph):
        made += graph.values[name].elements if name in graph.values else 0
        if made > MAX_FROM_NOTHING:
            raise ModelError(
                f"value {name!r} is made of constants, and what is made of them has "
                f"{quantity(made, 'element')} by here",
                hint=f"{MAX_FROM_NOTHING} are the limit",
            )
    return graph


def _made_of_constants(graph: Graph) -> list[str]:
    repeated = [
        name
        for name, constant in graph.constants.items()
        if constant.array is not None and constant.array.size > 1 and not any(constant.array.strides)
    ]
    known = {*graph.constants, ""}
    for op in graph.all_ops():
        if op.inputs and known.issuperset((*op.inputs, *op.captures)):
            known.update(op.outputs)
            repeated += filter(None, op.outputs)
    return repeated
