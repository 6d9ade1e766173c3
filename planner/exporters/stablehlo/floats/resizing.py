"""Resizing: which elements a nearest Resize takes, and the weights of a linear one, axis by axis.

Source: ONNX Resize, opset 19; float32 as onnxruntime computes coordinates.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.exporters.stablehlo.calls import Call

Reals = npt.NDArray[np.float32]


def nearest_places(call: Call, shape: tuple[int, ...]) -> Mapping[int, npt.NDArray[np.int64]]:
    """Indices taken along each axis that changes."""
    mode = call.attributes.get("mode", "nearest")
    if mode != "nearest":
        raise call.refusal(f"mode {mode!r} moves no stored integers; nearest is accepted")
    pick = _PICKS[call.attributes.get("nearest_mode", "round_prefer_floor")]
    found = {}
    for axis, at in _coordinates(call, shape).items():
        found[axis] = np.clip(pick(at), 0, shape[axis] - 1).astype(np.int64)
    return found


def linear_weights(call: Call, shape: tuple[int, ...]) -> Mapping[int, Reals]:
    """Matrix (size out, size in) of each axis that changes."""
    found = {}
    for axis, coordinates in _coordinates(call, shape).items():
        size = shape[axis]
        at = np.clip(coordinates, 0, size - 1)
        low = np.clip(np.floor(at), 0, size - 1).astype(np.int64)
        high = np.minimum(low + 1, size - 1)
        share = (at - low).astype(np.float32)
        matrix = np.zeros((len(at), size), np.float32)
        rows = np.arange(len(at))
        np.add.at(matrix, (rows, low), np.float32(1) - share)
        np.add.at(matrix, (rows, high), share)
        found[axis] = matrix
    return found


def _coordinates(call: Call, shape: tuple[int, ...]) -> Mapping[int, Reals]:
    mode = call.attributes.get("coordinate_transformation_mode", "half_pixel")
    if call.op.type == "Upsample":
        mode = "asymmetric"
    if mode not in _MODES or call.attributes.get("antialias"):
        raise call.refusal(f"coordinates by {mode!r}; {', '.join(_MODES)} without antialias are accepted")
    found = {}
    for axis, (size, scale) in _sizes(call, shape).items():
        if size != shape[axis] or scale != 1:
            i = np.arange(size, dtype=np.float32)
            found[axis] = _MODES[mode](i, np.float32(scale), size, shape[axis]).astype(np.float32)
    return found


def _sizes(call: Call, shape: tuple[int, ...]) -> Mapping[int, tuple[int, float]]:
    """Result size and scale of each axis."""
    is_upsample = call.op.type == "Upsample"
    scales = call.known(1 if is_upsample else 2, "scales")
    sizes = None if is_upsample else call.integers(3)
    axes = call.attributes.get("axes") or tuple(range(len(shape)))
    if call.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise call.refusal("an aspect ratio to keep; stretch is accepted")
    if sizes:
        return {axis % len(shape): (n, n / shape[axis]) for axis, n in zip(axes, sizes, strict=True)}
    if scales is None:
        raise call.refusal("neither scales nor sizes")
    many = [float(scale) for scale in scales.reshape(-1)]
    return {
        axis % len(shape): (int(np.floor(shape[axis] * s)), s) for axis, s in zip(axes, many, strict=True)
    }


def _half_pixel(i: Reals, scale: Any, _size: int, _: int) -> Reals:
    return np.asarray((i + np.float32(0.5)) / scale - np.float32(0.5), np.float32)


def _pytorch_half_pixel(i: Reals, scale: Any, size: int, before: int) -> Reals:
    return _half_pixel(i, scale, size, before) if size > 1 else np.zeros_like(i)


def _asymmetric(i: Reals, scale: Any, _size: int, _: int) -> Reals:
    return np.asarray(i / scale, np.float32)


def _align_corners(i: Reals, _: Any, size: int, before: int) -> Reals:
    if size == 1:
        return np.zeros_like(i)
    return np.asarray(i * np.float32(before - 1) / np.float32(size - 1), np.float32)


_MODES: Final[Mapping[str, Callable[[Reals, Any, int, int], Reals]]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
}
_PICKS: Final[Mapping[str, Callable[[Reals], Any]]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda at: np.floor(at + np.float32(0.5)),
    "round_prefer_floor": lambda at: np.ceil(at - np.float32(0.5)),
}
