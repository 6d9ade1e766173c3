"""Blocked: a constant with a scale per block, as DequantizeLinear takes it from opset 21 on.

The operator cuts one axis into blocks, of which the last may be shorter, and has one scale per index of every
other axis. Numbers of at most 4 bits lie two to a byte. Source: ONNX operator page DequantizeLinear.
"""

from typing import Final

import numpy as np

from planner.exporters.onnx.storage_types import Array, dtype_text
from planner.ir.types.qtypes import Uniform
from planner.ir.types.scales import nearest
from planner.plans.plan import Plan

NARROW: Final = 4


def block_dtype(kind: Uniform) -> str:
    """The element type of the stored tensor: `i4`, or the least whole bytes."""
    return f"{'i' if kind.storage.signed else 'u'}4" if kind.storage.bits <= NARROW else dtype_text(kind)


def half_kinds(plan: Plan) -> frozenset[Uniform]:
    """Types in blocks whose scales the target's rows store in float16."""
    found = set()
    for kernel in plan.kernels_in_order:
        row = None if kernel.row is None else plan.target.rows[kernel.row]
        specs = () if row is None else (pattern.type for pattern in (*row.inputs, *row.outputs))
        stores = {spec.storage for spec in specs if spec.scales == "f16"}
        kinds = (port.type for port in kernel.inputs)
        found |= {kind for kind in kinds if stores and isinstance(kind, Uniform) and kind.grid
                  and kind.storage in stores and are_halves(kind)}  # fmt: skip
    return frozenset(found)


def are_halves(kind: Uniform) -> bool:
    """Whether float16 holds every scale of a type."""
    scales = np.asarray(kind.scales, np.float64)
    return bool(np.array_equal(nearest(scales, "f16"), scales))


def block_axis(kind: Uniform) -> int:
    """The axis that is cut: that of the longest blocks."""
    return max(kind.blocks, key=lambda block: block[1], default=(0, 1))[0]


def block_parameters(kind: Uniform, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Scales (float32) and zero points (integers), one per block of one axis and index of the others.

    Args:
      kind: with a scale per block, of any axes.
      shape: of the tensor.
    """
    cut, sizes = block_axis(kind), dict(kind.blocks)
    scales = np.asarray(kind.scales, np.float32).reshape(kind.grid)
    zeros = np.asarray(kind.zero_points, np.int64).reshape(kind.grid)
    for axis, size in enumerate(shape):
        if axis != cut:
            spread = np.arange(size) // sizes.get(axis, max(1, size))
            scales, zeros = scales.take(spread, axis=axis), zeros.take(spread, axis=axis)
    return scales, zeros


def block_attributes(kind: Uniform, shape: tuple[int, ...]) -> dict[str, int]:
    """`axis` and `block_size` of the operator."""
    cut = block_axis(kind)
    return {"axis": cut, "block_size": dict(kind.blocks).get(cut, shape[cut])}
