"""Second-order rounding: weights go onto a grid one input after the other, the rest makes up for each error.

With H = sum x x^T over what a layer reads, moving column q of W by an error e costs e^2 / [H^-1]_qq once the
columns behind it take -e [H^-1]_q,: / [H^-1]_qq. The inverse of what is left comes from one Cholesky factor;
columns go by falling H_qq, so that what matters most is rounded while most can still make up for it. Lazy
blocks of columns and damping are GPTQ's. Source: Frantar et al. 2022, "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers", section 3 and algorithm 1; order: its `act-order`.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[Any]
DAMPING: Final = 0.01
"""Of the mean of H's diagonal, added to it."""
MOST_DAMPING: Final = 10.0
LAZY: Final = 128


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A grid of each weight of a layer: `(stored - zero) * scale`, qmin <= stored <= qmax.

    Attributes:
      scales, zeros: shape `(n_out, n_in)`, reals and integers as float64.
    """

    scales: Reals
    zeros: Reals
    qmin: int
    qmax: int

    def stored(self, weight: Reals) -> Reals:
        """The nearest integers, half to even."""
        with np.errstate(over="ignore"):
            nearest: Reals = np.clip(np.rint(weight / self.scales) + self.zeros, self.qmin, self.qmax)
        return nearest

    def columns(self, part: slice | Reals) -> "Grid":
        """The grid of some inputs."""
        return Grid(self.scales[:, part], self.zeros[:, part], self.qmin, self.qmax)


def second_order(weight: Reals, grid: Grid, factor: Reals, order: Reals) -> Reals:
    """Round a layer's weights so that its outputs move least.

    Args:
      weight: float64, `(n_out, n_in)`.
      grid: of them.
      factor, order: of the layer's inputs (`factored`).

    Returns:
      Stored integers as float64, `(n_out, n_in)`.
    """
    rest, own = weight[:, order].astype(np.float64), grid.columns(order)
    stored = np.empty_like(rest)
    n_in = rest.shape[1]
    for begin in range(0, n_in, LAZY):
        end = min(begin + LAZY, n_in)
        errors = np.zeros((len(rest), end - begin))
        for k in range(begin, end):
            column = own.columns(slice(k, k + 1))
            stored[:, k : k + 1] = found = column.stored(rest[:, k : k + 1])
            error = (rest[:, k] - ((found - column.zeros) * column.scales)[:, 0]) / factor[k, k]
            rest[:, k:end] -= np.outer(error, factor[k, k:end])
            errors[:, k - begin] = error
        # Later columns learn of a whole block at once: the same numbers, in products of matrices.
        rest[:, end:] -= errors @ factor[begin:end, end:]
    result = np.empty_like(stored)
    result[:, order] = stored
    return result


def factored(gram: Reals) -> tuple[Reals, Reals]:
    """The upper Cholesky factor of the inverse of H, and the order of columns it is for.

    Args:
      gram: H, `(n_in, n_in)`; an input that was always 0 has no say, and its weights round to the nearest.

    Returns:
      Factor of the ordered H, `(n_in, n_in)`; the order, `(n_in,)`.
    """
    diagonal = np.diag(gram).copy()
    is_dead = diagonal <= 0
    whole = gram.astype(np.float64)
    whole[is_dead, is_dead] = 1.0
    order = np.argsort(-diagonal, kind="stable")
    whole = whole[np.ix_(order, order)]
    unit = float(np.mean(diagonal)) or 1.0
    damping = DAMPING
    while True:
        damped = whole + damping * unit * np.eye(len(whole))
        try:
            inverse = np.linalg.inv(damped)
            # Upper, H^-1 = U^T U.
            return np.linalg.cholesky((inverse + inverse.T) / 2).T, order
        except np.linalg.LinAlgError:
            if damping >= MOST_DAMPING:
                raise
            damping *= 10
