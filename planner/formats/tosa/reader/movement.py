"""Ops of TOSA that move data, reduce it or pick from it, as ONNX's.

Source: TOSA 1.0, reduction operators, data layout, scatter/gather operators, RESIZE, FFT2D; ONNX, opset 21.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from xdsl.ir import Operation

from planner.formats.mlir.stablehlo_ops import name_of
from planner.formats.onnx.dtypes import NUMPY
from planner.formats.tosa.reader.builder import Builder, Unread, flag, integer, several, word
from planner.formats.tosa.reader.elementwise import Reader

_REDUCED: Final[Mapping[str, str]] = {
    "reduce_all": "ReduceMin",
    "reduce_any": "ReduceMax",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_product": "ReduceProd",
    "reduce_sum": "ReduceSum",
}


def reshape(draft: Builder, op: Operation) -> None:
    """RESHAPE."""
    name, shape = draft.operand(op, 0), draft.made(op)
    if draft.array(name) is not None and not draft.has_type(name):
        draft.alias(op.results[0], draft.reshaped(name, shape))
        return
    draft.result("Reshape", [name, draft.integers(shape)], op.results[0])


def transpose(draft: Builder, op: Operation) -> None:
    """TRANSPOSE; of a constant now."""
    name = draft.operand(op, 0)
    order = draft.numbers(op, 1) if len(op.operands) > 1 else several(op, "perms")
    if draft.array(name) is not None and not draft.has_type(name):
        draft.alias(op.results[0], draft.transposed(name, order))
        return
    draft.result("Transpose", [name], op.results[0], {"perm": order})


def concat(draft: Builder, op: Operation) -> None:
    """CONCAT."""
    names = [draft.operand(op, i) for i in range(len(op.operands))]
    draft.result("Concat", names, op.results[0], {"axis": integer(op, "axis")})


def pad(draft: Builder, op: Operation) -> None:
    """PAD: begin and end by axis, with a number."""
    name, given = draft.operand(op, 0), draft.numbers(op, 1, "padding")
    pads = draft.integers((*given[::2], *given[1::2]))
    dtype = draft.dtype(name)
    if len(op.operands) > 2:
        fill = draft.operand(op, 2)
        array = draft.array(fill)
        if array is None:
            raise Unread("its padding value is computed when the program runs")
        number = array.reshape(-1)[0]
    else:
        number = NUMPY[dtype].type(0)
    wide = draft.wide(name) if not draft.is_real(name) and dtype != "bool" else name
    value = draft.constant(np.array(number, NUMPY[draft.dtype(wide)]), "fill")
    draft.through(op.results[0], "Pad", [wide, pads, value], draft.made(op), {"mode": "constant"})


def reverse(draft: Builder, op: Operation) -> None:
    """REVERSE as a slice with a step of -1."""
    axis = integer(op, "axis")
    parts = [[-1], [-(1 << 31)], [axis], [-1]]
    draft.result("Slice", [draft.operand(op, 0), *map(draft.integers, parts)], op.results[0])


def slices(draft: Builder, op: Operation) -> None:
    """SLICE: starts and sizes."""
    starts, sizes = draft.numbers(op, 1, "start"), draft.numbers(op, 2, "size")
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    parts = [starts, ends, range(len(starts)), [1] * len(starts)]
    draft.result("Slice", [draft.operand(op, 0), *map(draft.integers, parts)], op.results[0])


def tile(draft: Builder, op: Operation) -> None:
    """TILE."""
    times = draft.integers(draft.numbers(op, 1, "multiples"))
    draft.result("Tile", [draft.operand(op, 0), times], op.results[0])


def reduction(draft: Builder, op: Operation) -> None:
    """A reduction along one axis, which stays."""
    plain = name_of(op).removeprefix("tosa.")
    name, axes = draft.operand(op, 0), draft.integers([integer(op, "axis")])
    wide = draft.cast(name, "i32") if draft.dtype(name) == "bool" else draft.wide(name)
    draft.through(op.results[0], _REDUCED[plain], [wide, axes], draft.made(op), {"keepdims": 1})


def argmax(draft: Builder, op: Operation) -> None:
    """ARGMAX, the first of equals."""
    name = draft.operand(op, 0)
    name = name if draft.dtype(name) == "i8" else draft.wide(name)
    attributes = {"axis": integer(op, "axis"), "keepdims": 0}
    draft.through(op.results[0], "ArgMax", [name], draft.made(op), attributes, dtype="i64")


def gather(draft: Builder, op: Operation) -> None:
    """GATHER of rows, batch by batch."""
    values, places = draft.operand(op, 0), draft.wide(draft.operand(op, 1), "i64")
    batch, count = draft.shape_of(places)
    if batch == 1:
        flat = draft.reshaped(places, (count,))
        draft.result("Gather", [values, flat], op.results[0], {"axis": 1})
        return
    each = draft.reshaped(places, (batch, count, 1))
    draft.result("GatherND", [values, each], op.results[0], {"batch_dims": 1})


def scatter(draft: Builder, op: Operation) -> None:
    """SCATTER of rows, batch by batch."""
    values, rows = draft.operand(op, 0), draft.operand(op, 2)
    places = draft.wide(draft.operand(op, 1), "i64")
    batch, count = draft.shape_of(places)
    each = draft.reshaped(places, (batch, count, 1))
    numbers = np.broadcast_to(np.arange(batch).reshape(-1, 1, 1), (batch, count, 1))
    both = draft.between("Concat", [draft.fixed(numbers), each], (batch, count, 2), {"axis": 2})
    draft.result("ScatterND", [values, both, rows], op.results[0])


def resize(draft: Builder, op: Operation) -> None:
    """RESIZE; ONNX's where its places are the same, else from the rows that are known now."""
    name = draft.operand(op, 0)
    rank, shape, made = 4, draft.shape_of(name), draft.made(op)
    scale, offset, border = (
        draft.numbers(op, i + 1, key) for i, key in enumerate(("scale", "offset", "border"))
    )
    axes = [_Axis(shape[1 + i], made[1 + i], scale[2 * i], scale[2 * i + 1], offset[i]) for i in (0, 1)]
    is_nearest = "NEAREST" in word(op, "mode")
    del border  # it says how many rows there are, as the result's type does
    if draft.is_real(name) and not draft.has_type(name):
        mode = _onnx_mode(axes, is_nearest=is_nearest)
        if mode is not None:
            first = draft.transposed(name, (0, rank - 1, 1, 2))
            sizes = (made[0], made[3], made[1], made[2])
            inputs = [first, "", "", draft.integers(sizes)]
            found = draft.between("Resize", inputs, sizes, mode)
            draft.result("Transpose", [found], op.results[0], {"perm": (0, 2, 3, 1)})
            return
    if is_nearest:
        rows = draft.between(
            "Gather", [name, draft.fixed(axes[0].nearest())], (shape[0], made[1], *shape[2:]), {"axis": 1}
        )
        draft.result("Gather", [rows, draft.fixed(axes[1].nearest())], op.results[0], {"axis": 2})
        return
    _bilinear(draft, op, name, axes)


class _Axis:
    """The places that RESIZE reads along an axis."""

    def __init__(self, size: int, made: int, numerator: int, denominator: int, offset: int) -> None:
        places = np.arange(made) * denominator + offset
        self.size, self.numerator = size, numerator
        self.low = places // numerator
        self.part = places - self.low * numerator
        self.made, self.exact = made, places / numerator

    def nearest(self) -> np.ndarray:
        """The nearest rows: the next one if `part` is half or more."""
        return np.asarray(np.clip(self.low + (2 * self.part >= self.numerator), 0, self.size - 1))

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The two rows that are mixed."""
        return np.clip(self.low, 0, self.size - 1), np.clip(self.low + 1, 0, self.size - 1)


def _onnx_mode(axes: Sequence[_Axis], *, is_nearest: bool) -> dict[str, Any] | None:
    """Attributes of an ONNX Resize that reads the same places; None where there is none."""
    if is_nearest:
        plain = all(
            np.array_equal(axis.nearest(), np.arange(axis.made) * axis.size // axis.made) for axis in axes
        )
        if not plain:
            return None
        mode = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "floor"}
        return dict(mode)
    for name, place in _PLACES.items():
        if all(np.allclose(axis.exact, place(axis), rtol=0, atol=1e-9) for axis in axes):
            return {"coordinate_transformation_mode": name, "mode": "linear"}
    return None


_PLACES: Final[Mapping[str, Any]] = {
    "align_corners": lambda axis: np.arange(axis.made) * (axis.size - 1) / max(axis.made - 1, 1),
    "asymmetric": lambda axis: np.arange(axis.made) * axis.size / axis.made,
    "half_pixel": lambda axis: (np.arange(axis.made) + 0.5) * axis.size / axis.made - 0.5,
}


def _bilinear(draft: Builder, op: Operation, name: str, axes: Sequence[_Axis]) -> None:
    """A mix of two rows, then of two columns; of integers, both in units of the scale."""
    is_real, shape = draft.is_real(name), list(draft.shape_of(name))
    mixed = name if is_real else draft.wide(name, "i64")
    for i, axis in enumerate(axes):
        shape[1 + i] = axis.made
        flat = [-1 if at == 1 + i else 1 for at in range(4)]
        weights = (axis.numerator - axis.part, axis.part)
        parts = []
        for rows, weight in zip(axis.ends(), weights, strict=True):
            found = draft.between("Gather", [mixed, draft.fixed(rows)], shape, {"axis": 1 + i})
            if is_real:
                share = draft.constant(
                    (weight / axis.numerator).astype(NUMPY[draft.dtype(name)]).reshape(flat)
                )
            else:
                share = draft.fixed(weight.reshape(flat))
            parts.append(draft.between("Mul", [found, share], shape))
        if i == 1:
            draft.through(op.results[0], "Add", parts, shape)
            return
        mixed = draft.between("Add", parts, shape)


def fourier(draft: Builder, op: Operation) -> None:
    """FFT2D and RFFT2D: both axes by DFT, real and imaginary parts apart again."""
    is_real = len(op.operands) == 1
    shape = draft.shape_of(draft.operand(op, 0))
    parts = [draft.reshaped(draft.operand(op, i), (*shape, 1)) for i in range(len(op.operands))]
    both = parts[0] if is_real else draft.between("Concat", parts, (*shape, 2), {"axis": 3})
    made = draft.made(op)
    # ONNX divides an inverse by its length, TOSA does not: the sum of conjugates is that of the other sign.
    is_inverse = not is_real and flag(op, "inverse")
    if is_inverse:
        both = _conjugate(draft, both, shape)
    found = draft.between("DFT", [both, "", draft.fixed(2)], (*made, 2), {"onesided": int(is_real)})
    found = draft.between("DFT", [found, "", draft.fixed(1)], (*made, 2))
    if is_inverse:
        found = _conjugate(draft, found, made)
    for i, value in enumerate(op.results):
        draft.result("Gather", [found, draft.fixed(i)], value, {"axis": 3})


def _conjugate(draft: Builder, name: str, shape: Sequence[int]) -> str:
    signs = draft.constant(np.array([1, -1], NUMPY[draft.dtype(name)]), "signs")
    return draft.between("Mul", [name, signs], (*shape, 2))


MOVEMENT: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(_REDUCED, reduction),
    "argmax": argmax,
    "concat": concat,
    "fft2d": fourier,
    "gather": gather,
    "pad": pad,
    "reshape": reshape,
    "resize": resize,
    "reverse": reverse,
    "rfft2d": fourier,
    "scatter": scatter,
    "slice": slices,
    "tile": tile,
    "transpose": transpose,
}
