"""Table of kernels, which compute planned regions on stored integers, by the types of their ops.

A kernel returns the stored result before a fused activation, or None where its types have no integer
kernel: the region then computes in float between DequantizeLinear and QuantizeLinear. With `float32_even`
they compute as onnxruntime's QLinear operators; the other arithmetics are `fixed_point`'s.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.interpreter.calls import (
    FLOAT32_EVEN,
    HTP,
    Call,
    Operand,
    grid_of,
    is_like,
    onto,
    saturated,
    terms_of,
)
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.elementwise import (
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    qlinear_where,
)
from planner.interpreter.kernels.htp import added, multiplied, normalized
from planner.interpreter.kernels.linear import linear
from planner.interpreter.kernels.pooling import qlinear_average_pool, qlinear_global_average_pool, window_sums
from planner.interpreter.kernels.resizing import resize
from planner.interpreter.kernels.softmax import least_size, overflows, qlinear_softmax
from planner.interpreter.requantize import Array
from planner.ir.arithmetic.rescaling import apply_scale_32, reciprocal_scale
from planner.ir.types.qtypes import Uniform
from planner.lowering.products import PRODUCTS
from planner.ops import CONCATS
from planner.ops.geometry.windows import PoolGeometry, pool_geometry, window_counts
from planner.ops.sums import Term

DIVIDING: Final = frozenset({"litert", "tosa_double", "tosa_single"})
AXES: Final = 2
BYTE: Final = 8
Kernel: TypeAlias = Callable[[Call], Array | None]


def rescale_onto(x: Operand, y: Uniform, arithmetic: str) -> Array:
    """A stored per-tensor tensor on another grid, by one of `fixed_point.ARITHMETICS`."""
    return onto([(x.shifted(), _ratio(x.kind, y))], y, arithmetic)


def computed(call: Call) -> Array | None:
    """The kernel of onnxruntime in its arithmetic; else a sum of terms, rounded once."""
    if call.is_onnxruntime:
        operands, own = _operands(call), OF_ONNXRUNTIME.get(call.op.type)
        return None if operands is None or own is None else own(call, *operands)
    sides = [call.operand(i) for i in range(len(call.op.inputs))]
    kinds = [None if side is None else side.kind for side in sides]
    terms = terms_of(call.known(), kinds, call.y)
    if terms is None:
        return None
    shifted = {i: side.shifted() for i, side in enumerate(sides) if side is not None}
    return onto([(_integers(term, shifted), ratio) for term, ratio in terms], call.y, call.arithmetic)


def add(call: Call) -> Array | None:
    """Add and Sub, which HTP rounds in a way of its own."""
    sides = _operands(call) if call.arithmetic == HTP else None
    if sides is None:
        return computed(call)
    a, b = sides
    return added(a, b, call.y, sign=-1 if call.op.type == "Sub" else 1)


def multiply(call: Call) -> Array | None:
    """Mul, which HTP rounds in a way of its own for two tensors."""
    if call.arithmetic != HTP:
        return computed(call)
    sides = _operands(call)
    if sides is None:
        return None
    a, b = sides
    found = multiplied(a, b, call.y)
    return found if found is not None else computed(replace(call, arithmetic=FLOAT32_EVEN))


def normalize(call: Call) -> Array | None:
    """LayerNormalization over the last axis, which HTP has an arithmetic for; float elsewhere."""
    sides = call.all_operands() if call.arithmetic == HTP else None
    attributes = call.op.attributes
    if sides is None or not call.y.is_per_tensor or sides[1].stored.ndim > 1:
        return None
    if attributes.get("axis", -1) not in (-1, sides[0].stored.ndim - 1):
        return None
    x, weight, *bias = sides
    return normalized(x, weight, bias[0] if bias else None, call.y, attributes.get("epsilon", 1e-5))


def reduced(call: Call) -> Array | None:
    """ReduceMean and ReduceSum, which compute in float elsewhere than in `exact_even`."""
    return computed(call) if call.arithmetic == "exact_even" else None


def concat(call: Call) -> Array | None:
    """Concat: every input rescaled onto the result's grid."""
    parts = _operands(call)
    if parts is None:
        return None
    axis = call.op.attributes["axis"]
    if call.is_onnxruntime:
        return qlinear_concat([x.stored for x in parts], [x.grid for x in parts], grid_of(call.y), axis)
    return np.concatenate([rescale_onto(x, call.y, call.arithmetic) for x in parts], axis)


def where(call: Call) -> Array | None:
    """`Where`: both branches rescaled onto the result's grid."""
    chosen, other = call.operand(1), call.operand(2)
    if chosen is None or other is None or not all(_fits(x, call) for x in (chosen, other)):
        return None
    condition = call.other(call.op.inputs[0])
    if call.is_onnxruntime:
        pairs = (chosen.stored, chosen.grid), (other.stored, other.grid)
        return qlinear_where(condition, *pairs, grid_of(call.y))
    sides = [rescale_onto(x, call.y, call.arithmetic) for x in (chosen, other)]
    return np.where(condition, *sides)


def average_pool(call: Call) -> Array | None:
    """AveragePool: one window at a time, padding counted where the op says so."""
    sides, attributes = _operands(call), call.op.attributes
    if sides is None:
        return None
    x, includes_padding = sides[0], bool(attributes.get("count_include_pad", 0))
    geometry = pool_geometry(attributes, x.stored.shape[2:])
    if any(step != 1 for step in geometry.dilations) or (geometry.ceil_mode and includes_padding):
        return None
    if call.is_onnxruntime:
        grid = grid_of(call.y)
        return qlinear_average_pool(x.stored, x.grid, grid, geometry, count_include_pad=includes_padding)
    if is_tosa_pool(call.arithmetic, x.kind, call.y, geometry, includes_padding=includes_padding):
        counts = window_counts(x.stored.shape[2:], geometry, includes_padding=includes_padding)
        total = window_sums(x.shifted(), geometry)
        return saturated(apply_scale_32(total, *reciprocal_scale(counts), double_round=False), call.y)
    return computed(call)


def is_tosa_pool(
    arithmetic: str, x: Uniform, y: Uniform, geometry: PoolGeometry, *, includes_padding: bool
) -> bool:
    """Whether an AveragePool is TOSA's AVG_POOL2D: it divides with a rounding of its own, ties away from 0.

    Its input and result have one type, and padding is not counted; other averages are sums and a RESCALE.
    """
    parts = [(kind.scales, kind.zero_points, kind.storage.bits, kind.storage.signed) for kind in (x, y)]
    is_one = parts[0] == parts[1] and (x.storage.bits <= BYTE or not any(x.zero_points))
    shape = geometry.filled()
    fits = all(pad < size for pad, size in zip(shape.pads, shape.kernel * 2, strict=True))
    is_plain = fits and not (includes_padding and any(shape.pads))
    return arithmetic in DIVIDING and is_one and is_plain and len(shape.kernel) <= AXES


def _integers(term: Term, shifted: Mapping[int, Array]) -> Array:
    """The integers of a term, of operands less their zero points."""
    found, *more = (shifted[i] for i in term.factors)
    for factor in more:
        found = found * factor
    found = -found if term.sign < 0 else found
    if term.windows is not None:
        return window_sums(found, term.windows)
    return np.asarray(found.sum(term.axes, keepdims=term.keeps_axes)) if term.axes else found


def _ratio(x: Uniform, y: Uniform) -> Array:
    return ratios((x.scale,), 1.0, y.scale)


def _operands(call: Call) -> tuple[Operand, ...] | None:
    """All operands of a single op, if an integer kernel takes them and the result."""
    operands = call.all_operands()
    if operands is None or not all(_fits(x, call) for x in operands):
        return None
    return operands


def _fits(x: Operand, call: Call) -> bool:
    if call.is_onnxruntime:
        return is_like(x.kind, call.y)
    return x.kind.is_per_tensor and call.y.is_per_tensor


def _softmax(call: Call, x: Operand) -> Array | None:
    # Where the kernel overflows, files have a Softmax between pairs.
    if overflows(least_size(call.op, call.shape), grid_of(call.y).scale):
        return None
    return qlinear_softmax(x.stored, x.grid, grid_of(call.y), axis=call.op.attributes.get("axis", -1))


OF_ONNXRUNTIME: Final[Mapping[str, Callable[..., Array | None]]] = {
    "Add": lambda call, a, b: qlinear_add(a.stored, a.grid, b.stored, b.grid, grid_of(call.y)),
    "GlobalAveragePool": lambda call, x: qlinear_global_average_pool(x.stored, x.grid, grid_of(call.y)),
    "LeakyRelu": lambda call, x: qlinear_leaky_relu(
        x.stored, x.grid, grid_of(call.y), call.op.attributes.get("alpha", 0.01)
    ),
    "Mul": lambda call, a, b: qlinear_mul(a.stored, a.grid, b.stored, b.grid, grid_of(call.y)),
    "Sigmoid": lambda call, x: qlinear_sigmoid(x.stored, x.grid, grid_of(call.y)),
    "Softmax": _softmax,
}
"""Kernels of a call and its operands, in bytes of one sign."""
OF_HTP: Final = frozenset({add, linear, multiply, normalize})
"""The kernels that `htp` has an arithmetic of its own for."""
KERNELS: Final[Mapping[tuple[str, ...], Kernel]] = {
    **{(kind,): concat for kind in CONCATS},
    **dict.fromkeys(PRODUCTS, linear),
    ("Add",): add,
    ("AveragePool",): average_pool,
    ("GlobalAveragePool",): computed,
    ("LayerNormalization",): normalize,
    ("LeakyRelu",): computed,
    ("Mul",): multiply,
    ("Pow",): computed,
    ("ReduceMean",): reduced,
    ("ReduceSum",): reduced,
    ("Resize",): resize,
    ("Sigmoid",): computed,
    ("Softmax",): computed,
    ("Sub",): add,
    ("Where",): where,
}
