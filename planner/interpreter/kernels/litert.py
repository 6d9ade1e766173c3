"""LiteRT: kernels of rows in the arithmetic `litert`, as the runtime's reference kernels round.

Kernels that round in a way of their own are here: averages, means, sums, tables of 513 entries, sigmoids of
16 bits, piecewise linear functions, comparisons, bilinear resizing. All else is in `table`, where `litert`
rounds as `gemmlowp`.
Source: TensorFlow Lite, reference kernels and their preparation; measured in docs/litert.md.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.interpreter.calls import Call, Operand, saturated
from planner.interpreter.kernels.pooling import window_sums
from planner.interpreter.kernels.recurrent import LITERT_LAYERS
from planner.interpreter.requantize import Array
from planner.ir.arithmetic.rescaling import Integers, apply_scale_32, mean_factor, multiplier_or_zero
from planner.ir.arithmetic.words import divided_by_power, high_product
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ops import defined, of_form
from planner.ops.forms import Form
from planner.ops.geometry.resizing import follows_sizes
from planner.ops.geometry.windows import pool_geometry, window_counts
from planner.ops.operands import reduced_axes

LITERT: Final = "litert"
Kernel: TypeAlias = Callable[[Call], Array | None]

_STEPS: Final = 512
_EXP_SCALE: Final = 10 / 65535
_ONE: Final = 1 << 10
"""One pixel in the places of a bilinear resize."""


def average_pool(call: Call) -> Array | None:
    """The sum of stored integers, zero points included, over their count; ties away from zero.

    Padding that counts is stored zeros in front of the operator.
    """
    x, attributes = _operand(call), call.op.attributes
    if x is None:
        return None
    geometry, includes = pool_geometry(attributes, x.stored.shape[2:]), attributes.get("count_include_pad")
    includes = bool(includes) and any(geometry.pads)
    if any(step != 1 for step in geometry.dilations) or (includes and geometry.ceil_mode):
        return None
    counts = window_counts(x.stored.shape[2:], geometry, includes_padding=includes)
    total = window_sums(x.shifted(), geometry) + x.kind.zero_point * counts
    away = np.sign(total) * ((np.abs(total) + counts // 2) // counts)
    return saturated(away - call.y.zero_point, call.y)


def mean(call: Call) -> Array | None:
    """One sum, times a multiplier with the count in it; a ReduceSum is a mean in steps finer by the count."""
    x = _operand(call)
    axes = None if x is None else reduced_axes(call.known(), x.stored.ndim)
    if x is None or axes is None:
        return None
    keeps = bool(call.op.attributes.get("keepdims", 1))
    total = np.asarray(x.shifted().sum(axes, keepdims=keeps))
    count = math.prod(x.stored.shape[axis] for axis in axes)
    scale = call.y.scale / count if call.op.type == "ReduceSum" else call.y.scale
    factor = mean_factor(float(np.float32(x.kind.scale)) / float(np.float32(scale)), count)
    return saturated(apply_scale_32(total, *factor, double_round=True), call.y)


def exp(call: Call) -> Array | None:
    """Exp of 16 bits by a table of 513 entries."""
    return _by_table(call, np.exp)


def softmax(call: Call) -> Array | None:
    """Softmax of 16 bits: exponentials and the reciprocal of their sum by tables."""
    x = _operand(call)
    if x is None or x.kind.storage.bits <= 8:
        return None
    axis = call.op.attributes.get("axis", -1)
    rows = np.moveaxis(x.stored.astype(np.int64), axis, -1)
    factor = multiplier_or_zero(float(np.float32(x.kind.scale)) / _EXP_SCALE)
    scaled = apply_scale_32(rows - rows.max(-1, keepdims=True), *factor, double_round=True)
    powers = _look_up(np.clip(scaled + 32767, -32768, 32767), _EXPONENTIALS)
    sums = powers.sum(-1, keepdims=True)
    # Leading zeros of 32 bits.
    zeros = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
    shifted = ((sums << (zeros - 1)) + (1 << 13)) >> 14
    inverse = _look_up(np.clip(shifted - ((1 << 15) + (1 << 16)), -32768, 32767), _RECIPROCALS)
    shift = 31 - zeros
    found = (powers * inverse + (np.int64(1) << (shift - 1))) >> shift
    return np.asarray(np.moveaxis(np.clip(found, 0, 32767), -1, axis), np.int16)


def sigmoid(call: Call) -> Array | None:
    """Sigmoid of 16 bits, between the entries of a table."""
    x = _operand(call)
    if x is None or x.kind.storage.bits <= 8:
        return None
    steps = _places(x)
    found = _between(np.abs(steps), 9, 0x7FFF << 10)
    found = np.where(steps >= 0, found + (1 << 9), (1 << 25) - found + (1 << 9) - 1)
    return np.asarray(found >> 10).astype(np.int16)


def tanh(call: Call) -> Array | None:
    """Tanh of 16 bits, by the same table: it is a sigmoid of twice the operand."""
    x = _operand(call)
    if x is None or x.kind.storage.bits <= 8:
        return None
    steps = _places(x)
    found = _between(np.abs(steps), 8, 0xFFFF << 8)
    zero = 1 << 23
    found = np.where(steps >= 0, found - zero + (1 << 7), zero - found + (1 << 7) - 1)
    return np.asarray(found >> 8).astype(np.int16)


def _between(whole: Integers, bits: int, most: int) -> Integers:
    """Sigmoids of places, times a power of two: the upper bits say which entries, the lower ones where."""
    high = whole >> bits
    low = np.minimum(high, 254)
    slope = _SIGMOIDS[low + 1] - _SIGMOIDS[low]
    inside = (_SIGMOIDS[low] << bits) + (whole & ((1 << bits) - 1)) * slope
    return np.where(high >= 255, most, inside)


def _places(x: Operand) -> Integers:
    """Operands in steps of 1 / (3 * 4096), as the table has them."""
    multiplier, left = float(np.float32(x.kind.scale)) * 4096 * 3, 0
    while multiplier <= 32767 / 2 and left <= 30:
        multiplier, left = multiplier * 2, left + 1
    half = 1 << (left - 1) if left else 0
    return (x.stored.astype(np.int64) * int(multiplier) + half) >> left


def _sigmoids() -> Integers:
    """256 sigmoids of `i / 24` in 16 bits, each raised by half of what a line to the next lacks midway."""
    places = np.arange(256)
    here, middle, following = (1 / (1 + np.exp(-(places + more) / 24)) for more in (0, 0.5, 1))
    raised = here + (middle - (here + following) / 2) / 2
    found = np.floor(65536 * raised + 0.5).astype(np.int64)
    found[-1] = 65535
    return found


def _by_table(call: Call, function: Callable[[Any], Any]) -> Array | None:
    x = _operand(call)
    if x is None or x.kind.storage.bits <= 8:
        return None
    table = table_of(function, (x.kind.scale, x.kind.zero_point), (call.y.scale, call.y.zero_point))
    return _look_up(x.stored.astype(np.int64), table).astype(np.int16)


def leaky_relu(call: Call) -> Array | None:
    """LeakyRelu: one multiplier on either side of zero."""
    x = _operand(call)
    if x is None:
        return None
    alpha = np.float32(call.op.attributes.get("alpha", 0.01))
    steps, scale = x.shifted(), np.float32(x.kind.scale)
    factors = [float(part / np.float32(call.y.scale)) for part in (scale, scale * alpha)]
    above, below = (
        apply_scale_32(steps, *multiplier_or_zero(factor), double_round=True) for factor in factors
    )
    return saturated(np.where(steps >= 0, above, below), call.y)


def hard_swish(call: Call) -> Array | None:
    """HardSwish in 16 bits of fixed point."""
    x = _operand(call)
    if x is None or x.kind.storage.bits > 8:
        return None
    fine = np.float32(1 / 128) * np.float32(x.kind.scale)
    out, out_power = _short_factor(float(fine / np.float32(call.y.scale)))
    relu, relu_power = _short_factor(float(fine / np.float32(3 / 32768)))
    wide = x.shifted() << 7
    value = high_product(wide, out)
    gate = wide
    if relu_power > 0:
        gate = np.clip(gate << (relu_power - 1), -32768, 32767)
    gate = high_product(gate, relu)
    if relu_power > 0:
        gate = np.clip(gate << 1, -32768, 32767)
    if relu_power < 0:
        gate = divided_by_power(gate, -relu_power)
    gate = (gate + (1 << 15)) >> 1
    whole = gate * value
    product = np.minimum(np.sign(whole) * (np.abs(whole) >> 15), 32767)
    return saturated(divided_by_power(product, -out_power), call.y)


def _short_factor(scale: float) -> tuple[int, int]:
    """A multiplier of 16 bits and the power of two that it is short of."""
    mantissa, power = math.frexp(scale)
    whole = math.floor(mantissa * (1 << 31) + 0.5)
    if whole == 1 << 31:
        whole, power = whole >> 1, power + 1
    return min((whole + (1 << 15)) >> 16, 32767), power


def resize(call: Call) -> Array | None:
    """Bilinear Resize: places and weights in 10 bits, sums of stored integers in 20."""
    x, op = _operand(call), call.op
    if x is None or op.attributes.get("mode") != "linear" or x.stored.ndim != 4 or len(op.inputs) < 3:
        return None
    mode = op.attributes.get("coordinate_transformation_mode", "half_pixel")
    sizes = _wanted(call, x)
    if sizes is None or mode not in _MODES or "axes" in op.attributes or not follows_sizes(call.known()):
        return None
    (top, bottom, down), (left, right, across) = (
        _neighbours(x.stored.shape[axis], sizes[axis], mode) for axis in (2, 3)
    )
    q = x.stored.astype(np.int64)
    down, across = down[:, None], across[None, :]
    rows = [q[:, :, side] for side in (top, bottom)]
    parts = [
        rows[i][..., side] * (down if i else _ONE - down) * (across if j else _ONE - across)
        for i in range(2)
        for j, side in enumerate((left, right))
    ]
    total = sum(parts[1:], parts[0])
    rounded = total + np.where(total > 0, 1 << 19, -(1 << 19))
    found = np.sign(rounded) * (np.abs(rounded) >> 20)
    return saturated(found - call.y.zero_point, call.y)


def _wanted(call: Call, x: Operand) -> tuple[int, ...] | None:
    op = call.op
    if len(op.inputs) > 3 and op.inputs[3]:
        return tuple(map(int, call.other(op.inputs[3]).reshape(-1)))
    if not op.inputs[2]:
        return None
    factors = call.other(op.inputs[2]).reshape(-1).tolist()
    return tuple(int(size * factor) for size, factor in zip(x.stored.shape, factors, strict=True))


_MODES: Final = frozenset({"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"})


def _neighbours(size: int, wanted: int, mode: str) -> tuple[Integers, Integers, Integers]:
    """Lower and upper pixel of each place along an axis, and its distance from the lower one."""
    scale = (_ONE * size + wanted // 2) // wanted
    if mode == "align_corners" and wanted > 1:
        scale = (_ONE * (size - 1) + (wanted - 1) // 2) // (wanted - 1)
    places = np.arange(wanted, dtype=np.int64) * scale
    if mode.endswith("half_pixel"):
        places += scale // 2 - (_ONE >> 1)
    lower = np.maximum(np.sign(places) * (np.abs(places) // _ONE), 0)
    upper = np.minimum((places + _ONE - 1) // _ONE, size - 1)
    return lower, upper, places - lower * _ONE


def compared(call: Call) -> Array | None:
    """A comparison of both operands as multiples of 1/256, each by its scale as a fraction.

    Steps below that are lost, so rows keep to coarser ones.
    """
    sides = call.operand(0), call.operand(1)
    found = [in_256ths(x.shifted(), x.kind) for x in sides if x is not None and x.kind.is_per_tensor]
    asked = defined(call.op.type).evaluate
    return None if asked is None or len(found) < len(sides) else np.asarray(asked(*found))


def in_256ths(shifted: Integers, kind: Uniform) -> Integers:
    """An operand of a comparison without its zero point, as multiples of 1/256."""
    factor = multiplier_or_zero(float(np.float32(kind.scale)))
    return apply_scale_32(shifted << 8, *factor, double_round=True)


COMPARISONS: Final = of_form(Form.COMPARISON)


def table_of(
    function: Callable[[Any], Any], source: tuple[float, int], result: tuple[float, int]
) -> Integers:
    """513 stored values of a function, each moved to halve the largest error up to the next.

    Args:
      source, result: scale and zero point of 16-bit types.
    """
    (scale, zero), (out_scale, out_zero) = source, result
    scale32, out32 = np.float32(scale), np.float32(out_scale)
    least, most = scale32 * np.float32(-32768 - zero), scale32 * np.float32(32767 - zero)
    low, high = out32 * np.float32(-32768 - out_zero), out32 * np.float32(32767 - out_zero)
    step = np.float32((most - least) / np.float32(_STEPS))
    half, inverse = np.float32(step / np.float32(2)), np.float32(np.float32(65536) / (high - low))
    places = least + np.arange(_STEPS, dtype=np.float32) * step
    with np.errstate(over="ignore"):
        here, middle = (np.asarray(function(at), np.float32) for at in (places, places + half))
        following = np.asarray(
            function(least + np.arange(1, _STEPS + 1, dtype=np.float32) * step), np.float32
        )
        sample = _away(here * inverse)
        line = _away((following * inverse + sample) / np.float32(2))
        bias = _away((line - _away(middle * inverse)) / np.float32(2))
        last = _away(np.asarray(function(most), np.float32) * inverse)
    found = np.append(sample - bias, last)
    return np.clip(found, -32768, 32767).astype(np.int64)


def _away(reals: Any) -> npt.NDArray[np.float32]:
    return np.asarray(np.sign(reals) * np.floor(np.abs(reals) + np.float32(0.5)), np.float32)


def _look_up(values: Integers, table: Integers) -> Integers:
    """Between two entries: the upper 9 bits say which, the lower 7 where."""
    at = 256 + (values >> 7)
    base = table[at]
    slope = table[at + 1] - base
    return np.asarray(base + ((slope * (values & 0x7F) + 64) >> 7))


_SIGMOIDS: Final = _sigmoids()
_EXPONENTIALS: Final = table_of(np.exp, (_EXP_SCALE, 32767), (2 / 65535, 0))
_RECIPROCALS: Final = table_of(
    lambda x: np.float32(1) / (np.float32(1) + x), (1 / 65535, -32768), (2 / 65535, 0)
)


def _operand(call: Call) -> Operand | None:
    """The operand, where it and the result have one scale each."""
    x = call.operand(0)
    return x if x is not None and x.kind.is_per_tensor and call.y.is_per_tensor else None


def rounds_so(arithmetic: str, ops: tuple[str, ...], x: Uniform | None) -> bool:
    """Whether a kernel of this module, or of `recurrent`, computes ops on an operand of this type."""
    if arithmetic != LITERT or x is None:
        return False
    if len(ops) == 1 and ops[0] in LITERT_LAYERS:
        return x.storage.bits <= 8
    if ops not in LITERT_KERNELS:
        return False
    kernel, is_word = LITERT_KERNELS[ops], x.storage.bits > 8
    return is_word if kernel in _OF_WORDS else not (is_word and kernel is hard_swish)


def tabulated(op: Op, x: Uniform, y: Uniform, values: Array) -> Array | None:
    """The stored results of stored values, of one of these kernels that is a function of one number."""
    kernel = LITERT_KERNELS.get((op.type,))
    if kernel is None or not rounds_so(LITERT, (op.type,), x):
        return None
    return kernel(Call((op,), {(op.name, 0): Operand(values, x)}, y, LITERT, lambda _: values))


_OF_WORDS: Final = frozenset({exp, sigmoid, softmax, tanh})
"""Kernels of 16-bit operands alone."""
LITERT_KERNELS: Final[Mapping[tuple[str, ...], Kernel]] = {
    **{(name,): compared for name in COMPARISONS},
    ("AveragePool",): average_pool,
    ("Exp",): exp,
    ("GlobalAveragePool",): mean,
    ("HardSwish",): hard_swish,
    ("LeakyRelu",): leaky_relu,
    ("ReduceMean",): mean,
    ("ReduceSum",): mean,
    ("Resize",): resize,
    ("Sigmoid",): sigmoid,
    ("Softmax",): softmax,
    ("Tanh",): tanh,
}
