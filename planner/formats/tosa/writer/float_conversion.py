"""Float conversion: stored integers as float32 and back, exactly as ONNX dequantizes and quantizes them.

TOSA does not divide, so quantizing multiplies by the reciprocal and then looks the answer's neighbours up in
a table of thresholds: the least float32 that QuantizeLinear gives each stored value.
Source: ONNX QuantizeLinear; TOSA 1.0, CAST, GATHER; docs/specification.md, section 8.
"""

import math
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from planner.formats.common.layouts import plain
from planner.formats.onnx.writer.port_support import short_text
from planner.formats.tosa.writer.operations import Array, Program, Tensor
from planner.formats.tosa.writer.scaling import UNIT, rescale, widened
from planner.ir.types.qtypes import Uniform

_FLOAT: Final = np.float32


def dequantized(program: Program, tensor: Tensor, kind: Uniform, stem: str) -> Tensor:
    """`float32(stored - zero point) * scale` of a signed type with one scale."""
    whole = widened(program, tensor, kind.zero_point)
    whole = program.emit("cast", [whole], replace(whole, element="f32"), f"{stem}_f32")
    return scaled(program, whole, kind.scale, f"{stem}_real")


def quantized(program: Program, tensor: Tensor, kind: Uniform, element: str, stem: str) -> Tensor:
    """`rint(x / scale) + zero point` onto a signed type with one scale, saturated to the element type.

    A value outside a narrower storage range may come out one step off: callers clamp. NaN is not expected.
    """
    low, high = (end - kind.zero_point for end in (kind.storage.qmin, kind.storage.qmax))
    inverse = _FLOAT(1) / _FLOAT(kind.scale)
    guess = scaled(program, tensor, float(inverse), f"{stem}_scaled")
    guess = bounded(program, guess, float(low), float(high), f"{stem}_bounded")
    guess = program.emit("cast", [guess], replace(guess, element="i32"), f"{stem}_guess")
    if not _is_power_of_two(kind.scale):
        guess = _corrected(program, tensor, guess, (low, _thresholds(kind.scale, low, high)), stem)
    return rescale(program, guess, UNIT, (0, kind.zero_point), element, stem)


def scaled(program: Program, tensor: Tensor, scale: float, stem: str) -> Tensor:
    """A float tensor times a number."""
    factor = program.constant(np.full((1,) * len(tensor.shape), scale, _FLOAT), "f32")
    return program.emit("mul", [tensor, factor, program.number(0, "i8")], tensor, stem)


def bounded(program: Program, tensor: Tensor, low: float, high: float, stem: str) -> Tensor:
    """A float tensor cut to [low, high]."""
    attributes = {
        "min_val": f"{low!r} : f32",
        "max_val": f"{high!r} : f32",
        "nan_mode": "#tosa.nan_mode<PROPAGATE>",
    }
    return program.emit("clamp", [tensor], tensor, stem, attributes=attributes)


def problem_of(kind: Uniform) -> str:
    """Why a type has no exact way to reals and back; "" where it has."""
    if not kind.is_per_tensor:
        return f"{short_text(kind)} has several scales"
    return "" if math.isfinite(float(_FLOAT(1) / _FLOAT(kind.scale))) else f"1 / {kind.scale} is no float32"


def _is_power_of_two(scale: float) -> bool:
    return math.frexp(scale)[0] == 0.5


def _thresholds(scale: float, low: int, high: int) -> Array:
    """The least float32 that gives each integer from `low` to `high + 1`; at the two ends, any."""
    steps = np.arange(low, high + 2)
    found = ((steps - 0.5) * scale).astype(_FLOAT)
    # The float64 estimate is within two float32 of the threshold: start two below, climb while still below.
    found = np.nextafter(np.nextafter(found, _FLOAT(-np.inf)), _FLOAT(-np.inf))
    for _ in range(6):
        is_below = np.rint(found / _FLOAT(scale)) < steps
        found = np.where(is_below, np.nextafter(found, _FLOAT(np.inf)), found)
    found[0], found[-1] = -np.finfo(_FLOAT).max, np.finfo(_FLOAT).max
    return found


def _corrected(program: Program, x: Tensor, guess: Tensor, ends: tuple[int, Array], stem: str) -> Tensor:
    """The guess, one less where x is below its threshold, one more where x reaches the next."""
    low, thresholds = ends
    table = program.constant(thresholds.reshape(1, -1, 1), "f32", f"{stem}_thresholds")
    own, following = (_looked_up(program, table, guess, step - low, stem) for step in (0, 1))
    flags = [("greater", (own, x), "sub"), ("greater_equal", (x, following), "add")]
    for name, pair, change in flags:
        flag = program.emit(name, pair, replace(guess, element="i1"), f"{stem}_{name}")
        one = program.emit("cast", [flag], guess, f"{stem}_one")
        guess = program.emit(change, [guess, one], guess, f"{stem}_{change}")
    return guess


def _looked_up(program: Program, table: str, guess: Tensor, step: int, stem: str) -> Tensor:
    """The number of a table `step` behind each guess."""
    count = prod(guess.shape)
    more = program.constant(np.full((1,) * len(guess.shape), step), "i32")
    places = program.emit("add", [guess, more], guess, f"{stem}_at")
    flat = program.reshaped(places, (1, count))
    found = program.emit(
        "gather", [table, flat], Tensor("", (1, count, 1), "f32", plain(3)), f"{stem}_threshold"
    )
    return program.reshaped(found, guess.shape, guess.order)
