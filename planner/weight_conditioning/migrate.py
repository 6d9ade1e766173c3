"""Migration: outlying channels of activations are divided, and the weights behind them multiplied.

s_j = max|X_j|^alpha / max|W_j|^(1 - alpha), channel by channel: alpha 1 makes all channels of the activation
alike, 0 those of the weight. The division goes into the scale of a normalisation, a constant factor, or the
linear op in front. Source: Xiao et al. 2022, "SmoothQuant: Accurate and Efficient Post-Training Quantization
for Large Language Models", section 4, equation 4.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.ir.graph import Graph
from planner.weight_conditioning.activations import Moments
from planner.weight_conditioning.equalize import numbers, rescale, touched
from planner.weight_conditioning.operands import Reals, with_operands
from planner.weight_conditioning.seams import Found, Seam

ALPHA: Final = 0.5
LEAST_FACTOR: Final = 1e-5


def migrated(
    graph: Graph, found: Found, seen: Mapping[str, Moments], alpha: float
) -> tuple[Graph, tuple[tuple[Seam, Reals], ...]]:
    """Move part of the range of activations into weights, at every seam.

    Args:
      seen: moments of the channels of each seam's value; a seam without any stays.
      alpha: share that moves, 0 to 1.

    Returns:
      The model, and each seam with what its channels were divided by, shape `(n_channels,)`.
    """
    arrays = numbers(graph, found.seams)
    changed = list[tuple[Seam, Reals]]()
    for seam in found.seams:
        moments = seen.get(seam.value)
        if moments is None:
            continue
        factors = _shares(seam.shared(moments.greatest), seam.greatest(seam.sinks, arrays), alpha)
        if np.any(factors != 1):
            rescale(seam, factors, arrays)
            changed.append((seam, factors))
    return with_operands(graph, touched(changed, arrays)), tuple(changed)


def _shares(activation: Reals, weight: Reals, alpha: float) -> Reals:
    """The factors; 1 for a channel that is never anything but 0, or that no weight reads."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Reals = activation**alpha / weight ** (1 - alpha)
    is_used = (activation > 0) & (weight > 0) & np.isfinite(found)
    return np.where(is_used, np.maximum(found, LEAST_FACTOR), 1.0)
