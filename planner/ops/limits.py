"""Limits: what makes an operator's operands ones that no device can compute with, and onnx lets through.

Groups, indices and sizes that do not fit are found by an engine at its first run, or by none. In: ops as the
file has them, of any opset. Source: ONNX operator pages; onnxruntime refuses every one of them.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.ops.operands import Dims, Operands

Limit: TypeAlias = Callable[[Operands], Iterator[str]]
"""The problems of an op, in words."""

_BY_CHANNEL: Final = 21
"""The opset from which GroupNormalization has a factor for each channel."""


def axis(known: Operands) -> Iterator[str]:
    """An axis that is written down is one of the first operand's."""
    yield from _axis(known, before=0, behind=0)


def axis_or_behind(known: Operands) -> Iterator[str]:
    """The same, or the one behind the last: of a form with no dimension there, of Softmax before opset 13."""
    yield from _axis(known, before=0, behind=1)


def new_axis(known: Operands) -> Iterator[str]:
    """The place of a new axis among the first operand's."""
    yield from _axis(known, before=1, behind=1)


def _axis(known: Operands, *, before: int, behind: int) -> Iterator[str]:
    shape, given = known.sizes(0), known.op.attributes.get("axis")
    if shape is not None and given is not None and not -len(shape) - before <= given < len(shape) + behind:
        yield f"axis {given} of an operand of {len(shape)} dimensions"


def window(known: Operands) -> Iterator[str]:
    """A window lies within its padded input."""
    yield from _window(known, None)


def _window(known: Operands, weight: Dims | None) -> Iterator[str]:
    shape, kernel = known.sizes(0), known.op.attributes.get("kernel_shape")
    sizes: Sequence[int | None] | None = kernel or (weight[2:] if weight else None)
    if shape is None or sizes is None:
        return
    spatial = shape[2:]
    if len(sizes) != len(spatial):
        yield f"a window of {len(sizes)} dimensions over {len(spatial)}"
        return
    pads = known.op.attributes.get("pads") or (0,) * (2 * len(spatial))
    dilations = known.op.attributes.get("dilations") or (1,) * len(spatial)
    if known.op.attributes.get("auto_pad", "NOTSET") != "NOTSET" or len(pads) != 2 * len(spatial):
        return
    for i, (dim, size, dilation) in enumerate(zip(spatial, sizes, dilations, strict=False)):
        if dim and size and (size - 1) * dilation >= dim + pads[i] + pads[i + len(spatial)]:
            wide = dim + pads[i] + pads[i + len(spatial)]
            yield f"a window {(size - 1) * dilation + 1} wide over dimension {i + 2}, which is {wide} wide"


def convolution(known: Operands) -> Iterator[str]:
    """Channels, groups and sizes are those of the weight, and the window lies within the input."""
    yield from _convolution(known, known.sizes(1), known.sizes(2))
    yield from _window(known, known.sizes(1))


def integer_convolution(known: Operands) -> Iterator[str]:
    """The same; what stands behind the weight are zero points."""
    yield from _convolution(known, known.sizes(1), None)
    yield from _window(known, known.sizes(1))


def quantized_convolution(known: Operands) -> Iterator[str]:
    """The same; the first operand's scale and zero point stand in front of the weight."""
    yield from _convolution(known, known.sizes(3), None)
    yield from _window(known, known.sizes(3))


def transposed_convolution(known: Operands) -> Iterator[str]:
    """Channels, groups and the kernel's size are those of the weight, whose first axis is the input's."""
    yield from _convolution(known, known.sizes(1), known.sizes(2), turned=True)


def _convolution(
    known: Operands, weight: Dims | None, bias: Dims | None, *, turned: bool = False
) -> Iterator[str]:
    shape, group = known.sizes(0), known.op.attributes.get("group", 1)
    if weight is None or len(weight) < 3:
        return
    taken = weight[0] if turned else weight[1] and weight[1] * group
    given = shape[1] if shape is not None and len(shape) > 1 else None
    if taken is not None and given is not None and taken != given:
        yield f"its input has {given} channels, its weight {_listed(weight)} takes {taken} in {group} groups"
    if weight[0] is not None and weight[0] % group:
        yield f"{group} groups of {weight[0]} channels, which they do not divide"
    kernel = known.op.attributes.get("kernel_shape")
    if kernel and None not in weight and tuple(kernel) != weight[2:]:
        yield f"kernel_shape {_listed(kernel)} of a weight {_listed(weight)}"
    made = weight[1] and weight[1] * group if turned else weight[0]
    if bias and made is not None and bias[0] not in (None, made):
        yield f"a bias of {bias[0]} numbers for {made} channels"


def indices(known: Operands) -> Iterator[str]:
    """Constant indices lie within the axis they count along."""
    shape, indices = known.sizes(0), known.array(1)
    axis = known.op.attributes.get("axis", 0)
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return
    yield from _beyond(indices, shape[axis], axis % len(shape))


def tuples(known: Operands) -> Iterator[str]:
    """Constant tuples of indices lie within the dimensions they count along."""
    shape, indices = known.sizes(0), known.array(1)
    first = known.op.attributes.get("batch_dims", 0)
    if shape is None or indices is None or indices.ndim == 0 or first + indices.shape[-1] > len(shape):
        return
    for i in range(indices.shape[-1]):
        yield from _beyond(indices[..., i], shape[first + i], first + i)


def _beyond(indices: np.ndarray, size: int | None, axis: int) -> Iterator[str]:
    if size is None or not indices.size:
        return
    for worst in (int(indices.min()), int(indices.max())):
        if not -size <= worst < size:
            yield f"index {worst} into dimension {axis}, which has {size} entries"


def reshape(known: Operands) -> Iterator[str]:
    """As many elements come out as go in."""
    shape, wanted, made = known.sizes(0), known.array(1), known.result_sizes()
    if shape is None or None in shape or wanted is None or made is None or None in made:
        return
    given, asked = (prod(dim or 0 for dim in dims) for dims in (shape, made))
    if given != asked:
        yield f"{_listed(shape)} has {given} elements, the shape {wanted.tolist()} holds {asked}"


def pads(known: Operands) -> Iterator[str]:
    """A negative pad cuts off no more than there is."""
    shape, pads = known.sizes(0), known.array(1)
    if shape is None or pads is None or known.array(3) is not None or pads.size != 2 * len(shape):
        return
    for i, dim in enumerate(shape):
        left = None if dim is None else dim + int(pads[i]) + int(pads[i + len(shape)])
        if left is not None and left < 0:
            yield f"pads {pads.tolist()} leave {left} of dimension {i}, which has {dim} entries"


def depth(known: Operands) -> Iterator[str]:
    """The places of a block divide the channels."""
    size = known.op.attributes.get("blocksize", 1)
    yield from _blocks(known, (1,), size * size)


def pixels(known: Operands) -> Iterator[str]:
    """Blocks divide rows and columns."""
    yield from _blocks(known, (2, 3), known.op.attributes.get("blocksize", 1))


def _blocks(known: Operands, axes: Sequence[int], by: int) -> Iterator[str]:
    shape, size = known.sizes(0), known.op.attributes.get("blocksize", 1)
    parts = [shape[i] for i in axes] if shape is not None and len(shape) == 4 else []
    if shape is not None and any(dim is not None and dim % by for dim in parts):
        yield f"blocks of {size} x {size} do not divide {_listed(shape)}"


def per_channel(known: Operands) -> Iterator[str]:
    """A norm has one factor and one addend per channel, and groups that divide them."""
    shape = known.sizes(0)
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    if channels is None:
        return
    group = known.op.attributes.get("num_groups", 1)
    if channels % group:
        yield f"{group} groups of {channels} channels, which they do not divide"
    # Before opset 21 a GroupNormalization has one of each for a group.
    of_groups = "num_groups" in known.op.attributes and known.opset < _BY_CHANNEL
    count, parts = (group, "groups") if of_groups else (channels, "channels")
    for i, what in ((1, "scale"), (2, "bias")):
        given = known.sizes(i)
        if given is not None and given not in ((None,), (count,)):
            yield f"a {what} of shape {_listed(given)} for {count} {parts}"


def slope(known: Operands) -> Iterator[str]:
    """A slope broadcasts to the first operand."""
    shape, slope = known.sizes(0), known.sizes(1)
    if shape is None or slope is None:
        return
    fits = len(slope) <= len(shape) and all(
        small in (None, 1) or dim in (None, small)
        for small, dim in zip(slope[::-1], shape[::-1], strict=False)
    )
    if not fits:
        yield f"a slope of shape {_listed(slope)} does not broadcast to {_listed(shape)}"


def recurrent(known: Operands) -> Iterator[str]:
    """Weights hold every gate of every direction, as wide as the state."""
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[known.op.type]
    ways = 2 if known.op.attributes.get("direction", "forward") == "bidirectional" else 1
    x, w, r = (known.sizes(i) for i in range(3))
    hidden = known.op.attributes.get("hidden_size") or (r[-1] if r else None)
    if hidden is None:
        return
    wanted = {
        "W": (w, (ways, gates * hidden, x[-1] if x else None)),
        "R": (r, (ways, gates * hidden, hidden)),
        "B": (known.sizes(3), (ways, 2 * gates * hidden)),
    }
    for name, (given, asked) in wanted.items():
        if given is not None and not _are_alike(given, asked):
            yield f"{name} is {_listed(given)}; {hidden} states in {ways} directions take {_listed(asked)}"


def factors(known: Operands) -> Iterator[str]:
    """Scales are finite numbers above 0."""
    scales = known.array(2)
    if scales is not None and scales.size and not (np.isfinite(scales).all() and (scales > 0).all()):
        yield f"its scales are {scales.tolist()}; accepted: finite numbers above 0"


def _are_alike(given: Dims, asked: Dims) -> bool:
    return len(given) == len(asked) and all(
        None in pair or pair[0] == pair[1] for pair in zip(given, asked, strict=True)
    )


def _listed(dims: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"
