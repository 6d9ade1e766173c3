"""Clamps: Relu and Clip, inside the operator in front of them, as operators of their own, or as two others.

A bound is at its stored value. The runtime rounds that away from zero and the plan to even: where the two
differ, or no activation has these bounds, MAXIMUM and MINIMUM with the plan's own numbers stand there.
Source: TensorFlow Lite, CalculateActivationRangeQuantized; docs/specification.md, section 8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.common.blocks import Clamp, clamp_of
from planner.formats.litert.vocabulary import FUSED, Bounds
from planner.formats.litert.writer.calls import NONE, Call
from planner.formats.litert.writer.operations import Tensor
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import full_range
from planner.lowering.blocks import Block, bounds_of

ALONE: Final[Mapping[str, Bounds]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""The same as operators. RELU_0_TO_1 is left out: runtimes of before 2.10 lack it, two comparisons do."""


def clip(call: Call) -> Sequence[Tensor] | None:
    """A Relu or Clip of constant bounds that no operator has inside."""
    x = call.tensor(0)
    if call.y is None:
        return _clip_reals(call, x)
    clamp = clamp_of(call.builder.values, call.op, call.y)
    if clamp is None:
        return None
    for operator, bounds in ALONE.items():
        if stored_bounds(call.y, bounds) == clamp and not _is_missing(operator, call.y):
            return [call.emit(operator, [x], x, "", {})]
    return [call.builder.cut(call.stem, call.y, x, clamp)]


def fused_activation(block: Block, clamp: Clamp, y: Uniform) -> int:
    """The activation inside an operator whose stored bounds are those of a clamp; NONE: it stands apart."""
    if block.activation is None:
        return NONE
    found = (activation for activation, bounds in FUSED.items() if stored_bounds(y, bounds) == clamp)
    return next(found, NONE)


def written_bounds(y: Uniform, activation: int) -> Clamp:
    """Return the bounds that an operator itself cuts to: the runtime knows only whole formats."""
    low, high = full_range(y.storage.bits, signed=y.storage.signed)
    whole = replace(y, storage=replace(y.storage, qmin=low, qmax=high))
    return stored_bounds(whole, FUSED.get(activation, (None, None)))


def stored_bounds(y: Uniform, bounds: Bounds) -> Clamp:
    """Stored bounds as the runtime computes them: a float32 quotient, halves away from zero."""
    low, high = y.storage.qmin, y.storage.qmax
    lo, hi = (None if end is None else y.zero_point + _away(end, y.scale) for end in bounds)
    return Clamp(low if lo is None else max(low, lo), high if hi is None else min(high, hi))


def _away(real: float, scale: float) -> int:
    quotient = float(np.float32(real) / np.float32(scale))
    return int(np.copysign(np.floor(abs(quotient) + 0.5), quotient))


def _is_missing(operator: str, y: Uniform) -> bool:
    """Whether the runtime has no kernel of 16 bits."""
    return operator == "RELU_N1_TO_1" and y.storage.bits > 8


def _clip_reals(call: Call, x: Tensor) -> Sequence[Tensor] | None:
    bounds = bounds_of(call.op, call.builder.values.known)
    if bounds is None:
        return None
    for operator, known in ALONE.items():
        if known == bounds:
            return [call.emit(operator, [x], x, "", {})]
    for operator, bound in zip(("MAXIMUM", "MINIMUM"), bounds, strict=True):
        if bound is not None:
            number = np.full((1,) * len(x.shape), bound)
            limit = call.builder.program.constant(number, x.element, f"{call.stem}_bound")
            x = call.emit(operator, (x, limit), x, "MaximumMinimumOptions", {})
    return [x]
