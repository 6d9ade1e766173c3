"""Re-verify data movement independently: results have the scales of the elements they hold.

Every element of an operand is marked with the number of its slice, the ops are run over the marks, and each
element of a result must have the scale and zero point of the slice it came from. Propagation reasons about
axes instead, so the two agree only where both are right. Source: tests/cases, case 37.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served, refuse
from planner.ir.graph import Op
from planner.ir.roles import is_mover
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.ops import defined, find_movements
from planner.ops.movement import pads_zero
from planner.ops.operands import Operands
from planner.ops.steps import FILLED, Movement, apply

Marks = npt.NDArray[np.int64]


def check_slices(served: Served, group: tuple[int, ...]) -> bool:
    """Verify a class in which some port has several scales; False where its ops cannot be followed.

    Raises:
      PlanInvalid: an element whose scale or zero point is not that of where it came from.
    """
    count = len(served.kernel.inputs)
    ops = served.region.ops
    if not ops or not all(defined(op.type).indices for op in ops):
        return False
    marks: dict[str, Marks] = {}
    slices: list[tuple[float, int]] = []
    for i in group:
        port = served.ports[i]
        if i < count and isinstance(port.type, Uniform):
            # Each operand's slices get numbers of their own, so a concat of two tensors keeps them apart.
            marks[port.value] = marked(served, port.value, port.type) + len(slices)
            slices += zip(port.type.scales, _signed(port.type), strict=True)
    for op in ops:
        movements = _movements(op, served)
        if movements is None:
            # Without the model's numbers a slice cannot be followed, nor can it be called wrong.
            return _lacks_numbers(op, served)
        made = _moved(op, movements, marks)
        if made is None:
            # Unknown dimensions count as 1, so sizes may disagree.
            return _is_open(op, served)
        marks |= made
    for i in group:
        if i >= count:
            _check_result(served, i, marks, slices)
    return True


def _check_result(
    served: Served, position: int, marks: Mapping[str, Marks], slices: Sequence[tuple[float, int]]
) -> None:
    port = served.ports[position]
    kind = port.type
    if not isinstance(kind, Uniform) or port.value not in marks:
        return
    came, own = marks[port.value], marked(served, port.value, kind)
    if came.shape != own.shape:
        refuse(port.address, f"holds {list(came.shape)} moved elements in {list(own.shape)}", served.row)
    mine = list(zip(kind.scales, _signed(kind), strict=True))
    pairs = np.unique(np.stack([came.reshape(-1), own.reshape(-1)], axis=1), axis=0)
    for source, slice_number in pairs.tolist():
        # What fills is the real 0: its stored value is the zero point of whatever slice it lands in.
        if source != FILLED and slices[source] != mine[slice_number]:
            refuse(
                port.address,
                f"is {brief(kind)}, but slice {slice_number} holds elements of scale {slices[source][0]!r}; "
                f"accepted: what {served.row.source} moves, with its scales",
                served.row,
            )


def _signed(kind: Uniform) -> list[int]:
    """Zero points as of signed storage, so that signedness does not count."""
    shift = 0 if kind.storage.signed or kind.storage.float_name else 1 << kind.storage.bits - 1
    return [zero - shift for zero in kind.zero_points]


def marked(served: Served, name: str, kind: Uniform) -> Marks:
    """Number the slice that each element of a value lies in; unknown dimensions count as 1."""
    shape = _sizes(served, name)
    if kind.is_per_tensor:
        return np.zeros(shape, np.int64)
    if kind.axis is not None:
        along = np.arange(shape[kind.axis]).reshape([-1 if i == kind.axis else 1 for i in range(len(shape))])
        return np.broadcast_to(along, shape).astype(np.int64)
    sizes = dict(kind.blocks)
    number = np.zeros(shape, np.int64)
    for axis, size in enumerate(shape):
        place = np.arange(size) // max(1, sizes.get(axis, size))
        # Row-major number in the grid of blocks, the order in which MLIR nests sub-channel scales.
        number = number * kind.grid[axis] + place.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return number


def _sizes(served: Served, name: str) -> tuple[int, ...]:
    shape = served.graph.values[name].shape or ()
    return tuple(size if isinstance(size, int) else 1 for size in shape)


def _movements(op: Op, served: Served) -> tuple[Movement, ...] | None:
    """Where the elements of an op's results come from; None where its operands do not tell."""

    def numbers(name: str) -> npt.NDArray[Any] | None:
        constant = served.numbers.get(name)
        return None if constant is None else constant.array

    return find_movements(Operands(op, lambda name: _sizes(served, name), numbers))


def _moved(op: Op, movements: Sequence[Movement], marks: Mapping[str, Marks]) -> dict[str, Marks] | None:
    """The marks of an op's results; None where those of its operands are not known, or of other sizes."""
    found: dict[str, Marks] = {}
    for name, movement in zip(op.outputs, movements, strict=False):
        read = [marks[op.inputs[i]] for i in movement.operands if op.inputs[i] in marks]
        if len(read) < len(movement.operands):
            return None
        try:
            found[name] = apply(movement, read, FILLED)
        except ValueError:
            return None
    return found


def _lacks_numbers(op: Op, served: Served) -> bool:
    """Whether an op moves data, to places that are numbers of a model that was not given."""
    constants = [name for name in op.inputs if name in served.graph.constants]
    # The number that a pad fills with may be one of them.
    moves = is_mover(op, served.graph) or defined(op.type).moves is pads_zero
    return moves and not served.numbers and bool(constants)


def _is_open(op: Op, served: Served) -> bool:
    """Whether the size of an operand or result is not known."""
    shapes = [served.graph.values[name].shape for name in (*op.inputs, *op.outputs) if name]
    return any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes)
