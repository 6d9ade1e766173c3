"""Recurrent: an LSTM of 8-bit activations in the arithmetic `litert`, step by step on stored integers.

Sums of a gate are 32-bit integers, scaled to 16 bits with 12 behind the point; its function is fixed point
of 16 bits, so a table of all 65,536 words; the cell state is 16 bits on a power of two, the hidden state is
stored at every step. Source: TensorFlow Lite, UNIDIRECTIONAL_SEQUENCE_LSTM with 8-bit activations and a
16-bit cell; measured in docs/litert.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.calls import Call, Operand
from planner.interpreter.requantize import Array
from planner.ir.arithmetic.rescaling import Integers, apply_scale_32, multiplier_or_zero
from planner.ir.arithmetic.words import divided_by_power, sigmoids, tanhs
from planner.ir.graph import Facts
from planner.ir.types.qtypes import Uniform

_HIDDEN, _CELL = 5, 6
"""Operands that the two states are."""
_EVERY, _LAST, _LAST_CELL = range(3)
"""Results."""
_WORD: Final = 1 << 15
_GATE_BITS: Final = 3
"""In front of the point of what a gate's function reads."""
_INNER: Final = np.float32(2.0**-12)
_GATES: Final = 4

Peepholes: TypeAlias = tuple[Integers, Integers, Integers]
"""Weights of input, output and forget gate, (3, hidden), and their multiplier and shift."""


def lstm_types(
    operands: Mapping[int, Uniform], results: Mapping[int, Uniform]
) -> tuple[Uniform, Uniform] | None:
    """Types of the hidden and of the cell state, from an LSTM's integer ports; None where one has none.

    Args:
      operands, results: types by index.
    """
    hidden = results.get(_EVERY) or results.get(_LAST) or operands.get(_HIDDEN)
    cell = operands.get(_CELL) or results.get(_LAST_CELL)
    return None if hidden is None or cell is None else (hidden, cell)


def state_type(kind: Uniform, facts: Facts) -> Uniform:
    """The type that a state is kept in from step to step: its port's, cut to a fixed one of its grid."""
    for fact in facts:
        if isinstance(fact, Uniform) and fact.storage.lies_in(kind.storage):
            return fact if replace(fact, storage=kind.storage) == kind else kind
    return kind


def gate_types(kind: Uniform, size: int) -> tuple[Uniform, ...] | None:
    """The type of each gate's slice of weights or biases, in ONNX's order; None where one has several scales.

    Args:
      size: of the hidden state.
    """
    if kind.is_per_tensor:
        return (kind,) * _GATES
    if kind.grid or kind.axis != 1 or len(kind.scales) < _GATES * size or len(kind.scales) % (_GATES * size):
        return None
    whole = np.asarray(kind.scales).reshape(-1, _GATES, size)
    if not np.all(whole == whole[:1, :, :1]) or any(kind.zero_points):
        return None
    return tuple([replace(kind, scales=(float(s),), zero_points=(0,), axis=None) for s in whole[0, :, 0]])


def lstm(call: Call, results: Mapping[int, Uniform]) -> tuple[Array, Array, Array] | None:
    """All hidden states (steps, ways, batch, hidden), the last ones (ways, batch, hidden), the last cells.

    None where the runtime has no such kernel: of other widths, or a cell state on no power of two.

    Args:
      call: an LSTM with the runtime's own activations and no clip, as rows of this arithmetic ask for.
      results: types of those that are read, by index.
    """
    types = lstm_types({i: operand.kind for (_, i), operand in call.operands.items()}, results)
    x, w, r = (call.operand(i) for i in range(3))
    if types is None or x is None or w is None or r is None or call.op.attributes.get("layout"):
        return None
    (hidden, cell), narrow = types, (x.kind, w.kind, r.kind, types[0])
    power, size = math.log2(cell.scale), r.stored.shape[-1]
    gates = [gate_types(kind, size) for kind in (w.kind, r.kind)]
    is_narrow = (
        all(kind.storage.bits <= 8 for kind in narrow) and x.kind.is_per_tensor and hidden.is_per_tensor
    )
    if not is_narrow or None in gates or not power.is_integer() or not -15 <= power <= -9:
        return None
    found = [_Layer(call, hidden, cell, int(power), way).run(x, w, r) for way in range(len(w.stored))]
    every, last, cells = zip(*found, strict=True)
    return np.stack(every, 1), np.stack(last), np.stack(cells)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One direction of an LSTM, the second of which runs back.

    Attributes:
      hidden: type of the hidden state.
      cell: type of the cell state, whose ends cut it in each step.
      power: of two that the cell state's scale is.
      way: index of the direction.
    """

    call: Call
    hidden: Uniform
    cell: Uniform
    power: int
    way: int

    def run(self, x: Operand, w: Operand, r: Operand) -> tuple[Array, Array, Array]:
        """Hidden states in the order of steps, (steps, batch, hidden), and the last two, (batch, hidden)."""
        (steps, batch, _), size = x.stored.shape, r.stored.shape[-1]
        is_back = self.way or self.call.op.attributes.get("direction") == "reverse"
        given = x.shifted()[::-1] if is_back else x.shifted()
        weights, again = (_steps_of(operand)[self.way].T for operand in (w, r))
        drive = _clipped(_scaled(given @ weights + self._bias(size), gate_types(w.kind, size), x.kind))
        inner_gates, holes = gate_types(r.kind, size), self._peepholes()
        hidden = np.zeros((batch, size), np.int64) + self._first(_HIDDEN, self.hidden.zero_point)
        cell = np.zeros((batch, size), np.int64) + self._first(_CELL, 0)
        every = np.empty((steps, batch, size), stored_dtype(self.hidden.storage))
        for step in range(steps):
            inner = _scaled((hidden - self.hidden.zero_point) @ again, inner_gates, self.hidden)
            enter, leave, forget, fresh = np.split(_clipped(drive[step] + inner), _GATES, axis=-1)
            enter, forget = _peeped(enter, holes, 0, cell), _peeped(forget, holes, 2, cell)
            kept = divided_by_power(_sigmoid(forget) * cell, 15)
            added = divided_by_power(_sigmoid(enter) * _tanh(fresh, _GATE_BITS), 30 + self.power)
            cell = np.clip(kept + added, self.cell.storage.qmin, self.cell.storage.qmax)
            hidden = self._out(_sigmoid(_peeped(leave, holes, 1, cell)) * _tanh(cell, 15 + self.power))
            every[step] = hidden
        return every[::-1] if is_back else every, hidden.astype(every.dtype), cell.astype(np.int16)

    def _first(self, index: int, zero: int) -> Integers:
        state = self.call.operand(index)
        return np.asarray(zero) if state is None else state.stored.astype(np.int64)[self.way]

    def _bias(self, size: int) -> Integers:
        """Both biases of each gate as one, which is how the operator has them."""
        bias = self.call.operand(3)
        if bias is None:
            return np.zeros(_GATES * size, np.int64)
        return np.asarray(_steps_of(bias)[self.way].reshape(2, -1).sum(0))

    def _peepholes(self) -> Peepholes | None:
        holes = self.call.operand(7)
        if holes is None:
            return None
        scale = float(np.float32(2.0**self.power * float(np.float32(holes.kind.scale)) / float(_INNER)))
        return holes.shifted()[self.way].reshape(3, -1), *multiplier_or_zero(scale)

    def _out(self, products: Integers) -> Integers:
        """Products of two words with 15 bits behind the point, on the grid of the hidden state."""
        scale = float(np.float32(2.0**-15 / float(np.float32(self.hidden.scale)) * 2.0**-15))
        steps = apply_scale_32(products, *multiplier_or_zero(scale), double_round=True)
        store = self.hidden.storage
        return np.clip(steps + self.hidden.zero_point, store.qmin, store.qmax)


def _peeped(gate: Integers, holes: Peepholes | None, index: int, cell: Integers) -> Integers:
    if holes is None:
        return gate
    weights, multiplier, shift = holes
    return _clipped(gate + apply_scale_32(weights[index] * cell, multiplier, shift, double_round=True))


def _steps_of(operand: Operand) -> Integers:
    """Stored integers less their zero point, which is 0 where gates have scales of their own."""
    return operand.shifted() if operand.kind.is_per_tensor else operand.stored.astype(np.int64)


def _scaled(sums: Integers, gates: Sequence[Uniform] | None, other: Uniform) -> Integers:
    """Sums of products of two types in steps of a word with 12 bits behind the point; larger ones stay so."""
    parts = []
    for part, gate in zip(np.split(sums, _GATES, axis=-1), gates or (), strict=True):
        factor = multiplier_or_zero(
            float(np.float32(np.float32(gate.scale) * np.float32(other.scale)) / _INNER)
        )
        parts.append(apply_scale_32(part, *factor, double_round=True))
    return np.concatenate(parts, axis=-1)


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
