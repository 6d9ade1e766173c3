"""Quants: a quantizer of any dialect as QONNX Quant, BipolarQuant or FloatQuant with the same numbers.

ONNX rounds before it adds the zero point, so its zero point becomes a shifted range around 0. A range that no
Quant has is a wider Quant and a Clip. Source: docs/qonnx.md.
"""

import math
from typing import Final

import numpy as np

from planner.formats.onnx.quantized.dialect import BIPOLAR, FLOAT_QUANT, QUANT
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.quantized.lowering import Draft
from planner.formats.onnx.quantized.quantizers import Found, Quantizer
from planner.formats.onnx.quantized.widths import attributes_of_ends
from planner.ir.graph import Op

_FLOATS: Final = {"f8E4M3FN": (4, 3, 7, 448), "f8E5M2": (5, 2, 15, 57344)}
_EXACT_BITS: Final = 24


def write_quant(found: Found, op: Op, draft: Draft) -> None:
    """Append QONNX ops that compute as a quantizer does."""
    quantizer = found.quantizer
    if found.data is not None:
        _write_constant(found, op, draft)
    elif quantizer.is_bipolar and not quantizer.zero_point.any():
        _bipolar(op, draft, found.source, quantizer.scale)
    elif quantizer.stored in _FLOATS:
        _float(op, draft, found.source, quantizer)
    else:
        _integer(op, draft, found.source, quantizer)


def _bipolar(op: Op, draft: Draft, x: str, scale: Array) -> None:
    name = draft.constant(f"{op.outputs[0]}/scale", np.asarray(scale, np.float32))
    draft.emit(op, BIPOLAR, x, name, out=op.outputs[0])


def _float(op: Op, draft: Draft, x: str, quantizer: Quantizer) -> None:
    names = [draft.constant(f"{op.outputs[0]}/scale", np.asarray(quantizer.scale, np.float32))]
    for part, number in zip(
        ("exponent_bits", "mantissa_bits", "exponent_bias", "max_value"),
        _FLOATS[quantizer.stored],
        strict=True,
    ):
        names.append(draft.constant(f"{op.outputs[0]}/{part}", np.asarray(number, np.float32)))
    attributes = {"rounding_mode": "ROUND", "has_inf": 0, "has_nan": 0, "has_subnormal": 1, "saturation": 1}
    draft.emit(op, FLOAT_QUANT, x, *names, out=op.outputs[0], attributes=attributes)


def _integer(op: Op, draft: Draft, x: str, quantizer: Quantizer) -> None:
    """Quant, and behind it a Clip in reals where its range is no Quant's."""
    zero = quantizer.zero_point
    low, high = quantizer.low, quantizer.high
    if quantizer.rounds_first and zero.any():
        low, high, zero = low - zero, high - zero, np.zeros((), np.float32)
    known = _attributes(low, high, quantizer.rounding)
    if known is not None:
        _quant(op, draft, x, quantizer, zero=zero, attributes=known, out=op.outputs[0])
        return
    wide = _quant(op, draft, x, quantizer, zero=zero, attributes=_covering(low, high), out="")
    scale = np.asarray(quantizer.scale, np.float32)
    ends = [np.asarray((end - zero) * scale, np.float32) for end in (low, high)]
    if all(end.size == 1 for end in ends):
        names = [draft.constant(f"{op.outputs[0]}/end", end.reshape(())) for end in ends]
        draft.emit(op, "Clip", wide, *names, out=op.outputs[0])
        return
    below = draft.emit(op, "Min", wide, draft.constant(f"{op.outputs[0]}/high", ends[1]))
    draft.emit(op, "Max", below, draft.constant(f"{op.outputs[0]}/low", ends[0]), out=op.outputs[0])


def _attributes(low: Array, high: Array, rounding: str) -> tuple[Array, bool, bool] | None:
    ends = np.unique(low), np.unique(high)
    if ends[0].size > 1 or ends[1].size > 1:
        return None
    return attributes_of_ends(int(ends[0][0]), int(ends[1][0]), rounding)


def _covering(low: Array, high: Array) -> tuple[Array, bool, bool]:
    """A signed width that holds a range, with a bit to spare, so that its own ends are never met."""
    largest = max(abs(int(low.min())), abs(int(high.max())), 1)
    return np.asarray(math.ceil(math.log2(largest + 1)) + 2, np.float32), True, False


def _quant(
    op: Op,
    draft: Draft,
    x: str,
    quantizer: Quantizer,
    *,
    zero: Array,
    attributes: tuple[Array, bool, bool],
    out: str,
) -> str:
    bits, signed, narrow = attributes
    names = [
        draft.constant(f"{op.outputs[0]}/{part}", np.asarray(array, np.float32))
        for part, array in (("scale", quantizer.scale), ("zero_point", zero), ("bits", bits))
    ]
    said = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": quantizer.rounding}
    return draft.emit(op, QUANT, x, *names, out=out, attributes=said)


def _write_constant(found: Found, op: Op, draft: Draft) -> None:
    """Stored integers become reals, and a Quant that finds the same integers in them."""
    quantizer, data = found.quantizer, np.asarray(found.data)
    if quantizer.stored in _FLOATS or data.dtype.itemsize * 8 > _EXACT_BITS:
        wide = data.astype(np.float32) - quantizer.zero_point
        draft.set_constant(op.outputs[0], np.asarray(wide * quantizer.scale, np.float32))
        return
    real = (data.astype(np.float32) - quantizer.zero_point) * quantizer.scale
    name = draft.constant(f"{op.outputs[0]}/real", np.asarray(real, np.float32))
    is_whole = abs(int(quantizer.low)) > 1 or int(quantizer.high) > 1
    if (
        is_whole
        and not quantizer.zero_point.any()
        and data.size
        and np.all(np.abs(data.astype(np.int32)) == 1)
    ):
        _bipolar(op, draft, name, quantizer.scale)
        return
    low, high = quantizer.low, quantizer.high
    known = _attributes(low, high, quantizer.rounding) or _covering(
        low - quantizer.zero_point, high - quantizer.zero_point
    )
    _quant(op, draft, name, quantizer, zero=quantizer.zero_point, attributes=known, out=op.outputs[0])
