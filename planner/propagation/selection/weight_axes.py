"""Axes: which dimension of a constant counts output channels, and which one is cut into blocks.

Source: ONNX operator schemas; docs/targets/reference.md (`axis: {w: out_channel}`, `granularity: block`).
"""

from planner.ir.graph import Graph, Op, Region
from planner.ops import LINEAR
from planner.target.records import PortPattern, Row


def linear_op(ops: tuple[Op, ...]) -> Op | None:
    """The multiplying op of a kernel."""
    return next((op for op in ops if op.type in LINEAR), None)


def channel_axis(region: Region, graph: Graph) -> int:
    """The axis of a linear kernel's weight that counts output channels; 0 for other kernels."""
    op = linear_op(region.ops)
    if op is None or op.type == "Conv":
        return 0
    if op.type == "ConvTranspose":
        return 1
    if op.type == "Gemm":
        return 0 if op.attributes.get("transB", 0) else 1
    return len(graph.values[op.inputs[1]].shape or (0, 0)) - 1


def block_axes(graph: Graph, region: Region, row: Row, pattern: PortPattern, rank: int) -> tuple[int, int]:
    """(axis of output channels, axis cut into blocks) of a constant at a port, `rank` 2 or more."""
    role = row.axis.get(pattern.name, "out_channel")
    channel = (role if isinstance(role, int) else channel_axis(region, graph)) % rank
    op = linear_op(region.ops)
    if op is not None and op.type == "MatMul":
        return channel, rank - 2 if channel == rank - 1 else rank - 1
    return channel, 1 if channel == 0 else 0


def block_size(graph: Graph, region: Region, row: Row, pattern: PortPattern, name: str) -> int | None:
    """The size of the blocks of a constant; None where it cannot be cut.

    The first size of the port's type that divides the dimension; else, where the last block may be shorter,
    the first size that is not longer than the dimension, or the least.
    """
    shape, sizes = graph.values[name].shape, pattern.type.block_size
    if shape is None or len(shape) < 2:
        return None
    size = shape[block_axes(graph, region, row, pattern, len(shape))[1]]
    if not isinstance(size, int):
        return None
    whole = next((block for block in sizes if size % block == 0), None)
    if whole is not None or not pattern.type.short_block or not size:
        return whole
    return next((block for block in sizes if block <= size), min(sizes))
