"""Starts for training at few bits: numbers that a scale is fitted to, gain and mean of channels in float.

Rounding to few bits makes sums of products smaller and moves their means; a scale and a bias for each
channel undo both. Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
Correction" (2019).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from planner.ir.types.qtypes import Uniform
from planner.torch.steps import Call, Read

CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
MOST_GAIN: Final = 4.0
MOST_FITTED: Final = 1 << 16
"""Numbers of a tensor that its one scale is fitted to."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedProduct:
    """A product of a step with a trained weight.

    Attributes:
      bias: the name of a trained bias; "": none.
      result: the name of the sum with its bias.
    """

    call: Call
    weight: Read
    bias: str
    result: str

    def by_channel(self, x: Tensor) -> Tensor:
        """A result as (channels, numbers) in float64."""
        axis = 1 if self.call.op.type in CONVOLUTIONS else -1
        return x.movedim(axis, 0).reshape(x.shape[axis], -1).double()


def trained_product(calls: Sequence[Call], trained: Collection[str]) -> TrainedProduct | None:
    """The product that a step begins with; None without a quantized weight that is trained."""
    first = calls[0]
    if first.op.type not in CONVOLUTIONS | {"Gemm", "MatMul"}:
        return None
    weight, result = first.reads[1], first.op.outputs[0]
    if weight is None or not weight.edge or weight.name not in trained:
        return None
    added = [read for read in first.reads[2:] if read is not None]
    if len(calls) > 1 and calls[1].op.type == "Add":
        added += [read for read in calls[1].reads if read is not None and read.name in trained]
        result = calls[1].op.outputs[0] if added else result
    return TrainedProduct(
        first, weight, next((read.name for read in added if read.name in trained), ""), result
    )


def fitted_to(x: Tensor, kind: Uniform) -> Tensor:
    """The numbers of a result that its scale is fitted to, not too many.

    Those in the range of the planned type: consumers need no others.
    """
    if not kind.is_per_tensor:
        return x
    # An odd step meets every channel and column.
    return x.reshape(-1)[:: x.numel() // MOST_FITTED | 1].clamp(kind.lo, kind.hi)


def gains_of(sums: Tensor, reals: Tensor, slices: int) -> Tensor:
    """The factors, one for each channel or one for all, that bring sums nearest to those in float."""
    over, under = (sums * reals).sum(1), (sums * sums).sum(1)
    if slices == 1:
        over, under = over.sum(0, keepdim=True), under.sum(0, keepdim=True)
    found = torch.where((over > 0) & (under > 0), over / under, 1.0)
    return found.clamp(1 / MOST_GAIN, MOST_GAIN)
