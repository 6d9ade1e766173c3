"""Integer kernels: the numbers of a plan that a device stores and computes with, for formats of one's own.

Nothing is written here. Source: docs/arithmetic.md; docs/contributing/add-a-format.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import expect
from planner.formats.common.blocks import blocks, clamp_of
from planner.formats.common.values import Array, Casts, Values
from planner.interpreter.fixed_point import ratios
from planner.ir.arithmetic.multipliers import multipliers, scaling_of
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, operand_of
from planner.ops import LINEAR
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan


@dataclass(frozen=True, slots=True, eq=False)
class IntegerKernel:
    """A kernel of a plan, with the numbers that it computes with.

    Attributes:
      plan: its name, row and ports; `row` is None where it runs in float.
      arithmetic: how its row rounds (docs/arithmetic.md); "" in float.
      ops: its operators, without the Relu or Clip that is in `low` and `high`.
      constants: stored integers of constant operands, by the address of their port.
      low, high: the least and the greatest stored result; 0 and 0 where it is float, or cut at run time.
      multipliers, shifts: of a product, from its sum to the result, one of all channels or one of each; empty
        where the arithmetic has none.
    """

    plan: KernelPlan
    arithmetic: str
    ops: tuple[Op, ...]
    constants: Mapping[str, Array]
    low: int
    high: int
    multipliers: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()


def integer_kernels(model: Graph, plan: Plan) -> Iterator[IntegerKernel]:
    """Give the kernels of a plan in the order they run, each with the numbers that a device stores.

    A change of type between kernels is no kernel: it is in `plan.rescales`, and `multiplier` has its factor.

    Raises:
      UnsupportedExport: weights without numbers, or a row that no format can write.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> first = next(planner.integer_kernels(ready, plan))
      >>> first.ops[0].type, first.constants["stem/conv.in[1]"].dtype, len(first.multipliers)
      ('Conv', dtype('int8'), 24)
    """
    expect(model, Graph, "a model is the result of load_model or annotate")
    require_plan(plan)
    values = Values[Any](model, plan, cast("Casts[Any]", None))  # nothing is written, so nothing is cast
    for block in blocks(plan):
        if block.kernel.name in plan.kernels:
            yield _numbers(values, block)


def _numbers(values: Values[Any], block: Block) -> IntegerKernel:
    arithmetic = block.arithmetic
    constants = {
        port.address: quantize_array(values.array(port.value), port.type)
        for port in block.kernel.inputs
        if isinstance(port.type, Uniform) and values.is_constant(port.value)
    }
    y = block.y
    clamp = None if y is None else clamp_of(values, block.activation, y)
    if y is None or clamp is None:
        return IntegerKernel(block.kernel, arithmetic, block.region.ops, constants, 0, 0)
    factors = _factors(block, y, arithmetic)
    return IntegerKernel(block.kernel, arithmetic, block.core, constants, clamp.low, clamp.high, *factors)


def _factors(block: Block, y: Uniform, arithmetic: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The multipliers and shifts of a product; none of another kernel, and of one without multipliers."""
    op = block.core[0]
    x, w = operand_of(block, op, 0), operand_of(block, op, 1)
    if op.type not in LINEAR or x is None or w is None or scaling_of(arithmetic) is None:
        return (), ()
    factor = x.kind.scale * float(op.attributes.get("alpha", 1.0))
    found = multipliers(ratios(w.kind.scales, factor, y.scale).astype(np.float64), arithmetic)
    return tuple(found[0].tolist()), tuple(found[1].tolist())
