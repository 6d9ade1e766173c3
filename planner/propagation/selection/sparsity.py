"""Sparsity: whether weights have as many zeros as a row asks for, 2 of each 4 for instance.

The numbers of the model decide: what rounds to 0 besides only makes them sparser. Source: NVIDIA,
"Accelerating Inference with Sparsity Using the Ampere Architecture" (2:4 along the summed dimension).
"""

import numpy as np

from planner.ir.graph import Graph, Region
from planner.ir.mapped import let_go
from planner.propagation.selection.weight_axes import block_axes
from planner.target.records import PortPattern, Row


def too_dense(graph: Graph, region: Region, row: Row, pattern: PortPattern, name: str) -> str | None:
    """Why a value is not as sparse as its port asks, None where it is.

    Groups are consecutive along the dimension that is summed (input channels of a convolution), one after the
    other from its start; the last may be shorter.
    """
    sparsity = pattern.type.sparsity
    if sparsity is None:
        return None
    few, many = sparsity
    asked = f"port {pattern.name} ({name!r}) is to be {few}:{many} sparse"
    constant = graph.constants.get(name)
    if constant is None or constant.array is None:
        return f"{asked}, and its numbers are not known"
    array = constant.array
    if not array.size:
        return None
    axis = 0 if array.ndim < 2 else block_axes(graph, region, row, pattern, array.ndim)[1]
    is_set = np.moveaxis(np.asarray(array != 0), axis, 0)
    let_go(array)
    counts = np.add.reduceat(is_set, np.arange(0, len(is_set), many), axis=0, dtype=np.int64)
    most = int(counts.max())
    return None if most <= few else f"{asked}, and {most} of {many} along axis {axis} are not 0"
