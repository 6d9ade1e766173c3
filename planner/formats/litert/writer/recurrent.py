"""Recurrent: LSTM as UNIDIRECTIONAL_SEQUENCE_LSTM, in float, and with 8-bit activations and a 16-bit cell.

The two states are variable tensors: zero before the first call, and kept from call to call until the
runtime's `reset_all_variables`; ONNX starts every call at zero. Gates are stored apart, in the order input,
forget, cell, output; stored, they are words of 16 bits, as `interpreter.kernels.recurrent` computes them.
Source: TensorFlow Lite, the kernel's `PopulateQuantizedLstmParams8x8_16`; ONNX LSTM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.layouts import plain
from planner.formats.common.values import Array
from planner.formats.litert.writer.calls import Call
from planner.formats.litert.writer.operations import Tensor
from planner.interpreter.kernels.recurrent import gate_types, lstm_types, state_type
from planner.ir.types.qtypes import Storage, Uniform
from planner.plans.records import PortTyped

_GATES: Final = (0, 2, 3, 1)
"""Places of the input, forget, cell and output gate in ONNX: it packs them input, output, forget, cell."""
_HOLES: Final = (0, 2, 1)
"""The same of peepholes, which the cell has none of."""
_TANH: Final = 4
_OPERATOR: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"
_TABLE: Final = "UnidirectionalSequenceLSTMOptions"
_WORD: Final = Storage(16, signed=True, qmin=-(1 << 15), qmax=(1 << 15) - 1)
_INNER: Final = Uniform(_WORD, (2.0**-12,), (0,))
"""The grid of a gate in front of its function."""
_PLAIN: Final[tuple[tuple[str, object], ...]] = (("input_forget", 0), ("clip", 0.0), ("layout", 0))
_ACTIVATIONS: Final = ("sigmoid", "tanh", "tanh")


def lstm(call: Call) -> Sequence[Tensor] | None:
    """LSTM of one direction or both, from states of zero."""
    op, builder = call.op, call.builder
    direction = str(op.attributes.get("direction", "forward"))
    names = [str(name).lower() for name in op.attributes.get("activations", ())]
    is_plain = all(op.attributes.get(key, value) == value for key, value in _PLAIN)
    ways = 2 if direction == "bidirectional" else 1
    if not is_plain or tuple(names or _ACTIVATIONS * ways) != _ACTIVATIONS * ways or call.has(4):
        return None
    if not all(builder.values.is_constant(op.inputs[i]) for i in (1, 2, 3, 7) if call.has(i)):
        return None
    if call.y is not None and call.y.storage.bits > 8:
        raise builder.refuse(f"LSTM of 16-bit activations; {_OPERATOR} of LiteRT's runtime accepts 8 bits")
    if builder.loops:
        raise builder.refuse(f"LSTM in the body of a loop; {_OPERATOR} keeps its states from trip to trip")
    for i in (5, 6):
        if call.has(i) and not is_zero(builder.values.known(op.inputs[i])):
            raise builder.refuse(
                f"the initial state {op.inputs[i]!r} of LSTM is computed or not zero; {_OPERATOR} starts at "
                "zero, and then at the states of the call before"
            )
    x = builder.program.ordered(call.tensor(0), plain(3))
    found = [_Layer(call, x, way, is_back=direction == "reverse" or way == 1).made() for way in range(ways)]
    results = zip(zip(*found, strict=True), (1, 0, 0), strict=True)
    return [_joined(call, tensors, axis) for tensors, axis in results]


def _stored(types: Mapping[int, PortTyped]) -> dict[int, Uniform]:
    return {i: kind for i, kind in types.items() if isinstance(kind, Uniform)}


def is_zero(numbers: Array | None) -> bool:
    """Whether a state is known to be what the operator starts at."""
    return numbers is not None and not np.any(numbers)


def _joined(call: Call, tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Both directions beside each other."""
    if len(tensors) == 1:
        return tensors[0]
    first = tensors[0]
    shape = tuple(2 if i == axis else size for i, size in enumerate(first.shape))
    options = {"Axis": axis}
    return call.emit("CONCATENATION", tensors, replace(first, shape=shape), "ConcatenationOptions", options)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One direction of an LSTM, over a sequence (steps, batch, elements)."""

    call: Call
    x: Tensor
    way: int
    is_back: bool

    def made(self) -> tuple[Tensor, Tensor, Tensor]:
        """All hidden states (steps, 1, batch, hidden), the last one (1, batch, hidden), and the cell's."""
        call, program = self.call, self.call.builder.program
        size = self._array(2).shape[-1]
        steps, batch, _ = self.x.shape
        weights = [self._gates(1), self._gates(2)]
        holes = self._holes(size)
        biases = self._biases(size)
        like = call.like((steps, batch, size), plain(3))
        state = replace(like, shape=(batch, size), order=plain(2))
        cell = replace(state, kind=self._cell(), element="f32" if call.y is None else "i16")
        states = [program.variable(state, f"{call.stem}_hidden"), program.variable(cell, f"{call.stem}_cell")]
        operands = [
            self._turned(self.x),
            *weights[0],
            *weights[1],
            *holes,
            *biases,
            None,
            None,
            *states,
            *(None,) * 4,
        ]
        inner = self._intermediates()
        options = {"FusedActivationFunction": _TANH, "TimeMajor": True, **self._bound()}
        every = program.emit(_OPERATOR, operands, like, call.stem, (_TABLE, options), intermediates=inner)
        end = program.numbers((steps - 1, 0, 0)), program.numbers((1, batch, size))
        last = program.emit(
            "SLICE",
            [every, *end],
            replace(like, shape=(1, batch, size)),
            f"{call.stem}_last",
            ("SliceOptions", {}),
        )
        # What stands behind the operator reads the cell state as the operator has left it.
        after = program.reshaped(states[1], (1, batch, size))
        return program.reshaped(self._turned(every), (steps, 1, batch, size)), last, after

    def _turned(self, tensor: Tensor) -> Tensor:
        """The steps of a sequence from the last to the first, for a layer that runs back."""
        if not self.is_back:
            return tensor
        program, stem = self.call.builder.program, f"{self.call.stem}_back"
        return program.emit(
            "REVERSE_V2", [tensor, program.numbers((0,))], tensor, stem, ("ReverseV2Options", {})
        )

    def _array(self, index: int) -> Array:
        """Numbers of an operand in this direction."""
        return np.asarray(self.call.builder.values.array(self.call.op.inputs[index])[self.way])

    def _stored(self, index: int, part: Array, kind: Uniform | None, element: str) -> Tensor:
        program, name = self.call.builder.program, self.call.op.inputs[index]
        if kind is None:
            return program.constant(part, "f32", name)
        return program.constant(quantize_array(part, kind), element, name, kind=kind)

    def _gates(self, index: int) -> list[Tensor]:
        array = self._array(index)
        kinds = self._kinds(self.call.kind(index), array.shape[0] // 4)
        parts = np.split(array, 4)
        return [self._stored(index, parts[gate], kinds[gate], "i8") for gate in _GATES]

    def _kinds(self, kind: Uniform | None, size: int) -> Sequence[Uniform | None]:
        """The type of each gate's part, in ONNX's order."""
        found = (None,) * 4 if kind is None else gate_types(kind, size)
        if found is None:
            raise self.call.builder.refuse("a gate's weights have several scales; litert accepts one a gate")
        return found

    def _biases(self, size: int) -> list[Tensor]:
        """Both biases of a gate as one, on the grid of input times input weight."""
        call = self.call
        pair = np.split(self._array(3), 2) if call.has(3) else [np.zeros(4 * size, np.float32)] * 2
        x, w, kind = call.kind(0), call.kind(1), call.kind(3)
        if x is not None and w is not None and kind is None:
            scale = float(np.float32(x.scale) * np.float32(w.scales[0]))
            kind = Uniform(Storage(32, signed=True, qmin=-(1 << 31), qmax=(1 << 31) - 1), (scale,), (0,))
        element = "i32" if x is None or x.storage.bits == 8 else "i64"
        program, stem = call.builder.program, call.op.inputs[3] if call.has(3) else f"{call.stem}_bias"
        if kind is None or x is None:
            parts = np.split(pair[0] + pair[1], 4)
            return [program.constant(parts[gate], "f32", stem) for gate in _GATES]
        # Each is stored before they are added, as the plan's one constant has both.
        kinds, cut = self._kinds(kind, size), [np.split(part, 4) for part in pair]
        found = []
        for gate in _GATES:
            own = kinds[gate] or kind
            both = sum(quantize_array(part[gate], own).astype(np.int64) for part in cut)
            stored = np.clip(both, own.storage.qmin, own.storage.qmax)
            found.append(program.constant(stored, element, stem, kind=own))
        return found

    def _holes(self, size: int) -> list[Tensor | None]:
        if not self.call.has(7):
            return [None] * 3
        parts = self._array(7).reshape(3, size)
        return [self._stored(7, parts[hole], self.call.kind(7), "i16") for hole in _HOLES]

    def _cell(self) -> Uniform | None:
        """The type of the cell state: of the operand or of the result that are it."""
        call = self.call
        if call.y is None:
            return None
        found = {port.value: port.type for k in call.builder.plan.kernels_in_order for port in k.outputs}
        results = {i: found.get(name) for i, name in enumerate(call.op.outputs) if name}
        operands = {i: call.kind(i) for i in call.kinds}
        types = lstm_types(_stored(operands), _stored(results))
        if types is None:
            raise call.builder.refuse(
                "its hidden or its cell state has no type; litert accepts an LSTM whose row has both"
            )
        return types[1]

    def _bound(self) -> Mapping[str, float]:
        """The option that cuts the cell state, where its fixed type has other ends than its words."""
        kind, names = self._cell(), self.call.op.outputs
        if kind is None or len(names) < 3 or not names[2]:
            return {}
        own = state_type(kind, self.call.builder.graph.values[names[2]].facts)
        return {} if own == kind else {"CellClip": own.storage.qmax * own.scale}

    def _intermediates(self) -> list[Tensor]:
        """Four gates and the hidden state, whose grids integer kernels look up."""
        call = self.call
        if call.y is None:
            return []
        words = [Tensor(-1, (1,), "i16", (0,), _INNER)] * 4
        hidden = Tensor(-1, (1,), "i8", (0,), call.y)
        return [call.builder.program.twin_of(like, f"{call.stem}_gate") for like in (*words, hidden)]
