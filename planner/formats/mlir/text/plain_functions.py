"""Constraints that a plain function states without regions: casts, statistics, element types, constants.

A qcast fixes the type of its value, and the dcast behind it is the value again; a second, different qcast of
one value makes an Identity with a fixed type of its own. `qplan.stats` (the RFC's `quant.stats`) is a
calibrated range. Storage casts of arguments, constants and results put stored integers at the border of the
model; arithmetic on them is refused. Source: MLIR quantization RFC, "Model constraints".
"""

from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

import numpy as np
from xdsl.dialects import builtin
from xdsl.ir import Operation, SSAValue

from planner.errors import ModelError, QTypeError
from planner.formats.mlir.attributes import dense_array
from planner.formats.mlir.casts import CastOp, DequantizeCastOp, QuantizeCastOp, StatisticsOp, StorageCastOp
from planner.formats.mlir.text.reading import ReadState
from planner.formats.mlir.types import QuantType, element_of, uniform_of
from planner.formats.mlir.verbatim_types import as_qtype
from planner.ir.graph import Constant, Facts, Op, Value
from planner.ir.types.qtypes import Calibrated, Uniform

_CONSTANTS: Final = frozenset({"const", "constant", "Constant", "pseudo_const", "pseudo_qconst"})
Dense: TypeAlias = builtin.DenseIntOrFPElementsAttr[Any]
_NUMBERS: Final = ("value", "values")


def read_plain(state: ReadState, op: Operation, name: str) -> bool:
    """Read an op that states constraints or numbers; False if it is none of these.

    Raises:
      ModelError: at the op, a type that cannot be a constraint.
    """
    if isinstance(op, CastOp | StatisticsOp):
        try:
            _statement(state, op)
        except QTypeError as error:
            state.fail(op, str(error))
        return True
    if any(operand in state.integers for operand in op.operands):
        state.fail(op, f"{name} computes with stored integers; the ops of a model compute with reals")
    if op.operands or op.regions or len(op.results) != 1 or name.rpartition(".")[2] not in _CONSTANTS:
        return False
    return _constant(state, op)


def _statement(state: ReadState, op: CastOp | StatisticsOp) -> None:
    match op:
        case StatisticsOp():
            name = state.names[op.arg]
            state.names[op.result] = name
            _observe(state, name, _range(op))
        case QuantizeCastOp():
            state.names[op.result] = _pin(state, state.names[op.input], _uniform(op.result))
        case DequantizeCastOp():
            state.names[op.result] = state.names[op.input]
        case StorageCastOp() if uniform_of(op.input.type) is not None:
            state.integers[op.result] = state.names[op.input]
        case StorageCastOp():
            _from_integers(state, op)


def _uniform(value: SSAValue) -> Uniform:
    element = cast("QuantType", element_of(value.type))
    return cast("Uniform", as_qtype(element.data))


def _pin(state: ReadState, name: str, fact: Uniform) -> str:
    """Fix the type of a value, or of a copy where it has another fixed type; return that one's name."""
    known = state.stated.get(name, ())
    if fact in known:
        return name
    if not any(isinstance(other, Uniform) for other in known):
        state.stated[name] = (*known, fact)
        return name
    copy = state.fresh(name)
    state.values[copy] = replace(state.values[name], name=copy, facts=())
    state.stated[copy] = (fact,)
    state.ops.append(Op(copy, "Identity", (name,), (copy,)))
    return copy


def _observe(state: ReadState, name: str, seen: Calibrated) -> None:
    """Add an observed range; of several, the one per axis, else their hull."""
    facts: Facts = ()
    for other in state.stated.get(name, ()):
        if not isinstance(other, Calibrated):
            facts = (*facts, other)
        elif seen.axis is None:
            lo, hi = min(other.lo, seen.lo), max(other.hi, seen.hi)
            seen = Calibrated((lo,), (hi,), seen.expressed) if other.axis is None else other
    state.stated[name] = (*facts, seen)


def _range(op: StatisticsOp) -> Calibrated:
    expressed = str(element_of(op.arg.type))
    per_axis = op.axis_stats is not None and op.axis is not None
    dense = cast("Dense", op.axis_stats if per_axis else op.layer_stats)
    numbers = dense_array(dense).astype(np.float64).reshape(-1, 2)
    axis = op.axis.value.data if per_axis and op.axis is not None else None
    return Calibrated(tuple(numbers[:, 0].tolist()), tuple(numbers[:, 1].tolist()), expressed, axis)


def _from_integers(state: ReadState, op: StorageCastOp) -> None:
    """Read stored integers as the reals they mean: of a constant, an argument, or another storage cast."""
    fact = _uniform(op.result)
    if op.input in state.integers:
        state.names[op.result] = _pin(state, state.integers[op.input], fact)
        return
    name = state.names[op.input]
    value = Value(name, state.values[name].shape, fact.expressed)
    known = state.constants.get(name)
    if known is not None and known.array is not None:
        name = state.fresh(name)
        value = replace(value, name=name)
        state.constants[name] = Constant(_reals(known.array, fact))
    elif isinstance(op.input.owner, Operation) or op.input.get_user_of_unique_use() is not op:
        state.fail(op, f"the integers {name!r} are no constant and no argument that only this cast reads")
    state.values[name] = value
    state.names[op.result] = name
    state.stated[name] = (fact,)


def _constant(state: ReadState, op: Operation) -> bool:
    result = op.results[0]
    items = {**op.attributes, **op.properties}
    numbers = next((items[key] for key in _NUMBERS if key in items), None)
    if not isinstance(numbers, builtin.DenseIntOrFPElementsAttr):
        return False
    try:
        array = dense_array(numbers)
    except ModelError as error:
        state.fail(op, str(error))
    (name,) = state.define(op, [result], None)
    stated = state.stated.get(name, ())
    fact = next((fact for fact in stated if isinstance(fact, Uniform)), None)
    state.constants[name] = Constant(array if fact is None else _reals(array, fact))
    return True


def _reals(stored: np.ndarray, kind: Uniform) -> np.ndarray:
    """Reals that stored integers stand for: `(stored - zero_point) * scale`, in float32."""
    wide = stored.astype(np.int64)
    if not kind.storage.signed:
        wide %= 1 << kind.storage.bits
    scales, zeros = np.asarray(kind.scales), np.asarray(kind.zero_points, np.int64)
    if kind.axis is not None:
        shape = [-1 if axis == kind.axis else 1 for axis in range(stored.ndim)]
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    elif kind.blocks or kind.grid:
        blocks = dict(kind.blocks)
        scales, zeros = (
            _per_element(table.reshape(kind.grid), stored.shape, blocks) for table in (scales, zeros)
        )
    return np.asarray((wide - zeros) * scales, np.float32)


def _per_element(table: np.ndarray, shape: tuple[int, ...], blocks: dict[int, int]) -> np.ndarray:
    for axis, size in enumerate(shape):
        table = np.repeat(table, blocks.get(axis, size), axis=axis).take(range(size), axis=axis)
    return table
