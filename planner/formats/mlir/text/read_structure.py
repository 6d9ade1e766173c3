"""Reading calls, loops and branches: `func.call`, `scf.for` and `scf.if` around calls of functions.

The writing side is `write_structure`; other text is taken in the same shape. Source:
docs/mlir.md; MLIR dialects func and scf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xdsl.dialects import builtin
from xdsl.ir import Block, Operation, SSAValue

from planner.formats.mlir.text.reading import ReadState
from planner.ir.structure import Branches, Call, Loop, Structure

CALL: Final = "func.call"
LOOP: Final = "scf.for"
BRANCH: Final = "scf.if"
RUNNING: Final = frozenset({CALL, LOOP, BRANCH})
SHAPE_OPS: Final = 2
_SHAPE: Final = "holds one func.call and a yield of its results"


@dataclass(frozen=True, slots=True)
class Read:
    """Bodies of a call, loop or branch, and their operands."""

    structure: Structure
    operands: tuple[SSAValue, ...]


def op_name(op: Operation) -> str:
    """The name of an op, registered or not."""
    given = op.attributes.get("op_name__")
    return given.data if isinstance(given, builtin.StringAttr) else op.name


def is_scaffold(op: Operation) -> bool:
    """Whether an op only feeds loops and branches: their bounds, conditions and poison."""
    name = op_name(op)
    if name == "ub.poison":
        return True
    if name == "arith.constant":
        return isinstance(op.results[0].type, builtin.IndexType)
    return name == "tensor.extract" and all(_runs(use.operation) for use in op.results[0].uses)


def is_foreign(op: Operation) -> bool:
    """Whether a loop or branch was written elsewhere, around other ops than one call: it stays as it is."""
    if op_name(op) == CALL or any(key == "kernel" or key.startswith("qplan.") for key in op.attributes):
        return False
    return not all(_calls_once(block) for region in op.regions for block in region.blocks)


def _calls_once(block: Block) -> bool:
    names = [op_name(op) for op in block.ops]
    return len(names) == SHAPE_OPS and names[0] == CALL


def read_running(state: ReadState, op: Operation) -> Read:
    """Read a call, loop or branch.

    Raises:
      ModelError: at the op, where its body is another than a call.
    """
    name = op_name(op)
    if name == CALL:
        return Read(Call(callee(state, op)), tuple(op.operands))
    if name == BRANCH:
        return _branch(state, op)
    return _loop(state, op)


def _runs(op: Operation) -> bool:
    return op_name(op) in RUNNING


def _loop(state: ReadState, op: Operation) -> Read:
    bounds = [_number(state, op, value) for value in op.operands[:3]]
    trips = -(-(bounds[1] - bounds[0]) // bounds[2]) if bounds[2] > 0 else 0
    block = op.regions[0].blocks.first
    call = _only_call(state, op, block)
    states: Sequence[SSAValue] = block.args[1:] if block is not None else ()
    starts = dict(zip(states, op.operands[3:], strict=True))
    places = {value: i for i, value in enumerate(states)}
    operands = tuple(starts.get(value, value) for value in call.operands)
    carried = tuple((i, places[value]) for i, value in enumerate(call.operands) if value in places)
    varying = op.attributes.get("qplan.varying")
    told: Sequence[int] = state.plain(op, varying) if varying is not None else ()
    return Read(Loop(callee(state, call), trips, carried, tuple(told)), operands)


def _branch(state: ReadState, op: Operation) -> Read:
    calls = [_only_call(state, op, region.blocks.first) for region in op.regions]
    if len({tuple(call.operands) for call in calls}) != 1:
        state.fail(op, "the branches of an scf.if call functions of the same operands here")
    condition = op.operands[0].owner
    if not isinstance(condition, Operation) or op_name(condition) != "tensor.extract":
        state.fail(op, "the condition of an scf.if is extracted from a tensor here")
    bodies = tuple(callee(state, call) for call in calls)
    return Read(Branches(bodies), (condition.operands[0], *calls[0].operands))


def _only_call(state: ReadState, op: Operation, block: Block | None) -> Operation:
    inside = list(block.ops) if block is not None else []
    if (
        len(inside) != 2
        or op_name(inside[0]) != CALL
        or tuple(inside[1].operands) != tuple(inside[0].results)
    ):
        state.fail(op, f"a body of {op_name(op)} {_SHAPE}; put it into a function")
    return inside[0]


def callee(state: ReadState, call: Operation) -> str:
    """The name of the function that a call is of."""
    found = {**call.attributes, **call.properties}.get("callee")
    if not isinstance(found, builtin.SymbolRefAttr) or found.nested_references.data:
        state.fail(call, "a call names its function: callee = @name")
    return found.root_reference.data


def _number(state: ReadState, op: Operation, value: SSAValue) -> int:
    owner = value.owner
    number = {**owner.attributes, **owner.properties}.get("value") if isinstance(owner, Operation) else None
    if not isinstance(number, builtin.IntegerAttr):
        state.fail(op, "the bounds and the step of an scf.for are constants here")
    return number.value.data
