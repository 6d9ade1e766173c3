"""Pairs: a quantizer as QuantizeLinear, Clip, DequantizeLinear that give the same numbers, bit for bit.

QONNX adds the zero point before it rounds and ONNX afterwards, so a zero point other than 0 (and a rounding
other than half to even) goes into explicit ops before a QuantizeLinear of scale 1. Constants become stored
integers. Source: docs/qonnx.md.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import ModelError, UnsupportedExport
from planner.formats.onnx.dtypes import NUMPY, enum_of
from planner.formats.onnx.quantized.formulas import ROUNDINGS, Array
from planner.formats.onnx.quantized.lowering import Draft
from planner.formats.onnx.quantized.quantizers import Found, Quantizer
from planner.formats.onnx.quantized.types import type_of
from planner.ir.graph import Graph, Op, Value
from planner.ir.types.qtypes import Uniform

_EVEN: Final = frozenset({"HALF_EVEN", "ROUND"})
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Containers:
    """Stored integers of a format.

    Attributes:
      format: its name, for refusals.
      names: element types, in order of preference.
      clips: whether a Clip may narrow them.
      whole: whether one that no Clip narrows has to be used to its ends: not by a constant.
    """

    format: str
    names: tuple[str, ...]
    clips: bool
    whole: bool = True


QCDQ: Final = Containers("onnx-qcdq", ("u8", "i8"), clips=True)
QDQ: Final = Containers("onnx-qdq", ("u4", "i4", "u8", "i8", "u16", "i16"), clips=False)
QDQ_2_BITS: Final = Containers("onnx-qdq", ("u2", "i2", *QDQ.names), clips=False)
TWO_BITS: Final = 25
"""The opset from which on ONNX has integers of 2 bits."""


def write_pair(found: Found, op: Op, draft: Draft, containers: Containers) -> None:
    """Append ops that compute as a quantizer does.

    Raises:
      UnsupportedExport: no stored integers of this format say it; names the op and formats that would do.
    """
    quantizer = found.quantizer
    low, high = _ends(quantizer, op, containers)
    x = None if found.source == "" else draft.array(found.source)
    if x is not None or found.data is not None:
        # A constant stays as it is: its numbers keep their ends without a Clip.
        name = _container(low, high, quantizer, op, replace(containers, whole=False))
        _write_constant(found, op, draft, _Grid(quantizer, name, low, high), clips=containers.clips)
        return
    # So do signs.
    whole = containers.whole and not quantizer.is_bipolar
    name = _container(low, high, quantizer, op, replace(containers, whole=whole))
    shape = draft.graph.values[found.source].shape
    grid = _Grid(quantizer, name, low, high)
    layout = _layout(quantizer, None if shape is None else len(shape))
    if (
        quantizer.is_bipolar
        or quantizer.zero_point.any()
        or quantizer.rounding not in _EVEN
        or layout is None
    ):
        stored = _explicit(found, op, draft, grid, containers)
    else:
        stored = _quantize(op, draft, found.source, grid, layout)
    if not grid.is_full and containers.clips:
        stored = _clip(op, draft, stored, grid)
    _dequantize(op, draft, stored, grid, layout)


def needs_2_bits(graph: Graph, found: Found) -> bool:
    """Whether a quantizer of what is computed has the whole range of an integer of 2 bits."""
    if found.data is not None or found.source in graph.constants:
        return False
    ends = {
        (low, high) for low, high in zip(found.quantizer.low.flat, found.quantizer.high.flat, strict=True)
    }
    return len(ends) == 1 and ends <= {_range_of("u2"), _range_of("i2")}


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """A quantizer in its container."""

    quantizer: Quantizer
    name: str
    low: int
    high: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY[self.name]

    @property
    def is_full(self) -> bool:
        return (self.low, self.high) == _range_of(self.name)

    @property
    def holds_zero_point(self) -> bool:
        zero = self.quantizer.zero_point
        low, high = _range_of(self.name)
        return bool(np.array_equal(zero, np.rint(zero)) and (zero >= low).all() and (zero <= high).all())


def _range_of(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _ends(quantizer: Quantizer, op: Op, containers: Containers) -> tuple[int, int]:
    ends = [np.unique(end) for end in (quantizer.low, quantizer.high)]
    if any(end.size > 1 for end in ends):
        raise _refusal(op, containers, "has a bit width per channel", "one width for the whole tensor")
    return int(ends[0][0]), int(ends[1][0])


def _container(low: int, high: int, quantizer: Quantizer, op: Op, containers: Containers) -> str:
    for name in containers.names:
        least, most = _range_of(name)
        whole = (low, high) == (least, most)
        may_be_part = containers.clips or not containers.whole
        if whole or (may_be_part and least <= low and high <= most):
            return name
    if not containers.clips and containers.whole:
        raise _refusal(
            op,
            containers,
            f"keeps {low} to {high} of its {float(np.max(quantizer.bits)):g} bits",
            f"the whole range of {', '.join(QDQ_2_BITS.names)} (onnx-qcdq narrows with Clip)",
        )
    most = max(int(name[1:]) for name in containers.names)
    raise _refusal(op, containers, f"stores {low} to {high}, more than {most} bits", f"up to {most} bits")


def _refusal(op: Op, containers: Containers, what: str, accepted: str) -> UnsupportedExport:
    kind = op.type.rpartition("::")[2]
    return UnsupportedExport(
        f"{containers.format} cannot say {kind} at {op.name!r} (port {op.name}.in[0]): it {what}",
        hint=f"{containers.format} takes {accepted}",
    )


def _layout(quantizer: Quantizer, rank: int | None) -> int | None:
    """The axis of the scales: -1 where there is one scale, None where no axis says it."""
    shape = np.broadcast_shapes(quantizer.scale.shape, quantizer.zero_point.shape)
    wide = [axis - len(shape) for axis, size in enumerate(shape) if size > 1]
    if not wide:
        return -1
    if len(wide) > 1 or rank is None:
        return None
    return rank + wide[0]


def _parameters(
    op: Op, draft: Draft, grid: _Grid, layout: int, *, zero: Array
) -> tuple[str, str, dict[str, int]]:
    """Names of scale and zero point, and the axis."""
    scale = np.asarray(grid.quantizer.scale, np.float32)
    shape = np.broadcast_shapes(scale.shape, zero.shape)
    is_many = int(np.prod(shape)) > 1
    flat = [np.broadcast_to(item, shape).reshape(-1) for item in (scale, zero)]
    goal = (-1,) if is_many else ()
    scales = draft.constant(f"{op.outputs[0]}/scale", np.ascontiguousarray(flat[0]).reshape(goal))
    zeros = draft.constant(f"{op.outputs[0]}/zero_point", flat[1].reshape(goal).astype(grid.dtype))
    return scales, zeros, {"axis": layout} if is_many else {}


def _quantize(op: Op, draft: Draft, x: str, grid: _Grid, layout: int) -> str:
    zero = np.zeros((), np.int32)
    scale, zeros, axis = _parameters(op, draft, grid, layout, zero=zero)
    return draft.emit(op, "QuantizeLinear", x, scale, zeros, dtype=grid.name, attributes=axis)


def _explicit(found: Found, op: Op, draft: Draft, grid: _Grid, containers: Containers) -> str:
    """Append `round(x / scale + zero_point)` and a QuantizeLinear of scale 1."""
    quantizer = grid.quantizer
    v = found.source
    zero, scale = quantizer.zero_point, np.asarray(quantizer.scale, np.float32)
    is_sign = quantizer.is_bipolar and not zero.any()
    if not np.all(scale == 1) and not is_sign:
        v = draft.emit(op, "Div", v, draft.constant(f"{op.outputs[0]}/step", scale))
    is_wide = zero.any() and zero.dtype != np.float32
    if is_wide:
        v = draft.emit(op, "Cast", v, dtype="f64", attributes={"to": enum_of("f64")})
    if zero.any():
        number = zero.astype(np.float64 if is_wide else np.float32)
        name = draft.constant(f"{op.outputs[0]}/offset", number)
        v = draft.emit(op, "Add", v, name, dtype="f64" if is_wide else "")
    if is_wide:
        v = draft.emit(op, "Round", v, dtype="f64") if quantizer.rounding in _EVEN else v
        v = v if quantizer.rounding in _EVEN else _rounded(op, draft, v, grid, containers)
        v = draft.emit(op, "Cast", v, attributes={"to": enum_of("f32")})
    elif quantizer.is_bipolar:
        v = _signs(op, draft, v)
    else:
        v = _rounded(op, draft, v, grid, containers)
    one = draft.constant(f"{op.outputs[0]}/one", np.asarray(1, np.float32))
    zeros = draft.constant(f"{op.outputs[0]}/none", np.asarray(0, grid.dtype))
    return draft.emit(op, "QuantizeLinear", v, one, zeros, dtype=grid.name)


def _rounded(op: Op, draft: Draft, v: str, grid: _Grid, containers: Containers) -> str:
    """Append rounding by another mode than half to even; of unsigned results nothing below 0 is kept."""
    mode, wide = grid.quantizer.rounding, draft.values[v].dtype if v in draft.values else ""
    dtype = np.dtype(np.float64 if wide == "f64" else np.float32)
    if mode in _EVEN:
        return v
    # Below zero all is clipped to 0 or above, so without signs towards zero is down and away from it is up.
    is_unsigned = grid.low >= 0
    kind = {"CEIL": "Ceil", "FLOOR": "Floor"}.get(mode)
    if kind is None and is_unsigned:
        kind = "Ceil" if mode in ("UP", "HALF_DOWN") else "Floor"
    if kind is None:
        raise _refusal(
            op, containers, f"rounds by {mode}", "ROUND, FLOOR, CEIL; with unsigned integers every mode"
        )
    # Half up is floor(x + 0.5), half down ceil(x - 0.5).
    if mode.startswith("HALF"):
        half = draft.constant(f"{op.outputs[0]}/half", np.asarray(0.5, dtype))
        v = draft.emit(op, "Add" if mode == "HALF_UP" else "Sub", v, half, dtype=wide)
    return draft.emit(op, kind, v, dtype=wide)


def _signs(op: Op, draft: Draft, v: str) -> str:
    zero, one, minus = (
        draft.constant(f"{op.outputs[0]}/{name}", np.asarray(number, np.float32))
        for name, number in (("zero", 0), ("plus", 1), ("minus", -1))
    )
    is_positive = draft.emit(op, "GreaterOrEqual", v, zero, dtype="bool")
    return draft.emit(op, "Where", is_positive, one, minus)


def _clip(op: Op, draft: Draft, stored: str, grid: _Grid) -> str:
    ends = [
        draft.constant(f"{op.outputs[0]}/{name}", np.asarray(end, grid.dtype))
        for name, end in (("low", grid.low), ("high", grid.high))
    ]
    return draft.emit(op, "Clip", stored, *ends, dtype=grid.name)


def _dequantize(op: Op, draft: Draft, stored: str, grid: _Grid, layout: int | None) -> None:
    quantizer = grid.quantizer
    if layout is not None and grid.holds_zero_point:
        scale, zero, axis = _parameters(op, draft, grid, layout, zero=quantizer.zero_point)
        draft.emit(op, "DequantizeLinear", stored, scale, zero, out=op.outputs[0], attributes=axis)
        return
    one = draft.constant(f"{op.outputs[0]}/one", np.asarray(1, np.float32))
    zeros = draft.constant(f"{op.outputs[0]}/none", np.asarray(0, grid.dtype))
    real = draft.emit(op, "DequantizeLinear", stored, one, zeros)
    offset = draft.constant(f"{op.outputs[0]}/offset", quantizer.zero_point.astype(np.float32))
    shifted = draft.emit(op, "Sub", real, offset)
    step = draft.constant(f"{op.outputs[0]}/step", np.asarray(quantizer.scale, np.float32))
    draft.emit(op, "Mul", shifted, step, out=op.outputs[0])


def _write_constant(found: Found, op: Op, draft: Draft, grid: _Grid, *, clips: bool) -> None:
    if found.data is not None:
        data = np.clip(found.data.astype(np.int64), grid.low, grid.high).astype(grid.dtype)
    else:
        data = stored_integers(np.asarray(draft.array(found.source)), grid.quantizer, grid.dtype)
    name = draft.constant(f"{op.outputs[0]}/stored", data)
    draft.values[name] = Value(name, data.shape, grid.name)
    is_clipped = clips and not grid.is_full and not grid.quantizer.is_bipolar
    _dequantize(
        op,
        draft,
        _clip(op, draft, name, grid) if is_clipped else name,
        grid,
        _layout(grid.quantizer, data.ndim),
    )


def stored_integers(x: Array, quantizer: Quantizer, dtype: np.dtype[Any]) -> Array:
    """The integers a quantizer stores of an array, in pieces that stay in the processor's cache."""
    if quantizer.rounding in _EVEN and not quantizer.zero_point.any() and not quantizer.is_bipolar:
        kind = _uniform(quantizer, x.shape)
        if kind is not None:
            return quantize_array(x, kind).astype(dtype, copy=False)
    if quantizer.scale.size == quantizer.zero_point.size == 1:
        flat, result = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, dtype)
        for begin in range(0, flat.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            result[part] = _integers(flat[part], quantizer).astype(dtype)
        return result.reshape(x.shape)
    return _integers(x, quantizer).astype(dtype)


def _uniform(quantizer: Quantizer, shape: tuple[int, ...]) -> Uniform | None:
    try:
        kind = type_of(quantizer, shape)
    except ModelError:
        return None
    return kind if isinstance(kind, Uniform) else None


def _integers(x: Array, quantizer: Quantizer) -> Array:
    v = x / quantizer.scale + quantizer.zero_point
    if quantizer.is_bipolar:
        # QONNX BipolarQuant takes 0 as positive.
        return np.where(v >= 0, v.dtype.type(1), v.dtype.type(-1))
    return ROUNDINGS[quantizer.rounding](np.clip(v, *_unrounded(quantizer)))


def _unrounded(quantizer: Quantizer) -> tuple[Array, Array]:
    """Ends to clip to before rounding: whole numbers commute with every rounding."""
    return quantizer.low, quantizer.high
