"""Axes: which dimension of a constant counts output channels, and which one is cut into blocks.

Sparsity is that of the model's numbers: rounding some to 0 makes weights only sparser.
Source: ONNX operator schemas; docs/targets/reference.md (`axis: {w: out_channel}`, `granularity: block`);
NVIDIA, "Accelerating Inference with Sparsity Using the Ampere Architecture" (2:4 along the summed dimension).
"""

import math

import numpy as np

from planner.ir.graph import Graph, Op, Region
from planner.ir.mapped import let_go
from planner.ops import LINEAR
from planner.target.records import PortPattern, Row


def linear_op(ops: tuple[Op, ...]) -> Op | None:
    """The first op of a kernel that adds up products."""
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


def axis_of_scales(graph: Graph, region: Region, row: Row, port: str, value: str) -> int | None:
    """The axis along which a row has the scales of a port; None where the kernel does not tell."""
    role, shape = row.axis.get(port, "out_channel"), graph.values[value].shape
    if not isinstance(role, int):
        return None if linear_op(region.ops) is None else channel_axis(region, graph)
    if role < 0 and shape is None:
        return None  # counted from an end that is not known
    return role + len(shape or ()) if role < 0 else role


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


def summed_terms(graph: Graph, op: Op) -> int | None:
    """How many products of two activations one sum has; None where a size is not known."""
    shape = graph.values[op.inputs[1]].shape or ()
    if op.type == "MatMul":
        summed = shape[-2:-1] or shape
    elif op.type == "Gemm":
        summed = shape[1:] if op.attributes.get("transB", 0) else shape[:1]
    else:
        summed = shape[1:] if op.type == "Conv" else (*shape[:1], *shape[2:])
    sizes = [size for size in summed if isinstance(size, int)]
    return math.prod(sizes) if shape and len(sizes) == len(summed) else None


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
