"""Constants that a program quantizes: they are the reals of their stored integers, of a fixed type.

A kernel that runs in float reads them as the program's would. Source: StableHLO specification,
`uniform_quantize`: clamp, round half to even, in f32.
"""

import numpy as np

from planner.errors import QTypeError
from planner.formats.mlir.casts import QuantizeCastOp
from planner.formats.mlir.types import QuantType, element_of
from planner.formats.mlir.verbatim_types import as_qtype
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.ir.types.qtypes import Uniform


def round_constant(draft: GraphBuilder, op: QuantizeCastOp) -> bool:
    """Read the cast of a constant as a constant on the grid of its type; False for any other cast."""
    name = draft.loose(op.input)
    array, element = draft.array(name), element_of(op.result.type)
    if array is None or array.dtype != np.float32 or not isinstance(element, QuantType):
        return False
    try:
        kind = as_qtype(element.data)
    except QTypeError:
        return False  # `read_plain` says where
    if not isinstance(kind, Uniform) or kind.grid or kind.storage.float_name or kind.storage.bits > 16:
        return False
    if draft.shape(draft.name(op.input)) != array.shape:
        return False
    rounded = draft.constant(_on_grid(array, kind), name, (kind,))
    draft.read.names[op.result] = rounded
    return True


def _on_grid(array: np.ndarray, kind: Uniform) -> np.ndarray:
    scales, zeros = np.asarray(kind.scales, np.float32), np.asarray(kind.zero_points, np.float32)
    if kind.axis is not None:
        shape = [-1 if axis == kind.axis else 1 for axis in range(array.ndim)]
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.rint(np.clip(array / scales + zeros, kind.storage.qmin, kind.storage.qmax))
    # NaN is stored as 0, as StableHLO's convert makes of it.
    stored = np.where(np.isnan(stored), np.float32(0), stored)
    return np.asarray((stored - zeros) * scales, np.float32)
