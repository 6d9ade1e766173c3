"""Recurrent: LSTM, GRU and RNN in floats, a `while` over the steps of a sequence.

The products of all inputs are one dot in front of the loop. Types are those of the ports: inside, all is
float from the first step to the last. A sequence of one step needs no loop.
Source: ONNX operator pages LSTM, GRU, RNN, in the layout with the time first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from planner.formats.stablehlo.writer.calls import Call, Maker
from planner.formats.stablehlo.writer.floats.arithmetic import hard_sigmoid, relu, softplus, softsign
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.loops import counted, filled, is_before, placed, repeat, sliced
from planner.formats.stablehlo.writer.operations import (
    Dots,
    binary,
    broadcast,
    clamp,
    compare,
    concatenate,
    convert,
    dot_general,
    full,
    part,
    reshape,
    select,
    unary,
)
from planner.formats.stablehlo.writer.tensors import Tensor

Results = tuple[Tensor, ...]
Activation: TypeAlias = Callable[[Program, Tensor], Tensor]

_PARAMETERS: Final = ("activation_alpha", "activation_beta")


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One direction of a layer.

    Attributes:
      again: weights of the hidden state, (gates * hidden, hidden).
      bias: what is added to the products of the hidden state inside of GRU's reset, (hidden,).
      peepholes: of input, output and forget gate, (hidden,) each; none of them in most layers.
    """

    call: Call
    activations: tuple[Activation, ...]
    again: Tensor
    bias: Tensor | None
    peepholes: tuple[Tensor, ...]

    @property
    def p(self) -> Program:
        return self.call.p

    @property
    def size(self) -> int:
        return self.again.shape[-1]

    def products(self, hidden: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """Products of a hidden state with the weights of some gates."""
        end = self.again.shape[0] if last is None else last * self.size
        weights = part(self.p, self.again, 0, first * self.size, end)
        return dot_general(self.p, hidden, weights, Dots((), (), (1,), (1,)))

    def gate(self, sums: Tensor, index: int) -> Tensor:
        """The part of a gate in sums of all."""
        return part(self.p, sums, 1, index * self.size, (index + 1) * self.size)

    def active(self, index: int, x: Tensor) -> Tensor:
        """An activation of a gate, of a sum kept within `clip`."""
        limit = self.call.attributes.get("clip")
        if limit:
            x = clamp(self.p, full(self.p, -limit, x), x, full(self.p, limit, x))
        return self.activations[index](self.p, x)


Step: TypeAlias = "Callable[[_Layer, Tensor, Sequence[Tensor]], Results]"


@dataclass(frozen=True, slots=True)
class _Cell:
    """A kind of layer.

    Attributes:
      activations: where the op names none.
      step: the next states from the sums of the inputs' products and the states, the hidden one first.
      states: operands of the first states.
    """

    gates: int
    activations: tuple[str, ...]
    step: Step
    states: tuple[int, ...] = (5,)


def _lstm(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> Results:
    """Gates in ONNX's order: input, output, forget, cell."""
    p, (hidden, cell) = layer.p, states
    sums = binary(p, "add", drive, layer.products(hidden))
    into, out, forget, fresh = (layer.gate(sums, i) for i in range(4))
    if layer.peepholes:
        into = binary(p, "add", into, binary(p, "multiply", layer.peepholes[0], cell))
        forget = binary(p, "add", forget, binary(p, "multiply", layer.peepholes[2], cell))
    entry = layer.active(0, into)
    is_coupled = bool(layer.call.attributes.get("input_forget", 0))
    keep = binary(p, "subtract", full(p, 1.0, entry), entry) if is_coupled else layer.active(0, forget)
    new = binary(p, "multiply", entry, layer.active(1, fresh))
    cell = binary(p, "add", binary(p, "multiply", keep, cell), new)
    if layer.peepholes:
        out = binary(p, "add", out, binary(p, "multiply", layer.peepholes[1], cell))
    leave = layer.active(0, out)
    return binary(p, "multiply", leave, layer.activations[2](p, cell)), cell


def _gru(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> Results:
    """Gates in ONNX's order: update, reset, hidden."""
    p, (hidden,) = layer.p, states
    sums = layer.products(hidden, 0, 2)
    update, reset = (
        layer.active(0, binary(p, "add", layer.gate(drive, i), layer.gate(sums, i))) for i in (0, 1)
    )
    if layer.call.attributes.get("linear_before_reset", 0):
        inner = layer.products(hidden, 2)
        inner = inner if layer.bias is None else binary(p, "add", inner, layer.bias)
        inner = binary(p, "multiply", reset, inner)
    else:
        inner = layer.products(binary(p, "multiply", reset, hidden), 2)
    fresh = layer.active(1, binary(p, "add", layer.gate(drive, 2), inner))
    rest = binary(p, "subtract", full(p, 1.0, update), update)
    return (binary(p, "add", binary(p, "multiply", rest, fresh), binary(p, "multiply", update, hidden)),)


def _rnn(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> Results:
    return (layer.active(0, binary(layer.p, "add", drive, layer.products(states[0]))),)


_CELLS: Final[Mapping[str, _Cell]] = {
    "GRU": _Cell(3, ("Sigmoid", "Tanh"), _gru),
    "LSTM": _Cell(4, ("Sigmoid", "Tanh", "Tanh"), _lstm, (5, 6)),
    "RNN": _Cell(1, ("Tanh",), _rnn),
}


def _recurrent(call: Call) -> Results:
    p, cell = call.p, _CELLS[call.op.type]
    ways = 2 if call.attributes.get("direction") == "bidirectional" else 1
    names = _activations(call, cell, ways)
    found = [
        _one_way(call, cell, way, names[way * len(cell.activations) :][: len(cell.activations)])
        for way in range(ways)
    ]
    axes = (1, *(0 for _ in cell.states))
    return tuple(
        concatenate(p, parts, axis) for parts, axis in zip(zip(*found, strict=True), axes, strict=True)
    )


def _activations(call: Call, cell: _Cell, ways: int) -> tuple[Activation, ...]:
    given = tuple(call.attributes.get("activations") or cell.activations * ways)
    odd = [name for name in given if name.lower() not in ACTIVATIONS]
    if odd or any(call.attributes.get(key) for key in _PARAMETERS):
        what = repr(odd[0]) if odd else "one with parameters of its own"
        raise call.refusal(f"activation {what}; {', '.join(sorted(ACTIVATIONS))} are accepted")
    if call.attributes.get("layout"):
        raise call.refusal("layout 1; time first is accepted")
    return tuple(ACTIVATIONS[name.lower()] for name in given)


def _one_way(call: Call, cell: _Cell, way: int, activations: tuple[Activation, ...]) -> list[Tensor]:
    """Results of one direction: every step (T, 1, B, H), then each last state (1, B, H)."""
    p, x = call.p, call.x
    batch = x.shape[1]
    weight, again = (_of_way(p, call.tensor_of(i), way) for i in (1, 2))
    size = again.shape[-1]
    drive = dot_general(p, x, weight, Dots((), (), (2,), (1,)))
    inner = None
    if call.has(3):
        outer, inner = _biases(call, cell, _of_way(p, call.tensor_of(3), way), size)
        drive = binary(p, "add", drive, outer)
    peepholes: tuple[Tensor, ...] = ()
    if call.op.type == "LSTM" and call.has(7):
        both = _of_way(p, call.tensor_of(7), way)
        peepholes = tuple(part(p, both, 0, i * size, (i + 1) * size) for i in range(3))
    zero = filled(p, full(p, 0.0, x), (batch, size))
    states = tuple(_of_way(p, call.tensor_of(i), way) if call.has(i) else zero for i in cell.states)
    layer = _Layer(call, activations, again, inner, peepholes)
    is_back = way == 1 or call.attributes.get("direction") == "reverse"
    every, states = _over_time(layer, cell.step, drive, states, is_back=is_back)
    return [
        reshape(p, every, (x.shape[0], 1, batch, size)),
        *(reshape(p, state, (1, batch, size)) for state in states),
    ]


def _biases(call: Call, cell: _Cell, both: Tensor, size: int) -> tuple[Tensor, Tensor | None]:
    """The bias of the inputs' products, and that of the hidden state's inside of GRU's reset."""
    p, half = call.p, cell.gates * size
    outer, inner = part(p, both, 0, 0, half), part(p, both, 0, half, 2 * half)
    total = binary(p, "add", outer, inner)
    if not (call.op.type == "GRU" and call.attributes.get("linear_before_reset", 0)):
        return total, None
    gates, fresh = part(p, total, 0, 0, 2 * size), part(p, outer, 0, 2 * size, half)
    return concatenate(p, [gates, fresh], 0), part(p, inner, 0, 2 * size, half)


def _over_time(
    layer: _Layer, step: Step, drive: Tensor, states: Results, *, is_back: bool
) -> tuple[Tensor, Results]:
    """The hidden state of every step (T, B, H), and the states after the last one."""
    p, call = layer.p, layer.call
    steps, batch, _ = drive.shape
    lengths = convert(p, call.tensor_of(4), "i64") if call.has(4) else None

    def trip(at: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, Results]:
        made = step(layer, sliced(p, drive, at), states)
        if lengths is None:
            return made[0], made
        runs = compare(p, broadcast(p, at, (batch,), ()), lengths, "LT")
        mask = broadcast(p, runs, made[0].shape, (0,))
        kept = tuple(select(p, mask, new, old) for new, old in zip(made, states, strict=True))
        return select(p, mask, made[0], full(p, 0.0, made[0])), kept

    if steps == 1:
        one, states = trip(counted(p, 0), states)
        return one, states
    one, last = counted(p, 1), counted(p, steps - 1)

    def body(seen: Sequence[Tensor]) -> Results:
        at = binary(p, "subtract", last, seen[0]) if is_back else seen[0]
        hidden, after = trip(at, seen[2:])
        return binary(p, "add", seen[0], one), placed(p, seen[1], hidden, at), *after

    start = filled(p, full(p, 0.0, drive), (steps, batch, layer.size))
    going = partial(_is_going, p, counted(p, steps))
    _, every, *after = repeat(p, (counted(p, 0), start, *states), going, body)
    return every, tuple(after)


def _is_going(p: Program, end: Tensor, seen: Sequence[Tensor]) -> Tensor:
    return is_before(p, seen[0], end)


def _of_way(p: Program, tensor: Tensor, way: int) -> Tensor:
    """One direction's part, without the axis of directions."""
    return reshape(p, part(p, tensor, 0, way, way + 1), tensor.shape[1:])


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "hardsigmoid": hard_sigmoid,
    "relu": relu,
    "sigmoid": lambda p, x: unary(p, "logistic", x),
    "softplus": softplus,
    "softsign": softsign,
    "tanh": lambda p, x: unary(p, "tanh", x),
}
"""Activations by their ONNX names in lower case, as ONNX takes them."""
RECURRENT: Final[Mapping[str, Maker]] = dict.fromkeys(_CELLS, _recurrent)
