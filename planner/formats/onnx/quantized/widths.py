"""Widths: bit width, sign and narrowness of a Quant that give a range of stored integers.

QONNX clips to unrounded ends and rounds afterwards, so a range stands for a span of fractional widths, by the
rounding mode. Source: docs/specification.md, section 9, item 6.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.formats.onnx.quantized.formulas import ROUNDINGS, Array, bounds

_NEAREST: Final = ((0.5, 0.5), (0.5, 0.5))
# How far below and above an end, on its negative and on its positive side, reals round to it.
_REACH: Final[Mapping[str, tuple[tuple[float, float], tuple[float, float]]]] = {
    "CEIL": ((1.0, 0.0), (1.0, 0.0)),
    "DOWN": ((1.0, 0.0), (0.0, 1.0)),
    "FLOOR": ((0.0, 1.0), (0.0, 1.0)),
    "HALF_DOWN": _NEAREST,
    "HALF_EVEN": _NEAREST,
    "HALF_UP": _NEAREST,
    "ROUND": _NEAREST,
    "ROUND_TO_ZERO": ((1.0, 0.0), (0.0, 1.0)),
    "UP": ((0.0, 1.0), (1.0, 0.0)),
}


def attributes_of_ends(low: int, high: int, rounding: str = "ROUND") -> tuple[Array, bool, bool] | None:
    """Width, signedness and narrowness of a Quant with these ends; the width may be fractional.

    Whole widths first. None where no Quant has them: most ranges that lie unevenly around 0.
    """
    fractional = None
    for signed, narrow in ((low < 0, False), (low < 0, True)):
        spans = _spans(low, high, rounding, signed=signed, narrow=narrow)
        start, end = max(span[0] for span in spans), min(span[1] for span in spans)
        if start > end or end <= 1:
            continue
        power = 2.0 ** math.floor(math.log2(end))
        for many in (power, (start + end) / 2):
            bits = np.asarray(math.log2(many) + signed, np.float32)
            ends = [int(ROUNDINGS[rounding](x)) for x in bounds(bits, signed=signed, narrow=narrow)]
            # One signed bit is -1 and 1 in QONNX, never -1 and 0.
            if ends != [low, high] or (signed and bits == 1):
                continue
            if many == power:
                return bits, signed, narrow
            fractional = fractional or (bits, signed, narrow)
    return fractional


def _spans(
    low: int, high: int, rounding: str, *, signed: bool, narrow: bool
) -> tuple[tuple[float, float], ...]:
    """The interval of `2 ** bits` (`2 ** (bits - 1)` if signed) for which both ends round as given."""
    below, above = _REACH[rounding]
    over = 1.0 if signed else 1.0 + narrow
    spans = [(high + over - above[0], high + over + above[1])]
    if signed:
        spans.append((narrow - low - below[1], narrow - low + below[0]))
    return tuple(spans)
