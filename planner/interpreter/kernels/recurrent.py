"""Recurrent: an LSTM of 8-bit activations in the arithmetic `litert`, step by step on stored integers.

Sums of a gate are 32-bit integers, scaled to 16 bits with 12 behind the point; its function is fixed point
of 16 bits, so a table of all 65,536 words; the cell state is 16 bits on a power of two, the hidden state is
stored at every step. Source: TensorFlow Lite, UNIDIRECTIONAL_SEQUENCE_LSTM with 8-bit activations and a 16-bit cell;
gemmlowp, fixed point; measured in docs/litert.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.calls import Call, Operand
from planner.interpreter.requantize import Array
from planner.ir.arithmetic.rescaling import Integers, apply_scale_32, multiplier_or_zero
from planner.ir.arithmetic.words import divided_by_power, sigmoids, tanhs
from planner.ir.types.qtypes import Storage, Uniform

Y: Final = 0
"""Index of the hidden states among an LSTM's results; the last one and the last cell state follow."""
HIDDEN: Final = 5
CELL: Final = 6
"""Operands and, less 4, results that the two states are."""
UNREAD_CELL: Final = Uniform(Storage(16, signed=True, qmin=-(1 << 15), qmax=(1 << 15) - 1), (2.0**-11,), (0,))
"""The type of a cell state that the model neither hands in nor reads: 16 either way, in steps of 1/2048."""

_WORD: Final = 1 << 15
_GATE_BITS: Final = 3
"""In front of the point of what a gate's function reads."""
_INNER: Final = np.float32(2.0**-12)
_GATES: Final = 4


def lstm_types(
    operands: Mapping[int, Uniform], results: Mapping[int, Uniform]
) -> tuple[Uniform, Uniform] | None:
    """Types of the hidden and of the cell state, from an LSTM's integer ports; None where the first has none.

    Args:
      operands, results: types by index.
    """
    hidden = results.get(Y) or results.get(HIDDEN - 4) or operands.get(HIDDEN)
    cell = operands.get(CELL) or results.get(CELL - 4) or UNREAD_CELL
    return None if hidden is None else (hidden, cell)


def lstm(call: Call, results: Mapping[int, Uniform]) -> tuple[Array, Array, Array] | None:
    """All hidden states (steps, 1, batch, hidden), the last one (1, batch, hidden), and the last cell state.

    None where the runtime has no such kernel: several directions, other widths.

    Args:
      call: an LSTM with the runtime's own activations and no clip, as rows of this arithmetic ask for.
      results: types of those that are read, by index.
    """
    found = {i: operand.kind for (_, i), operand in call.operands.items()}
    types = lstm_types(found, results)
    x, w, r = (call.operand(i) for i in range(3))
    if types is None or x is None or w is None or r is None or w.stored.shape[0] != 1:
        return None
    (hidden, cell), attributes = types, call.op.attributes
    bytes_, power = (x.kind, w.kind, r.kind, hidden), math.log2(cell.scale)
    is_narrow = all(kind.is_per_tensor and kind.storage.bits <= 8 for kind in bytes_)
    if not is_narrow or not power.is_integer() or not -15 <= power <= -9:
        return None
    if attributes.get("direction", "forward") != "forward" or attributes.get("layout"):
        return None
    layer = _Layer(call, hidden, int(power), _peepholes(call.operand(7), int(power)))
    return layer.run(x, w, r)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """What does not change from step to step.

    Attributes:
      hidden: type of the hidden state.
      power: of two that the cell state's scale is.
      holes: weights of input, output and forget gate, (3, hidden), and their multiplier and shift.
    """

    call: Call
    hidden: Uniform
    power: int
    holes: tuple[Integers, Integers, Integers] | None

    def run(self, x: Operand, w: Operand, r: Operand) -> tuple[Array, Array, Array]:
        steps, batch, _ = x.stored.shape
        size = r.stored.shape[-1]
        drive = _scaled(x.shifted() @ _transposed(w) + self._bias(size), (w.kind, x.kind))
        again = _transposed(r)
        hidden = np.zeros((batch, size), np.int64) + self._first(HIDDEN, self.hidden.zero_point)
        cell = np.zeros((batch, size), np.int64) + self._first(CELL, 0)
        every = np.empty((steps, 1, batch, size), stored_dtype(self.hidden.storage))
        for step in range(steps):
            inner = _scaled((hidden - self.hidden.zero_point) @ again, (r.kind, self.hidden))
            enter, leave, forget, fresh = np.split(_clipped(drive[step] + inner), _GATES, axis=-1)
            enter, forget = self._peep(enter, 0, cell), self._peep(forget, 2, cell)
            kept = divided_by_power(_sigmoid(forget) * cell, 15)
            cell = _clipped(
                kept + divided_by_power(_sigmoid(enter) * _tanh(fresh, _GATE_BITS), 30 + self.power)
            )
            hidden = self._out(_sigmoid(self._peep(leave, 1, cell)) * _tanh(cell, 15 + self.power))
            every[step, 0] = hidden
        last = every[-1] if steps else hidden[None].astype(every.dtype)
        return every, last, cell[None].astype(np.int16)

    def _first(self, index: int, zero: int) -> Integers:
        state = self.call.operand(index)
        return np.asarray(zero) if state is None else state.stored.astype(np.int64)[0]

    def _bias(self, size: int) -> Integers:
        """Both biases of each gate as one, which is how the operator has them."""
        bias = self.call.operand(3)
        if bias is None:
            return np.zeros(_GATES * size, np.int64)
        return np.asarray(bias.shifted().reshape(2, -1).sum(0))

    def _peep(self, gate: Integers, index: int, cell: Integers) -> Integers:
        if self.holes is None:
            return gate
        weights, multiplier, shift = self.holes
        seen = apply_scale_32(weights[index] * cell, multiplier, shift, double_round=True)
        return _clipped(gate + seen)

    def _out(self, products: Integers) -> Integers:
        """Products of two words with 15 bits behind the point, on the grid of the hidden state."""
        scale = float(np.float32(2.0**-15 / float(np.float32(self.hidden.scale)) * 2.0**-15))
        steps = apply_scale_32(products, *multiplier_or_zero(scale), double_round=True)
        store = self.hidden.storage
        return np.clip(steps + self.hidden.zero_point, store.qmin, store.qmax)


def _transposed(weights: Operand) -> Integers:
    return np.asarray(weights.shifted()[0].T)


def _peepholes(holes: Operand | None, power: int) -> tuple[Integers, Integers, Integers] | None:
    if holes is None:
        return None
    scale = float(np.float32(2.0**power * float(np.float32(holes.kind.scale)) / float(_INNER)))
    return holes.shifted().reshape(3, -1), *multiplier_or_zero(scale)


def _scaled(sums: Integers, kinds: tuple[Uniform, Uniform]) -> Integers:
    """Sums of products of two types as words with 12 bits behind the point."""
    first, second = (np.float32(kind.scale) for kind in kinds)
    factor = multiplier_or_zero(float(np.float32(first * second) / _INNER))
    return _clipped(apply_scale_32(sums, *factor, double_round=True))


def _clipped(words: Integers) -> Integers:
    return np.clip(words, -_WORD, _WORD - 1)


def _sigmoid(words: Integers) -> Integers:
    return np.asarray(sigmoids()[words + _WORD])


def _tanh(words: Integers, bits: int) -> Integers:
    return np.asarray(tanhs(bits)[words + _WORD])


LITERT_LAYERS: Final[Mapping[str, Callable[[Call, Mapping[int, Uniform]], tuple[Array, ...] | None]]] = {
    "LSTM": lstm
}
"""Kernels with several results, of the arithmetic `litert`; types of those that are read go in by index."""
