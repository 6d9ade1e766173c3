"""Cross-layer equalization: weights of two layers that follow each other get ranges that are alike.

With r1 the range of a channel among the rows of the first layer and r2 that among the columns of the second,
the first is divided and the second multiplied by s = sqrt(r1 / r2): both ranges become sqrt(r1 r2). Pairs
share layers, so all are iterated until no factor moves. Without data. Source: Nagel et al. 2019, "Data-Free
Quantization Through Weight Equalization and Bias Correction", section 4.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from planner.ir.graph import Graph
from planner.weight_conditioning.operands import Key, Reals, with_operands
from planner.weight_conditioning.seams import Found, Seam, weighted

MOST_SWEEPS: Final = 500
AT_REST: Final = 1e-3
"""Natural logarithm of the factors below which a sweep is the last."""


def equalized(graph: Graph, found: Found) -> tuple[Graph, tuple[tuple[Seam, Reals], ...]]:
    """Even out the weights on both sides of every seam between linear ops.

    Returns:
      The model, and each seam with what its channels were divided by, shape `(n_channels,)`.
    """
    seams = tuple(weighted(found.seams))
    arrays = numbers(graph, seams)
    factors = {seam.value: np.ones(seam.owner.size) for seam in seams}
    for _ in range(MOST_SWEEPS):
        moved = 0.0
        for seam in seams:
            step = _even(seam.greatest(seam.sources, arrays), seam.greatest(seam.sinks, arrays))
            rescale(seam, step, arrays)
            factors[seam.value] *= step
            moved = max(moved, float(np.abs(np.log(step)).max(initial=0.0)))
        if moved < AT_REST:
            break
    changed = tuple((seam, factors[seam.value]) for seam in seams if np.any(factors[seam.value] != 1))
    return with_operands(graph, touched(changed, arrays)), changed


def numbers(graph: Graph, seams: Iterable[Seam]) -> dict[Key, Reals]:
    """Constants of seams in float64, by their place."""
    return {
        operand.key: np.asarray(graph.constants[operand.op.inputs[operand.index]].array, np.float64)
        for seam in seams
        for operand in (*seam.sources, *seam.sinks)
    }


def rescale(seam: Seam, factors: Reals, arrays: dict[Key, Reals]) -> None:
    """Divide the sources' numbers and multiply the sinks', in place of the mapping.

    Args:
      factors: one a channel of the seam, positive.
    """
    for operand in seam.sources:
        arrays[operand.key] = operand.scaled(arrays[operand.key], 1 / factors)
    for operand in seam.sinks:
        arrays[operand.key] = operand.scaled(arrays[operand.key], factors)


def touched(changed: Sequence[tuple[Seam, Reals]], arrays: Mapping[Key, Reals]) -> dict[Key, Reals]:
    """The arrays of the operands of seams that were rescaled."""
    keys = {operand.key for seam, _ in changed for operand in (*seam.sources, *seam.sinks)}
    return {key: array for key, array in arrays.items() if key in keys}


def _even(first: Reals, second: Reals) -> Reals:
    """sqrt(r1 / r2); 1 for a channel that one side has no weights for: nothing is to be gained there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Reals = np.sqrt(first / second)
    return np.where(np.isfinite(found) & (found > 0), found, 1.0)
