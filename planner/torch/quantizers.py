"""Quantizers: rounding onto a grid whose scale is learned, one parameter for each tied group.

Forward is a device's: divide, saturate, round, multiply. Backward passes through the rounding, and gives the
scale the gradient of LSQ with its gradient scale. Powers of two are learned as TQT does, by their logarithm;
so are all scales, which keeps them above 0. Source: Esser et al., "Learned Step Size Quantization" (2020);
Jain et al., "Trained Quantization Thresholds" (2020).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from planner.training.spec import Edge, Group

WIDE: Final = 16
"""Bits above which a quotient needs float64: those of biases, as the interpreter has it."""
LN2: Final = math.log(2.0)
MOST_FIT: Final = 3.0
FIT_STEPS: Final = 16
"""A fit looks at scales of a factor of 2 to the -3 to 1, so many for each factor of 2."""


class _Rounded(torch.autograd.Function):
    """Reals on a grid, and the gradients of both."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd hands its arguments over by position
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        low: Tensor,
        high: Tensor,
        gradient: float,
        ties: str,
        known: Tensor | None,
    ) -> Tensor:
        """Saturate, round and scale back; `low` and `high` are steps from real zero."""
        steps = (x / scale).nan_to_num(nan=-math.inf)
        whole = round_steps(steps, ties) if known is None else known.to(steps.dtype)
        whole = whole.clamp(low, high)
        # Where x saturates, the scale's gradient is the end of the range; elsewhere it is the rounding error.
        # What rounds to an end has not saturated: at 2 bits a third of all weights would not move.
        inside = (steps >= low - 0.5) & (steps <= high + 0.5)
        ctx.save_for_backward(inside, torch.where(inside, whole - steps, whole), scale)
        ctx.gradient = gradient
        return whole * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through where nothing saturates; the scale's by LSQ."""
        inside, error, scale = ctx.saved_tensors
        (grad,) = grads
        to_scale = (grad * error).sum_to_size(scale.shape) * ctx.gradient if ctx.needs_input_grad[1] else None
        return grad * inside, to_scale, None, None, None, None, None


def round_steps(steps: Tensor, ties: str) -> Tensor:
    """Round to whole steps; ties go to the even one, up, or away from zero."""
    if ties == "even":
        return torch.round(steps)
    if ties == "up":
        return torch.floor(steps + 0.5)
    return torch.sign(steps) * torch.floor(steps.abs() + 0.5)


class _Scale(torch.autograd.Function):
    """A scale of its logarithm's distance from the start; limits and powers of two pass gradients through."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as above
        ctx: Any,
        moved: Tensor,
        start: Tensor,
        power: bool,  # noqa: FBT001 - as above
        low: float,
        high: float,
    ) -> Tensor:
        """The float32 scale."""
        scale = (start * torch.exp2(moved)).clamp(low, high)
        scale = nearest_power_of_two(scale) if power else scale
        ctx.save_for_backward(scale)
        return scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative of 2 to the power."""
        (scale,) = ctx.saved_tensors
        return grads[0] * scale * LN2, None, None, None, None


def nearest_power_of_two(scale: Tensor) -> Tensor:
    """The nearest power of two by logarithm, exactly: its exponent is put into a float32's bits."""
    mantissa, exponent = torch.frexp(scale)
    exponent = torch.where(mantissa >= math.sqrt(0.5), exponent, exponent - 1)
    return ((exponent.to(torch.int32) + 127) << 23).view(torch.float32)


class GroupScale(torch.nn.Module):
    """The scale of a tied group, or one per slice: a parameter where it is free, else a buffer."""

    def __init__(self, group: Group) -> None:
        """Start where the plan has it."""
        super().__init__()
        self.group = group
        self.register_buffer("start", torch.tensor(group.scales, dtype=torch.float32))
        if group.moves == "free":
            self.log2 = torch.nn.Parameter(torch.zeros(len(group.scales)))

    def forward(self) -> Tensor:
        """(slices,) float32."""
        if self.group.moves != "free":
            return self.start
        low = self.group.scale_min or float(torch.finfo(torch.float32).tiny)
        high = self.group.scale_max or float(torch.finfo(torch.float32).max)
        found: Tensor = _Scale.apply(self.log2, self.start, self.group.power_of_two, low, high)
        return found

    def fit(self, tensors: Sequence[tuple[Edge, Tensor]]) -> None:
        """Move to where rounding tensors of the group has the least squared error, slice by slice."""
        best = torch.full_like(self.log2, math.inf)
        found = torch.zeros_like(self.log2)
        # From the start outwards, so that of equal errors the nearest stays.
        for move in sorted(torch.arange(-MOST_FIT, 1.0, 1 / FIT_STEPS).tolist(), key=abs):
            self.log2.fill_(move)
            error = sum(
                (_error_by_slice(edge, x, self()) for edge, x in tensors), start=torch.zeros_like(best)
            )
            found = torch.where(error < best, move, found)
            best = torch.minimum(error, best)
        self.log2.copy_(found)


class EdgeQuantizer(torch.nn.Module):
    """The grid of one edge; its scales are its group's."""

    def __init__(self, edge: Edge) -> None:
        """Keep the ends of the range as steps from real zero."""
        super().__init__()
        self.edge = edge
        zeros = torch.tensor(edge.zero_points, dtype=torch.float32)
        self.register_buffer("low", edge.storage.qmin - zeros, persistent=False)
        self.register_buffer("high", edge.storage.qmax - zeros, persistent=False)

    def forward(self, x: Tensor, scale: Tensor, ties: str = "even", known: Tensor | None = None) -> Tensor:
        """Reals on the grid, in float32.

        Args:
          x: reals.
          scale: of the group, (slices,).
          ties: `even`, `up` or `away`.
          known: the whole steps that the device's arithmetic gives, where it has one of its own.
        """
        wide = self.edge.storage.bits > WIDE
        work = torch.float64 if wide else torch.float32
        shape = x.shape
        parts = [spread(part.to(work), self.edge, shape) for part in (scale, self.low, self.high)]
        per_scale = max(1, x.numel() // max(1, scale.numel()))
        top = max(1, self.edge.storage.qmax - min(self.edge.zero_points))
        gradient = 1.0 / math.sqrt(per_scale * top)
        found: Tensor = _Rounded.apply(x.to(work), *parts, gradient, ties, known)
        return found.to(torch.float32)


def _error_by_slice(edge: Edge, x: Tensor, scale: Tensor) -> Tensor:
    """The squared error of rounding, (slices,): the gradient of a factor for each, which any spread has."""
    error = (EdgeQuantizer(edge).to(x.device)(x, scale) - x) ** 2
    with torch.enable_grad():
        factors = torch.ones_like(scale, requires_grad=True)
        total = (spread(factors, edge, x.shape) * error).sum()
    (found,) = torch.autograd.grad(total, factors)
    return found


def spread(parameters: Tensor, edge: Edge, shape: torch.Size) -> Tensor:
    """Parameters of slices so that they broadcast against a tensor."""
    if edge.grid:
        wide = parameters.reshape(edge.grid)
        for axis, size in edge.blocks:
            wide = wide.repeat_interleave(size, dim=axis).narrow(axis, 0, shape[axis])
        return wide
    if edge.axis is None or parameters.numel() == 1:
        return parameters.reshape(())
    return parameters.reshape([-1 if i == edge.axis else 1 for i in range(len(shape))])


def derived_scale(of: tuple[str, ...], scales: Mapping[str, Tensor]) -> Tensor:
    """The grid of products: the product of scales in float64, rounded once, as the plan has it."""
    found = scales[of[0]].to(torch.float64)
    for name in of[1:]:
        found = found * scales[name].to(torch.float64)
    return found.to(torch.float32)
