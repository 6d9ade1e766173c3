"""Floats: what a plan leaves float, where TOSA's float profile (PRO-FP) has operators for it.

Results are those of float32 arithmetic, but exponentials, reciprocals and sums may differ from another
engine's in their last bits. Source: TOSA 1.0, elementwise and activation operators.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.exporters.blocks import Block
from planner.exporters.tosa.elementwise import joined
from planner.exporters.tosa.moving import move
from planner.exporters.tosa.pooling import reduced
from planner.exporters.tosa.program import Order, Tensor, plain
from planner.exporters.tosa.scaling import widened
from planner.exporters.tosa.sheet import Sheet, as_tensor, held, scaled
from planner.ir.graph import Op
from planner.ir.qtypes import Uniform
from planner.ir.roles import is_mover

FloatOp: TypeAlias = Callable[[Sheet, Op, Sequence[Tensor]], Tensor]


def write_floats(sheet: Sheet, block: Block) -> None:
    """The ops of a float region, one by one.

    Raises:
      UnsupportedExport: an op that TOSA cannot say.
    """
    for op in block.region.ops:
        found = _results(sheet, op)
        if found is None or len([name for name in op.outputs if name]) > len(found):
            known = ", ".join(sorted(FLOAT_OPS))
            reason = f" ({block.kernel.reason})" if block.kernel.reason else ""
            raise sheet.refuse(
                f"kernel {block.kernel.name!r} runs {op.type} in float{reason}; tosa accepts there {known} "
                "and ops that move data"
            )
        for name, tensor in zip(op.outputs, found, strict=False):
            sheet.define(name, tensor)


def compare(sheet: Sheet, block: Block) -> bool:
    """A comparison of two stored tensors: in i32 where they are of one type, else on their reals."""
    op = block.core[0]
    name = COMPARISONS.get(op.type)
    kinds = [block.kinds.get((op.name, i)) for i in (0, 1)]
    if name is None or len(block.core) != 1:
        return False
    operands = []
    for value, kind in zip(op.inputs, kinds, strict=True):
        if not isinstance(kind, Uniform) or not kind.is_per_tensor:
            return False
        tensor = widened(sheet.program, sheet.operand(value, kind), held(kind).zero_point)
        if kinds[0] != kinds[1]:
            tensor = sheet.program.emit("cast", [tensor], replace(tensor, element="f32"), f"{value}_f32")
            tensor = scaled(sheet.program, tensor, kind.scale, f"{value}_real")
        operands.append(tensor)
    pair = _broadcastable(sheet, operands)
    pair = pair[::-1] if op.type.startswith("Less") else pair
    result = joined(sheet, name, pair, op.outputs[0])
    sheet.define(op.outputs[0], result)
    return True


def argmax(sheet: Sheet, block: Block) -> bool:
    """ArgMax of stored integers: its indices are i32."""
    op = block.core[0]
    kind = block.kinds.get((op.name, 0))
    if op.type != "ArgMax" or len(block.core) != 1 or not isinstance(kind, Uniform) or not kind.is_per_tensor:
        return False
    if op.attributes.get("select_last_index"):
        return False
    x = sheet.stored(op.inputs[0], kind)
    axis = op.attributes.get("axis", 0) % len(x.shape)
    at = x.at(axis)
    order = tuple(i - (i > axis) for i in x.order if i != axis)
    shape = (*x.shape[:at], *x.shape[at + 1 :])
    attributes = {"axis": f"{at} : i32", "nan_mode": "#tosa.nan_mode<PROPAGATE>"}
    found = sheet.program.emit(
        "argmax", [x], Tensor("", shape, "i32", order), op.outputs[0], attributes=attributes
    )
    if op.attributes.get("keepdims", 1):
        found = sheet.program.ordered(found, plain(len(shape)))
        kept = [1 if i == axis else size for i, size in enumerate(x.sizes)]
        found = sheet.program.reshaped(found, kept)
    sheet.define(op.outputs[0], found)
    return True


def _results(sheet: Sheet, op: Op) -> Sequence[Tensor] | None:
    """Results of one op on float tensors."""
    if op.captures:
        return None
    if is_mover(op, sheet.graph):
        data = _data(op)
        tensors = [sheet.real(op.inputs[i]) for i in data]
        return move(sheet, op, tensors, None)
    writer = FLOAT_OPS.get(op.type)
    if writer is None or not all(op.inputs):
        return None
    return [writer(sheet, op, [sheet.real(name) for name in op.inputs])]


def _data(op: Op) -> Sequence[int]:
    """Which operands of a mover are data."""
    if op.type in ("Concat", "Max", "Min"):
        return range(len(op.inputs))
    return (1, 2) if op.type == "Where" else (0,)


def _broadcastable(sheet: Sheet, tensors: Sequence[Tensor]) -> list[Tensor]:
    rank = max(len(tensor.shape) for tensor in tensors)
    order: Order = next(tensor.order for tensor in tensors if len(tensor.shape) == rank)
    found = [as_tensor(sheet.program, tensor, (1,) * rank) for tensor in tensors]
    return [sheet.program.ordered(tensor, order) for tensor in found]


def _softmax(sheet: Sheet, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    """EXP of what is left after the maximum, over its sum."""
    x, stem, program = tensors[0], op.outputs[0], sheet.program
    axis = op.attributes.get("axis", -1) % len(x.shape)
    top = reduced(sheet, "reduce_max", x, axis, f"{stem}_max")
    below = joined(sheet, "sub", [x, top], stem)
    powers = program.emit("exp", [below], below, f"{stem}_exp")
    total = reduced(sheet, "reduce_sum", powers, axis, f"{stem}_sum")
    share = program.emit("reciprocal", [total], total, f"{stem}_share")
    return joined(sheet, "mul", [powers, share], stem, program.number(0, "i8"))


def _binary(kind: str) -> FloatOp:
    def write(sheet: Sheet, op: Op, tensors: Sequence[Tensor]) -> Tensor:
        more = (sheet.program.number(0, "i8"),) if kind == "mul" else ()
        return joined(sheet, kind, _broadcastable(sheet, tensors), op.outputs[0], *more)

    return write


def _unary(kind: str) -> FloatOp:
    def write(sheet: Sheet, op: Op, tensors: Sequence[Tensor]) -> Tensor:
        return sheet.program.emit(kind, [tensors[0]], tensors[0], op.outputs[0])

    return write


def _relu(sheet: Sheet, op: Op, tensors: Sequence[Tensor]) -> Tensor:
    largest = np.finfo(np.float32).max
    attributes = {
        "min_val": "0.0 : f32",
        "max_val": f"{float(largest)!r} : f32",
        "nan_mode": "#tosa.nan_mode<PROPAGATE>",
    }
    return sheet.program.emit("clamp", [tensors[0]], tensors[0], op.outputs[0], attributes=attributes)


COMPARISONS: Final[Mapping[str, str]] = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "greater",
    "LessOrEqual": "greater_equal",
}

FLOAT_OPS: Final[Mapping[str, FloatOp]] = {
    "Abs": _unary("abs"),
    "Add": _binary("add"),
    "Ceil": _unary("ceil"),
    "Exp": _unary("exp"),
    "Floor": _unary("floor"),
    "Log": _unary("log"),
    "Mul": _binary("mul"),
    "Relu": _relu,
    "Sigmoid": _unary("sigmoid"),
    "Softmax": _softmax,
    "Sub": _binary("sub"),
    "Tanh": _unary("tanh"),
}
