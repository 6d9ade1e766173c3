"""Resizing: coordinates of a Resize along each axis, and the elements that a nearest one takes.

Source: ONNX Resize, opset 19; float32 as onnxruntime computes coordinates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ops.operands import Operands
from planner.ops.steps import Movement, Pick

Reals: TypeAlias = npt.NDArray[Any]
Coordinates: TypeAlias = Callable[["Axis", Reals], Any]
STEP: Final = 2.0**-10
"""Parts of an element that an engine of whole numbers distinguishes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis that changes; `before` elements become `after`, `scale` of each."""

    before: int
    after: int
    scale: np.float32


def nearest(known: Operands) -> tuple[Movement, ...] | None:
    """Elements along each axis that changes; interpolation computes and is not followed."""
    attributes = known.op.attributes
    mode = attributes.get("nearest_mode", "round_prefer_floor")
    axes = resized_axes(known) if attributes.get("mode", "nearest") == "nearest" else None
    if axes is None:
        return None
    picks = []
    for axis, sizes in axes.items():
        if sizes is None:
            picks.append(Pick(axis, None))
            continue
        at = coordinates(known, sizes)
        picks.append(Pick(axis, np.clip(_PICKS[mode](at), 0, sizes.before - 1).astype(np.int64)))
    return (Movement(tuple(picks)),)


def coordinates(known: Operands, sizes: Axis) -> Reals:
    """Return the position of each element of a result's axis among its operand's."""
    places = np.arange(sizes.after, dtype=np.float32)
    return np.asarray(MODES[mode_of(known)](sizes, places), np.float32)


def follows_sizes(known: Operands) -> bool:
    """Return whether coordinates are those of the sizes alone, with no scale and no case of their own.

    A scale of 0.6 makes 2 elements of 4, which reads other places than half of them do; so does a size kept
    in proportion, and one element in PyTorch's way.
    """
    axes, mode = resized_axes(known), mode_of(known)
    if axes is None or None in axes.values():
        return False
    rule = MODES["half_pixel" if mode == "pytorch_half_pixel" else mode]
    for sizes in filter(None, axes.values()):
        plain = replace(sizes, scale=np.float32(sizes.after / sizes.before))
        places = np.arange(sizes.after, dtype=np.float32)
        both = (np.clip(at, 0, sizes.before - 1) for at in (coordinates(known, sizes), rule(plain, places)))
        if np.ptp(np.stack([*both]), axis=0).max(initial=0.0) > STEP:
            return False
    return True


def linear_weights(known: Operands) -> Mapping[int, Reals] | None:
    """A matrix (elements after, elements before) of each axis that changes in a linear Resize.

    None where sizes or coordinates are not known.
    """
    axes = resized_axes(known)
    if axes is None:
        return None
    found = {}
    for axis, sizes in axes.items():
        if sizes is None:
            return None
        last = sizes.before - 1
        at = np.clip(coordinates(known, sizes), 0, last)
        low = np.clip(np.floor(at), 0, last).astype(np.int64)
        share, rows = (at - low).astype(np.float32), np.arange(len(at))
        matrix = np.zeros((len(at), sizes.before), np.float32)
        np.add.at(matrix, (rows, low), np.float32(1) - share)
        np.add.at(matrix, (rows, np.minimum(low + 1, last)), share)
        found[axis] = matrix
    return found


def mode_of(known: Operands) -> str:
    """How coordinates are computed."""
    return str(known.op.attributes.get("coordinate_transformation_mode", "half_pixel"))


def resized_axes(known: Operands) -> Mapping[int, Axis | None] | None:
    """Axes that change, None of those of open size; None where sizes or coordinates are not known."""
    shape, attributes = known.shape(), known.op.attributes
    if shape is None or mode_of(known) not in MODES or attributes.get("antialias"):
        return None
    axes = [axis % len(shape) for axis in attributes.get("axes") or range(len(shape))]
    sizes = [size if isinstance(size := shape[axis], int) else 0 for axis in axes]
    before = np.array(sizes, np.float32)
    found = _by_sizes(known, before) if known.is_given(3) else _by_scales(known, before)
    if found is None:
        return None
    after, scales = found
    if 0 not in sizes and np.array_equal(after, before):
        # onnxruntime copies where no size changes, whatever the scales.
        return {}
    changed: dict[int, Axis | None] = {}
    for axis, size, wanted, scale in zip(axes, sizes, after.tolist(), scales, strict=True):
        if wanted != size or scale != 1:
            changed[axis] = Axis(size, int(wanted), np.float32(scale)) if size else None
    return changed


def _by_sizes(known: Operands, before: Reals) -> tuple[Reals, Reals] | None:
    """Sizes and scales from the given sizes."""
    given, policy = known.array(3), known.op.attributes.get("keep_aspect_ratio_policy", "stretch")
    if given is None or (policy != "stretch" and not before.all()):
        return None
    after = given.reshape(-1).astype(np.float32)
    with np.errstate(divide="ignore"):
        scales = after / before
    if policy != "stretch":
        scales = np.full_like(scales, scales.min() if policy == "not_larger" else scales.max())
        after = np.floor(scales * before + np.float32(0.5))
    return after, scales


def _by_scales(known: Operands, before: Reals) -> tuple[Reals, Reals] | None:
    """Sizes and scales from the given scales."""
    given = known.array(2) if known.is_given(2) else None
    if given is None:
        return None
    scales = given.reshape(-1).astype(np.float32)
    return np.floor(scales * before), scales


def _half_pixel(axis: Axis, at: Reals) -> Any:
    return (at + np.float32(0.5)) / axis.scale - np.float32(0.5)


def _half_pixel_symmetric(axis: Axis, at: Reals) -> Any:
    # What a size cut to whole elements lacks is taken off at both ends alike; onnxruntime adds in doubles.
    adjustment = np.float32(axis.after) / (axis.scale * np.float32(axis.before))
    offset = np.float32(axis.before) / np.float32(2) * (np.float32(1) - adjustment)
    return np.float64(offset) + (at.astype(np.float64) + 0.5) / np.float64(axis.scale) - 0.5


def _pytorch_half_pixel(axis: Axis, at: Reals) -> Any:
    return _half_pixel(axis, at) if axis.after > 1 else np.zeros_like(at)


def _asymmetric(axis: Axis, at: Reals) -> Any:
    return at / axis.scale


def _align_corners(axis: Axis, at: Reals) -> Any:
    if axis.after == 1:
        return np.zeros_like(at)
    return at * np.float32(axis.before - 1) / np.float32(axis.after - 1)


MODES: Final[Mapping[str, Coordinates]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
}


def _rounded_to(tie: Callable[[Reals], Any]) -> Callable[[Reals], Any]:
    """To the nearest element; between two of them as `tie` says, as onnxruntime does close to there."""

    def rounded(at: Reals) -> Any:
        is_tie = np.abs(at - np.floor(at) - np.float32(0.5)) < np.float32(_NEAR)
        return np.where(is_tie, tie(at), np.rint(at))

    return rounded


_NEAR: Final = 1e-6
"""How close onnxruntime (1.31) takes a coordinate for the middle between two elements."""
_PICKS: Final[Mapping[str, Callable[[Reals], Any]]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": _rounded_to(np.ceil),
    "round_prefer_floor": _rounded_to(np.floor),
}
