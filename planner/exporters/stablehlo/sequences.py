"""Sequences: LSTM step by step, and TopK as a sort, in floats.

The products of all inputs of an LSTM are one dot; what depends on the step before is written out for each.
Source: ONNX operator pages LSTM, TopK; StableHLO sort.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.exporters.stablehlo.calls import Call, Maker
from planner.exporters.stablehlo.operations import (
    Dots,
    binary,
    concatenate,
    dot_general,
    full,
    like,
    part,
    reshape,
    spread,
    unary,
)
from planner.exporters.stablehlo.program import Program
from planner.exporters.stablehlo.tensors import Tensor, plain
from planner.mlir.generic import Block, Operation, tensor_text

Results = tuple[Tensor, ...]

_ACTIVATIONS: Final = ("Sigmoid", "Tanh", "Tanh")


def _lstm(call: Call) -> Results:
    p, ways = call.p, 2 if call.attributes.get("direction") == "bidirectional" else 1
    _refuse_variants(call, ways)
    found = [_one_way(call, way) for way in range(ways)]
    every, last, cell = (
        concatenate(p, list(parts), axis)
        for parts, axis in zip(zip(*found, strict=True), (1, 0, 0), strict=True)
    )
    return every, last, cell


def _refuse_variants(call: Call, ways: int) -> None:
    attributes = call.attributes
    given = tuple(attributes.get("activations") or _ACTIVATIONS * ways)
    if call.has(4) or call.has(7) or given != _ACTIVATIONS * ways:
        raise call.refusal("lengths, peepholes or activations of its own; the plain LSTM is accepted")
    if attributes.get("layout") or attributes.get("clip") or attributes.get("input_forget"):
        raise call.refusal("layout, clip or input_forget; the plain LSTM is accepted")


def _one_way(call: Call, way: int) -> tuple[Tensor, Tensor, Tensor]:
    """Results of one direction: every step (T, 1, B, H), the last (1, B, H), the last cell (1, B, H)."""
    p, x = call.p, call.x
    steps, batch = x.shape[:2]
    weight, again = (_of_way(p, call.tensor_of(i), way) for i in (1, 2))
    size = again.shape[-1]
    drive = dot_general(p, x, weight, Dots((), (), (2,), (1,)))
    if call.has(3):
        both = _of_way(p, call.tensor_of(3), way)
        biases = [part(p, both, 0, i * size, (i + 4) * size) for i in (0, 4)]
        drive = binary(p, "add", drive, binary(p, "add", biases[0], biases[1]))
    zero = spread(p, full(p, 0.0, x), (batch, size))
    hidden, cell = (_of_way(p, call.tensor_of(i), way) if call.has(i) else zero for i in (5, 6))
    is_back = way == 1 or call.attributes.get("direction") == "reverse"
    found: list[Tensor] = []
    for step in range(steps - 1, -1, -1) if is_back else range(steps):
        now = reshape(p, part(p, drive, 0, step, step + 1), (batch, 4 * size))
        now = binary(p, "add", now, dot_general(p, hidden, again, Dots((), (), (1,), (1,))))
        hidden, cell = _stepped(p, now, cell, size)
        found.append(reshape(p, hidden, (1, 1, batch, size)))
    every = concatenate(p, found[::-1] if is_back else found, 0)
    return every, reshape(p, hidden, (1, batch, size)), reshape(p, cell, (1, batch, size))


def _stepped(p: Program, now: Tensor, cell: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The next hidden state and cell from the sums of the gates: input, output, forget, cell."""
    gates = [part(p, now, 1, i * size, (i + 1) * size) for i in range(4)]
    entry, leave, keep = (unary(p, "logistic", gate) for gate in gates[:3])
    fresh = binary(p, "multiply", entry, unary(p, "tanh", gates[3]))
    kept = binary(p, "add", binary(p, "multiply", keep, cell), fresh)
    return binary(p, "multiply", leave, unary(p, "tanh", kept)), kept


def _of_way(p: Program, tensor: Tensor, way: int) -> Tensor:
    """One direction's part, without the axis of directions."""
    return reshape(p, part(p, tensor, 0, way, way + 1), tensor.shape[1:])


def _top_k(call: Call) -> Results:
    p, x = call.p, call.x
    count = (call.integers(1) or (0,))[0]
    axis = call.attributes.get("axis", -1) % x.rank
    direction = "GT" if call.attributes.get("largest", 1) else "LT"
    shape = [n if i == axis else 1 for i, n in enumerate(x.shape)]
    places = spread(p, p.constant(np.arange(x.shape[axis]).reshape(shape), "i64"), x.shape)
    scalar, index = tensor_text((), x.element), tensor_text((), "i64")
    told = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}
    inner = (
        Operation("stablehlo.compare", ("l", "r"), (("o", tensor_text((), "i1")),), told),
        Operation("stablehlo.return", ("o",)),
    )
    before = Block((("l", scalar), ("r", scalar), ("li", index), ("ri", index)), inner)
    attributes = {"dimension": f"{axis} : i64", "is_stable": "true"}
    found = p.emit_many("sort", [x, places], [like(x, x.shape), plain(x.shape, "i64")], (before,), attributes)
    return tuple(part(p, tensor, axis, 0, count) for tensor in found)


SEQUENCES: Final[Mapping[str, Maker]] = {"LSTM": _lstm, "TopK": _top_k}
