"""Recurrent: LSTM, GRU and RNN in the float profile, a WHILE_LOOP over the steps of a sequence.

Types are those of the ports: inside, all is float from the first step to the last. The products of all inputs
are one MATMUL in front of the loop. Source: ONNX operator pages LSTM, GRU, RNN; TOSA 1.0, WHILE_LOOP, GATHER.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.formats.common.layouts import plain
from planner.formats.common.loop_language import Trips
from planner.formats.tosa.writer.control_flow import count_of, from_end, looped, plus
from planner.formats.tosa.writer.elementwise import concatenated, joined
from planner.formats.tosa.writer.float_conversion import bounded
from planner.formats.tosa.writer.operations import Array, Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder
from planner.interpreter.kernels.litert import rounds_so
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block

States: TypeAlias = tuple[Tensor, ...]

_ACTIVATIONS: Final = ("Relu", "Sigmoid", "Tanh")
_LIMIT: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One direction of a layer.

    Attributes:
      again: weights of the hidden state, (gates * hidden, hidden).
      inner: what GRU adds to the products of the hidden state inside of its reset, (hidden,).
      peepholes: of input, output and forget gate, (3 * hidden,).
    """

    builder: ProgramBuilder
    op: Op
    activations: tuple[str, ...]
    again: Array
    inner: Array | None
    peepholes: Array | None

    @property
    def size(self) -> int:
        return int(self.again.shape[-1])

    def constant(self, array: Array) -> Tensor:
        """Numbers of one gate, (1, 1, hidden)."""
        return self.builder.program.tensor(array.reshape(1, 1, -1), "f32", plain(3))

    def join(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        more = (self.builder.program.number(0, "i8"),) if kind == "mul" else ()
        return joined(self.builder, kind, [a, b], self.op.name, *more)

    def products(self, hidden: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """Products of a hidden state with the weights of some gates."""
        rows = self.again[first * self.size : None if last is None else last * self.size]
        return _matmul(self.builder, hidden, rows, self.op.name)

    def gate(self, sums: Tensor, index: int) -> Tensor:
        """The part of a gate in sums of all."""
        program, (_, batch, _) = self.builder.program, sums.shape
        shape = (1, batch, self.size)
        ends = program.shape((0, 0, index * self.size)), program.shape(shape)
        return program.emit("slice", [sums, *ends], replace(sums, shape=shape), f"{self.op.name}_gate")

    def active(self, index: int, x: Tensor, *, is_clipped: bool = True) -> Tensor:
        """An activation, of a sum kept within `clip`."""
        program, limit = self.builder.program, self.op.attributes.get("clip")
        if limit and is_clipped:
            x = bounded(program, x, -limit, limit, f"{self.op.name}_clipped")
        name = self.activations[index].lower()
        if name == "relu":
            return bounded(program, x, 0.0, _LIMIT, f"{self.op.name}_relu")
        return program.emit(name, [x], x, f"{self.op.name}_{name}")

    def rest(self, x: Tensor) -> Tensor:
        """One less a gate."""
        return self.join("sub", self.constant(np.ones(1)), x)


Step: TypeAlias = "Callable[[_Layer, Tensor, Sequence[Tensor]], States]"


@dataclass(frozen=True, slots=True)
class _Cell:
    """A kind of layer; see `stablehlo.recurrent`."""

    activations: tuple[str, ...]
    step: Step
    states: tuple[int, ...] = (5,)


def _lstm(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> States:
    """Gates in ONNX's order: input, output, forget, cell."""
    join, (hidden, cell) = layer.join, states
    sums = join("add", drive, layer.products(hidden))
    into, out, forget, fresh = (layer.gate(sums, i) for i in range(4))
    holes = None if layer.peepholes is None else [layer.constant(p) for p in np.split(layer.peepholes, 3)]
    if holes:
        into = join("add", into, join("mul", cell, holes[0]))
        forget = join("add", forget, join("mul", cell, holes[2]))
    entry = layer.active(0, into)
    keep = layer.rest(entry) if layer.op.attributes.get("input_forget") else layer.active(0, forget)
    cell = join("add", join("mul", keep, cell), join("mul", entry, layer.active(1, fresh)))
    if holes:
        out = join("add", out, join("mul", cell, holes[1]))
    return join("mul", layer.active(0, out), layer.active(2, cell, is_clipped=False)), cell


def _gru(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> States:
    """Gates in ONNX's order: update, reset, hidden."""
    join, (hidden,) = layer.join, states
    sums = layer.products(hidden, 0, 2)
    update, reset = (layer.active(0, join("add", layer.gate(drive, i), layer.gate(sums, i))) for i in (0, 1))
    if layer.op.attributes.get("linear_before_reset", 0):
        inner = layer.products(hidden, 2)
        inner = inner if layer.inner is None else join("add", inner, layer.constant(layer.inner))
        inner = join("mul", reset, inner)
    else:
        inner = layer.products(join("mul", reset, hidden), 2)
    fresh = layer.active(1, join("add", layer.gate(drive, 2), inner))
    return (join("add", join("mul", layer.rest(update), fresh), join("mul", update, hidden)),)


def _rnn(layer: _Layer, drive: Tensor, states: Sequence[Tensor]) -> States:
    return (layer.active(0, layer.join("add", drive, layer.products(states[0]))),)


_CELLS: Final[Mapping[str, _Cell]] = {
    "GRU": _Cell(("Sigmoid", "Tanh"), _gru),
    "LSTM": _Cell(("Sigmoid", "Tanh", "Tanh"), _lstm, (5, 6)),
    "RNN": _Cell(("Tanh",), _rnn),
}


def recurrent(builder: ProgramBuilder, block: Block) -> bool:
    """A recurrent layer, in float between its ports; False for other blocks."""
    op = block.core[0]
    cell = _CELLS.get(op.type)
    if cell is None or len(block.core) != 1:
        return False
    x = block.kinds.get((op.name, 0))
    if rounds_so(builder.values.arithmetic, (op.type,), x if isinstance(x, Uniform) else None):
        raise builder.refuse(
            f"its row computes {op.type} in 16-bit gates of LiteRT; tosa accepts one that is float inside",
            "keep the kernel float, or plan for tosa-int8",
        )
    ways = 2 if op.attributes.get("direction") == "bidirectional" else 1
    names = tuple(op.attributes.get("activations") or cell.activations * ways)
    _refuse_variants(builder, op, names)
    each = len(cell.activations)
    found = [_one_way(builder, block, cell, way, names[way * each :][:each]) for way in range(ways)]
    ports = {port.value: port.type for port in block.kernel.outputs if port.value}
    for index, (name, parts) in enumerate(zip(op.outputs, zip(*found, strict=True), strict=False)):
        if name:
            tensor = parts[0] if ways == 1 else concatenated(builder, parts, 0 if index else 1, name)
            kind = ports.get(name)
            if isinstance(kind, Uniform):
                builder.values.define_stored(name, kind, builder.quantize(name, tensor, kind))
            else:
                builder.values.define_real(name, tensor)
    return True


def _refuse_variants(builder: ProgramBuilder, op: Op, names: Sequence[str]) -> None:
    odd = [name for name in names if name.lower() not in {known.lower() for known in _ACTIVATIONS}]
    if odd or op.attributes.get("activation_alpha") or op.attributes.get("activation_beta"):
        what = f"activation {odd[0]!r}" if odd else "an activation with parameters of its own"
        raise builder.refuse(f"{op.type} at {op.name!r}: {what}; tosa accepts {', '.join(_ACTIVATIONS)}")
    if len(op.inputs) > 4 and op.inputs[4]:
        raise builder.refuse(f"{op.type} at {op.name!r}: lengths of sequences; tosa accepts whole ones")
    for i in (1, 2, 3, 7):
        if len(op.inputs) > i and op.inputs[i] and not builder.values.is_constant(op.inputs[i]):
            raise builder.refuse(
                f"{op.type} at {op.name!r}: weights {op.inputs[i]!r}; tosa accepts constants"
            )


def _one_way(
    builder: ProgramBuilder, block: Block, cell: _Cell, way: int, names: tuple[str, ...]
) -> list[Tensor]:
    """Results of one direction: every step (T, 1, B, H), then each last state (1, B, H)."""
    op, program = block.core[0], builder.program
    x = program.ordered(builder.seen(op.inputs[0], block.kinds.get((op.name, 0))), plain(3))
    steps, batch, width = x.shape
    weight, again = (_numbers(builder, block, i)[way] for i in (1, 2))
    size = again.shape[-1]
    drive = _matmul(builder, program.reshaped(x, (1, steps * batch, width)), weight, op.name)
    inner = None
    if len(op.inputs) > 3 and op.inputs[3]:
        outer, inner = _biases(op, _numbers(builder, block, 3)[way], size)
        drive = joined(
            builder, "add", [drive, program.tensor(outer.reshape(1, 1, -1), "f32", plain(3))], op.name
        )
    has_holes = op.type == "LSTM" and len(op.inputs) > 7 and op.inputs[7]
    peepholes = _numbers(builder, block, 7)[way] if has_holes else None
    states = tuple(_first(builder, block, i, way, (1, batch, size)) for i in cell.states)
    layer = _Layer(builder, op, names, again, inner, peepholes)
    is_back = way == 1 or op.attributes.get("direction") == "reverse"
    every, *last = _over_time(
        layer, cell.step, program.reshaped(drive, (1, steps, batch * len(weight))), states, is_back=is_back
    )
    return [program.reshaped(every, (steps, 1, batch, size)), *last]


def _over_time(layer: _Layer, step: Step, drive: Tensor, states: States, *, is_back: bool) -> States:
    """The hidden state of every step, stored as (1, T, B * H), and the states after the last one."""
    program, stem = layer.builder.program, layer.op.name
    steps, (_, batch, size) = drive.shape[1], states[0].shape
    like = replace(drive, name=stem, shape=(1, steps, batch * size))
    zero = replace(like, name=program.constant(np.zeros(like.shape), "f32"))
    entering = [count_of(program, 0), zero, *states]
    seen = [program.twin(tensor) for tensor in entering]
    with program.inside() as body:
        at = from_end(program, seen[0], steps) if is_back else seen[0]
        at = program.reshaped(at, (1, 1))
        row = replace(drive, shape=(1, 1, drive.shape[2]))
        now = program.emit("gather", [program.captured(body, drive), at], row, f"{stem}_now")
        now = program.reshaped(now, (1, batch, drive.shape[2] // batch))
        after = step(layer, now, seen[2:])
        flat = program.reshaped(after[0], (1, 1, batch * size))
        every = program.emit("scatter", [seen[1], at, flat], seen[1], stem)
        results = [plus(program, seen[0], 1), every, *after]
    found = looped(program, Trips((), steps, "", is_steady=True), None, body, entering, seen, results)
    return found[1:]


def _matmul(builder: ProgramBuilder, x: Tensor, weight: Array, stem: str) -> Tensor:
    """Products (1, rows, columns) of (1, rows, depth) with weights (columns, depth)."""
    program, zero = builder.program, builder.program.constant(np.zeros(1), "f32")
    w = program.tensor(np.ascontiguousarray(weight.T)[None], "f32", plain(3), f"{stem}_w")
    like = replace(x, shape=(*x.shape[:2], len(weight)))
    return program.emit("matmul", [x, w, zero, zero], like, f"{stem}_products")


def _biases(op: Op, both: Array, size: int) -> tuple[Array, Array | None]:
    """The bias of the inputs' products, and that of the hidden state's inside of GRU's reset."""
    outer, inner = np.split(both, 2)
    if not (op.type == "GRU" and op.attributes.get("linear_before_reset", 0)):
        return outer + inner, None
    return np.concatenate([(outer + inner)[: 2 * size], outer[2 * size :]]), inner[2 * size :]


def _numbers(builder: ProgramBuilder, block: Block, index: int) -> Array:
    """The reals of a constant as its port reads them."""
    op = block.core[0]
    array, kind = builder.values.array(op.inputs[index]), block.kinds.get((op.name, index))
    return dequantize_array(quantize_array(array, kind), kind) if isinstance(kind, Uniform) else array


def _first(builder: ProgramBuilder, block: Block, index: int, way: int, shape: tuple[int, ...]) -> Tensor:
    """A state before the first step, (1, B, H); zero where the op has none."""
    op, program = block.core[0], builder.program
    if len(op.inputs) <= index or not op.inputs[index]:
        return program.tensor(np.zeros(shape, np.float32), "f32", plain(3))
    both = builder.seen(op.inputs[index], block.kinds.get((op.name, index)))
    both = program.ordered(both, plain(3))
    if both.shape == shape:
        return both
    ends = program.shape((way, 0, 0)), program.shape(shape)
    return program.emit("slice", [both, *ends], replace(both, shape=shape), f"{op.inputs[index]}_{way}")
