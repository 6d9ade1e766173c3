"""Blocked: a constant with a scale per block, as DequantizeLinear takes it from opset 21 on.

The operator cuts one axis into blocks, of which the last may be shorter, and has one scale per index of every
other axis. Numbers of at most 4 bits lie two to a byte. Scales are stored as the target's row has them: as
float16, as exponents (OCP MX), or as f8E4M3FN beside a factor (NVFP4), one operator away from float32, which
engines fold as they load. Source: ONNX operator page DequantizeLinear; TensorRT's NVFP4, two of them.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.formats.onnx.writer.storage_types import Array, dtype_text
from planner.ir.dtypes import NUMPY
from planner.ir.types.qtypes import Uniform
from planner.ir.types.scales import TWO_STEPS, common_factor, holds_scales
from planner.plans.plan import Plan

NARROW: Final = 4
_ELEMENT_TYPES: Final = {"e8m0": "f8E8M0FNU"}


def block_dtype(kind: Uniform) -> str:
    """The element type of the stored tensor: `i4`, a float, or the least whole bytes."""
    if kind.storage.bits > NARROW or kind.storage.float_name:
        return dtype_text(kind)
    return f"{'i' if kind.storage.signed else 'u'}4"


def kept_scales(plan: Plan) -> Mapping[Uniform, str]:
    """The storages of the scales of block types, where the target's rows say `f16`, `e8m0` or `f8E4M3FN`.

    Beside integers exponents alone are written as float32, which more engines read.
    """
    found: dict[Uniform, str] = {}
    for kernel in plan.kernels_in_order:
        row = None if kernel.row is None else plan.target.rows[kernel.row]
        specs = () if row is None else tuple(pattern.type for pattern in (*row.inputs, *row.outputs))
        stores = {spec.storage: spec.scales for spec in specs if spec.scales in ("f16", "e8m0", TWO_STEPS)}
        for kind in {port.type for port in kernel.inputs} if stores else ():
            held = stores.get(kind.storage, "") if isinstance(kind, Uniform) and kind.grid else ""
            is_written = held != "e8m0" or (isinstance(kind, Uniform) and kind.storage.float_name)
            if held and is_written and isinstance(kind, Uniform) and holds_scales(kind.scales, held):
                found[kind] = held
    return found


def own_scales(scales: Array, held: str) -> tuple[Array, str, float | None]:
    """Scales as a file keeps them, their element type, and the factor of all, None without one."""
    factor = common_factor(np.unique(scales).tolist()) if held == TWO_STEPS else None
    dtype = _ELEMENT_TYPES.get(held, held)
    reals = scales.astype(np.float64)
    return (reals if factor is None else reals / factor).astype(NUMPY[dtype]), dtype, factor


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
