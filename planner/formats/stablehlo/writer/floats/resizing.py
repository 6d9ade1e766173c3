"""Resizing: the weights of a linear Resize, axis by axis. Source: `ops.resizing`."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from planner.formats.stablehlo.writer.calls import Call
from planner.ops.geometry.resizing import MODES, coordinates, mode_of, resized_axes

Reals = npt.NDArray[np.float32]


def linear_weights(call: Call) -> Mapping[int, Reals]:
    """Matrix (size out, size in) of each axis that changes."""
    known = call.operands()
    axes = resized_axes(known)
    if axes is None:
        raise call.refusal(
            f"coordinates by {mode_of(known)!r}; {', '.join(MODES)} without antialias are accepted"
        )
    found = {}
    for axis, sizes in axes.items():
        if sizes is None:
            raise call.refusal(f"axis {axis} is of open size")
        size = sizes.before
        at = np.clip(coordinates(known, sizes), 0, size - 1)
        low = np.clip(np.floor(at), 0, size - 1).astype(np.int64)
        high = np.minimum(low + 1, size - 1)
        share = (at - low).astype(np.float32)
        matrix = np.zeros((len(at), size), np.float32)
        rows = np.arange(len(at))
        np.add.at(matrix, (rows, low), np.float32(1) - share)
        np.add.at(matrix, (rows, high), share)
        found[axis] = matrix
    return found
