"""Table of kernels, which compute planned regions on stored integers, by the types of their ops.

A kernel returns the stored result before a fused activation, or None where its types have no integer
kernel: the region then computes in float between DequantizeLinear and QuantizeLinear. With `float32_even`
they compute as onnxruntime's QLinear operators; the other arithmetics are `fixed_point`'s.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from planner.interpreter.calls import HTP, Call, Operand, grid_of, is_like, onto, saturated
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.elementwise import (
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    qlinear_where,
)
from planner.interpreter.kernels.geometry import pool_geometry
from planner.interpreter.kernels.htp import added
from planner.interpreter.kernels.linear import conv, conv_transpose, gemm, matmul, matmul_add
from planner.interpreter.kernels.pooling import (
    PoolGeometry,
    qlinear_average_pool,
    qlinear_global_average_pool,
    window_counts,
    window_sums,
)
from planner.interpreter.kernels.resizing import resize
from planner.interpreter.kernels.softmax import least_size, overflows, qlinear_softmax
from planner.interpreter.requantize import Array
from planner.ir.arithmetic.rescaling import apply_scale_32, reciprocal_scale
from planner.ir.types.qtypes import Uniform
from planner.ops import CONCATS

DIVIDING: Final = frozenset({"litert", "tosa_double", "tosa_single"})
AXES: Final = 2
BYTE: Final = 8
Kernel: TypeAlias = Callable[[Call], Array | None]


def rescale_onto(x: Operand, y: Uniform, arithmetic: str) -> Array:
    """A stored per-tensor tensor on another grid, by one of `fixed_point.ARITHMETICS`."""
    return onto([(x.shifted(), _ratio(x.kind, y))], y, arithmetic)


def add(call: Call) -> Array | None:
    """Add: both sides rescaled inside."""
    return _sum(call, 1)


def subtract(call: Call) -> Array | None:
    """Sub: the same; onnxruntime has no integer kernel for it."""
    return None if call.is_onnxruntime else _sum(call, -1)


def multiply(call: Call) -> Array | None:
    """Mul: one product, rescaled once."""
    sides = _operands(call)
    if sides is None:
        return None
    a, b = sides
    if call.is_onnxruntime:
        return qlinear_mul(a.stored, a.grid, b.stored, b.grid, grid_of(call.y))
    ratio = ratios((a.kind.scale,), b.kind.scale, call.y.scale)
    return onto([(a.shifted() * b.shifted(), ratio)], call.y, call.arithmetic)


def square(call: Call) -> Array | None:
    """Pow of exponent 2 where kernels multiply integers: a product of a value and itself."""
    x = call.operand(0)
    if x is None or call.is_onnxruntime or call.operand(1) is not None or not _fits(x, call):
        return None
    if np.any(call.other(call.op.inputs[1]) != 2):
        return None
    shifted, ratio = x.shifted(), ratios((x.kind.scale,), x.kind.scale, call.y.scale)
    return onto([(shifted * shifted, ratio)], call.y, call.arithmetic)


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


def sigmoid(call: Call) -> Array | None:
    """Sigmoid by table."""
    x = _onnxruntime_operand(call)
    return None if x is None else qlinear_sigmoid(x.stored, x.grid, grid_of(call.y))


def leaky_relu(call: Call) -> Array | None:
    """LeakyRelu by table."""
    x = _onnxruntime_operand(call)
    alpha = call.op.attributes.get("alpha", 0.01)
    return None if x is None else qlinear_leaky_relu(x.stored, x.grid, grid_of(call.y), alpha)


def softmax(call: Call) -> Array | None:
    """Softmax over one axis."""
    x = _onnxruntime_operand(call)
    axis = call.op.attributes.get("axis", -1)
    # Where the kernel overflows, files have a Softmax between pairs.
    if x is None or overflows(least_size(call.op, call.shape), grid_of(call.y).scale):
        return None
    return qlinear_softmax(x.stored, x.grid, grid_of(call.y), axis=axis)


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
    counts = window_counts(x.stored.shape[2:], geometry, includes_padding=includes_padding)
    total = window_sums(x.shifted(), geometry)
    if is_tosa_pool(call.arithmetic, x.kind, call.y, geometry, includes_padding=includes_padding):
        divided = apply_scale_32(total, *reciprocal_scale(counts), double_round=False)
        return saturated(divided, call.y)
    return _average(call, total, x, counts)


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


def global_average_pool(call: Call) -> Array | None:
    """GlobalAveragePool: one integer sum per channel, rescaled once."""
    sides = _operands(call)
    if sides is None:
        return None
    x = sides[0]
    if call.is_onnxruntime:
        return qlinear_global_average_pool(x.stored, x.grid, grid_of(call.y))
    axes = tuple(range(2, x.stored.ndim))
    count = np.full((1,) * x.stored.ndim, np.prod(x.stored.shape[2:]), np.int64)
    return _average(call, x.shifted().sum(axes, keepdims=True), x, count)


def reduce_mean(call: Call) -> Array | None:
    """ReduceMean in `exact_even`: one integer sum, rounded once; elsewhere it computes in float."""
    return _reduced(call, is_mean=True)


def reduce_sum(call: Call) -> Array | None:
    """ReduceSum in `exact_even`: the same."""
    return _reduced(call, is_mean=False)


def _reduced(call: Call, *, is_mean: bool) -> Array | None:
    x, attributes, inputs = call.operand(0), call.op.attributes, call.op.inputs
    if call.arithmetic != "exact_even" or x is None or not _fits(x, call):
        return None
    given = call.other(inputs[1]).reshape(-1).tolist() if len(inputs) > 1 and inputs[1] else ()
    axes = tuple(given or attributes.get("axes", ()))
    if not axes and not attributes.get("noop_with_empty_axes"):
        axes = tuple(range(x.stored.ndim))
    total = x.shifted().sum(axes, keepdims=bool(attributes.get("keepdims", 1)))
    count = int(np.prod([x.stored.shape[axis] for axis in axes])) if is_mean else 1
    ratio = np.asarray(_ratio(x.kind, call.y)[0] / count, object)
    return onto([(np.asarray(total), ratio)], call.y, call.arithmetic)


def _average(call: Call, total: Array, x: Operand, counts: Array) -> Array:
    distinct, places = np.unique(counts, return_inverse=True)
    ratio = np.empty(len(distinct), object)
    ratio[:] = [Fraction(x.kind.scale) / Fraction(call.y.scale) / int(count) for count in distinct]
    return onto([(total, ratio[places.reshape(counts.shape)])], call.y, call.arithmetic)


def _sum(call: Call, sign: int) -> Array | None:
    sides = _operands(call)
    if sides is None:
        return None
    a, b = sides
    if call.is_onnxruntime:
        return qlinear_add(a.stored, a.grid, b.stored, b.grid, grid_of(call.y))
    if call.arithmetic == HTP:
        return added(a, b, call.y, sign=sign)
    terms = [(a.shifted(), _ratio(a.kind, call.y)), (sign * b.shifted(), _ratio(b.kind, call.y))]
    return onto(terms, call.y, call.arithmetic)


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


def _onnxruntime_operand(call: Call) -> Operand | None:
    """The operand of a table kernel; other arithmetics define none, so it computes in float there."""
    operands = _operands(call) if call.is_onnxruntime else None
    return None if operands is None else operands[0]


SUMS_OF_PRODUCTS: Final = frozenset({conv, conv_transpose, gemm, matmul, matmul_add})
OF_HTP: Final = frozenset({*SUMS_OF_PRODUCTS, add, subtract})
"""The kernels that `htp` has an arithmetic of its own for."""
KERNELS: Final[Mapping[tuple[str, ...], Kernel]] = {
    **{(kind,): concat for kind in CONCATS},
    ("Add",): add,
    ("AveragePool",): average_pool,
    ("Conv",): conv,
    ("ConvTranspose",): conv_transpose,
    ("Gemm",): gemm,
    ("GlobalAveragePool",): global_average_pool,
    ("LeakyRelu",): leaky_relu,
    ("MatMul",): matmul,
    ("MatMul", "Add"): matmul_add,
    ("Mul",): multiply,
    ("Pow",): square,
    ("ReduceMean",): reduce_mean,
    ("ReduceSum",): reduce_sum,
    ("Resize",): resize,
    ("Sigmoid",): sigmoid,
    ("Softmax",): softmax,
    ("Sub",): subtract,
    ("Where",): where,
}
