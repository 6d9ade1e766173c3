"""Resizing: the weights of a linear Resize, axis by axis. Source: `ops.resizing`."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from planner.formats.stablehlo.writer.calls import Call
from planner.ops.geometry.resizing import MODES, mode_of, resized_axes
from planner.ops.geometry.resizing import linear_weights as weights_of

Reals = npt.NDArray[np.float32]


def linear_weights(call: Call) -> Mapping[int, Reals]:
    """Matrix (size out, size in) of each axis that changes."""
    known = call.operands()
    axes = resized_axes(known)
    if axes is None:
        raise call.refusal(
            f"coordinates by {mode_of(known)!r}; {', '.join(MODES)} without antialias are accepted"
        )
    open_axis = next((axis for axis, sizes in axes.items() if sizes is None), None)
    if open_axis is not None:
        raise call.refusal(f"axis {open_axis} is of open size")
    return weights_of(known) or {}
