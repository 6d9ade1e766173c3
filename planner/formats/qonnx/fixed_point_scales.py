"""A plan in fixed point: each stored value divided by a factor, so that every scale is a power of two.

A value of scale c * 2^e, 1 <= c < 2, is written as itself / c, on the grid 2^e; its integers stay what they
are. A sum of products is then c_x * c_w times too small, and one multiplication by c_x * c_w / c_y behind it
puts it on the result's grid. So fixed point has exact types everywhere, and the only numbers that are rounded
anew are those factors, to `FACTOR_BITS` significant bits, and biases off the grid of the sums. hls4ml itself
makes three layers of a Quant with another scale and moves the factors about, and computes other numbers then.

A zero point is taken off: 0 is 0 in fixed point. The type is as wide as its integers need then, and a Clip
cuts at its ends. Values whose scale is a power of two already, and floats, stay as they are. Source: hls4ml
documentation, "ONNX and QONNX"; FINN documentation, "Streamlining", which does it with thresholds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.values import numbers_of
from planner.formats.qonnx.fixed_point_parts import (
    FACTOR_BITS,
    MOST_BITS,
    Draft,
    Extent,
    Operand,
    Part,
    Reals,
    extent_of,
    factor_of,
    factors_of,
    fixed,
    is_plain,
)
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import storage
from planner.lowering.blocks import Block
from planner.ops import OPERATORS, of_form
from planner.ops.forms import Form
from planner.plans.records import Port, PortTyped

_WEIGHTED: Final = frozenset({"Conv", "Gemm", "MatMul"})
_SUMS: Final = of_form(Form.SUM)
_CUT: Final = frozenset({"LeakyRelu", "Relu"})
_HOMOGENEOUS: Final = frozenset(
    name for name, one in OPERATORS.items() if one.factors and one.form is not Form.BINARY
) | {*of_form(Form.CONCAT), *("Max", "Min", "Resize")}
"""f(c x) is c f(x) for c above 0, all stored operands together: not so with a PRelu's slope."""


class FixedPoint(NamedTuple):
    """Blocks in powers of two, and the graph with their values and constants.

    Attributes:
      inputs: the type that each of the model's inputs is rounded to first, in its reals.
      extents: of results that no type says, by op.
      factors: types of what a BatchNormalization multiplies by, by op.
    """

    graph: Graph
    blocks: list[Block]
    inputs: Mapping[str, Uniform]
    extents: Mapping[str, Extent]
    factors: Mapping[str, Uniform]


def in_powers_of_two(
    graph: Graph, blocks: Sequence[Block], pinned: Mapping[str, Uniform | None]
) -> FixedPoint:
    """The same integers as fixed-point numbers; what is in powers of two already stays as it is.

    Args:
      pinned: types that values are fixed to.

    Raises:
      UnsupportedExport: an activation with a scale per slice, a bias that is computed, a kernel with results
        inside its ops.
    """
    kinds = [port.type for block in blocks for port in (*block.kernel.inputs, *block.kernel.outputs)]
    if all(map(is_plain, (*kinds, *pinned.values()))):
        return FixedPoint(graph, list(blocks), {}, {}, {})
    draft = Draft(graph, pinned, {*graph.values})
    for name in graph.inputs:
        draft.pin(name)
    for block in blocks:
        _rewrite(draft, block)
    for name in graph.outputs:
        draft.real(name)
    # A value that is written in its reals now is on no grid of its own.
    real = {name: replace(graph.values[name], facts=()) for name in pinned if not is_plain(pinned[name])}
    values, constants = {**graph.values, **real, **draft.values}, {**graph.constants, **draft.constants}
    whole = replace(graph, values=values, constants=constants)
    return FixedPoint(whole, draft.made, draft.inputs, draft.extents, draft.factors)


def _rewrite(draft: Draft, block: Block) -> None:
    """One block in fixed point, behind what it needs of others."""
    part, ops = Part(draft, block.region.name), block.region.ops
    outputs = [port for port in block.kernel.outputs if port.value]
    if not {port.value for port in outputs} <= {*ops[-1].outputs}:
        raise UnsupportedExport(
            f"{block.kernel.name!r} gives results inside its ops; hls4ml accepts those of the last op",
            hint="export qonnx",
        )
    only = outputs[0].type if len(outputs) == 1 else None
    rest, units = _write_first(part, block, only)
    if not {op.type for op in rest} <= _CUT:
        # Behind other functions nothing can be multiplied any more, so it is right in front of them: by all
        # that the result's factor wants, where they are a Clip, whose bounds can be divided by it too.
        is_cut = {op.type for op in rest} <= _CUT | {"Clip"} and isinstance(only, Uniform)
        wanted = np.asarray(factor_of(outputs[0].value, only) if is_cut else 1.0)
        held = fixed(only)
        extent = extent_of(held) if is_cut and held is not None else None
        part.scale_result(0, units / wanted, part.ops[-1].outputs[0], extent)
        units = wanted
    for op in rest:
        part.append(op, _bounds(part, op, units) if op.type == "Clip" else _in_units(part, block, op))
    for port in outputs:
        _define(part, block, port, units)
    draft.made.append(part.block(block.region, replace(block.kernel, outputs=tuple(part.outputs))))
    for port in outputs:
        draft.names[port.value] = draft.cut(port.value, draft.names[port.value], port.type)
        draft.pin(port.value)


def _write_first(part: Part, block: Block, result: PortTyped) -> tuple[Sequence[Op], Reals]:
    """Write what a block begins with; the ops behind that, and what its result is divided by."""
    first, rest = block.region.ops[0], block.region.ops[1:]
    kinds = [kind for i in range(len(first.inputs)) if (kind := block.kinds.get((first.name, i))) is not None]
    if first.type in _WEIGHTED and len(kinds) > 1:
        return _multiply_out(part, block)
    if first.type in _SUMS and result is not None:
        own, units = _factor_of_all(part, block, first), factor_of(first.outputs[0], result)
        if own in (None, units):
            part.append(first, _in_units(part, block, first, units))
            return rest, np.asarray(units)
        # One factor behind the sum: hls4ml moves two equal ones there, and ends.
        part.append(first, _in_units(part, block, first, own))
        part.draft.extents[first.name] = _reach(first, kinds)
        return rest, np.asarray(own)
    # A number that is no port, what a Pad fills with say, has no factor; sizes of a Resize need none.
    graph = part.draft.graph
    others = [
        name
        for i, name in enumerate(first.inputs)
        if name and graph.values[name].is_float and block.kinds.get((first.name, i)) is None
    ]
    alike = len({factors_of(kind).tobytes() for kind in kinds}) == 1 and (
        not others or first.type == "Resize"
    )
    if first.type in _HOMOGENEOUS and alike:
        operands = [
            _tensor(part, name, block.kinds.get((first.name, i))) for i, name in enumerate(first.inputs)
        ]
        part.append(first, operands)
        return rest, factors_of(kinds[0])
    part.append(first, _in_units(part, block, first))
    return rest, np.ones(())


def _factor_of_all(part: Part, block: Block, op: Op) -> float | None:
    """The factor that all operands of an op have, none of them a constant; None where they differ."""
    kinds = [block.kinds.get((op.name, i)) for i in range(len(op.inputs))]
    if None in kinds or not part.draft.graph.constants.keys().isdisjoint(op.inputs):
        return None
    found = {factor_of(name, kind) for name, kind in zip(op.inputs, kinds, strict=True)}
    return found.pop() if len(found) == 1 else None


def _reach(op: Op, kinds: Sequence[PortTyped]) -> Extent:
    """All that a sum or a difference of two fixed-point numbers can be."""
    one, two = (kind for kind in map(fixed, kinds) if kind is not None)
    low, high = (two.lo, two.hi) if op.type == "Add" else (-two.hi, -two.lo)
    step = min(one.scale, two.scale)
    return Extent(one.lo + low, one.hi + high, 1 - math.frexp(step)[1])


def _define(part: Part, block: Block, port: Port, units: Reals) -> None:
    """Put a result on the grid of its type, under a name of its own where that is not its reals'."""
    draft, name = part.draft, port.value
    factor = factor_of(name, port.type)
    is_real = is_plain(port.type) and is_plain(draft.pinned.get(name))
    result = name if is_real else draft.beside(name, "fixed")
    extent = None
    if port.type is None and part.step:
        # A float result is the whole sum: as many bits before the point as it has, and the factor's behind.
        most = 2.0 ** ((block.kernel.accumulator_bits or MOST_BITS) - 1) * part.step * float(units.max())
        extent = Extent(-most, most, FACTOR_BITS - math.frexp(part.step)[1] + 1)
    part.scale_result(block.region.ops[-1].outputs.index(name), units / factor, result, extent)
    part.outputs.append(replace(port, value=result, type=fixed(port.type)))
    draft.types[name], draft.names[name] = port.type, result


def _multiply_out(part: Part, block: Block) -> tuple[Sequence[Op], Reals]:
    """Write a product, and the bias that is an op of its own behind it."""
    (op, *rest), graph = block.region.ops, part.draft.graph
    x, w = (block.kinds.get((op.name, i)) for i in range(2))
    factors = factors_of(x) * factors_of(w)
    if op.type == "Conv" and factors.size > 1:
        rank = len(graph.values[op.inputs[1]].shape or ())
        units = factors.reshape(1, -1, *(1,) * (rank - 2))
    else:
        units = factors
    if isinstance(x, Uniform) and isinstance(w, Uniform):
        part.step = min((fixed(x) or x).scales) * min((fixed(w) or w).scales)
    operands = [_tensor(part, name, kind) for name, kind in zip(op.inputs[:2], (x, w), strict=True)]
    if len(op.inputs) > 2 and op.inputs[2]:
        operands.append(_bias(part, op.inputs[2], block.kinds.get((op.name, 2)), factors))
    part.append(op, operands)
    if rest and rest[0].type == "Add":
        add, *rest = rest
        side = 1 if add.inputs[0] == op.outputs[0] else 0
        bias = _bias(part, add.inputs[side], block.kinds.get((add.name, side)), units)
        part.append(add, [(add.inputs[0], None), bias] if side else [bias, (add.inputs[1], None)])
    return rest, units


def _bias(part: Part, name: str, kind: PortTyped, units: Reals) -> Operand:
    """A bias in the units of the sums: its integers, where it has the grid of the products, else rounded."""
    draft = part.draft
    if name not in draft.graph.constants:
        raise UnsupportedExport(f"bias {name!r} is computed; hls4ml accepts constants", hint="export qonnx")
    if np.all(units == 1.0):
        return name, kind
    reals = _reals(draft, name, kind) / units
    steps = np.rint(reals / part.step) if part.step else np.full(reals.shape, np.inf)
    if np.abs(steps).max(initial=0.0) < 2.0 ** (MOST_BITS - 1) and np.array_equal(steps * part.step, reals):
        return draft.store(f"{name}/fixed", reals), Uniform(storage(f"i{MOST_BITS}"), (part.step,), (0,))
    return draft.rounded(f"{name}/fixed", reals, MOST_BITS)


def _reals(draft: Draft, name: str, kind: PortTyped) -> Reals:
    """The numbers of a constant, on the grid of its type if it has one."""
    array = numbers_of(draft.graph, name)
    if not isinstance(kind, Uniform):
        return array.astype(np.float64)
    shape = [-1 if i == kind.axis else 1 for i in range(array.ndim)] if kind.axis is not None else ()
    scales, zeros = (np.asarray(part, np.float64).reshape(shape) for part in (kind.scales, kind.zero_points))
    return np.asarray((quantize_array(array, kind).astype(np.float64) - zeros) * scales)


def _tensor(part: Part, name: str, kind: PortTyped) -> Operand:
    """An operand divided by the factor of its type."""
    draft = part.draft
    if name and name not in draft.graph.constants:
        return draft.seen(name, kind)
    to = fixed(kind)
    if not isinstance(kind, Uniform) or to is None or is_plain(kind):
        return name, kind
    factors = factors_of(kind)
    if factors.size > 1:
        rank = len(draft.graph.values[name].shape or ())
        factors = factors.reshape([-1 if i == kind.axis else 1 for i in range(rank)])
    steps = np.rint(_reals(draft, name, kind) / factors / to.scale)
    return draft.store(f"{name}/fixed", steps * to.scale), to


def _in_units(part: Part, block: Block, op: Op, units: float = 1.0) -> list[Operand]:
    """Operands of an op divided by `units`, whatever the factors of their types."""
    draft, found = part.draft, list[Operand]()
    inner = {name for one in block.region.ops for name in one.outputs}
    for i, name in enumerate(op.inputs):
        kind = block.kinds.get((op.name, i))
        held = fixed(kind)
        if name in inner:
            found.append((name, None))
        elif not name or (is_plain(kind) and units == 1.0):
            found.append(_tensor(part, name, kind))
        elif name in draft.graph.constants:
            found.append(draft.rounded(f"{name}/fixed", _reals(draft, name, kind) / units, FACTOR_BITS + 1))
        else:
            factor = factor_of(name, kind) / units
            extent = None if held is None else extent_of(held, factor)
            found.append(part.scaled(draft.seen(name, kind), factor, extent))
    return found


def _bounds(part: Part, op: Op, units: Reals) -> list[Operand]:
    """Operands of a Clip whose constant bounds are divided by `units`."""
    draft, found = part.draft, list[Operand]([(op.inputs[0], None)])
    for name in op.inputs[1:]:
        if name and name not in draft.graph.constants:
            raise UnsupportedExport(
                f"Clip at {op.name!r} has bounds that are computed; hls4ml accepts constants",
                hint="export qonnx",
            )
        is_kept = not name or np.all(units == 1.0)
        bound = name if is_kept else draft.store(f"{name}/fixed", numbers_of(draft.graph, name) / units)
        found.append((bound, None))
    return found
