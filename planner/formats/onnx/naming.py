"""Names that are still free, for values and ops that reading a model adds."""

from collections import Counter
from itertools import chain
from typing import Final

from planner.ir.graph import Graph, Op

BIAS: Final = "/bias"
"""The end of the name of a bias that folding makes for an operator without one; what precedes is a result."""


def unused(wanted: str, taken: set[str]) -> str:
    """Give `wanted` or the next free `wanted_N`, and take it."""
    name, count = wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


def use_counts(graph: Graph) -> Counter[str]:
    """Number of reads of each value: by ops, by bodies of ops, as a model output."""
    return Counter(chain(graph.outputs, *((*op.inputs, *op.captures) for op in graph.ops)))


def rewritten(name: str, op: Op, counts: Counter[str], taken: set[str]) -> str:
    """The name for a changed copy of a constant: its own where only `op` reads it, else a free one."""
    if name not in taken:
        return unused(name, taken)
    if name in op.inputs and counts[name] <= 1:
        return name
    return unused(f"{name}/{op.name}", taken)


def is_made_bias(name: str) -> bool:
    """Whether a name may be that of a bias that folding made; a model's own tensor can have it too."""
    head, end, number = name.rpartition(BIAS)
    return bool(head and end) and (not number or number.startswith("_"))
