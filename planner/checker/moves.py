"""Verify data movement: results have the scales of the slices that they hold.

`ir.types.axis_transport` says what operators make of a type per axis or per block, from their definitions.
Source: tests/cases, case 37.
"""

from collections.abc import Mapping

from planner.checker.kernel_ports import Served, one_class, refuse
from planner.ir.graph import Op
from planner.ir.roles import is_movement
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.ops import defined, find_movements
from planner.ops.movement import pads_zero
from planner.ops.operands import operands_of


def check_slices(served: Served, group: tuple[int, ...]) -> bool:
    """Verify a class in which some port has several scales; False where its ops cannot be followed.

    Raises:
      PlanInvalid: a result that has other scales or zero points than the slices it holds, or holds slices
        that an op mixes.
    """
    count, ops = len(served.kernel.inputs), served.region.ops
    if not ops or not all(defined(op.type).indices for op in ops):
        return False
    types: dict[str, Uniform] = {}
    for port in (served.ports[i] for i in group if i < count):
        if isinstance(port.type, Uniform) and types.setdefault(port.value, port.type) != port.type:
            return False
    for op in ops:
        made = moved_types(op, types, served.graph)
        if made is None:
            is_unknown = _is_unknown(op, served)
            if not is_unknown and _mixes(op, types, served):
                told = f"{op.type} {op.name!r} mixes its slices; {served.row.source} accepts one scale there"
                port = next(served.ports[i] for i in reversed(group) if served.ports[i].value)
                refuse(port.address, f"is {brief(port.type)}; {told}", served.row)
            return is_unknown
        types |= made
    for port in (served.ports[i] for i in group if i >= count):
        moved = types.get(port.value)
        if moved is not None and isinstance(port.type, Uniform) and not one_class(moved, port.type):
            told = f"{served.row.source} accepts what it moves, with its scales: {brief(moved)}"
            refuse(port.address, f"is {brief(port.type)}; {told}", served.row)
    return True


def _mixes(op: Op, types: Mapping[str, Uniform], served: Served) -> bool:
    """Whether slices that differ are moved to places that are known, and make no type together."""
    movements = find_movements(operands_of(op, served.graph)) or ()
    read = [types.get(op.inputs[i]) for movement in movements for i in movement.operands]
    # Slices with ranges of their own, or of several storages, are followed nowhere.
    if any(kind is None or kind.ranges for kind in read) or len({kind.storage for kind in read if kind}) != 1:
        return False
    return any(len({*zip(kind.scales, kind.zero_points, strict=True)}) > 1 for kind in read if kind)


def _is_unknown(op: Op, served: Served) -> bool:
    """Whether a slice cannot be followed, nor called wrong: sizes are open, or the model was not given."""
    constants = [name for name in op.inputs if name in served.graph.constants]
    # The number that a pad fills with may be one of them.
    moves = is_movement(op, served.graph) or defined(op.type).moves is pads_zero
    if moves and not served.numbers and constants:
        return True
    shapes = [served.graph.values[name].shape for name in (*op.inputs, *op.outputs) if name]
    return any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes)
