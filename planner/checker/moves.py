"""Re-verify data movement independently: results have the scales of the elements they hold.

Every element of an operand is marked with the number of its slice, the ops are run over the marks, and each
element of a result must have the scale and zero point of the slice it came from. Propagation reasons about
axes instead, so the two agree only where both are right. Source: tests/cases, case 37.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served, refuse
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief

Marks = npt.NDArray[np.int64]
FILLED: Final = -1
"""The mark of an element that a pad made: a zero, which any slice can hold."""


def check_slices(served: Served, group: tuple[int, ...]) -> bool:
    """Judge a class in which some port has several scales; False where its ops cannot be followed.

    Raises:
      PlanInvalid: an element whose scale or zero point is not that of where it came from.
    """
    count = len(served.kernel.inputs)
    ops = served.region.ops
    if not ops or not all(op.type in MOVES for op in ops):
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
        made = MOVES[op.type](op, [marks[name] for name in op.inputs if name in marks], served)
        if made is None:
            # Without the model's numbers a slice cannot be followed, nor can it be called wrong.
            return True
        marks |= zip(op.outputs, made, strict=False)
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
    shape = [size if isinstance(size, int) else 1 for size in served.graph.values[name].shape or ()]
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


def _result_shapes(op: Op, served: Served) -> list[list[int]]:
    found = [served.graph.values[name].shape or () for name in op.outputs if name]
    return [[size if isinstance(size, int) else 1 for size in shape] for shape in found]


def _reshaped(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    (shape,) = _result_shapes(op, served)
    # Unknown dimensions count as 1, so sizes may disagree; then the reshape cannot be followed.
    return [read[0].reshape(shape)] if int(np.prod(shape)) == read[0].size else None


def _transposed(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    del served
    return [np.transpose(read[0], op.attributes.get("perm"))]


def _same(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    del op, served
    return [read[0]]


def _concatenated(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    del served
    return [np.concatenate(read, axis=op.attributes["axis"])] if len(read) == len(op.inputs) else None


def _split(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    axis = op.attributes.get("axis", 0)
    ends = np.cumsum([shape[axis] for shape in _result_shapes(op, served)])
    return np.split(read[0], ends[:-1], axis=axis) if all(op.outputs) else None


def _sliced(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    starts, ends = _numbers(op, served, 1, "starts"), _numbers(op, served, 2, "ends")
    if starts is None or ends is None:
        return None
    axes = _numbers(op, served, 3, "axes") or list(range(len(starts)))
    steps = _numbers(op, served, 4, "steps") or [1] * len(starts)
    marks = read[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cut: list[Any] = [slice(None)] * marks.ndim
        # Stepping down, an end before the first element keeps that element; no index says so.
        cut[axis] = slice(start, None if step < 0 and end < -marks.shape[axis] else end, step)
        marks = marks[tuple(cut)]
    return [marks]


def _padded(op: Op, read: Sequence[Marks], served: Served) -> list[Marks] | None:
    pads = _numbers(op, served, 1, "pads")
    if pads is None or min(pads) < 0:
        return None
    axes = _numbers(op, served, 3, "axes") or list(range(read[0].ndim))
    widths = [(0, 0)] * read[0].ndim
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = (before, after)
    mode = op.attributes.get("mode", "constant")
    # The filling is the real 0: its stored value is the zero point of whatever slice it lands in.
    if mode == "constant":
        return [np.pad(read[0], widths, constant_values=FILLED)]
    return [np.pad(read[0], widths, mode=mode)] if mode in ("edge", "reflect", "wrap") else None


def _numbers(op: Op, served: Served, index: int, name: str) -> list[int] | None:
    """Integers of an operand, if the model is at hand, or of an attribute."""
    operand = op.inputs[index] if index < len(op.inputs) else ""
    if not operand:
        given = op.attributes.get(name)
        return None if given is None else [int(item) for item in given]
    constant = served.numbers.get(operand)
    if constant is None or constant.array is None:
        return None
    return [int(item) for item in np.asarray(constant.array).reshape(-1)]


MOVES: Final[Mapping[str, Callable[[Op, Sequence[Marks], Served], list[Marks] | None]]] = {
    "Concat": _concatenated,
    "Flatten": _reshaped,
    "Identity": _same,
    "Pad": _padded,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _reshaped,
    "Transpose": _transposed,
    "Unsqueeze": _reshaped,
}
"""Ops whose elements can be followed."""
