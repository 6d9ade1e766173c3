"""Resizing: linear Resize as RESIZE, whose integers one RESCALE divides. Source: TOSA 1.0, RESIZE."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.formats.common.blocks import Clamp
from planner.formats.common.layouts import channels_last
from planner.formats.common.linear_operands import INT32, largest
from planner.formats.tosa.writer.operations import Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, element_of, held
from planner.formats.tosa.writer.scaling import factor_of, narrowed, rescale
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.resizing import ARITHMETICS, Steps, linear_steps
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of
from planner.ops.operands import Operands


def resize(builder: ProgramBuilder, block: Block, y: Uniform, clamp: Clamp) -> bool:
    """Linear Resize of stored integers over two spatial axes."""
    op = block.core[0]
    x, steps = operand_of(block, op, 0), steps_of(builder, op)
    if x is None or steps is None or not x.kind.is_per_tensor or builder.values.arithmetic not in ARITHMETICS:
        return False
    program, kind = builder.program, held(x.kind)
    times = steps[0].n * steps[1].n
    reach = times * largest(kind)
    if reach > INT32:
        return False
    tensor = builder.values.integers(x.value, x.kind)
    total = resized(builder, tensor, steps, "i48" if tensor.element == "i16" else "i32", block.result)
    total = narrowed(program, total) if total.element == "i48" else total
    if kind.zero_point:
        centre = program.constant(np.full((1,) * 4, kind.zero_point * times), "i32")
        total = program.emit("sub", [total, centre], total, f"{block.result}_shifted")
    factor = factor_of(ratios((x.kind.scale,), 1.0, y.scale) / times, builder.checked_arithmetic())
    factor.check(-reach, reach)
    stored = rescale(program, total, factor, (0, held(y).zero_point), element_of(y), block.result)
    builder.settle(block.kernel.outputs[0].value, y, stored, clamp.low, clamp.high)
    return True


def resize_reals(builder: ProgramBuilder, op: Op, tensors: Sequence[Tensor]) -> Tensor | None:
    """Linear Resize in float."""
    steps = steps_of(builder, op)
    return None if steps is None else resized(builder, tensors[0], steps, "f32", op.outputs[0])


def steps_of(builder: ProgramBuilder, op: Op) -> tuple[Steps, Steps] | None:
    """The steps of a linear Resize, if its numbers are known and RESIZE takes them."""
    return steps_known(Operands(op, {op.inputs[0]: builder.sizes(op.inputs[0])}.get, builder.values.known))


def steps_known(known: Operands) -> tuple[Steps, Steps] | None:
    """The same, by what is known of its operands."""
    own, (factors, sizes) = known.shape(), (known.array(i) for i in (2, 3))
    has_numbers = all(known.is_given(i) == (array is not None) for i, array in ((2, factors), (3, sizes)))
    if own is None or not has_numbers or (factors is None and sizes is None):
        return None
    before = [size for size in own if isinstance(size, int)]
    if len(before) != len(own):
        return None
    if sizes is not None:
        return linear_steps(known.op, before, [int(size) for size in sizes.reshape(-1)], None)
    numbers = [] if factors is None else factors.reshape(-1).tolist()
    if len(numbers) != len(before):
        return None
    wanted = [int(size * np.float32(factor)) for size, factor in zip(before, numbers, strict=True)]
    return linear_steps(known.op, before, wanted, numbers)


def resized(
    builder: ProgramBuilder, tensor: Tensor, steps: tuple[Steps, Steps], element: str, stem: str
) -> Tensor:
    """RESIZE of an image; integers come out `n` times `n` as large."""
    program = builder.program
    x = program.ordered(tensor, channels_last(4))
    down, across = steps
    operands = (
        x,
        program.shape([down.n, down.d, across.n, across.d]),
        program.shape([down.offset, across.offset]),
        program.shape([down.border, across.border]),
    )
    like = replace(x, shape=(x.shape[0], down.count, across.count, x.shape[3]), element=element)
    attributes = {"mode": "#tosa.resize_mode<BILINEAR>"}
    return program.emit("resize", operands, like, f"{stem}_resized", attributes=attributes)
